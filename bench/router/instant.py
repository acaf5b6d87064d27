"""A server in llama-server's place that answers at once: what is left is the proxy's own time.

`python instant.py --port N …`; every other option of llama-server is accepted and ignored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import suppress

CHUNKS = 200
_TIMINGS = {
    "prompt_n": 64,
    "prompt_ms": 1.0,
    "cache_n": 0,
    "predicted_n": CHUNKS,
    "predicted_ms": 1.0,
    "predicted_per_second": 1000.0 * CHUNKS,
}
_USAGE = {"prompt_tokens": 64, "completion_tokens": CHUNKS, "total_tokens": 64 + CHUNKS}
_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "instant"}


def _whole() -> bytes:
    message = {"role": "assistant", "content": "An answer."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {**_HEAD, "object": "chat.completion", "choices": [choice]}
    return json.dumps({**body, "usage": _USAGE, "timings": _TIMINGS}).encode()


def _stream() -> bytes:
    events = [_event({"role": "assistant", "content": None}, None)]
    events += [_event({"content": f" word{number}"}, None) for number in range(CHUNKS - 2)]
    events.append(_event({}, "stop", timings=_TIMINGS))
    return b"".join(events) + b"data: [DONE]\n\n"


def _event(delta: object, finish: str | None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {**_HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


_WHOLE, _STREAM = _whole(), _stream()
_OK = json.dumps({"status": "ok"}).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(_length(head))
            stream = b'"stream":true' in body.replace(b'": ', b'":')
            posted = head.startswith(b"POST")
            kind = b"text/event-stream" if posted and stream else b"application/json"
            answer = (_STREAM if stream else _WHOLE) if posted else _OK
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
                % (kind, len(answer), answer)
            )
            await writer.drain()
    writer.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    server = await asyncio.start_server(_serve, "127.0.0.1", options.port, limit=2**24)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
