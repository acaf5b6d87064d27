"""Time to first token and the scorer's cost, each pair measured in turn on fresh prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench.haystacks import KINDS, haystack
from bench.pflash.context import Context
from bench.process import ServerError
from bench.server import Message, Server
from bench.store import Json, Record, number
from bench.summary import median_ratio

TTFT_TOKENS = (4096, 8192)
TTFT_RATIOS = (0.1, 0.2)
_COST_TOKENS = (4096, 8192, 16384)
_GROUPS = 5
_QUESTION = "Which of the things above was delayed the longest, and who was told about it?"


@dataclass(frozen=True)
class Ttft:
    """One group: the same length prefilled whole, compressed, and what limits it. Milliseconds.

    `limit_ms` is the scorer's plain windowed prefill of the prompt and the target's plain prefill
    of as many tokens as were kept.
    """

    tokens: int
    ratio: float
    full_ms: float
    full_cpu_ms: float
    pflash_ms: float
    pflash_cpu_ms: float
    score_ms: float
    limit_ms: float
    share: float
    compressed: bool


@dataclass(frozen=True)
class Cost:
    """The scorer's time for a prompt, host work included, and its plain windowed prefill of it."""

    tokens: int
    score_ms: float
    plain_ms: float


def measure_ttft(context: Context) -> list[Ttft]:
    found: list[Ttft] = []
    with (
        context.target("ttft", 2 * max(TTFT_TOKENS), "--parallel", "1") as target,
        context.scorer("ttft-scorer", 4 * context.options.window) as scorer,
    ):
        _warm_up(target, scorer)
        groups = [(tokens, group) for group in range(_GROUPS) for tokens in TTFT_TOKENS]
        for tokens, group in context.cases("ttft", groups):
            record = context.store.case(
                context.key("ttft", tokens=tokens, group=group, window=context.options.window),
                partial(_group, context, target, scorer, tokens, group),
            )
            found += [_ttft(record, tokens, ratio) for ratio in TTFT_RATIOS]
    return found


def measure_cost(context: Context) -> list[Cost]:
    """From /pflash/compress and a plain server on the scorer's model, in turn.

    Nothing where no model scores. Raises `ServerError` when a prompt was not scored.
    """
    found: list[Cost] = []
    if context.options.score != "model":
        return found
    # New processes for each group: the memory that one is given is worth 10 % of its speed.
    for group in context.cases("scorer-cost", list(range(_GROUPS))):
        key = context.key("cost", group=group, tokens=_COST_TOKENS, window=context.options.window)
        record = context.store.case(key, partial(_costs, context, group))
        for tokens in _COST_TOKENS:
            of_length = record[str(tokens)]
            if not isinstance(of_length, dict):
                raise TypeError(f"the record of {tokens} tokens is {of_length!r}")
            found.append(Cost(tokens, number(of_length, "score_ms"), number(of_length, "plain_ms")))
    return found


def plain_windows_ms(scorer: Server, text: str, question: str, window: int) -> float:
    """The scorer's plain prefill of `text` in windows, each followed by the question.

    `scorer` is a plain server on the scorer's model, `window` its tokens of text in a window. The
    sum of the prefill times that the server reports, all layers included.
    """
    tokens, asked = scorer.tokenize(text), scorer.tokenize(question)
    windows = [tokens[at : at + window] for at in range(0, len(tokens), window)]
    return sum(scorer.prefill(part + asked).prompt_ms for part in windows)


def summary_ttft(rows: Sequence[Ttft]) -> list[Json]:
    found: list[Json] = []
    for tokens in TTFT_TOKENS:
        for ratio in TTFT_RATIOS:
            these = [r for r in rows if (r.tokens, r.ratio) == (tokens, ratio)]
            if not these:
                continue
            found.append(
                {
                    "tokens": tokens,
                    "keep_ratio": ratio,
                    "pairs": len(these),
                    "compressed": sum(r.compressed for r in these),
                    "kept_share": round(median(r.share for r in these), 4),
                    "full_ms": round(median(r.full_ms for r in these), 1),
                    "pflash_ms": round(median(r.pflash_ms for r in these), 1),
                    "score_ms": round(median(r.score_ms for r in these), 1),
                    "limit_ms": round(median(r.limit_ms for r in these), 1),
                    "speedup": speedup(rows, tokens, ratio),
                    "cpu_ratio": median_ratio(
                        [r.full_cpu_ms for r in these], [r.pflash_cpu_ms for r in these]
                    ),
                    "of_limit": of_limit(rows, tokens, ratio),
                }
            )
    return found


def speedup(rows: Sequence[Ttft], tokens: int, ratio: float) -> float | None:
    """Median over the groups of full / PFlash."""
    these = [r for r in rows if (r.tokens, r.ratio) == (tokens, ratio)]
    return median_ratio([r.full_ms for r in these], [r.pflash_ms for r in these])


def of_limit(rows: Sequence[Ttft], tokens: int, ratio: float) -> float | None:
    """Median share of the speed-up that the two plain prefill speeds would allow.

    A prompt that was not compressed reaches nothing of it.
    """
    these = [r for r in rows if (r.tokens, r.ratio) == (tokens, ratio)]
    return median_ratio([r.limit_ms * r.compressed for r in these], [r.pflash_ms for r in these])


