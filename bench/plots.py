"""Small plots beside the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plot(NamedTuple):
    """`name` ends the file's name; `present`: there is something to draw."""

    name: str
    present: bool
    draw: Callable[[Axes], None]


def draw(folder: Path, name: str, plots: Sequence[Plot]) -> list[Path]:
    """Those that are present, into `folder`; none where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("plots: matplotlib is not installed, so there are none", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = []
    for plot in plots:
        if not plot.present:
            continue
        figure, axes = pyplot.subplots(figsize=(6.4, 3.2), dpi=120, layout="constrained")
        axes.spines[["top", "right"]].set_visible(False)
        plot.draw(axes)
        path = folder / f"{name}-{plot.name}.png"
        figure.savefig(path)
        pyplot.close(figure)
        drawn.append(path)
    return drawn


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    form: str = "%.2f",
) -> None:
    """One bar of each series in each group; the figure becomes as wide as they need."""
    width = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        at = [index + (number - (len(series) - 1) / 2) * width for index in range(len(groups))]
        bars = axes.bar(at, values, width, label=label, color=colours.get(label))
        axes.bar_label(bars, fmt=form, fontsize=6)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_size_inches(max(6.4, len(groups) * len(series) / 3 + 1.4), 3.2)
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
    legend(axes)


def legend(axes: Axes) -> None:
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
