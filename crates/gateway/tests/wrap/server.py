"""A server that does what its tools are named after, and repeats each message on stderr.

    python3 crates/gateway/tests/wrap/server.py [FILE]    # counts its processes in FILE: each has one more tool
    python3 crates/gateway/tests/wrap/server.py --stays   # when its stdin is closed
    python3 crates/gateway/tests/wrap/server.py FILE --slow   # to answer `initialize`, but for the first of its processes
    python3 crates/gateway/tests/wrap/server.py --deaf    # to SIGTERM
    python3 crates/gateway/tests/wrap/server.py --tidy    # takes a moment to end at SIGTERM
    python3 crates/gateway/tests/wrap/server.py --mark    # writes a byte order mark before its first message
"""

import io
import json
import os
import signal
import sys
import threading
import time

runs = 0
if sys.argv[1:] and not sys.argv[1].startswith("--"):
    with open(sys.argv[1], "a+") as file:
        file.write(".")
        file.flush()
        runs = file.tell()
tools = ["echo", "hang", "die", "garbage", "steps", "think", "stop", "deaf", "fail", "denied", "pid"]
tools += ["loose", "round", "latin", "unthink", "flood", "babble", "later", "leave", "big"]
tools += ["late", "escape"]
tools += [f"tool_{n}" for n in range(runs)]
lock = threading.Lock()


def send(**message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(id, text, **more):
    send(id=id, result={"content": [{"type": "text", "text": text}], **more})


def steps(id, token):
    for n in range(5):
        time.sleep(0.5)
        send(method="notifications/progress", params={"progressToken": token, "progress": n})
    text(id, "done")


def flood(times):
    while times > 0:
        times -= 1
        send(method="notifications/message", params={"data": "x" * 100_000})


def later(id):
    time.sleep(0.5)
    with lock:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}))
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/after", "params": {"id": id}}), flush=True)


def call(id, params):
    name, arguments = params["name"], params.get("arguments", {})
    match name:
        case "echo":
            text(id, json.dumps(arguments), _meta={"seen": params.get("_meta")})
        case "pid":
            text(id, str(os.getpid()))
        case "hang":
            pass
        case "die":
            os._exit(3)
        case "garbage":
            print("Listening; password=hunter2hunter2 ...", flush=True)
            text(id, "after garbage")
        case "steps":
            token = str(params["_meta"]["progressToken"])
            threading.Thread(target=steps, args=(id, token)).start()
        case "think":
            asked.append(id)
            send(id=1, method="elicitation/create", params={"message": "?"})
        case "unthink":
            send(method="notifications/cancelled", params={"requestId": 1})
            text(id, "never mind")
        case "loose":
            text(str(id), "as a string")
        case "round":
            text(int(id), "without a fraction", jsonrpc=2.0)
        case "latin":
            with lock:
                sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xe5"}]}}\n' % id)
                sys.stdout.buffer.flush()
        case "flood":
            text(id, "there is more")
            threading.Thread(target=flood, args=(200,)).start()
        case "babble":
            flood(float("inf"))
        case "later":
            threading.Thread(target=later, args=(id,)).start()
        case "leave":
            os.close(1)
        case "big":
            text(id, "x" * 5_000_000)
        case "late":
            late[id] = params["_meta"]["progressToken"]
        case "escape":
            print("\x1b]0;owned\x07\x1b[2J\u202enot a message\rtool.success", flush=True)
            text(id, "after escape")
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            text(id, "deaf")
        case "fail":
            send(id=id, error={"code": -32603, "message": "out of order", "data": {"b": 1, "a": 2}})
        case "denied":
            text(id, "no", isError=True)
        case _:
            send(id=id, error={"code": -32602, "message": f"Unknown tool: {name}"})


asked = []
late = {}
def tidy(*_):
    time.sleep(0.2)
    print("tidied up", file=sys.stderr, flush=True)
    os._exit(0)


if "--mark" in sys.argv:
    sys.stdout.write("\ufeff")
if "--tidy" in sys.argv:
    signal.signal(signal.SIGTERM, tidy)
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
# As the SDK reads it: `\r` ends a line, too.
for line in io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8"):
    print("got", line, end="", file=sys.stderr, flush=True)
    message = json.loads(line)
    id = message.get("id")
    match message.get("method"):
        case "initialize" | "resources/subscribe" if "refused" in str(message["params"]):
            send(id=id, error={"code": -32602, "message": "refused"})
        case "initialize":
            if runs > 1 and "--slow" in sys.argv:
                time.sleep(2)
            about = {"name": "own", "version": str(runs)}
            send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about})
        case "tools/list":
            send(id=id, result={"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in tools]})
        case "tools/call":
            call(id, message["params"])
        case "resources/subscribe" if message["params"]["uri"] == "mute:":
            pass
        case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
            send(id=id, result={})
        case "resources/read":
            pass
        case "notifications/cancelled" if message["params"]["requestId"] in late:
            token = late.pop(message["params"]["requestId"])
            for token in [token, str(token)]:
                send(method="notifications/progress", params={"progressToken": token, "progress": 1})
            send(method="notifications/message", params={"data": "late"})
        case "prompts/list":
            send(id=str(id), result={"prompts": []})
        case None if id == 1 and asked and "result" in message:
            text(asked.pop(), json.dumps(message["result"]))
        case _ if id is not None:
            send(id=id, error={"code": -32601, "message": "Method not found"})
if "--stays" in sys.argv:
    time.sleep(60)
