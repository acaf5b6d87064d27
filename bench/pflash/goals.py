"""The goals of PFlash, and the values that the measurements give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from bench.pflash import dialogue, qa, stall, survival, timing
from bench.pflash.measured import Measured
from bench.results import Goal
from bench.summary import proportion_interval

# Part, keep ratio, share of the cases that must be kept whole.
_SURVIVAL = (
    ("needles", "lexical", "whole needle kept, lexical question", 0.1, 0.97),
    ("needles", "lexical", "whole needle kept, lexical question", 0.2, 0.99),
    ("paraphrase", "paraphrase", "whole needle kept, paraphrased question", 0.1, 0.85),
    ("paraphrase", "paraphrase", "whole needle kept, paraphrased question", 0.2, 0.93),
    ("two-hop", "two-hop", "both needles of a two-hop question kept", 0.2, 0.9),
    ("contradiction", "contradiction", "later of two contradicting facts kept", 0.2, 0.9),
)
_F1 = (
    ("squad", "SQuAD", 0.1, 0.95),
    ("squad", "SQuAD", 0.2, 0.97),
    ("hotpot", "HotpotQA", 0.2, 0.9),
    ("hotpot", "HotpotQA", 0.3, 0.97),
)
_HOTPOT_SUPPORT = ((0.2, 0.9), (0.3, 0.96))
_TTFT = ((4096, 0.1, 6.0), (4096, 0.2, 4.2), (8192, 0.1, 8.0), (8192, 0.2, 5.0))
_OF_LIMIT = 0.9
_COST = 1.1
_DECODE_SPEED = 0.5
_LONGEST_STALL_MS = 300.0


def goals_of(measured: Measured) -> list[Goal]:
    """Every goal, in the order of the table; those not measured have no value."""
    return [
        *_survival_goals(measured.survival),
        *_qa_goals(measured.qa),
        *_ttft_goals(measured.ttft),
        Goal(
            "scorer-cost",
            "scorer time / its plain windowed prefill",
            timing.cost_ratio(measured.cost),
            _COST,
            "<=",
            _pairs(measured.cost),
        ),
        *_chat_goals(measured.chat),
        Goal(
            "stall-speed",
            "decode speed while a 16k prompt is scored / undisturbed",
            stall.speed_ratio(measured.stall),
            _DECODE_SPEED,
            note=_pairs(measured.stall),
        ),
        Goal(
            "stall-longest",
            "longest wait for a token meanwhile, ms",
            stall.longest_ms(measured.stall),
            _LONGEST_STALL_MS,
            "<=",
            _pairs(measured.stall),
        ),
    ]


def _survival_goals(rows: Sequence[survival.Row]) -> list[Goal]:
    goals = []
    for part, name, text, ratio, wanted in _SURVIVAL:
        these = survival.select(rows, part, "ours", ratio)
        value, note = _share([row.kept for row in these], [row.share for row in these])
        goals.append(
            Goal(
                f"needle-{name}-{_percent(ratio)}",
                f"{text}, {_percent(ratio)} %",
                value,
                wanted,
                note=note,
            )
        )
    return goals


def _qa_goals(rows: Sequence[qa.Row]) -> list[Goal]:
    goals = []
    for ratio, wanted in _HOTPOT_SUPPORT:
        these = qa.select(rows, "hotpot", "ours", ratio)
        value, note = _share([row.kept for row in these], [row.share for row in these])
        name = f"HotpotQA, all support kept, {_percent(ratio)} %"
        goals.append(Goal(f"hotpot-support-{_percent(ratio)}", name, value, wanted, note=note))
    for part, title, ratio, wanted in _F1:
        these = qa.select(rows, part, "ours", ratio)
        relative = qa.relative_f1(these)
        note = ""
        if relative:
            note = f"{len(these)} questions, 95 % interval {relative[1]:.2f}–{relative[2]:.2f}"
        name = f"{title} F1 relative to the full prompt, {_percent(ratio)} %"
        value = relative[0] if relative else None
        goals.append(Goal(f"{part}-f1-{_percent(ratio)}", name, value, wanted, note=note))
    return goals


def _ttft_goals(rows: Sequence[timing.Ttft]) -> list[Goal]:
    def each(
        name: str, text: str, value: Callable[[int, float], float | None], wanted: float | None
    ) -> list[Goal]:
        goals = []
        for tokens, ratio, factor in _TTFT:
            these = [r for r in rows if (r.tokens, r.ratio) == (tokens, ratio)]
            where = f"{tokens // 1024}k-{_percent(ratio)}"
            shown = f"{text}, {tokens // 1024}k tokens, {_percent(ratio)} %"
            goal = factor if wanted is None else wanted
            goals.append(
                Goal(f"{name}-{where}", shown, value(tokens, ratio), goal, note=_pairs(these))
            )
        return goals

    return [
        *each(
            "ttft",
            "time to first token, full / PFlash",
            lambda tokens, ratio: timing.speedup(rows, tokens, ratio),
            None,
        ),
        *each(
            "ttft-limit",
            "share of the plain speeds' limit",
            lambda tokens, ratio: timing.of_limit(rows, tokens, ratio),
            _OF_LIMIT,
        ),
    ]


def _chat_goals(turns: Sequence[dialogue.Turn]) -> list[Goal]:
    later = len({t.turn for t in turns if t.turn})
    return [
        Goal(
            f"chat-{alone.lower().replace(' ', '-')}",
            f"10-turn chat, TTFT of later turns, {alone} / both",
            dialogue.later_turns_ratio(turns, alone),
            1.0,
            note=f"{later} turns" if later else "",
        )
        for alone in ("cache only", "PFlash only")
    ]


def _share(kept: Sequence[bool], shares: Sequence[float]) -> tuple[float | None, str]:
    """Share kept, and a note with the cases, its interval and how much was kept of the text."""
    if not kept:
        return None, ""
    low, high = proportion_interval(sum(kept), len(kept))
    about = f"{sum(kept)} of {len(kept)}, 95 % interval {low:.2f}–{high:.2f}"
    return fmean(kept), f"{about}, {100 * fmean(shares):.1f} % kept"


def _percent(ratio: float) -> int:
    return round(100 * ratio)


def _pairs(rows: Sequence[object]) -> str:
    return f"{len(rows)} runs" if rows else ""
