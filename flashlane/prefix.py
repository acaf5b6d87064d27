"""Naming the beginnings of a prompt before any tokenizer has seen it.

A chain of hashes runs over what an engine would render: tools, then messages, in canonical form.
Whatever a chat template cannot see (the order of a message's keys, one text part or plain text,
cache marks) leaves the hashes as they are. Whatever it renders changes them: the order of keys
inside a tool's schema does, since templates print the schema as it came. Pure, and linear in the
length of the body.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flashlane.payload import as_list
from flashlane.request import Kind, estimate_tokens

_PAGE_CHARS = 512
"""Long texts get a link each this many characters: prompts may share a document, not the ask."""
_PAGE_NUMBERS = 128
_MAX_LINKS = 4096
_DIGEST_BYTES = 16
_MESSAGE_TOKENS = 4
"""What a template adds to a message, about."""
_MEDIA_TOKENS = 256
_TEXT_TYPES = ("text", "input_text", "output_text")
_RENDERED_FIELDS = (
    "chat_template_kwargs",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "lora",
    "previous_response_id",
    "suffix",
)
"""Fields beside messages and tools that change the prompt, or the cache that it makes."""


class Chain:
    """Hashes of the beginnings of one prompt, shortest first, and their estimated tokens."""

    def __init__(self) -> None:
        self.links: list[bytes] = []
        self.tokens: list[int] = []
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._total = 0
        self._room = _PAGE_CHARS

    @property
    def total_tokens(self) -> int:
        return self._total

    def mark(self, kind: str, *values: str) -> None:
        """What follows is of another kind. The bytes around it occur in no UTF-8 text."""
        fields = b"\xff".join(value.encode("utf-8", "surrogatepass") for value in (kind, *values))
        self._hash.update(b"\xff" + fields + b"\xfe")
        self._room = _PAGE_CHARS

    def text(self, text: str) -> None:
        """More text. It does not matter in how many pieces it comes."""
        start = 0
        while start < len(text):
            piece = text[start : start + self._room]
            self._hash.update(piece.encode("utf-8", "surrogatepass"))
            self._total += estimate_tokens(piece)
            start += len(piece)
            self._room -= len(piece)
            if not self._room:
                self._room = _PAGE_CHARS
                self.link()

    def weigh(self, tokens: int) -> None:
        self._total += tokens

    def link(self) -> None:
        """A beginning that another prompt may share ends here."""
        if len(self.links) < _MAX_LINKS:
            self.links.append(self._hash.digest())
            self.tokens.append(self._total)


def chain_of(body: Mapping[str, Any], kind: Kind, chain: Chain | None = None) -> Chain | None:
    """The chain of a body, which `chain` becomes; None where it holds no prompt, or several."""
    chain = Chain() if chain is None else chain
    for field in _RENDERED_FIELDS:
        if body.get(field) not in (None, "", {}, []):
            chain.mark("field", field)
            chain.text(_dumps(body[field], sort_keys=True))
    if kind == "completion":
        return chain if _add_prompt(chain, body.get("prompt")) else None
    for tool in as_list(body.get("tools")):
        _add_tool(chain, tool)
    if kind == "messages" and body.get("system"):
        add_message(chain, {"role": "system", "content": body["system"]})
    if kind == "responses" and body.get("instructions"):
        add_message(chain, {"role": "system", "content": body["instructions"]})
    items = body.get("input" if kind == "responses" else "messages")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in as_list(items):
        if isinstance(item, Mapping):
            add_message(chain, item)
    return chain if items else None


def add_message(chain: Chain, message: Mapping[str, Any]) -> None:
    """Add one message of a chat or Anthropic body, or one item of a Responses body."""
    kind = message.get("type")
    if kind == "function_call":
        chain.mark("message", "assistant")
        _add_call(chain, message.get("call_id"), message.get("name"), message.get("arguments"))
    elif kind == "function_call_output":
        chain.mark("message", "tool", "", _str(message.get("call_id")))
        _add_content(chain, message.get("output"))
    elif kind == "reasoning":
        for field in ("summary", "content"):
            _add_content(chain, message.get(field))
    else:
        values = (message.get("role"), message.get("name"), message.get("tool_call_id"))
        chain.mark("message", *map(_str, values))
        if message.get("reasoning_content"):
            chain.mark("reasoning")
            chain.text(_str(message["reasoning_content"]))
        _add_content(chain, message.get("content"))
        for call in as_list(message.get("tool_calls")):
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                _add_call(chain, call.get("id"), function.get("name"), function.get("arguments"))
    chain.weigh(_MESSAGE_TOKENS)
    chain.mark("end")
    chain.link()


def _add_content(chain: Chain, content: object) -> None:
    parts = [content] if isinstance(content, str) else as_list(content)
    texts = [_text_of(part) for part in parts]
    if texts == [""]:
        return  # rendered like no content at all
    for part, text in zip(parts, texts, strict=True):
        if text is not None:
            chain.mark("text")
            chain.text(text)
        elif isinstance(part, Mapping):
            _add_part(chain, part)


def _text_of(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in _TEXT_TYPES:
        return _str(part.get("text"))
    return None


def _add_part(chain: Chain, part: Mapping[str, Any]) -> None:
    kind = part.get("type")
    if kind == "tool_use":
        _add_call(chain, part.get("id"), part.get("name"), part.get("input"))
    elif kind == "tool_result":
        chain.mark("result", _str(part.get("tool_use_id")))
        _add_content(chain, part.get("content"))
    elif kind in ("thinking", "summary_text", "reasoning_text"):
        chain.mark("reasoning")
        chain.text(_str(part.get("thinking") or part.get("text")))
    else:
        shown = {key: value for key, value in part.items() if key != "cache_control"}
        chain.mark("part", _dumps(shown, sort_keys=True))
        chain.weigh(_MEDIA_TOKENS)


def _add_call(chain: Chain, call_id: object, name: object, arguments: object) -> None:
    chain.mark("call", _str(call_id), _str(name))
    chain.text(arguments if isinstance(arguments, str) else _dumps(arguments))


def _add_tool(chain: Chain, tool: object) -> None:
    """Engines render name, description and schema; other fields of a function are not shown."""
    if not isinstance(tool, Mapping):
        return
    function = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
    assert isinstance(function, Mapping)
    schema = function.get("parameters", function.get("input_schema"))
    if tool.get("type") in (None, "function", "custom") and function.get("name"):
        chain.mark("tool", _str(function["name"]))
        chain.text(_str(function.get("description")))
        chain.mark("schema")
        chain.text(_dumps(schema or {}))
    else:
        shown = {key: value for key, value in tool.items() if key != "cache_control"}
        chain.mark("tool")
        chain.text(_dumps(shown))
    chain.mark("end")
    chain.link()


def _add_prompt(chain: Chain, prompt: object) -> bool:
    """Add a text completion's one prompt: text, or token numbers."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        chain.mark("prompt")
        add_completion(chain, prompt)
        return True
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], int):
        return False
    chain.mark("numbers")
    for start in range(0, len(prompt), _PAGE_NUMBERS):
        page = prompt[start : start + _PAGE_NUMBERS]
        chain.mark(",".join(map(str, page)))
        chain.weigh(len(page))
        chain.link()
    return True


def add_completion(chain: Chain, text: str) -> None:
    """Add text that goes on where a text completion's prompt ended."""
    chain.text(text)
    chain.link()


def _str(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _dumps(value: object, *, sort_keys: bool = False) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys, default=str
    )
