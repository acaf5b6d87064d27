"""Reading a request: any body LiteLLM accepts becomes one `RequestView`.

Pure: no I/O, no clock, no logging. Linear in the length of the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Lane = Literal["direct", "pflash", "verify"]
LANES: tuple[Lane, ...] = ("direct", "pflash", "verify")
LANE_ALIASES: Mapping[str, Lane] = {
    "direct": "direct",
    "pflash": "pflash",
    "verify": "verify",
    "direct_exact": "direct",
    "pflash_broad": "pflash",
    "pflash_then_direct_verify": "verify",
}
ROUTE_FIELDS = ("route", "x_route", "smart_route")
ROUTE_HEADER = "x-flashlane-route"
PFLASH_MODES = ("off", "auto", "always")
MAX_MIN_KEEP_TOKENS = 2**31 - 1
"""The server reads `min_keep_tokens` into a signed 32-bit integer."""
_PFLASH_KEYS = ("mode", "keep_ratio", "min_keep_tokens")
_PFLASH_FLAT = {f"pflash_{key}": key for key in _PFLASH_KEYS}
PRIVATE_FIELDS = (*ROUTE_FIELDS, "pflash", *_PFLASH_FLAT)
"""Body fields that are ours: read here, and removed before the request leaves the proxy."""

_SHOWN_MAX_CHARS = 80
_ASK_MAX_CHARS = 600
"""A paragraph no longer than this can be somebody's ask; a longer one is material."""

Kind = Literal["chat", "completion", "messages", "responses"]


class RequestError(ValueError):
    """A request that is refused with 400. `param` names the field at fault."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class Span:
    """A piece of the request's text. `where` is its path in the body, `messages[2]` for one."""

    text: str
    role: str
    where: str


@dataclass(frozen=True)
class Controls:
    """What the client asked of flashlane itself, validated."""

    lane: Lane | None = None
    lane_field: str = ""
    keep_ratio: float | None = None
    min_keep_tokens: int | None = None


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
    controls: Controls = Controls()
    stream: bool = False
    structure: tuple[str, ...] = ()
    """Names of the body's fields that demand an exact answer: tools, response_format, …"""
    multimodal: bool = False
    token_prompt: bool = False


