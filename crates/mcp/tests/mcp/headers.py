"""An MCP server over HTTP on the official Python SDK, with a parameter that clients put into a header.

    PYTHONPATH=target/mcp-servers-python python3 crates/mcp/tests/mcp/headers.py PORT
"""

import logging
import sys
from typing import Annotated

from mcp.server import MCPServer
from pydantic import Field

server = MCPServer("headers", log_level="ERROR")
logging.disable(logging.CRITICAL)
Owner = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Owner"})]


@server.tool()
async def repositories(owner: Owner) -> str:
    return f"those of {owner}"


server.run("streamable-http", port=int(sys.argv[1]))
