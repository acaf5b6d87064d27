"""The plots of the router's benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.plots import Plot, bars
from bench.router import mixed, verify
from bench.router.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    mixed.ROUTER: "#1f6f8b",
    mixed.DIRECT: "#b8b8b8",
    mixed.PFLASH: "#e0a458",
    "verify": "#1f6f8b",
    "direct": "#b8b8b8",
}


def plots_of(measured: Measured) -> list[Plot]:
    return [
        Plot("mixed", bool(measured.mixed), lambda axes: _mixed(axes, measured.mixed)),
        Plot("verify", bool(measured.verify), lambda axes: _verify(axes, measured.verify)),
    ]


def _mixed(axes: Axes, rows: Sequence[mixed.Row]) -> None:
    kinds = list(dict.fromkeys(row.kind for row in rows))
    series = {
        variant: [
            sum(r.ms for r in rows if (r.variant, r.kind) == (variant, kind)) / 1e3
            for kind in kinds
        ]
        for variant in mixed.VARIANTS
    }
    bars(axes, kinds, series, _COLOURS, "%.0f")
    axes.set_ylabel("time of all requests, s")


def _verify(axes: Axes, rows: Sequence[verify.Row]) -> None:
    parts = list(dict.fromkeys(row.part for row in rows))
    these = {part: [row for row in rows if row.part == part] for part in parts}
    series = {
        "verify": [sum(r.tokens for r in group) / 1e3 for group in these.values()],
        "direct": [sum(r.direct_tokens for r in group) / 1e3 for group in these.values()],
    }
    bars(axes, [part.replace("_", " ") for part in parts], series, _COLOURS, "%.0f")
    axes.set_ylabel("prompt tokens processed, thousands")
