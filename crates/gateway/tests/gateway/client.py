"""What PyPI's `mcp` client sees of a gateway: one JSON object per line, `{"step": ..., ...}`.

    python3 crates/gateway/tests/gateway/client.py http://127.0.0.1:8931/mcp auto|legacy
"""

import asyncio
import json
import sys

import anyio
from mcp import Client, MCPError


def tell(step, **what):
    print(json.dumps({"step": step, **what}), flush=True)


async def call(client, step, name, arguments, **options):
    try:
        result = await client.call_tool(name, arguments, **options)
    except MCPError as error:
        tell(step, code=error.error.code, message=error.error.message)
    else:
        tell(step, result=result.model_dump(mode="json", by_alias=True, exclude_none=True))


async def main(url, mode):
    async with Client(url, mode=mode) as client:
        tell("connected", version=client.protocol_version, server=client.server_info.name)
        tools = await client.list_tools()
        tell("tools", names=[tool.name for tool in tools.tools])
        await call(client, "npm", "everything__echo", {"message": "hello"})
        await call(client, "pypi", "time__get_current_time", {"timezone": "Europe/Oslo"})
        await call(client, "local", "count_words", {"text": "one two  three"})
        await call(client, "unknown", "everything__ecko", {})
        await call(client, "bad arguments", "everything__echo", {"massage": "hello"})
        await call(client, "bad local arguments", "count_words", {"text": 3})

        reports = []

        async def report(progress, total, _message):
            reports.append([progress, total])

        long = "everything__trigger-long-running-operation"
        await call(client, "long", long, {"duration": 1, "steps": 4}, progress_callback=report)
        tell("progress", reports=reports)

        with anyio.move_on_after(0.5) as scope:
            await client.call_tool(long, {"duration": 20, "steps": 40})
        tell("cancelled", cancelled=scope.cancelled_caught)
        await call(client, "after", "everything__echo", {"message": "still here"})


asyncio.run(main(*sys.argv[1:]))
