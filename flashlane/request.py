"""Reading a request: any body LiteLLM accepts becomes one `RequestView`.

Pure: no I/O, no clock, no logging. Linear in the length of the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from flashlane.ask import Piece, find_ask
from flashlane.askline import is_follow_up
from flashlane.controls import (
    LANE_ALIASES,
    LANES,
    PRIVATE_FIELDS,
    Controls,
    Lane,
    RequestError,
    read_controls,
    shown,
)

__all__ = [
    "LANES",
    "LANE_ALIASES",
    "PRIVATE_FIELDS",
    "Controls",
    "Kind",
    "Lane",
    "RequestError",
    "RequestView",
    "Span",
    "estimate_tokens",
    "read_controls",
    "read_request",
    "shown",
]

_COUNTED_CHARS = 16_384
"""Longer texts that are not ASCII are counted by samples of `_SAMPLE_CHARS`."""
_SAMPLE_CHARS = 256
_SAMPLES = 32
_TURNS_BACK = 4
"""So many earlier turns of the user are looked at for an ask that the newest one lacks."""
_NESTED = 4
"""Deeper tool results inside tool results are not read."""
_NAMED_CHARS = 4096
_NO_CONTROLS = Controls()

Kind = Literal["chat", "completion", "messages", "responses"]


class Span(NamedTuple):
    """A piece of the request's text. `where` is its path in the body, `messages[2]` for one."""

    text: str
    role: str
    where: str


@dataclass(frozen=True)
class RequestView:
    """What the router knows of a request. Token counts are estimates: see `estimate_tokens`."""

    kind: Kind
    model: str
    ask: str
    instructions: tuple[Span, ...]
    context: tuple[Span, ...]
    estimated_tokens: int
    context_tokens: int
    controls: Controls = _NO_CONTROLS
    stream: bool = False
    structure: tuple[str, ...] = ()
    """Names of the body's fields that demand an exact answer: tools, response_format, …"""
    multimodal: bool = False
    token_prompt: bool = False
    max_tokens: int | None = None
    ask_where: tuple[str, ...] = ()
    """Paths in the body of what was taken as the ask."""
    conversation: str = ""
    """Names what stays as a chat grows, its system prompt and first user message; empty where the
    body holds no such thing."""


def estimate_tokens(text: str) -> int:
    """Tokens of `text` before any tokenizer has seen it.

    Four ASCII characters a token, one token for each other character: within about 30 % for
    English prose, code and CJK on the vocabularies this was compared with. A long text that is not
    ASCII is sampled.
    """
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    if size <= _COUNTED_CHARS:
        ascii_chars = len(text.encode("ascii", "ignore"))
    else:
        step = (size - _SAMPLE_CHARS) // (_SAMPLES - 1)
        starts = range(0, step * _SAMPLES, step)
        sample = "".join([text[start : start + _SAMPLE_CHARS] for start in starts])
        ascii_chars = size * len(sample.encode("ascii", "ignore")) // len(sample)
    return (ascii_chars + 3) // 4 + (size - ascii_chars)


def read_request(
    body: Mapping[str, Any], headers: Mapping[str, str] | None = None, kind: Kind | None = None
) -> RequestView:
    """The view of one request body: chat, text completion, Anthropic messages or Responses.

    `kind` is taken from the body's shape when it is not given. Raises `RequestError` for a
    body in which flashlane's own fields are wrong; everything else is LiteLLM's to judge.
    """
    kind = kind or _kind_of(body)
    spans = list(_spans(body, kind))
    instructions, context, asks = _split(spans)
    context_tokens = sum([estimate_tokens(span.text) for span in context])
    tokens = context_tokens + sum([estimate_tokens(span.text) for span in instructions])
    token_prompt = False
    prompt = body.get("prompt") if kind == "completion" else None
    _check_prompt(prompt)
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], str):
        token_prompt = True
        flat = prompt if isinstance(prompt[0], int) else [t for row in prompt for t in _list(row)]
        tokens += len(flat)
    return RequestView(
        kind=kind,
        model=str(body.get("model") or ""),
        ask="\n".join([span.text for span in asks]),
        instructions=tuple(instructions),
        context=tuple(context),
        estimated_tokens=tokens,
        context_tokens=context_tokens,
        controls=read_controls(body, headers),
        stream=bool(body.get("stream")),
        structure=tuple(_structure(body, kind)),
        multimodal=_has_media(body),
        token_prompt=token_prompt,
        max_tokens=_max_tokens(body),
        ask_where=tuple(dict.fromkeys(span.where for span in asks)),
        conversation=_conversation(body, spans),
    )


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    for field in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = body.get(field)
        if type(value) is int and value > 0:
            return value
    return None


