"""The goals of KVFlash, and the values that the measurements give them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.kvflash import affinity, miss, replay, tiers
from bench.kvflash.context import PAGE_TOKENS
from bench.kvflash.measured import Measured
from bench.kvflash.replay import DEFAULT, GROWING_MODELS, OURS, SAME
from bench.kvflash.traces import short_trace, traces
from bench.results import Goal

_WARM = 0.05
_PRESSURE = 3.0
_DISK_TO_RAM = 1.5
_PREFILL_TO_RESTORE = 10.0
_BEYOND_NEW_TOKENS = 0  # of a growing chat; the last token of an answer counts as new
_LANDED = 0.95
_MISS_MS, _MISS_SHARE = 1.0, 0.01
_TIER_WORDS = {"slot": "slot", "sibling": "sibling slot", "ram": "memory", "disk": "disk"}


def goals_of(measured: Measured) -> list[Goal]:
    """Every goal, in the order of the table; those not measured have no value."""
    return [
        *_warm_goals(measured.warm),
        *_pressure_goals(measured.traces),
        *_restart_goals(measured.warm),
        *_growing_goals(measured.growing),
        _equality_goal([*measured.traces, *measured.growing]),
        *_affinity_goals(measured.affinity),
        *_miss_goals(measured.miss),
    ]


def _warm_goals(rows: Sequence[tiers.Warm]) -> list[Goal]:
    goals = []
    for tier in tiers.TIERS:
        these = tiers.select(rows, tier)
        cpu = tiers.cpu_ratio(rows, tier)
        there = sum(row.found == tier for row in these)
        note = "" if cpu is None else f"{there} of {len(these)} found there; CPU time {cpu:.4f}"
        goals.append(
            Goal(
                f"warm-{tier}",
                f"(warm - new tokens' own cost) / cold, time to first token, 4k prefix and 64 new "
                f"tokens, {_TIER_WORDS[tier]}",
                tiers.ratio(rows, tier),
                _WARM,
                "<=",
                note,
            )
        )
    beyond = Goal(
        "warm-tokens",
        "prompt tokens processed on a warm request beyond the new ones, the most on any tier",
        tiers.beyond_new(rows),
        PAGE_TOKENS,
        "<=",
        _count(rows, "requests"),
    )
    return [*goals, beyond]


def _pressure_goals(rows: Sequence[replay.Row]) -> list[Goal]:
    pressed = [trace for trace in replay.names(rows) if trace in _pressure_traces()]
    ratios = {trace: _times_less(rows, [trace], DEFAULT) for trace in pressed}
    note = ", ".join(f"{trace} {ratio:.2f}" for trace, ratio in ratios.items() if ratio)
    same = _times_less(rows, pressed, SAME)
    return [
        Goal(
            "pressure",
            "8 chats over 2 slots, 10 turns each: prompt tokens processed, upstream / KVFlash",
            _times_less(rows, pressed, DEFAULT),
            _PRESSURE,
            note=f"{note}; of upstream with the same memory {same:.2f}" if same else "",
        ),
        *(
            Goal(
                f"never-more-{name}",
                f"prompt tokens processed, KVFlash / {variant}, the most of any trace",
                _most(rows, variant)[0],
                1.0,
                "<=",
                _most(rows, variant)[1],
            )
            for name, variant in (("default", DEFAULT), ("same-memory", SAME))
        ),
    ]


def _restart_goals(rows: Sequence[tiers.Warm]) -> list[Goal]:
    note = _count(tiers.select(rows, "disk"), "restarts")
    extra = {tier: tiers.extra_ms(rows, tier) for tier in ("ram", "disk")}
    whole = "".join(
        f"; whole request beyond its own cost, {_TIER_WORDS[tier]}: {ms:.1f} ms"
        for tier, ms in extra.items()
        if ms is not None
    )
    return [
        Goal(
            "disk-restore",
            "after a restart: restore from disk / from memory",
            tiers.disk_to_ram(rows),
            _DISK_TO_RAM,
            "<=",
            f"{note}{whole}",
        ),
        Goal(
            "disk-prefill",
            "after a restart: prefill / restore from disk",
            tiers.prefill_to_restore(rows),
            _PREFILL_TO_RESTORE,
            note=note,
        ),
    ]


def _growing_goals(rows: Sequence[replay.Row]) -> list[Goal]:
    goals = []
    for model in GROWING_MODELS:
        beyond = replay.third_turn_beyond(rows, model)
        ours = [row for row in rows if (row.model, row.variant) == (model, OURS)]
        equal = sum(row.equal for row in ours)
        upstream = max(replay.third_turn_beyond(rows, model, DEFAULT), default=0)
        goals.append(
            Goal(
                f"growing-{model.replace(' ', '-')}",
                f"third turn of a growing chat, {model}: tokens processed beyond the new ones",
                max(beyond, default=None),
                _BEYOND_NEW_TOKENS,
                "<=",
                f"{len(beyond)} chats, {equal} of {len(ours)} answers equal to a cold run; "
                f"upstream {upstream}"
                if beyond
                else "",
            )
        )
    return goals


def _equality_goal(rows: Sequence[replay.Row]) -> Goal:
    ours = [row for row in rows if row.variant == OURS]
    others = [row for row in rows if row.variant == DEFAULT]
    note = ""
    if ours:
        most = max(row.likely_difference for row in ours)
        note = f"{len(ours)} answers, first log probabilities differ by {most:.2g} at most"
    if others:
        note += f"; upstream {sum(row.equal for row in others)} of {len(others)} equal"
    return Goal(
        "equal",
        "greedy answers equal to those of a cold run, all traces and models",
        sum(row.equal for row in ours) / len(ours) if ours else None,
        1.0,
        note=note,
    )


def _affinity_goals(rows: Sequence[affinity.Sent]) -> list[Goal]:
    before = [row for row in rows if row.home and not row.killed]
    after = [row for row in rows if row.killed]
    return [
        Goal(
            "affinity-landed",
            "2 backends behind the proxy, 8 chats: turns that land where their prefix is",
            affinity.landed(rows),
            _LANDED,
            note=_count(before, "turns"),
        ),
        Goal(
            "affinity-lost",
            "one backend killed: share of requests lost",
            affinity.lost(rows),
            0.0,
            "<=",
            _count(after, "requests"),
        ),
    ]


def _miss_goals(rows: Sequence[miss.Miss]) -> list[Goal]:
    models = dict.fromkeys(row.model for row in rows)
    extra = {model: miss.extra_ms(rows, model) for model in models}
    known = [ms for ms in extra.values() if ms is not None]
    return [
        Goal(
            "miss-ms",
            "a prefix that is nowhere: extra ms around the prefill, on against off",
            max(known, default=None),
            _MISS_MS,
            "<=",
            ", ".join(f"{model} {ms:.2f}" for model, ms in extra.items() if ms is not None),
        ),
        Goal(
            "miss-share",
            "a prefix that is nowhere: extra time / prefill, small model",
            miss.extra_share(rows, miss.SMALL),
            _MISS_SHARE,
            "<=",
            _count([row for row in rows if row.model == miss.SMALL], "pairs"),
        ),
    ]


def _pressure_traces() -> list[str]:
    return [trace.name for trace in (*traces(), short_trace()) if trace.pressure]


def _times_less(rows: Sequence[replay.Row], names: Sequence[str], variant: str) -> float | None:
    ours = sum(replay.work(rows, trace, OURS) for trace in names)
    return sum(replay.work(rows, trace, variant) for trace in names) / ours if ours else None


def _most(rows: Sequence[replay.Row], variant: str) -> tuple[float | None, str]:
    """The largest KVFlash / `variant` of any trace that has both, and which it is."""
    shares = [
        (replay.work(rows, trace, OURS) / replay.work(rows, trace, variant), trace)
        for trace in replay.names(rows)
        if replay.work(rows, trace, variant)
    ]
    if not shares:
        return None, ""
    most, trace = max(shares)
    return most, f"{len(shares)} traces; {trace}"


def _count(rows: Sequence[object], what: str) -> str:
    return f"{len(rows)} {what}" if rows else ""
