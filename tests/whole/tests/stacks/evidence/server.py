"""An MCP server whose one tool does its work, and then fails as it is asked to.

Over stdio, on the official Python SDK. `work` counts each run by the call's own key; `runs` tells the keys that ran more
than once, and how many ran.
"""

import asyncio
from collections import Counter

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

server = MCPServer("evidence")
runs = Counter()


@server.tool()
async def work(key: str, fault: str, text: str, code: int) -> str:
    runs[key] += 1
    if fault == "raise":
        raise ToolError(text)
    if fault == "protocol":
        raise MCPError(code=code, message=text)
    if fault == "slow":
        await asyncio.sleep(1.5)
    return text


@server.tool(name="runs")
async def tell_runs() -> dict[str, object]:
    return {"keys": len(runs), "twice": [key for key, n in runs.items() if n > 1]}


if __name__ == "__main__":
    asyncio.run(server.run_stdio_async())
