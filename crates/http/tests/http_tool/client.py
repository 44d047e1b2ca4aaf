"""What PyPI's `mcp` client sees of HTTP tools behind a gateway: one JSON object, by step.

    python3 crates/http/tests/http_tool/client.py http://127.0.0.1:8931/mcp
"""

import asyncio
import json
import sys

from mcp import Client


async def main(url):
    async with Client(url, mode="auto") as client:
        tools = (await client.list_tools()).tools
        saw = {"tools": {tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools}}

        async def call(step, name, **arguments):
            result = await client.call_tool(name, arguments)
            saw[step] = result.model_dump(mode="json", by_alias=True, exclude_none=True)

        await call("order", "create_order", shop="no 1", pizza='Quattro "Stagioni"')
        await call("delivery", "deliver", shop="no 1")
        await call("hostile", "create_order", shop="../admin", pizza="Diavola")
        await call("invalid", "create_order", shop="no 1", pizza=4)
        await call("refused", "create_order", shop="closed", pizza="Diavola")
        print(json.dumps(saw))


asyncio.run(main(sys.argv[1]))
