"""The message that an engine answers with, as a growing chat will send it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flashlane.payload import as_list, as_mapping, get
from flashlane.prefix import Chain, add_completion, add_message
from flashlane.request import Kind


class Answer:
    """Put together from a whole response or from a stream's parts. Only the first choice counts."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._items: list[Mapping[str, Any]] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._blocks: dict[int, dict[str, Any]] = {}

    def see(self, payload: object) -> None:
        """Take the answer's part out of one payload of the request's own API."""
        if self._kind == "responses":
            response = get(payload, "response") or payload
            output = [as_mapping(item) for item in as_list(get(response, "output"))]
            if output:
                self._items = list(output)
        elif self._kind == "messages":
            self._see_messages(payload)
        else:
            self._see_choice(payload)

    def add_to(self, chain: Chain) -> None:
        """Continue the request's chain with the answer."""
        if self._kind == "completion":
            add_completion(chain, "".join(self._text))
            return
        for message in self._items or self._streamed():
            add_message(chain, message)

    def _see_choice(self, payload: object) -> None:
        choices = as_list(get(payload, "choices"))
        choice = choices[0] if choices else None
        if not choice or get(choice, "index"):
            return
        if self._kind == "completion":
            self._text.append(_str(get(choice, "text")))
            return
        if get(choice, "message") is not None:
            self._items = [{"role": "assistant", **as_mapping(get(choice, "message"))}]
            return
        delta = get(choice, "delta")
        self._text.append(_str(get(delta, "content")))
        self._reasoning.append(_str(get(delta, "reasoning_content")))
        for part in as_list(get(delta, "tool_calls")):
            number = get(part, "index")
            call = self._calls.setdefault(
                number if isinstance(number, int) else 0, {"id": "", "name": "", "arguments": ""}
            )
            function = get(part, "function")
            call["id"] = call["id"] or _str(get(part, "id"))
            call["name"] += _str(get(function, "name"))
            call["arguments"] += _str(get(function, "arguments"))

    def _see_messages(self, payload: object) -> None:
        content = get(payload, "content")
        if isinstance(content, list):
            blocks = [as_mapping(block) for block in content]
            self._items = [{"role": "assistant", "content": blocks}]
            return
        number = get(payload, "index")
        if not isinstance(number, int):
            return
        if get(payload, "content_block") is not None:
            self._blocks[number] = as_mapping(get(payload, "content_block"))
        delta = as_mapping(get(payload, "delta"))
        block = self._blocks.get(number)
        if block is None:
            return
        for field in ("text", "thinking", "partial_json"):
            if isinstance(delta.get(field), str):
                before = block.get(field)
                block[field] = (before if isinstance(before, str) else "") + delta[field]

    def _streamed(self) -> list[Mapping[str, Any]]:
        if self._kind == "messages":
            blocks = [_closed(self._blocks[number]) for number in sorted(self._blocks)]
            return [{"role": "assistant", "content": blocks}] if blocks else []
        message = {
            "role": "assistant",
            "content": "".join(self._text),
            "reasoning_content": "".join(self._reasoning),
            "tool_calls": [
                {"id": call["id"], "function": call} for _, call in sorted(self._calls.items())
            ],
        }
        return [message] if any(list(message.values())[1:]) else []


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    """A streamed block whose tool input came as pieces of JSON."""
    if "partial_json" not in block:
        return block
    try:
        given = json.loads(block["partial_json"])
    except ValueError:
        given = block["partial_json"]
    return {**block, "input": given}


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""
