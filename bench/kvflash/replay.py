"""Traces, replayed with KVFlash and without: what is processed of each prompt, and what is said.

Every variant gets the same prompts: what a chat holds is what a cold run answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial

from bench.kvflash.context import Context
from bench.kvflash.sessions import agents
from bench.kvflash.texts import Words, tokens_of
from bench.kvflash.traces import Ask, Trace, growing, short_trace, traces
from bench.server import Completion, Server
from bench.store import Json, Record, number

OURS, DEFAULT, SAME = "KVFlash", "upstream", "upstream, same memory"
DENSE = "tiny dense"
TARGET, WINDOWED = "target", "sliding window"
GROWING_MODELS = (WINDOWED, "tiny windowed", "tiny recurrent", "tiny hybrid")
_LIKELY = 10
_ROOM_TOKENS = 2048


@dataclass(frozen=True)
class Row:
    """One prompt of a trace under one variant.

    `new_tokens` were never processed before in its chat; `likely_difference` is the largest one of
    the first place's log probabilities to those of a cold run, over the tokens that both list.
    """

    trace: str
    model: str
    variant: str
    chat: int
    turn: int
    prompt_tokens: int
    new_tokens: int
    processed: int
    tier: str
    equal: bool
    likely_difference: float


@dataclass(frozen=True)
class Prompt:
    ask: Ask
    turn: int
    tokens: list[int]
    new_tokens: int


def measure_traces(context: Context) -> list[Row]:
    wanted = [(DENSE, trace) for trace in (*traces(), agents())] + [(TARGET, short_trace())]
    return _measure(context, "traces", wanted)


def measure_growing(context: Context) -> list[Row]:
    return _measure(
        context, "growing", [(model, trace) for model in GROWING_MODELS for trace in growing()]
    )


def prompts(trace: Trace, words: Words, answers: Sequence[Sequence[int]]) -> Iterator[Prompt]:
    """The prompts of a trace, where `answers` were given; these may still grow meanwhile.

    Of an answer its last token was never processed.
    """
    held: dict[int, list[int]] = {}
    turns: dict[int, int] = {}
    for at, ask in enumerate(trace.asks):
        before = held.get(ask.chat, [])
        turn = turns.get(ask.chat, 0)
        tokens = before + tokens_of(ask.pieces, words)
        yield Prompt(ask, turn, tokens, len(tokens) - len(before) + (1 if turn else 0))
        held[ask.chat] = [*tokens, *answers[at]]
        turns[ask.chat] = turn + 1


def work(rows: Sequence[Row], trace: str, variant: str) -> int:
    """Prompt tokens processed."""
    return sum(row.processed for row in rows if (row.trace, row.variant) == (trace, variant))


def names(rows: Sequence[Row]) -> list[str]:
    """The traces, in the order in which they were measured."""
    return list(dict.fromkeys(row.trace for row in rows))


def third_turn_beyond(rows: Sequence[Row], model: str, variant: str = OURS) -> list[int]:
    """Tokens that the third turns of a model's chats processed beyond the new ones."""
    return [
        row.processed - row.new_tokens
        for row in rows
        if (row.model, row.variant, row.turn) == (model, variant, 2)
    ]


def summary(rows: Sequence[Row]) -> list[Json]:
    found: list[Json] = []
    for model, trace, variant in dict.fromkeys((r.model, r.trace, r.variant) for r in rows):
        these = [r for r in rows if (r.model, r.trace, r.variant) == (model, trace, variant)]
        later = [r for r in these if r.turn]
        entry: Record = {
            "model": model,
            "trace": trace,
            "variant": variant,
            "prompts": len(these),
            "prompt_tokens": sum(r.prompt_tokens for r in these),
            "new_tokens": sum(r.new_tokens for r in these),
            "processed": sum(r.processed for r in these),
            "most_beyond_new_in_later_turns": max(
                (r.processed - r.new_tokens for r in later), default=0
            ),
            "equal": sum(r.equal for r in these),
            "likely_difference": max(r.likely_difference for r in these),
        }
        for tier in ("slot", "sibling", "ram", "disk"):
            entry[tier] = sum(r.tier == tier for r in these)
        found.append(entry)
    return found


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    return max((abs(one[token] - other[token]) for token in one.keys() & other.keys()), default=0.0)