def shown(value: object) -> str:
    """`value` as an error names it: a client's value may be as long as a prompt."""
    text = repr(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__
    return text if len(text) <= _SHOWN_MAX_CHARS else f"{text[:_SHOWN_MAX_CHARS]}…"


def estimate_tokens(text: str) -> int:
    """Tokens of `text` before any tokenizer has seen it.

    Four ASCII characters a token, one token for each other character: within about 30 % for
    English prose, code and CJK on the vocabularies this was compared with.
    """
    ascii_chars = len(text.encode("ascii", "ignore"))
    return (ascii_chars + 3) // 4 + (len(text) - ascii_chars)


def read_controls(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Controls:
    """The client's own choice of lane and keep ratio.

    Raises `RequestError` for an unknown value, and for two fields that contradict each other.
    """
    named: list[tuple[str, str, Lane]] = []
    for field in ROUTE_FIELDS:
        if body.get(field) is not None:
            named.append((field, str(body[field]), _lane_of(field, body[field])))
    for name, value in (headers or {}).items():
        if name.lower() == ROUTE_HEADER:
            named.append((ROUTE_HEADER, value, _lane_of(ROUTE_HEADER, value)))
    pflash = _pflash_fields(body)
    mode = pflash.get("mode")
    if mode == "off":
        named.append(("pflash.mode", "off", "direct"))
    elif mode == "always":
        named.append(("pflash.mode", "always", "pflash"))
    for field, value, lane in named[1:]:
        if lane != named[0][2]:
            raise RequestError(
                f"{named[0][0]} is {shown(named[0][1])} and {field} is {shown(value)}: "
                "they ask for different lanes; send one of them",
                field,
            )
    return Controls(
        lane=named[0][2] if named else None,
        lane_field=named[0][0] if named else "",
        keep_ratio=pflash.get("keep_ratio"),
        min_keep_tokens=pflash.get("min_keep_tokens"),
    )


def _lane_of(field: str, value: object) -> Lane:
    lane = LANE_ALIASES.get(value.strip()) if isinstance(value, str) else None
    if lane is None:
        accepted = ", ".join(LANE_ALIASES)
        raise RequestError(f"{field} is {shown(value)}; accepted values: {accepted}", field)
    return lane


def _pflash_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    nested = body.get("pflash")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise RequestError(
                f"pflash is {shown(nested)}; it must be an object with {', '.join(_PFLASH_KEYS)}",
                "pflash",
            )
        for key, value in nested.items():
            if key not in _PFLASH_KEYS:
                raise RequestError(
                    f"pflash.{key} is not known; accepted keys: {', '.join(_PFLASH_KEYS)}",
                    f"pflash.{key}",
                )
            if value is not None:
                fields[key] = _pflash_value(f"pflash.{key}", key, value)
    for field in body:
        ours = field.startswith(("pflash_", "kvflash")) and field not in _PFLASH_FLAT
        if ours and body[field] is not None:
            raise RequestError(
                f"{field} is not known; accepted fields: pflash, {', '.join(_PFLASH_FLAT)}", field
            )
    for flat, key in _PFLASH_FLAT.items():
        if body.get(flat) is None:
            continue
        value = _pflash_value(flat, key, body[flat])
        if key in fields and fields[key] != value:
            raise RequestError(
                f"{flat} is {shown(value)} and pflash.{key} is {shown(fields[key])}; "
                "send one of them",
                flat,
            )
        fields[key] = value
    return fields


def _pflash_value(field: str, key: str, value: object) -> object:
    if key == "mode":
        if value in PFLASH_MODES:
            return value
        raise RequestError(
            f"{field} is {shown(value)}; accepted values: {', '.join(PFLASH_MODES)}", field
        )
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "keep_ratio":
        if number and 0 < value <= 1:  # type: ignore[operator]
            return float(value)  # type: ignore[arg-type]
        raise RequestError(f"{field} is {shown(value)}; it must be above 0 and at most 1", field)
    if isinstance(value, int) and number and 0 <= value <= MAX_MIN_KEEP_TOKENS:
        return value
    raise RequestError(
        f"{field} is {shown(value)}; it must be a whole number of tokens, "
        f"0 to {MAX_MIN_KEEP_TOKENS}",
        field,
    )


def read_request(
    body: Mapping[str, Any], headers: Mapping[str, str] | None = None, kind: Kind | None = None
) -> RequestView:
    """The view of one request body: chat, text completion, Anthropic messages or Responses.

    `kind` is taken from the body's shape when it is not given. Raises `RequestError` for a
    body in which flashlane's own fields are wrong; everything else is LiteLLM's to judge.
    """
    kind = kind or _kind_of(body)
    spans = list(_spans(body, kind))
    instructions, context, ask = _split(spans)
    tokens = sum(estimate_tokens(span.text) for span in spans)
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
        ask=ask,
        instructions=tuple(instructions),
        context=tuple(context),
        estimated_tokens=tokens,
        context_tokens=sum(estimate_tokens(span.text) for span in context),
        controls=read_controls(body, headers),
        stream=bool(body.get("stream")),
        structure=tuple(_structure(body, kind)),
        multimodal=_has_media(body),
        token_prompt=token_prompt,
    )


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
        if not isinstance(message, Mapping):
            continue
        where = f"{key}[{i}]"
        role = str(message.get("role") or message.get("type") or "user")
        role = {"developer": "system", "function": "tool"}.get(role, role)
        if role == "function_call_output":
            yield from _content_spans(message.get("output"), "tool", where)
        else:
            yield from _content_spans(message.get("content"), role, where)


def _content_spans(content: object, role: str, where: str) -> Iterator[Span]:
    if isinstance(content, str):
        yield Span(content, role, where)
        return
    for i, part in enumerate(_list(content)):
        if isinstance(part, str):
            yield Span(part, role, f"{where}.content[{i}]")
        elif isinstance(part, Mapping):
            if part.get("type") == "tool_result":
                yield from _content_spans(part.get("content"), "tool", f"{where}.content[{i}]")
            elif isinstance(part.get("text"), str):
                yield Span(part["text"], role, f"{where}.content[{i}]")


def _split(spans: list[Span]) -> tuple[list[Span], list[Span], str]:
    """Instruction spans, context spans, and the ask in the newest user message.

    The newest user message often holds document and ask together, with the ask before the
    document, after it, or both. Its short first and last paragraphs are taken as the ask.
    A newest user message that is all material leaves an empty ask, which routes as unsure.
    """
    last_user = next((s.where.split(".")[0] for s in reversed(spans) if s.role == "user"), None)
    instructions: list[Span] = []
    context: list[Span] = []
    asks: list[str] = []
    for span in spans:
        if not span.text.strip():
            continue
        if span.role == "system":
            instructions.append(span)
        elif span.where.split(".")[0] == last_user and span.role == "user":
            head, middle, tail = split_ask(span.text)
            for text in (head, tail):
                if text:
                    asks.append(text)
                    instructions.append(Span(text, span.role, span.where))
            if middle:
                context.append(Span(middle, span.role, span.where))
        else:
            context.append(span)
    return instructions, context, "\n".join(asks)


def split_ask(text: str) -> tuple[str, str, str]:
    """(ask before the material, the material, ask after it); any of them may be empty.

    A text no longer than `_ASK_MAX_CHARS` is all ask. Otherwise the first and the last
    paragraph are asks when they are short enough, by line where paragraphs are too long.
    """
    text = text.strip()
    if len(text) <= _ASK_MAX_CHARS:
        return text, "", ""
    head = _short_end(text, first=True)
    tail = _short_end(text, first=False)
    middle = text[len(head) : len(text) - len(tail)].strip()
    return head, middle, tail


def _short_end(text: str, *, first: bool) -> str:
    for separator in ("\n\n", "\n"):
        at = text.find(separator) if first else text.rfind(separator)
        if at < 0:
            continue
        piece = text[:at] if first else text[at + len(separator) :]
        if piece.strip() and len(piece) <= _ASK_MAX_CHARS:
            return piece
    return ""


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
        if isinstance(item, Mapping) and _media_in(item.get("content"), depth=0):
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
