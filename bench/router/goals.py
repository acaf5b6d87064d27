"""The goals of the router, and the values that the measurements give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.results import Goal
from bench.router import exact, mixed, overhead, speed, verify
from bench.router.measured import Measured

_SHORT_MS, _LONG_MS = 0.2, 1.0


def goals_of(measured: Measured) -> list[Goal]:
    """Every goal, in the order of the table; those not measured have no value."""
    return [
        *_asks_goals(measured.asks),
        *_speed_goals(measured.speed),
        *_overhead_goals(measured.overhead),
        *_verify_goals(measured.verify),
        *_mixed_goals(measured.mixed),
    ]


def _asks_goals(rows: Sequence[exact.Row]) -> list[Goal]:
    worst = exact.worst_recall(rows)
    asks = sum(row.asks for row in rows)

    def others(share: Callable[[Sequence[exact.Row], str], float | None]) -> str:
        found = [(way, share(rows, way)) for way in ("words", "both")]
        shown = ", ".join(f"{way} {value:.3f}" for way, value in found if value is not None)
        return f"{asks} asks; {shown}" if rows else ""

    return [
        Goal(
            "exact-recall",
            "exact asks recognised, reported half",
            exact.recall(rows),
            0.99,
            note=others(exact.recall),
        ),
        Goal(
            "exact-recall-language",
            "the same in the language where it is lowest",
            worst[1] if worst else None,
            0.97,
            note=worst[0] if worst else "",
        ),
        Goal(
            "broad-as-exact",
            "broad asks wrongly called exact",
            exact.wrongly_exact(rows),
            0.08,
            "<=",
            others(exact.wrongly_exact),
        ),
    ]


def _speed_goals(rows: Sequence[speed.Times]) -> list[Goal]:
    shapes = len({row.shape for row in rows})
    return [
        Goal(
            f"decision-{tokens // 1000}k",
            f"reading, exactness and decision of {tokens // 1000}k tokens, p99 of the slowest "
            "shape, ms of processor time",
            speed.slowest(rows, tokens),
            limit,
            "<=",
            f"{shapes} shapes of requests" if rows else "",
        )
        for tokens, limit in zip(speed.TOKENS, (_SHORT_MS, _LONG_MS), strict=True)
    ]


def _overhead_goals(rows: Sequence[overhead.Round]) -> list[Goal]:
    def goal(id_: str, text: str, kind: str, limit: float, field: str = "ms") -> Goal:
        value = overhead.added(rows, kind, field)
        if field == "per_s" and value is not None:
            value = -value
        cpu = overhead.added(rows, kind, "cpu_ms")
        note = "" if cpu is None else f"processor time of the proxy {cpu:+.1%}"
        return Goal(id_, text, value, limit, "<=", note)

    return [
        goal("overhead-short", "plugins add to LiteLLM's p50, short prompt", "short", 0.03),
        goal("overhead-long", "plugins add to LiteLLM's p50, 4k tokens", "long", 0.03),
        goal("overhead-crowd", "throughput that they cost, 8 at once", "crowd", 0.01, "per_s"),
        goal("overhead-chunk", "plugins add to a streamed chunk", "stream", 0.05),
    ]


def _verify_goals(rows: Sequence[verify.Row]) -> list[Goal]:
    direct = sum(row.direct_right for row in rows)
    accepted = sum(row.verdict == "accepted" for row in rows)
    note = f"{len(rows)} questions, {direct} right by the direct lane" if rows else ""
    ratio = sum(r.ms for r in rows) / sum(r.direct_ms for r in rows) if rows else 0.0
    return [
        Goal(
            "verify-accuracy",
            "verify lane: right answers / those of the direct lane",
            verify.accuracy(rows),
            0.99,
            note=note,
        ),
        Goal(
            "verify-work",
            "verify lane: prompt tokens processed, both passes / direct",
            verify.work(rows),
            0.6,
            "<=",
            f"{accepted} accepted; whole time {ratio:.2f} of direct" if rows else "",
        ),
        Goal(
            "verify-let-through",
            "wrong answers that the verdict lets through where direct is right",
            verify.let_through(rows),
            0.01,
            "<=",
            note,
        ),
    ]


def _mixed_goals(rows: Sequence[mixed.Row]) -> list[Goal]:
    asked = sum(row.variant == mixed.ROUTER for row in rows)
    note = f"{asked} requests" if rows else ""
    pflash = mixed.total(rows, mixed.PFLASH)
    flips = mixed.bad_flips(rows)
    return [
        Goal(
            "mixed-time",
            "mixed trace: time of the router / always direct",
            mixed.total(rows, mixed.DIRECT),
            0.6,
            "<=",
            f"{note}; {pflash:.2f} of always pflash" if pflash else note,
        ),
        Goal(
            "mixed-accuracy",
            "mixed trace: right answers of the router / always direct",
            mixed.accuracy(rows),
            0.99,
            note=_pflash_accuracy(rows),
        ),
        Goal(
            "mixed-flips",
            "lane flips that lose a cached prefix for nothing",
            None if flips is None else float(flips),
            0.0,
            "<=",
            note,
        ),
    ]


def _pflash_accuracy(rows: Sequence[mixed.Row]) -> str:
    other = mixed.accuracy(rows, mixed.PFLASH)
    return "" if other is None else f"always pflash {other:.3f}"