def _measure(context: Context, part: str, wanted: Sequence[tuple[str, Trace]]) -> list[Row]:
    chosen = wanted[: context.options.quick]
    runs = [
        (model, trace, variant)
        for model, trace in chosen
        for variant in (OURS, *((DEFAULT,) if not trace.scarce else ()), SAME)
    ]
    rows: list[Row] = []
    for model, trace, variant in context.cases(part, runs, limit=False):
        cold = context.store.case(
            context.key("cold", model, trace=asdict(trace)), partial(_cold, context, model, trace)
        )
        record = context.store.case(
            context.key("replay", model, trace=asdict(trace), variant=variant),
            partial(_replay, context, model, trace, variant, cold),
        )
        rows += [_row(entry, trace, model, variant) for entry in _list(record, "prompts")]
    return rows


def _cold(context: Context, model: str, trace: Trace) -> Record:
    """The answers, and the likely tokens of their first places, as lists by token."""
    answers: list[list[int]] = []
    kept: list[Json] = []
    with context.cold("cold", model, trace.longest_tokens + _ROOM_TOKENS) as server:
        for prompt in prompts(trace, context.words(model, server), answers):
            found = _ask(server, prompt.tokens, trace, cache_prompt=False)
            answers.append(found.tokens)
            likely: Record = {str(token): value for token, value in found.likely.items()}
            kept.append({"tokens": list(found.tokens), "likely": likely})
    return {"answers": kept}


def _replay(context: Context, model: str, trace: Trace, variant: str, cold: Record) -> Record:
    expected = [(_answer(entry), _likely(entry)) for entry in _list(cold, "answers")]
    answers = [answer for answer, _ in expected]
    kept: list[Json] = []
    with _variant(context, model, trace, variant) as server:
        asked = prompts(trace, context.words(model, server), answers)
        for prompt, (answer, likely) in zip(asked, expected, strict=True):
            found = _ask(server, prompt.tokens, trace)
            about = found.timings.kvflash
            kept.append(
                {
                    "chat": prompt.ask.chat,
                    "turn": prompt.turn,
                    "prompt_tokens": len(prompt.tokens),
                    "new_tokens": prompt.new_tokens,
                    "processed": found.timings.prompt_n,
                    "tier": about.tier if about else "",
                    "equal": found.tokens == answer,
                    "likely_difference": difference(found.likely, likely),
                }
            )
    return {"prompts": kept}


def _variant(
    context: Context, model: str, trace: Trace, variant: str
) -> AbstractContextManager[Server]:
    # Cells for the two longest chats.
    ctx_tokens = 2 * (trace.longest_tokens + _ROOM_TOKENS)
    memory = ("--cache-ram", str(trace.memory_mib))
    if variant == OURS:
        return context.kvflash("kvflash", model, ctx_tokens, *memory)
    return context.upstream("upstream", model, ctx_tokens, *(memory if variant == SAME else ()))


def _ask(server: Server, prompt: Sequence[int], trace: Trace, **fields: object) -> Completion:
    return server.complete(prompt, trace.answer_tokens, n_probs=_LIKELY, **fields)


def _row(entry: Record, trace: Trace, model: str, variant: str) -> Row:
    return Row(
        trace=trace.name,
        model=model,
        variant=variant,
        chat=int(number(entry, "chat")),
        turn=int(number(entry, "turn")),
        prompt_tokens=int(number(entry, "prompt_tokens")),
        new_tokens=int(number(entry, "new_tokens")),
        processed=int(number(entry, "processed")),
        tier=str(entry["tier"]),
        equal=entry["equal"] is True,
        likely_difference=number(entry, "likely_difference"),
    )


def _list(record: Record, name: str) -> list[Record]:
    found = record[name]
    assert isinstance(found, list)
    return [entry for entry in found if isinstance(entry, dict)]


def _answer(entry: Record) -> list[int]:
    tokens = entry["tokens"]
    assert isinstance(tokens, list)
    return [token for token in tokens if isinstance(token, int)]


def _likely(entry: Record) -> dict[int, float]:
    likely = entry["likely"]
    assert isinstance(likely, dict)
    return {int(token): number(likely, token) for token in likely}
