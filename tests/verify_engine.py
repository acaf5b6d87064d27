"""An engine of the tests' own for first passes: it answers what its model's name says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RIGHT = "Item 7 was put on shelf 10 by the keeper."
WRONG = "Item 7 was put on shelf 99 by the keeper."
TOKENS = 321
SLOW_S = 1.5
TOOL_CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": "{}"},
}


@dataclass
class Engine:
    """What it was asked, and how many of its answers nobody waited for."""

    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0


@contextmanager
def running_engine() -> Iterator[Engine]:
    engine = Engine()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.asked.append(body)
            try:
                self._answer(body)
            except OSError:
                engine.left += 1

        def _answer(self, body: dict[str, Any]) -> None:
            chat = "messages" in body
            name = body["model"]
            text = RIGHT if name in ("right", "slow") else WRONG
            if not body.get("stream"):
                time.sleep(SLOW_S if name == "slow" else 0)
                self._send("application/json", json.dumps(_whole(name, text, chat)).encode())
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for number, chunk in enumerate(_chunks(name, text, chat)):
                if name == "breaks" and number == 3:
                    self.connection.close()
                    return
                if name == "slow" and number == 1:
                    for _ in range(15):
                        time.sleep(SLOW_S / 15)
                        self.wfile.write(b": working\n\n")
                        self.wfile.flush()
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    engine.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        with suppress(OSError):
            server.shutdown()
        server.server_close()


def _usage(text: str) -> dict[str, int]:
    words = len(text.split())
    return {"prompt_tokens": TOKENS, "completion_tokens": words, "total_tokens": TOKENS + words}


def _base(chat: bool, chunk: bool) -> dict[str, Any]:
    kind = "chat.completion" + (".chunk" if chunk else "") if chat else "text_completion"
    return {"id": "first", "object": kind, "created": 1, "model": "first"}


def _whole(name: str, text: str, chat: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    reason = "stop"
    if name == "tools":
        message, reason = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}, "stop"
    said = {"message": message} if chat else {"text": text}
    choice = {"index": 0, "finish_reason": reason, **said}
    return {**_base(chat, False), "choices": [choice], "usage": _usage(text)}


def _chunks(name: str, text: str, chat: bool) -> Iterator[dict[str, Any]]:
    def chunk(said: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        part = {"delta": said} if chat else {"text": said.get("content", "")}
        choice = {"index": 0, "finish_reason": reason, **part}
        return {**_base(chat, True), "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if name == "tools":
        yield chunk({"tool_calls": [TOOL_CALL]})
    else:
        for word in text.split(" "):
            yield chunk({"content": word + (" " if word != "keeper." else "")})
    yield chunk({}, "stop")
    yield {**_base(chat, True), "choices": [], "usage": _usage(text)}
