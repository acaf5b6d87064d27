"""A request body as rows of text: who says what, where in the body it stands, and whose turn it is.

Pure. A chat of ten thousand messages is read in lists, since an object for each would cost more
than everything else that is done to a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, overload

Kind = Literal["chat", "completion", "messages", "responses"]

_MAX_DEPTH = 8
"""How deep tool results may nest parts; a deeper one is not read and counts as no text."""
_TEXT_PARTS = frozenset(
    {
        *("text", "input_text", "output_text", "summary_text", "reasoning_text"),
        *("refusal", "tool_use", "thinking", "redacted_thinking"),
    }
)
_FILES = ("input_image", "input_file", "input_audio")
_MANY_ITEMS = 32
_MAX_TURN_ROWS = 256
_ROLES = {"developer": "system", "function": "tool"}


class Span(NamedTuple):
    """A piece of the request's text. `where` is its path in the body, `messages[2]` for one.

    `sure` is False for an ask that was told by its place alone: it may be a title or a closing
    line of what was pasted.
    """

    text: str
    role: str
    where: str
    sure: bool = True


@dataclass
class Rows:
    """A body's texts in its order, a row each. Row `i` has `texts[i]` and `roles[i]`.

    The first `len(wheres)` rows have their path there; after them row follows item of `key`.
    """

    key: str
    texts: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    wheres: list[str] = field(default_factory=list)
    media: bool = False
    """Something in the body is no text, or is nested too deep to be read."""
    joined: str | None = None
    """All texts in one, where that was made on the way."""
    _systems: list[int] | None = None

    def role(self, row: int) -> str:
        role = self.roles[row]
        return _ROLES.get(role, role) if isinstance(role, str) else "user"

    def where(self, row: int) -> str:
        listed = len(self.wheres)
        return self.wheres[row] if row < listed else f"{self.key}[{row - listed}]"

    def span(self, row: int) -> Span:
        return Span(self.texts[row], self.role(row), self.where(row))

    def systems(self) -> list[int]:
        """The rows of the system prompt and of messages in its name."""
        if self._systems is None:
            self._systems = []
            for name in ("system", "developer"):
                at = -1
                for _ in range(self.roles.count(name)):
                    at = self.roles.index(name, at + 1)
                    self._systems.append(at)
            self._systems.sort()
        return self._systems

    def user_turns(self) -> Iterator[range]:
        """Runs of a user's rows with nobody else's between, newest first; long ones in several."""
        backwards = self.roles[::-1]
        size, at = len(backwards), 0
        while True:
            try:
                first = backwards.index("user", at)
            except ValueError:
                return
            at, end = first + 1, min(size, first + _MAX_TURN_ROWS)
            while at < end and backwards[at] == "user":
                at += 1
            yield range(size - at, size - first)

    def first_user(self) -> range:
        """The rows of the first message of a user."""
        try:
            first = self.roles.index("user")
        except ValueError:
            return range(0)
        item, end = self.where(first).split(".")[0], first + 1
        while end < len(self.roles) and self.roles[end] == "user":
            if self.where(end).split(".")[0] != item:
                break
            end += 1
        return range(first, end)

    def add(self, text: str, role: str, where: str) -> None:
        self.texts.append(text)
        self.roles.append(role)
        self.wheres.append(where)

    def add_content(self, content: object, role: str, where: str, depth: int = 0) -> None:
        if isinstance(content, str):
            self.add(content, role, where)
        elif isinstance(content, list) and depth <= _MAX_DEPTH:
            for i, part in enumerate(content):
                if isinstance(part, str):
                    self.add(part, role, f"{where}.content[{i}]")
                    continue
                kind = part.get("type") if isinstance(part, dict) else None
                if kind == "tool_result":
                    inner = f"{where}.content[{i}]"
                    self.add_content(part.get("content"), "tool", inner, depth + 1)
                    continue
                if not (isinstance(kind, str) and kind in _TEXT_PARTS):
                    self.media = True
                text = part.get("text") if isinstance(part, dict) else None
                if isinstance(text, str):
                    self.add(text, role, f"{where}.content[{i}]")
        elif content is not None:
            self.media = True


class Spans(Sequence[Span]):
    """Spans of a body, made when they are first looked at."""

    def __init__(self, rows: Rows, parts: Sequence[tuple[range, slice]]) -> None:
        """`parts` are runs of rows, and the slice of each of their texts that counts."""
        self._rows, self._parts = rows, parts
        self._spans: tuple[Span, ...] | None = None

    def _made(self) -> tuple[Span, ...]:
        if self._spans is None:
            spans: list[Span] = []
            for run, cut in self._parts:
                for row in run:
                    text = self._rows.texts[row][cut]
                    if text and not text.isspace():
                        spans.append(Span(text, self._rows.role(row), self._rows.where(row)))
            self._spans = tuple(spans)
        return self._spans

    def __len__(self) -> int:
        return len(self._made())

    def __iter__(self) -> Iterator[Span]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | Sequence[Span]:
        return self._made()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Spans, tuple)) and self._made() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._made())

    def __repr__(self) -> str:
        return f"Spans({len(self)})"


def kind_of(body: Mapping[str, Any]) -> Kind:
    """The API that a body is of, by its shape."""
    if "messages" in body:
        return "messages" if "system" in body else "chat"
    return "responses" if "input" in body else "completion"


def read_rows(body: Mapping[str, Any], kind: Kind) -> Rows:
    """All text of a body. What has another type than its API gives it is left out."""
    if kind == "completion":
        rows, prompt = Rows("prompt"), body.get("prompt")
        if isinstance(prompt, str):
            rows.add(prompt, "user", "prompt")
        elif isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
            rows.texts, rows.roles = list(prompt), ["user"] * len(prompt)
        return rows
    key = "input" if kind == "responses" else "messages"
    rows, items = Rows(key), body.get(key)
    if kind == "responses":
        rows.add_content(body.get("instructions"), "system", "instructions")
    elif kind == "messages":
        rows.add_content(body.get("system"), "system", "system")
    if isinstance(items, str):
        rows.add(items, "user", key)
    elif isinstance(items, list):
        _read_items(rows, items)
    elif items is not None:
        rows.media = True
    return rows


def _read_items(rows: Rows, items: list[Any]) -> None:
    if len(items) >= _MANY_ITEMS:
        try:
            texts = [item["content"] for item in items]
            joined = "".join(texts)  # a TypeError where one of them is no text
            roles = [item["role"] for item in items]
        except (KeyError, TypeError, IndexError):
            pass
        else:
            rows.joined = "".join([*rows.texts, joined]) if rows.texts else joined
            rows.texts = rows.texts + texts if rows.texts else texts
            rows.roles = rows.roles + roles if rows.roles else roles
            return
    for i, item in enumerate(items):
        _read_item(rows, item, f"{rows.key}[{i}]")


def _read_item(rows: Rows, item: object, where: str) -> None:
    if not isinstance(item, dict):
        rows.media = True
        return
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not role:
        kind = item.get("type")
        role = kind if isinstance(kind, str) and kind not in ("", "message") else "user"
        if role.endswith("_output"):
            role, content = "tool", item.get("output")
        elif role in _FILES:
            rows.media = True
    if isinstance(content, str):
        rows.add(content, role, where)
    else:
        rows.add_content(content, role, where)
