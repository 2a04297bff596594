"""A stdio MCP server with every good and bad habit that the bridge has to live with."""

import json
import os
import sys

calls = 0
held = {}
cancelled = []


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id, text):
    send({"id": id, "result": {"content": [{"type": "text", "text": text}], "unknown": 1.50}})


def notify(method, **params):
    send({"method": method, "params": params})


def call(id, name, arguments, meta):
    global calls
    calls += 1
    if name == "count":
        answer(id, str(calls))
    elif name == "pid":
        answer(id, str(os.getpid()))
    elif name == "die":
        os._exit(9)
    elif name == "half":
        sys.stdout.write('{"jsonrpc": "2.0", "id": ')
        sys.stdout.flush()
        os._exit(0)
    elif name == "noise":
        os.write(1, b"loading...\n\n[1, 2]\n\xff\xfe\n")
        answer(id, "heard")
    elif name == "big":
        answer(id, "x" * 10_000_000)
    elif name == "hang":
        notify("notifications/message", level="info", data="hanging")
    elif name == "cancelled":
        answer(id, json.dumps(cancelled))
    elif name == "ask":
        held["question"] = id
        send({"id": "question", "method": "sampling/createMessage", "params": {"maxTokens": 1}})
    elif name == "progress":
        for step in (1, 2):
            notify("notifications/progress", progressToken=meta["progressToken"], progress=step)
        answer(id, "done")
    elif name == "change":
        notify("notifications/tools/list_changed")
        answer(id, "changed")


def main():
    print("the server writes to its log", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            client = params["clientInfo"]["name"]
            if client == "refused":
                send({"id": id, "error": {"code": -32602, "message": "not you"}})
                continue
            send(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {"listChanged": True}},
                        "serverInfo": {"name": "fake", "version": "1"},
                    },
                }
            )
        elif method == "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "inputSchema": schema} for name in ("count", "pid")]
            send({"id": id, "result": {"tools": tools}})
        elif method == "tools/call":
            arguments = params.get("arguments") or {}
            call(id, params["name"], arguments, params.get("_meta") or {})
        elif method == "notifications/cancelled":
            cancelled.append(params["requestId"])
        elif method is None and id in held:
            answer(held.pop(id), message["result"]["content"]["text"])
        elif id is not None:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


main()
