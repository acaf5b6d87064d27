"""The plots of KVFlash's benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from bench.kvflash import replay, tiers
from bench.kvflash.measured import Measured
from bench.plots import Plot, bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    replay.OURS: "#1f6f8b",
    replay.DEFAULT: "#b8b8b8",
    replay.SAME: "#e0a458",
    "known prefix": "#1f6f8b",
    "new tokens alone": "#8bb8c5",
    "nothing known": "#b8b8b8",
}


def plots_of(measured: Measured) -> list[Plot]:
    return [
        Plot("ttft", bool(measured.warm), lambda axes: _ttft(axes, measured.warm)),
        Plot("traces", bool(measured.traces), lambda axes: _traces(axes, measured.traces)),
    ]


def _ttft(axes: Axes, rows: Sequence[tiers.Warm]) -> None:
    these = {tier: tiers.select(rows, tier) for tier in tiers.TIERS}
    series = {
        "known prefix": [median(r.warm_ms for r in group) / 1e3 for group in these.values()],
        "new tokens alone": [median(r.own_ms for r in group) / 1e3 for group in these.values()],
        "nothing known": [median(r.cold_ms for r in group) / 1e3 for group in these.values()],
    }
    bars(axes, list(these), series, _COLOURS)
    axes.set_ylabel("time to first token, s")


def _traces(axes: Axes, rows: Sequence[replay.Row]) -> None:
    """Prompt tokens processed; no bar where a variant was not measured."""
    groups = replay.names(rows)
    series = {
        variant: [replay.work(rows, trace, variant) / 1e3 or float("nan") for trace in groups]
        for variant in (replay.OURS, replay.DEFAULT, replay.SAME)
    }
    bars(axes, [name.replace(", ", ",\n") for name in groups], series, _COLOURS, "%.0f")
    axes.set_ylabel("prompt tokens processed, thousands")