def cost_ratio(rows: Sequence[Cost]) -> float | None:
    return median_ratio([r.score_ms for r in rows], [r.plain_ms for r in rows])


def summary_cost(rows: Sequence[Cost]) -> list[Json]:
    found: list[Json] = []
    for tokens in _COST_TOKENS:
        these = [r for r in rows if r.tokens == tokens]
        if these:
            found.append(
                {
                    "tokens": tokens,
                    "runs": len(these),
                    "score_ms": round(median(r.score_ms for r in these), 1),
                    "plain_ms": round(median(r.plain_ms for r in these), 1),
                    "ratio": cost_ratio(these),
                    "scorer_tokens_per_s": round(
                        median(1e3 * tokens / r.score_ms if r.score_ms else 0.0 for r in these), 1
                    ),
                }
            )
    return found


def document(server: Server, tokens: int, seed: str) -> str:
    """A fresh text of `tokens` tokens: kinds mixed in turn, cut to the token."""
    kinds = list(KINDS)
    random.Random(seed).shuffle(kinds)
    each = tokens // len(kinds) + 64
    units = [haystack(kind, each, "reported", seed, server.count) for kind in kinds]
    text = "\n".join("".join(found) for found in units)
    return server.detokenize(server.tokenize(text)[:tokens])


def _group(context: Context, target: Server, scorer: Server, tokens: int, group: int) -> Record:
    """Every measurement of one length, in an order that turns from group to group."""
    record: Record = {}

    def full() -> None:
        messages = _ask(document(target, tokens, f"ttft/{tokens}/{group}/full"))
        answer = target.chat(messages, max_tokens=1, cache_prompt=False, pflash={"mode": "off"})
        record.update(full_ms=answer.wall_ms, full_cpu_ms=answer.cpu_ms)

    def compressed(ratio: float) -> None:
        text = document(target, tokens, f"ttft/{tokens}/{group}/{ratio}")
        fields = {"mode": "always", "keep_ratio": ratio, "min_keep_tokens": 0}
        answer = target.chat(_ask(text), max_tokens=1, cache_prompt=False, pflash=fields)
        about = answer.timings.pflash
        original, kept = (about.original_tokens, about.kept_tokens) if about else (1, 1)
        plain = target.prefill(target.tokenize(text)[:kept]).prompt_ms
        windows = plain_windows_ms(scorer, text, _QUESTION, context.options.window)
        record[str(ratio)] = {
            "pflash_ms": answer.wall_ms,
            "pflash_cpu_ms": answer.cpu_ms,
            "score_ms": about.score_ms if about else 0.0,
            "limit_ms": plain + (windows if context.options.score == "model" else 0.0),
            "share": kept / max(original, 1),
            "compressed": kept < original,
        }

    steps: list[Callable[[], None]] = [full]
    steps += [partial(compressed, ratio) for ratio in TTFT_RATIOS]
    for step in steps[group % len(steps) :] + steps[: group % len(steps)]:
        step()
    return record


def _costs(context: Context, group: int) -> Record:
    """By length, in processes of this group alone."""
    with (
        context.target("cost", 2048, "--parallel", "1") as target,
        context.scorer("cost-scorer", 4 * context.options.window) as scorer,
    ):
        _warm_up(target, scorer)
        return {str(n): _cost(context, target, scorer, n, group) for n in _COST_TOKENS}


def _cost(context: Context, target: Server, scorer: Server, tokens: int, group: int) -> Record:
    text = document(target, tokens, f"cost/{tokens}/{group}")
    record: Record = {}

    def ours() -> None:
        reply = target.compress(0.2, text=text, question=_QUESTION)
        if reply.whole:
            raise ServerError(f"{tokens} tokens were not scored: {reply.reason}")
        record["score_ms"] = reply.score_ms

    def plain() -> None:
        record["plain_ms"] = plain_windows_ms(scorer, text, _QUESTION, context.options.window)

    for step in (ours, plain) if group % 2 else (plain, ours):
        step()
    return record


def _ttft(record: Record, tokens: int, ratio: float) -> Ttft:
    ours = record[str(ratio)]
    if not isinstance(ours, dict):
        raise TypeError(f"the record of keep ratio {ratio} is {ours!r}")
    return Ttft(
        tokens=tokens,
        ratio=ratio,
        full_ms=number(record, "full_ms"),
        full_cpu_ms=number(record, "full_cpu_ms"),
        pflash_ms=number(ours, "pflash_ms"),
        pflash_cpu_ms=number(ours, "pflash_cpu_ms"),
        score_ms=number(ours, "score_ms"),
        limit_ms=number(ours, "limit_ms"),
        share=number(ours, "share"),
        compressed=ours["compressed"] is True,
    )


def _ask(text: str) -> list[Message]:
    return [{"role": "user", "content": f"{text}\n\n{_QUESTION}"}]


def _warm_up(target: Server, scorer: Server) -> None:
    """The first request pays for loading the model's pages."""
    for server in (target, scorer):
        server.prefill(server.tokenize("A short text to begin with. " * 40))
    target.chat(_ask("A line of no consequence. " * 150), max_tokens=1, cache_prompt=False)
