"""An MCP server over stdio that starts slowly, and then answers each request in turn.

    python3 crates/mcp/tests/mcp/late.py error|result

The argument is how it answers `server/discover`: as an earlier revision does, or as that of 2026-07-28.
"""

import json
import sys
import time

time.sleep(10.5)
schema = {"type": "object"}
about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "late", "version": "1"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    method = request["method"]
    if method == "initialize":
        answer["result"] = {"protocolVersion": request["params"]["protocolVersion"], **about}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "late", "inputSchema": schema}]}
    elif method == "server/discover" and sys.argv[1] == "result":
        answer["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], **about}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
