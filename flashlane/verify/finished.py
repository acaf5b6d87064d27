"""An answer as the check needs it: its text, how it ended, and what it holds besides. Pure."""

from __future__ import annotations

from flashlane.payload import as_list, as_mapping, get, payloads
from flashlane.request import Kind


class Finished:
    """Put together from a whole response or from the chunks of a stream, of any API."""

    def __init__(self, kind: Kind) -> None:
        self.finish_reason = ""
        self.tool_calls = False
        self.several = False
        """More than one answer: the check reads the first alone."""
        self._kind = kind
        self._text: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    def see(self, chunk: object) -> None:
        """Take the answer's part out of a response or a chunk."""
        for payload in payloads(chunk):
            if self._kind == "responses":
                self._see_response(payload)
            elif self._kind == "messages":
                self._see_message(payload)
            else:
                self._see_choices(payload)

    def _see_choices(self, payload: object) -> None:
        choices = as_list(get(payload, "choices"))
        if len(choices) > 1 or any(get(choice, "index") for choice in choices):
            self.several = True
        for choice in choices[:1]:
            said = get(choice, "message") or get(choice, "delta")
            self._add(get(choice, "text") if self._kind == "completion" else get(said, "content"))
            if get(said, "tool_calls") or get(said, "function_call"):
                self.tool_calls = True
            self._ended(get(choice, "finish_reason"))

    def _see_message(self, payload: object) -> None:
        for block in as_list(get(payload, "content")):
            self._block(as_mapping(block))
        self._block(as_mapping(get(payload, "content_block")))
        delta = as_mapping(get(payload, "delta"))
        self._add(delta.get("text"))
        self._ended(delta.get("stop_reason") or get(payload, "stop_reason"))

    def _block(self, block: dict[str, object]) -> None:
        self._add(block.get("text"))
        if block.get("type") not in (None, "text", "thinking", "redacted_thinking"):
            self.tool_calls = True

    def _see_response(self, payload: object) -> None:
        """Only the last event of a stream holds the whole response."""
        whole = get(payload, "response") or payload
        status = get(whole, "status")
        if status in (None, "in_progress", "queued"):
            return
        response = as_mapping(whole)
        for item in map(as_mapping, as_list(response.get("output"))):
            if item.get("type") == "message":
                for part in map(as_mapping, as_list(item.get("content"))):
                    self._add(part.get("text") or part.get("refusal"))
            elif item.get("type") != "reasoning":
                self.tool_calls = True
        details = as_mapping(response.get("incomplete_details"))
        self._ended(details.get("reason") or get(status, "value") or status)

    def _add(self, text: object) -> None:
        if isinstance(text, str):
            self._text.append(text)

    def _ended(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
            if reason in ("tool_calls", "function_call", "tool_use"):
                self.tool_calls = True
