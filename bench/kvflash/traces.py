"""Traces: who asks when, what the chats share, how much is new. Lengths alone, no text.

`texts.py` puts words in for a model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

CHATS, TURNS = 8, 10
_TINY_MIB, _TARGET_MIB = 64, 1024  # holds every chat
_SCARCE_MIB = 5  # holds about half of them: a token of the tiny model takes 512 bytes
_ANSWER_TOKENS = 16


@dataclass(frozen=True)
class Piece:
    """`tokens` tokens of the text named `seed`: fewer are the beginning of more."""

    seed: str
    tokens: int


@dataclass(frozen=True)
class Ask:
    """A chat goes on: `pieces` follow what it holds, which is every ask and answer before."""

    chat: int
    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)


@dataclass(frozen=True)
class Trace:
    """`memory_mib`: what KVFlash may keep outside of the slots. `pressure`: counts for the goal of
    eight chats of ten turns. `scarce`: the memory is too small for all chats, so that upstream with
    its default of more is no comparison."""

    name: str
    about: str
    asks: tuple[Ask, ...]
    answer_tokens: int = _ANSWER_TOKENS
    memory_mib: int = _TINY_MIB
    pressure: bool = True
    scarce: bool = False

    @property
    def longest_tokens(self) -> int:
        """Of the chats at their end, answers included."""
        held: dict[int, int] = {}
        for ask in self.asks:
            held[ask.chat] = held.get(ask.chat, 0) + ask.tokens + self.answer_tokens
        return max(held.values())


def traces() -> tuple[Trace, ...]:
    """For the tiny model, whose prefill costs nearly nothing; work is counted in tokens."""
    lone = _openings("chat")
    return (
        Trace(
            "round robin",
            "8 chats, 10 turns, one after another",
            _asks("round", round_robin(), lone),
        ),
        Trace("random", "the same, in a drawn order", _asks("random", shuffled("order"), lone)),
        Trace(
            "bursts",
            "the same, 1 to 4 turns of one chat at a time",
            _asks("bursts", bursts("order"), lone),
        ),
        Trace(
            "shared",
            "8 growing chats under one system prompt and two sets of tools, in a drawn order",
            _asks("shared", shuffled("shared"), _shared_openings()),
        ),
        Trace(
            "scarce",
            "8 chats in a drawn order, memory for about half of them",
            _asks("scarce", shuffled("scarce"), lone),
            memory_mib=_SCARCE_MIB,
            pressure=False,
            scarce=True,
        ),
    )


def short_trace() -> Trace:
    """For the target: short enough for a model that takes its time."""
    openings = [(Piece(f"short/{chat}", 320),) for chat in range(CHATS)]
    return Trace(
        "round robin, target",
        "8 short chats, 10 turns, one after another",
        _asks("short", round_robin(), openings, (32, 32)),
        answer_tokens=8,
        memory_mib=_TARGET_MIB,
    )


def growing() -> tuple[Trace, ...]:
    """Chats of three turns, one that stays in its slot and four over two slots."""

    def trace(name: str, about: str, chats: int) -> Trace:
        openings = [(Piece(f"{name}/{chat}", 1200),) for chat in range(chats)]
        asks = _asks(name, round_robin(chats, 3), openings, (40, 40))
        return Trace(name, about, asks, answer_tokens=8, memory_mib=_TARGET_MIB, pressure=False)

    return (
        trace("one chat", "3 turns in one slot", 1),
        trace("four chats", "3 turns each over two slots", 4),
    )


def round_robin(chats: int = CHATS, turns: int = TURNS) -> list[int]:
    return [chat for _ in range(turns) for chat in range(chats)]


def shuffled(seed: str, chats: int = CHATS, turns: int = TURNS) -> list[int]:
    order = round_robin(chats, turns)
    random.Random(seed).shuffle(order)
    return order


def bursts(seed: str, chats: int = CHATS, turns: int = TURNS) -> list[int]:
    draw = random.Random(seed)
    runs = []
    for chat in range(chats):
        left = turns
        while left:
            runs.append([chat] * min(left, draw.randint(1, 4)))
            left -= len(runs[-1])
    draw.shuffle(runs)
    return [chat for run in runs for chat in run]


def cut(pieces: Iterable[Piece], tokens: int) -> Iterator[Piece]:
    """The first `tokens` tokens of the pieces."""
    for piece in pieces:
        if tokens <= 0:
            return
        yield Piece(piece.seed, min(piece.tokens, tokens))
        tokens -= piece.tokens


def _asks(
    name: str,
    order: Sequence[int],
    openings: Sequence[tuple[Piece, ...]],
    lengths: tuple[int, int] = (40, 160),
) -> tuple[Ask, ...]:
    """The first ask of a chat brings its opening; each has between `lengths` tokens of its own."""
    draw = random.Random(f"asks/{name}")
    seen: set[int] = set()
    asks = []
    for number, chat in enumerate(order):
        opening = () if chat in seen else openings[chat]
        seen.add(chat)
        own = Piece(f"{name}/ask/{number}", draw.randint(*lengths))
        asks.append(Ask(chat, (*opening, own)))
    return tuple(asks)


def _openings(name: str) -> list[tuple[Piece, ...]]:
    draw = random.Random(f"openings/{name}")
    return [(Piece(f"{name}/{chat}", draw.randint(1000, 2400)),) for chat in range(CHATS)]


def _shared_openings() -> list[tuple[Piece, ...]]:
    draw = random.Random("openings/shared")
    return [
        (
            Piece("system", 900),
            Piece(f"tools/{chat % 2}", 700),
            Piece(f"shared/{chat}", draw.randint(100, 300)),
        )
        for chat in range(CHATS)
    ]
