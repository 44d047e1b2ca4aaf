"""What PyPI's `mcp` client sees of a server that it starts: one JSON object per line.

    python3 crates/gateway/tests/wrap/client.py auto|legacy COMMAND...
"""

import asyncio
import json
import os
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters


def tell(step, what):
    print(json.dumps({"step": step, "saw": what}), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def attempt(step, asked):
    try:
        tell(step, plain(await asked))
    except MCPError as error:
        tell(step, [error.error.code, error.error.message])


async def main(mode, command, *args):
    # Only some variables are passed on by default.
    server = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        tell("connected", [client.protocol_version, plain(client.server_info), client.instructions])
        tell("capabilities", plain(client.server_capabilities))
        tools = await client.list_tools()
        tell("tools", plain(tools))
        names = [tool.name for tool in tools.tools]
        await attempt("resources", client.list_resources())
        await attempt("prompts", client.list_prompts())
        if "convert_time" in names:
            zones = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "UTC"}
            await attempt("convert", client.call_tool("convert_time", zones))
            await attempt("bad arguments", client.call_tool("convert_time", {"time": "12:00"}))
            await attempt("unknown", client.call_tool("nope", {}))
            return
        await attempt("echo", client.call_tool("echo", {"message": "hello"}))
        await attempt("structured", client.call_tool("get-structured-content", {"location": "Chicago"}))
        await attempt("bad arguments", client.call_tool("echo", {"massage": "hello"}))
        await attempt("unknown", client.call_tool("nope", {}))
        reports = []

        async def report(progress, total, _message):
            reports.append([progress, total])

        long = "trigger-long-running-operation"
        await attempt("long", client.call_tool(long, {"duration": 1, "steps": 2}, progress_callback=report))
        tell("progress", bool(reports))
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool(long, {"duration": 20, "steps": 2})
        tell("cancelled", scope.cancelled_caught)
        await attempt("after", client.call_tool("echo", {"message": "still here"}))


asyncio.run(main(*sys.argv[1:]))
