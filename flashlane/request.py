"""Reading a request: any body LiteLLM accepts becomes one `RequestView`.

Pure: no I/O, no clock, no logging. The work is linear in the length of the body; what is done
for each character or message is done by the interpreter's own loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from flashlane.ask import Piece, find_ask
from flashlane.asklines import leans_back
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
from flashlane.turns import Kind, Rows, Span, Spans, kind_of, read_rows

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

_COUNTED_CHARS = 65_536
"""A text longer than this that is not all ASCII is estimated from samples."""
_SAMPLES = 32
_SAMPLE_CHARS = 1024
_APART_ROWS = 64
_MAX_TURNS_READ = 5
"""How many of a user's turns are read for an ask while the newest has none of its own."""
_NAMED_CHARS = 4096
"""What of a text goes into the conversation's name, besides its length."""
_NAMED_ROWS = 32
_NAMED_TOKENS = 256
_LENGTH_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True)
class RequestView:
    """What the router knows of a request. Token counts are estimates: see `estimate_tokens`."""

    kind: Kind
    model: str
    ask: str
    instructions: tuple[Span, ...]
    context: Sequence[Span]
    estimated_tokens: int
    context_tokens: int
    controls: Controls = field(default_factory=Controls)
    stream: bool = False
    structure: tuple[str, ...] = ()
    """Names of the body's fields that demand an exact answer: tools, response_format, …"""
    multimodal: bool = False
    """Part of the body is no text, or none that could be read."""
    token_prompt: bool = False
    max_tokens: int | None = None
    """The longest answer the client takes, in tokens."""
    ask_where: tuple[str, ...] = ()
    """Paths in the body of the texts that `ask` was taken from, in the body's order."""
    conversation: str = ""
    """A short name for the system prompt and the first user message: the same as a chat grows.
    Empty where the body lacks them: nothing was said, or it goes on from an earlier response."""


def estimate_tokens(text: str) -> int:
    """Tokens of `text` before any tokenizer has seen it.

    Four ASCII characters a token, one token for each other character: within about 30 % for
    English prose, code and CJK on the vocabularies this was compared with.
    """
    size = len(text)
    ascii_chars = size if text.isascii() else _ascii_chars(text)
    return (ascii_chars + 3) // 4 + (size - ascii_chars)


