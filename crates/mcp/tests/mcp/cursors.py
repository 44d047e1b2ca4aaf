"""An MCP server over stdio on the official Python SDK, whose list of tools never says that it ends.

    PYTHONPATH=target/mcp-servers-python python3 crates/mcp/tests/mcp/cursors.py CURSOR
"""

import sys

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def tools(_, page):
    names = ["apple"] if page and page.cursor is not None else ["zebra", "mango"]
    schema = {"type": "object"}
    listed = [types.Tool(name=name, input_schema=schema) for name in names]
    return types.ListToolsResult(tools=listed, next_cursor=sys.argv[1])


async def call(_, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.name)])


async def main():
    server = Server("cursors", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
