"""`flashlane routes`: the route log in words for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Column, Table

from flashlane.report import LaneReport, Report
from flashlane.routelog import RouteRecord

_FIGURES = ("tokens", "kept", "cached", "TTFT ms", "tok/s")
_LANE_FIGURES = (
    "requests",
    "failed",
    "TTFT p50 ms",
    "p95 ms",
    "tok/s",
    "tokens",
    "saved",
    "s saved",
    "wrong",
    "cost",
)


def print_records(console: Console, records: Sequence[RouteRecord]) -> None:
    table = Table(
        Column("time", no_wrap=True),
        Column("lane", no_wrap=True),
        Column("reasons", overflow="fold"),
        *(Column(name, justify="right", no_wrap=True) for name in _FIGURES),
        Column("status", overflow="fold"),
        box=None,
    )
    for r in records:
        table.add_row(
            datetime.fromtimestamp(r.time).strftime("%m-%d %H:%M:%S"),
            r.lane or "-",
            (r.reasons or "-").replace(",", ", "),
            _number(r.original_tokens),
            _number(r.kept_tokens),
            _number(r.cached_tokens),
            _number(r.ttft_ms),
            _number(r.decode_tokens_per_s),
            " ".join(part for part in (r.status, r.error, r.verdict, r.feedback) if part),
        )
    console.print(table)


def print_report(console: Console, report: Report) -> None:
    """Lanes, then what the checks, the clients and the drafters had to say, where they had."""
    lanes = Table(
        Column("lane", no_wrap=True),
        *(Column(name, justify="right") for name in _LANE_FIGURES),
        box=None,
    )
    for lane in report.lanes:
        lanes.add_row(lane.lane or "-", *_lane_cells(lane))
    console.print(lanes)
    for line in _sentences(report):
        console.print(line, markup=False)


def _lane_cells(lane: LaneReport) -> Iterable[str]:
    return (
        f"{lane.requests:,}",
        f"{lane.failed:,}",
        _number(lane.ttft_p50_ms),
        _number(lane.ttft_p95_ms),
        _number(lane.decode_tokens_per_s),
        f"{lane.original_tokens:,}",
        f"{lane.tokens_saved:,}",
        f"{lane.time_saved_ms / 1000:,.1f}",
        f"{lane.wrong:,}",
        f"{lane.cost:.4f}",
    )


def _sentences(report: Report) -> Iterable[str]:
    if report.verdicts:
        parts = [f"{v.verdict} {v.requests:,} ({v.share:.0%})" for v in report.verdicts]
        yield f"verified   {', '.join(parts)}"
    said = {
        name: sum(getattr(lane, name) for lane in report.lanes)
        for name in ("right", "wrong", "slow")
    }
    if any(said.values()):
        yield f"clients    {', '.join(f'{name} {count:,}' for name, count in said.items())}"
    for draft in report.drafts:
        yield (
            f"drafts     {draft.kind or '-'}: {draft.acceptance:.0%} of "
            f"{draft.draft_tokens:,} tokens accepted"
        )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
