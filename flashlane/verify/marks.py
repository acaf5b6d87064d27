"""What the verify lane adds to a stream: signs of life while it checks, and at the end its verdict.

Clients know neither and pass over both: a comment of server-sent events or Anthropic's own ping,
and one field more than the API's schema has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from flashlane.payload import as_list, get
from flashlane.request import Kind

FIELD = "flashlane"
_COMMENT = b": keep-alive\n\n"
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def sign_of_life(kind: Kind) -> bytes:
    """A chunk without content. LiteLLM sends bytes on as they are."""
    return _PING if kind == "messages" else _COMMENT


def marked(chunk: object, kind: Kind, note: Mapping[str, object]) -> object:
    """`chunk` with `note` in its field `flashlane` where it ends the answer, else as it is."""
    if isinstance(chunk, (bytes, str)):
        return _marked_event(chunk, note) if kind == "messages" else chunk
    if kind == "responses":
        event = get(chunk, "type")
        ends = getattr(event, "value", event) in _RESPONSE_ENDS
    elif kind == "messages":
        ends = get(chunk, "type") == "message_delta"
    else:
        ends = any(get(choice, "finish_reason") for choice in as_list(get(chunk, "choices")))
    if not ends:
        return chunk
    if isinstance(chunk, dict):
        return {**chunk, FIELD: dict(note)}
    setattr(chunk, FIELD, dict(note))
    if kind == "chat" and get(chunk, "system_fingerprint") is None:
        # LiteLLM writes a chunk without one by itself, and leaves out the fields it does not know.
        chunk.system_fingerprint = ""  # type: ignore[attr-defined]
    return chunk


def _marked_event(chunk: bytes | str, note: Mapping[str, object]) -> bytes | str:
    text = chunk.decode("utf-8", "replace") if isinstance(chunk, bytes) else chunk
    if '"message_delta"' not in text:
        return chunk
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("data:") and '"message_delta"' in line:
            try:
                event = json.loads(line[5:])
            except ValueError:
                continue  # an event cut in two
            if isinstance(event, dict) and event.get("type") == "message_delta":
                lines[number] = "data: " + json.dumps({**event, FIELD: dict(note)})
    text = "\n".join(lines)
    return text.encode() if isinstance(chunk, bytes) else text
