"""An MCP server over stdio that does what the argument `how` of its only tool says."""

import json
import os
import sys
import time

OUT = sys.stdout.buffer

# Calls without an answer, the generation of names, and whether lists have an end.
LATE, NAMES, ENDLESS = [], [0], [False]


def send(message, end=b"\n"):
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + end)
    OUT.flush()


def raw(data):
    OUT.write(data)
    OUT.flush()


def result(text):
    return {"content": [{"type": "text", "text": text}]}


def act(request, how, n):
    answer = {"id": request["id"], "result": result(str(n))}
    if how == "garbage":
        raw(b"\xff\xfe\x00{]\n\n\r\n}{\nnull\n[]\n3\n\"x\"\n" + bytes(range(256)) + b"\n")
        send(answer)
    elif how == "huge":
        for _ in range(100):
            raw(b"x" * (1 << 20))
        raw(b"\n")
        send(answer)
    elif how == "huge_answer":
        send({"id": request["id"], "result": result("x" * (8 << 20))})
    elif how == "deep":
        raw(b"[" * 200_000 + b"\n" + b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 100_000 + b"\n")
        send(answer)
    elif how == "twice":
        send(answer)
        send(answer)
    elif how == "wrong_id":
        for other in [10_000_000 + n, None, -1, 1.5, {}]:
            send({"id": other, "result": result("of another call")})
        send(answer)
    elif how == "both":
        send({**answer, "error": {"code": -1, "message": "both"}})
    elif how == "no_result":
        send({"id": request["id"], "result": [1]})
    elif how == "old":
        raw(json.dumps({"jsonrpc": "1.0", **answer}).encode() + b"\n")
    elif how == "half":
        raw(json.dumps({"jsonrpc": "2.0", **answer}).encode()[:20])
        os._exit(1)
    elif how == "half_silence":
        # What is sent next makes a line that nobody can read.
        raw(json.dumps({"jsonrpc": "2.0", **answer}).encode()[:20])
    elif how == "slowly":
        for byte in json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n":
            raw(bytes([byte]))
            time.sleep(0.002)
    elif how == "notifies":
        for i in range(2_000):
            send({"method": "notifications/tools/list_changed"})
            send({"method": "notifications/progress", "params": {"progressToken": i, "progress": i}})
            send({"method": "notifications/" + "x" * 100, "params": {"a": [i] * 10}})
        send(answer)
    elif how == "asks":
        for i, method in enumerate(["ping", "roots/list", "sampling/createMessage", "elicitation/create", "x"]):
            send({"id": i, "method": method, "params": {}})
            send({"id": request["id"], "method": method})
        send(answer)
    elif how == "deaf":
        os.close(0)
        send(answer)
        time.sleep(3600)
    elif how == "mute":
        os.close(1)
    elif how == "dies":
        os._exit(9)
    elif how == "floods":
        for i in range(10_000_000):
            send({"id": i, "method": "ping"})
    elif how == "values":
        answer["result"]["structuredContent"] = {"values": [1]}
        text = json.dumps({"jsonrpc": "2.0", **answer})
        raw(text.replace("[1]", "[" + "1," * 7_000_000 + "1]").encode() + b"\n")
    elif how == "late":
        LATE.append(answer)
        if len(LATE) > 5:
            # Most are given up.
            for late in LATE * 2:
                send(late)
            LATE.clear()
    elif how == "nulls":
        for message in [{"id": None, "result": None}, {"id": None, "method": None}, {"method": None, "params": None}]:
            send(message)
        send({"id": request["id"], "result": {"content": None, "structuredContent": None, "isError": None, "_meta": None}})
        send(answer)
    elif how == "renames":
        NAMES[0] += 1
        send({"method": "notifications/tools/list_changed"})
        send(answer)
    elif how == "cursors":
        ENDLESS[0] = not ENDLESS[0]
        send({"method": "notifications/tools/list_changed"})
        send(answer)
    elif how == "silence":
        pass
    else:
        send(answer)


def main():
    tool = {
        "name": "act",
        "inputSchema": {"type": "object", "properties": {"how": {"type": "string"}, "n": {"type": "integer"}}},
    }
    for line in sys.stdin.buffer:
        request = json.loads(line)
        method = request.get("method")
        if "id" not in request or method is None:
            continue
        if method == "initialize":
            about = {"name": "hostile", "version": "1"}
            version = request["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            send({"id": request["id"], "result": {
                "protocolVersion": version, "capabilities": capabilities, "serverInfo": about}})
        elif method == "ping":
            send({"id": request["id"], "result": {}})
        elif method == "tools/list":
            tools = [tool] + [{**tool, "name": f"tool_{NAMES[0]}_{i}"} for i in range(200 if NAMES[0] else 0)]
            page = {"tools": tools}
            if ENDLESS[0]:
                page["nextCursor"] = str(time.monotonic_ns())
            send({"id": request["id"], "result": page})
        elif method == "tools/call":
            arguments = request["params"].get("arguments", {})
            act(request, arguments.get("how"), arguments.get("n", 0))
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


main()
