"""Ten turns over one long document: PFlash and the KV cache, together and each alone."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.haystacks import as_unit, haystack, place
from bench.pflash.context import Context
from bench.pflash.needles import forms
from bench.server import Message, Server
from bench.store import Json, Record, number
from bench.summary import median_ratio

TURNS = 10
_DOCUMENT_TOKENS = 6144
_SLOT_TOKENS = 8192
_ANSWER_TOKENS = 24
_KEEP_RATIO = 0.2

_ON: Mapping[str, object] = {"mode": "always", "keep_ratio": _KEEP_RATIO, "min_keep_tokens": 0}
_OFF: Mapping[str, object] = {"mode": "off"}
# (PFlash, KV cache) of each variant; each has a slot of its own.
VARIANTS: Mapping[str, tuple[Mapping[str, object], bool]] = {
    "both": (_ON, True),
    "cache only": (_OFF, True),
    "PFlash only": (_ON, False),
}


@dataclass(frozen=True)
class Turn:
    """`ttft_ms` as the client saw it; `answered`: the fact asked for stood in the answer."""

    variant: str
    turn: int
    ttft_ms: float
    prompt_tokens: int
    cached_tokens: int
    score_ms: float
    answered: bool


def measure(context: Context) -> list[Turn]:
    """One conversation, held by the variants in turn, each with its own answers in its history.

    A conversation is measured as a whole: an interrupted one begins again.
    """
    slots = len(VARIANTS)
    with context.target("chat", slots * _SLOT_TOKENS, "--parallel", str(slots)) as server:
        text, asked = _conversation(context, server)
        turns = range(min(TURNS, context.options.quick or TURNS))
        key = context.key("chat", text=text, asked=asked, turns=len(turns))

        def hold() -> Record:
            histories: dict[str, list[Message]] = {name: [] for name in VARIANTS}
            records: list[Json] = []
            for turn in context.cases("chat", turns, limit=False):
                order = list(VARIANTS)
                for name in order[turn % slots :] + order[: turn % slots]:
                    records.append(_turn(server, histories[name], name, turn, text, asked[turn]))
            return {"turns": records}

        found = context.store.case(key, hold)["turns"]
    assert isinstance(found, list)
    return [_read(entry) for entry in found if isinstance(entry, dict)]


def later_turns_ratio(turns: Sequence[Turn], alone: str) -> float | None:
    """Median over the turns after the first of TTFT(`alone`) / TTFT(both); above 1 both win."""
    by_turn = {(t.variant, t.turn): t.ttft_ms for t in turns if t.turn}
    later = sorted({t.turn for t in turns if t.turn})
    return median_ratio([by_turn[alone, n] for n in later], [by_turn["both", n] for n in later])


def summary(turns: Sequence[Turn]) -> list[Json]:
    found: list[Json] = []
    for name in VARIANTS:
        these = [t for t in turns if t.variant == name]
        later = [t for t in these if t.turn]
        if later:
            found.append(
                {
                    "variant": name,
                    "first_ttft_ms": round(these[0].ttft_ms, 1),
                    "later_ttft_ms": round(median(t.ttft_ms for t in later), 1),
                    "later_prompt_tokens": median(t.prompt_tokens for t in later),
                    "later_cached_tokens": median(t.cached_tokens for t in later),
                    "later_score_ms": round(median(t.score_ms for t in later), 1),
                    "answered": sum(t.answered for t in these),
                    "turns": len(these),
                    "ttft_ms": [round(t.ttft_ms, 1) for t in these],
                }
            )
    return found


def _conversation(context: Context, server: Server) -> tuple[str, list[list[str]]]:
    """A document with ten facts in it, and (question, what answers it) of each turn."""
    split = context.options.split
    draw = random.Random(f"chat/{split}")
    known = forms(split)
    names = draw.sample(known.names, TURNS)
    asked, placed = [], []
    for number_, name in enumerate(names):
        needle, question = known.lexical[number_ % len(known.lexical)]
        value = str(draw.randrange(1000, 9999))
        fact = needle.format(name=name, number=value, clock=value)
        asked.append([question.format(name=name), value])
        placed.append((draw.uniform(0.03, 0.97), as_unit("essays", fact, draw)))
    units = haystack("essays", _DOCUMENT_TOKENS, split, "chat", server.count)
    return place(units, placed), asked


def _turn(
    server: Server,
    history: list[Message],
    name: str,
    turn: int,
    text: str,
    asked: Sequence[str],
) -> Record:
    question, value = asked
    content = f"{text}\n\n{question}" if turn == 0 else question
    history.append({"role": "user", "content": content})
    pflash, cached = VARIANTS[name]
    arrivals = []
    started = time.monotonic()
    for arrival in server.stream(
        history,
        max_tokens=_ANSWER_TOKENS,
        cache_prompt=cached,
        id_slot=list(VARIANTS).index(name),
        pflash=pflash,
    ):
        arrivals.append(arrival)
    answer = "".join(arrival.text for arrival in arrivals)
    first = next((a.at_s for a in arrivals if a.text), arrivals[-1].at_s)
    history.append({"role": "assistant", "content": answer})
    timings = next((a.timings for a in reversed(arrivals) if a.timings), None)
    about = timings.pflash if timings else None
    return {
        "variant": name,
        "turn": turn,
        "ttft_ms": (first - started) * 1e3,
        "prompt_tokens": timings.prompt_n if timings else 0,
        "cached_tokens": timings.cache_n if timings else 0,
        "score_ms": about.score_ms if about else 0.0,
        "answered": value in answer,
    }


def _read(entry: Record) -> Turn:
    return Turn(
        variant=str(entry["variant"]),
        turn=int(number(entry, "turn")),
        ttft_ms=number(entry, "ttft_ms"),
        prompt_tokens=int(number(entry, "prompt_tokens")),
        cached_tokens=int(number(entry, "cached_tokens")),
        score_ms=number(entry, "score_ms"),
        answered=entry["answered"] is True,
    )