def _conversation(body: Mapping[str, Any], spans: list[Span]) -> str:
    """Hash of the lengths and beginnings of the system prompt and the first user message."""
    if body.get("previous_response_id") is not None:
        return ""  # what came before is not in the body
    digest = hashlib.blake2b(digest_size=8)
    for span in spans:
        part = f"{span.role}\0{len(span.text)}\0{span.text[:_NAMED_CHARS]}\0"
        digest.update(part.encode("utf-8", "surrogatepass"))
        if span.role == "user":
            return digest.hexdigest()
        if span.role != "system":
            break
    return ""


def _check_prompt(prompt: object) -> None:
    """A text completion's prompt: text, texts, token numbers, or lists of token numbers."""
    rows = prompt if isinstance(prompt, list) else []
    tokens = [row if isinstance(row, list) else [row] for row in rows]
    fits = (
        prompt is None
        or isinstance(prompt, str)
        or (isinstance(prompt, list) and all(isinstance(row, str) for row in rows))
        or (
            isinstance(prompt, list)
            and len({isinstance(row, list) for row in rows}) == 1
            and all(type(token) is int for row in tokens for token in row)
        )
    )
    if not fits:
        raise RequestError(
            f"prompt is {shown(prompt)}; it must be text, a list of texts, a list of token "
            "numbers, or a list of such lists",
            "prompt",
        )


def _kind_of(body: Mapping[str, Any]) -> Kind:
    if "messages" in body:
        return "messages" if "system" in body else "chat"
    return "responses" if "input" in body else "completion"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_ROLES = {"developer": "system", "function": "tool"}


def _spans(body: Mapping[str, Any], kind: Kind) -> Iterator[Span]:
    if kind == "completion":
        prompt = body.get("prompt")
        texts = [prompt] if isinstance(prompt, str) else _list(prompt)
        for i, text in enumerate(texts):
            if isinstance(text, str):
                yield Span(text, "user", f"prompt[{i}]")
        return
    if kind == "responses":
        if isinstance(body.get("instructions"), str):
            yield Span(body["instructions"], "system", "instructions")
        if isinstance(body.get("input"), str):
            yield Span(body["input"], "user", "input")
            return
    if kind == "messages":
        yield from _content_spans(body.get("system"), "system", "system")
    key = "input" if kind == "responses" else "messages"
    for i, message in enumerate(_list(body.get(key))):
        if type(message) is not dict and not isinstance(message, Mapping):
            continue
        where = f"{key}[{i}]"
        role = str(message.get("role") or message.get("type") or "user")
        role = _ROLES.get(role, role)
        content = message.get("content")
        if role == "function_call_output":
            yield from _content_spans(message.get("output"), "tool", where)
        elif type(content) is str:
            yield Span(content, role, where)
        else:
            yield from _content_spans(content, role, where)


def _content_spans(content: object, role: str, where: str, nested: int = 0) -> Iterator[Span]:
    if isinstance(content, str):
        yield Span(content, role, where)
        return
    for i, part in enumerate(_list(content)):
        if isinstance(part, str):
            yield Span(part, role, f"{where}.content[{i}]")
        elif isinstance(part, Mapping):
            if part.get("type") == "tool_result":
                if nested < _NESTED:
                    place = f"{where}.content[{i}]"
                    yield from _content_spans(part.get("content"), "tool", place, nested + 1)
            elif isinstance(part.get("text"), str):
                yield Span(part["text"], role, f"{where}.content[{i}]")