def _ascii_chars(text: str) -> int:
    """How many characters of `text` are ASCII, to within a few per cent where it is long."""
    size = len(text)
    if size <= _COUNTED_CHARS:
        return len(text.encode("ascii", "ignore"))
    last = size - _SAMPLE_CHARS
    starts = [last * i // (_SAMPLES - 1) for i in range(_SAMPLES)]
    sample = "".join([text[start : start + _SAMPLE_CHARS] for start in starts])
    return size * len(sample.encode("ascii", "ignore")) // len(sample)


def read_request(
    body: Mapping[str, Any], headers: Mapping[str, str] | None = None, kind: Kind | None = None
) -> RequestView:
    """The view of one request body: chat, text completion, Anthropic messages or Responses.

    `kind` is taken from the body's shape when it is not given. Raises `RequestError` for a
    body in which flashlane's own fields are wrong; everything else is LiteLLM's to judge.
    """
    if not isinstance(body, Mapping):
        raise RequestError(f"the body is {shown(body)}; it must be an object", "")
    kind = kind or kind_of(body)
    prompt = body.get("prompt") if kind == "completion" else None
    token_count = _check_prompt(prompt)
    rows = read_rows(body, kind)
    asks = _asks(rows)
    instructions = [*map(rows.span, rows.systems())]
    for row, pieces in asks.items():
        role, where, text = rows.role(row), rows.where(row), rows.texts[row]
        instructions += [Span(text[p.start : p.end], role, where, p.strong) for p in pieces]
    tokens = _tokens(rows)
    told = sum(estimate_tokens(span.text) for span in instructions)
    model = body.get("model")
    return RequestView(
        kind=kind,
        model=model if isinstance(model, str) else "",
        ask="\n".join(span.text for span in instructions if span.role == "user"),
        instructions=tuple(instructions),
        context=_context(rows, asks),
        estimated_tokens=tokens + token_count,
        context_tokens=max(0, tokens - told),
        controls=read_controls(body, headers),
        stream=bool(body.get("stream")),
        structure=tuple(_structure(body, kind)),
        multimodal=rows.media,
        token_prompt=isinstance(prompt, list) and bool(prompt) and not rows.texts,
        max_tokens=_max_tokens(body),
        ask_where=tuple(map(rows.where, asks)),
        conversation=_conversation(rows, body, prompt),
    )


def _asks(rows: Rows) -> dict[int, list[Piece]]:
    """The pieces of each row that are ask, by row in the body's order.

    They are those of the user's newest turn. Where it has none that reads like one, or leans on
    what was asked before it, an earlier turn's go with them.
    """
    found: dict[int, list[Piece]] = {}
    for read, turn in enumerate(rows.user_turns()):
        pieces = find_ask(rows.texts[turn.start : turn.stop], ends_only=read > 0)
        strong = any(piece.strong for piece in pieces)
        if strong or read == 0:
            for piece in pieces:
                found.setdefault(turn.start + piece.text, []).append(piece)
        if strong and not leans_back([rows.texts[turn[p.text]][p.start : p.end] for p in pieces]):
            break
        if read + 1 >= _MAX_TURNS_READ:
            break
    return dict(sorted(found.items()))


def _tokens(rows: Rows) -> int:
    """The estimate of all texts: of long ones apart, which saves a copy, of many in one."""
    if rows.joined is None and len(rows.texts) <= _APART_ROWS:
        return sum(map(estimate_tokens, rows.texts))
    return estimate_tokens(rows.joined if rows.joined is not None else "".join(rows.texts))


def _context(rows: Rows, asks: Mapping[int, Sequence[Piece]]) -> Spans:
    """Everything that is neither ask nor system prompt."""
    parts: list[tuple[range, slice]] = []
    at = 0
    for row in sorted({*rows.systems(), *asks}):
        parts.append((range(at, row), slice(None)))
        at, done = row + 1, 0
        for piece in asks.get(row, ()):
            parts.append((range(row, at), slice(done, piece.start)))
            done = piece.end
        if row in asks:
            parts.append((range(row, at), slice(done, None)))
    parts.append((range(at, len(rows.texts)), slice(None)))
    return Spans(rows, parts)


def _conversation(rows: Rows, body: Mapping[str, Any], prompt: object) -> str:
    """See `RequestView.conversation`. A text completion has no turns: each prompt is its own."""
    if body.get("previous_response_id") is not None:
        return ""  # what came before is not in the body
    first = rows.first_user()
    before = [row for row in rows.systems()[:_NAMED_ROWS] if row < first.start or not first]
    named = [*before, *first[:_NAMED_ROWS]]
    name = blake2b(digest_size=8)
    for row in named:
        text = rows.texts[row]
        name.update(f"{rows.role(row)} {len(text)} ".encode())
        name.update(text[:_NAMED_CHARS].encode("utf-8", "surrogatepass"))
    if not named and isinstance(prompt, list) and prompt:
        numbers = prompt[0] if isinstance(prompt[0], list) else prompt
        head = [number % 2**32 for number in numbers[:_NAMED_TOKENS]]
        name.update(f"{len(prompt)} {len(numbers)} {head}".encode())
    elif not named:
        return ""
    return name.hexdigest()


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    """The smallest of the limits that are given, since which of them wins is the engine's."""
    given = [body[name] for name in _LENGTH_FIELDS if type(body.get(name)) is int]
    return min((limit for limit in given if limit > 0), default=None)


def _check_prompt(prompt: object) -> int:
    """How many token numbers a text completion's prompt holds; 0 for text.

    Raises `RequestError` for anything but text, texts, token numbers or lists of them.
    """
    if prompt is None or isinstance(prompt, str) or prompt == []:
        return 0
    if isinstance(prompt, list):
        try:
            if isinstance(prompt[0], str):
                "".join(prompt)  # a TypeError where one of them is no text
                return 0
            rows = prompt if isinstance(prompt[0], list) else [prompt]
            # A sum is an integer where all are: there is no faster look at 100,000 numbers.
            if all(type(row) is list and type(sum(row)) is int for row in rows):
                return sum(map(len, rows))
        except (TypeError, OverflowError):
            pass
    raise RequestError(
        f"prompt is {shown(prompt)}; it must be text, a list of texts, a list of token "
        "numbers, or a list of such lists",
        "prompt",
    )


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
    for name in _STRUCTURE_FIELDS:
        if body.get(name) not in (None, False, [], {}, "", 0):
            if name == "response_format" and _plain_text_format(body[name]):
                continue
            yield name
    text = body.get("text")
    format_ = text.get("format") if kind == "responses" and isinstance(text, Mapping) else None
    if format_ and not _plain_text_format(format_):
        yield "text.format"
    for name in ("n", "best_of", "n_cmpl"):
        if isinstance(body.get(name), int) and body[name] > 1:
            yield name
    prompt = body.get("prompt") if kind == "completion" else None
    if isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str):
        yield "prompt"  # several prompts, each with an ask of its own
    items = body.get("input" if kind == "responses" else "messages")
    last = items[-1] if isinstance(items, list) and items else None
    if isinstance(last, Mapping) and last.get("role") == "assistant":
        yield "prefill"


def _plain_text_format(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "text"
