"""PyPI's `mcp` client calls tools by a plan, again and again until its stdin ends.

    python3 crates/gateway/tests/load/client.py auto|legacy URL_OR_COMMAND...

The first line of stdin is the plan: `[[tool, arguments, part of the answer], ...]`. Each line of stdout is a call: its number,
`right`, `failed` or what is wrong, its time in milliseconds, and what was said.
"""

import asyncio
import itertools
import json
import os
import sys
import time

import anyio
from mcp import Client, StdioServerParameters
from pydantic import ValidationError

WORKERS = 4
LIMIT = 60


async def main(mode, target, *words):
    plan = json.loads(sys.stdin.readline())
    calls, over = itertools.count(), anyio.Event()
    server = target
    if not target.startswith("http"):
        server = StdioServerParameters(command=target, args=words, env=dict(os.environ))

    async def until_over():
        await anyio.to_thread.run_sync(sys.stdin.read)
        over.set()

    async def work(client):
        for n in calls:
            if n >= len(plan) and over.is_set():
                return
            tool, arguments, part = plan[n % len(plan)]
            since = time.perf_counter()
            try:
                with anyio.fail_after(LIMIT):
                    result = await client.call_tool(tool, arguments)
                said = " ".join(getattr(block, "text", "") for block in result.content)
                what = "failed" if result.is_error else "right" if part in said else "not its answer"
            except TimeoutError:
                what, said = "no answer", ""
            except ValidationError as error:
                what, said = "not of the protocol", str(error)
            except Exception as error:
                what, said = "failed", repr(error)
            took = (time.perf_counter() - since) * 1000
            print(json.dumps([n, what, took, "" if what == "right" else said[:300]]), flush=True)
            await anyio.sleep(0.01)

    async with Client(server, mode=mode) as client, anyio.create_task_group() as group:
        group.start_soon(until_over)
        for _ in range(WORKERS):
            group.start_soon(work, client)


asyncio.run(main(*sys.argv[1:]))