def _split(spans: list[Span]) -> tuple[list[Span], list[Span], list[Span]]:
    """Instruction spans, context spans, and the ask, which is among the instructions.

    The ask stands in the newest user message, often before, after or amid a document. Where that is
    all material, or leans on what was asked before ("and the second one?"), the newest earlier user
    message that asks counts as well. No ask at all routes as unsure.
    """
    turns: dict[str, list[int]] = {}
    for number in range(len(spans) - 1, -1, -1):
        span = spans[number]
        if span.role != "user" or not span.text or span.text.isspace():
            continue
        turn = _turn(span.where)
        if turn not in turns and len(turns) > _TURNS_BACK:
            break
        turns.setdefault(turn, []).insert(0, number)
    pieces: dict[int, list[Piece]] = {}
    for numbers in turns.values():
        texts = [spans[number].text for number in numbers]
        found = find_ask(texts)
        for piece in found:
            pieces.setdefault(numbers[piece.text], []).append(piece)
        if found and not _leans(texts, found):
            break
    instructions: list[Span] = []
    context: list[Span] = []
    asks: list[Span] = []
    for number, span in enumerate(spans):
        if number in pieces:
            _cut(span, pieces[number], asks, context)
        elif span.role == "system":
            instructions.append(span)
        elif span.text and not span.text.isspace():
            context.append(span)
    return [*instructions, *asks], context, asks


def _turn(where: str) -> str:
    """The message of a span; the texts of a completion's prompt are one."""
    return where.partition(".")[0] if not where.startswith("prompt") else "prompt"


def _leans(texts: list[str], found: Sequence[Piece]) -> bool:
    return len(found) == 1 and is_follow_up(texts[found[0].text][found[0].start : found[0].end])


def _cut(span: Span, pieces: list[Piece], asks: list[Span], context: list[Span]) -> None:
    """`span` as asks and the material around them."""
    at = 0
    for piece in [*pieces, None]:
        between = span.text[at : piece.start if piece else len(span.text)]
        if between and not between.isspace():
            context.append(Span(between, span.role, span.where))
        if piece is not None:
            asks.append(Span(span.text[piece.start : piece.end].strip(), span.role, span.where))
            at = piece.end


_STRUCTURE_FIELDS = (
    "tools",
    "functions",
    "response_format",
    "grammar",
    "json_schema",
    "logprobs",
    "top_logprobs",
    "n_probs",
    "guided_json",
    "output_config",
    "logit_bias",
    "suffix",
    "echo",
)


def _structure(body: Mapping[str, Any], kind: Kind) -> Iterator[str]:
    for field in _STRUCTURE_FIELDS:
        if body.get(field) not in (None, False, [], {}, "", 0):
            if field == "response_format" and _plain_text_format(body[field]):
                continue
            yield field
    text = body.get("text")
    format_ = text.get("format") if kind == "responses" and isinstance(text, Mapping) else None
    if format_ and not _plain_text_format(format_):
        yield "text.format"
    for field in ("n", "best_of", "n_cmpl"):
        if isinstance(body.get(field), int) and body[field] > 1:
            yield field
    items = _list(body.get("input" if kind == "responses" else "messages"))
    if items and isinstance(items[-1], Mapping) and items[-1].get("role") == "assistant":
        yield "prefill"


def _plain_text_format(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "text"


def _has_media(body: Mapping[str, Any]) -> bool:
    for item in _list(body.get("messages")) + _list(body.get("input")):
        if type(item) is not dict and not isinstance(item, Mapping):
            continue
        content = item.get("content")
        if type(content) is list and _media_in(content, depth=0):
            return True
    return False


_TEXT_PARTS = {"text", "input_text", "output_text", "tool_use", "thinking", "redacted_thinking"}


def _media_in(content: object, depth: int) -> bool:
    for part in _list(content):
        if not isinstance(part, Mapping):
            continue
        kind = part.get("type")
        if kind == "tool_result":
            if depth < 4 and _media_in(part.get("content"), depth + 1):
                return True
        elif kind not in _TEXT_PARTS:
            return True
    return False
