"""Prometheus metrics, counted anew from the route log for each scrape.

The log is what all proxy workers share: whichever of them is asked gives the same counts. A label
never holds what a client sent, but for the lanes and ends that flashlane itself writes.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from flashlane.backends.channel import BackendStatus
from flashlane.reload import ReloadState
from flashlane.report import TIME_SAVED_MS

TTFT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_WITHIN = ", ".join(f"coalesce(sum(ttft_ms <= {1000 * limit}), 0)" for limit in TTFT_BUCKETS_S)
_TABLES = {
    # The only query that reads every record. A counter never falls: gains and losses are apart.
    "lanes": f"""SELECT lane, status, count(*), coalesce(sum(original_tokens - kept_tokens), 0),
        coalesce(sum(first_pass_tokens), 0), sum(max(saved, 0)), sum(max(-saved, 0)),
        coalesce(sum(ttft_ms), 0), count(ttft_ms), {_WITHIN}
        FROM (SELECT *, {TIME_SAVED_MS} AS saved FROM routes) GROUP BY lane, status""",  # noqa: S608
    "verdicts": "SELECT verdict, count(*) FROM routes WHERE verdict != '' GROUP BY verdict",
    "feedback": "SELECT lane, feedback, count(*) FROM routes WHERE feedback != '' "
    "GROUP BY lane, feedback",
    "drafts": "SELECT kind, sum(draft_tokens), coalesce(sum(draft_accepted), 0) FROM routes "
    "WHERE draft_tokens > 0 GROUP BY kind",
    "sidecar": "SELECT sidecar, count(*) FROM routes WHERE sidecar != '' GROUP BY sidecar",
}

Totals = dict[str, list[tuple[Any, ...]]]


def totals(connection: sqlite3.Connection) -> Totals:
    """All sums at one moment. Raises `sqlite3.Error`."""
    connection.execute("BEGIN")
    try:
        return {name: connection.execute(query).fetchall() for name, query in _TABLES.items()}
    finally:
        connection.rollback()


def exposition(
    counted: Totals, reload: ReloadState, backends: tuple[BackendStatus, ...] = ()
) -> bytes:
    """The text that Prometheus reads. `reload` is of the worker that was asked."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(counted, reload, backends))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(
        self, counted: Totals, reload: ReloadState, backends: tuple[BackendStatus, ...]
    ) -> None:
        self._counted = counted
        self._reload = reload
        self._backends = backends

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._savings()
        yield from self._opinions()
        yield from self._state()

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "flashlane_requests", "Requests by lane and end", labels=["lane", "status"]
        )
        for lane, status, count, *_ in self._counted["lanes"]:
            requests.add_metric([lane, status], count)
        yield requests
        ttft = HistogramMetricFamily(
            "flashlane_ttft_seconds", "Time to first token by lane", labels=["lane"]
        )
        for lane, (*_, sum_ms, count, within) in self._lanes():
            if count:
                buckets = [
                    (f"{limit:g}", n) for limit, n in zip(TTFT_BUCKETS_S, within, strict=True)
                ]
                ttft.add_metric([lane], [*buckets, ("+Inf", count)], sum_ms / 1000)
        yield ttft

    def _lanes(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Per lane: tokens left out and spent, ms won and lost (None: not known), TTFT in ms
        summed, its count and the counts within each limit."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for lane, _, _, *sums in self._counted["lanes"]:
            rows.setdefault(lane, []).append(tuple(sums))
        for lane, parts in rows.items():
            left_out, in_vain, won, lost, sum_ms, count, *within = (
                _sum(column) for column in zip(*parts, strict=True)
            )
            yield lane, (left_out, in_vain, won, lost, sum_ms, count, within)

    def _savings(self) -> Iterator[Metric]:
        tokens = CounterMetricFamily(
            "flashlane_tokens_saved", "Prompt tokens that were left out", labels=["lane"]
        )
        spent = CounterMetricFamily(
            "flashlane_first_pass_tokens",
            "Prompt tokens of first passes whose answer was not used",
            labels=["lane"],
        )
        saved = CounterMetricFamily(
            "flashlane_time_saved_seconds",
            "Time to first token won against the predicted direct lane",
            labels=["lane"],
        )
        lost = CounterMetricFamily(
            "flashlane_time_lost_seconds",
            "Time to first token lost against the predicted direct lane",
            labels=["lane"],
        )
        for lane, (left_out, in_vain, won_ms, lost_ms, *_) in self._lanes():
            tokens.add_metric([lane], left_out)
            spent.add_metric([lane], in_vain)
            if won_ms is not None:
                saved.add_metric([lane], won_ms / 1000)
                lost.add_metric([lane], lost_ms / 1000)
        drafted = CounterMetricFamily(
            "flashlane_draft_tokens", "Tokens that drafters proposed", labels=["kind"]
        )
        accepted = CounterMetricFamily(
            "flashlane_draft_accepted_tokens", "Those that the model accepted", labels=["kind"]
        )
        for kind, proposed, taken in self._counted["drafts"]:
            drafted.add_metric([kind], proposed)
            accepted.add_metric([kind], taken)
        yield from (tokens, spent, saved, lost, drafted, accepted)

    def _opinions(self) -> Iterator[Metric]:
        verdicts = CounterMetricFamily(
            "flashlane_verdicts", "Ends of the verify lane's check", labels=["verdict"]
        )
        for verdict, count in self._counted["verdicts"]:
            verdicts.add_metric([verdict], count)
        feedback = CounterMetricFamily(
            "flashlane_feedback", "What clients said of answers", labels=["lane", "verdict"]
        )
        for lane, value, count in self._counted["feedback"]:
            feedback.add_metric([lane, value], count)
        sidecar = CounterMetricFamily(
            "flashlane_sidecar", "What came of asking the sidecar", labels=["mode", "outcome"]
        )
        for (mode, outcome), count in sidecar_counts(self._counted["sidecar"]).items():
            sidecar.add_metric([mode, outcome], count)
        yield from (verdicts, feedback, sidecar)

    def _state(self) -> Iterator[Metric]:
        reload = self._reload
        yield CounterMetricFamily(
            "flashlane_config_reloads", "Times the config was read again", value=reload.reloads
        )
        yield GaugeMetricFamily(
            "flashlane_config_valid",
            "1 where the config file is in force, 0 where it was refused",
            value=not reload.error,
        )
        yield GaugeMetricFamily(
            "flashlane_config_loaded_timestamp_seconds",
            "When the config in force was read",
            value=reload.loaded_at,
        )
        yield GaugeMetricFamily(
            "flashlane_config_waiting_keys",
            "Keys of the file that wait for a restart",
            value=len(reload.waiting),
        )
        backends = GaugeMetricFamily(
            "flashlane_backend_state",
            "1 for the state that a backend is in",
            labels=["backend", "state"],
        )
        for status in self._backends:
            backends.add_metric([status.name, status.state], 1)
        yield backends


def _sum(values: tuple[Any, ...]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def sidecar_counts(rows: list[tuple[Any, ...]]) -> Counter[tuple[str, str]]:
    """Notes such as "shadow: exact 0.90 agree, too late", by mode and by what came of them."""
    counts: Counter[tuple[str, str]] = Counter()
    for note, count in rows:
        words = note.removeprefix("shadow: ").removesuffix(", too late").split()
        mode = "shadow" if note.startswith("shadow: ") else "active"
        counts[mode, words[-1] if words else ""] += count
    return counts
