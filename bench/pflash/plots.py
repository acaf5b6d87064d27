"""Small plots beside the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from bench.pflash import dialogue, qa, survival, timing
from bench.pflash.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "ours": "#1f6f8b",
    "BM25 in our order": "#8bb8c5",
    "BM25": "#e0a458",
    "uniform": "#b8b8b8",
}
_DEPTH_BANDS = 5


def draw(folder: Path, name: str, measured: Measured) -> list[Path]:
    """Plots of what was measured, into `folder`; none where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("plots: matplotlib is not installed, so there are none", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    wanted: list[tuple[str, bool, Callable[[Axes], None]]] = [
        ("survival", bool(measured.survival), lambda axes: _survival(axes, measured.survival)),
        ("depth", bool(measured.survival), lambda axes: _depth(axes, measured.survival)),
        ("qa", bool(measured.qa), lambda axes: _qa(axes, measured.qa)),
        ("ttft", bool(measured.ttft), lambda axes: _ttft(axes, measured.ttft)),
        ("chat", bool(measured.chat), lambda axes: _chat(axes, measured.chat)),
    ]
    drawn = []
    for suffix, present, plot in wanted:
        if not present:
            continue
        figure, axes = pyplot.subplots(figsize=(6.4, 3.2), dpi=120, layout="constrained")
        axes.spines[["top", "right"]].set_visible(False)
        plot(axes)
        path = folder / f"{name}-{suffix}.png"
        figure.savefig(path)
        pyplot.close(figure)
        drawn.append(path)
    return drawn


def _bars(axes: Axes, groups: Sequence[str], series: dict[str, list[float]]) -> None:
    width = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        at = [index + (number - (len(series) - 1) / 2) * width for index in range(len(groups))]
        bars = axes.bar(at, values, width, label=label, color=_COLOURS.get(label))
        axes.bar_label(bars, fmt="%.2f", fontsize=6)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_size_inches(max(6.4, len(groups) * len(series) / 3 + 1.4), 3.2)
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _survival(axes: Axes, rows: Sequence[survival.Row]) -> None:
    groups = sorted({(row.part, row.ratio) for row in rows})
    series = {
        scorer: [_kept(survival.select(rows, part, scorer, ratio)) for part, ratio in groups]
        for scorer in survival.SCORERS
    }
    _bars(axes, [f"{part}\n{ratio:.0%}" for part, ratio in groups], series)
    axes.set_ylim(0, 1.1)
    axes.set_ylabel("evidence wholly kept")


def _depth(axes: Axes, rows: Sequence[survival.Row]) -> None:
    """By the needle's place in the text, one needle a text, 10 % kept."""
    bands = range(_DEPTH_BANDS)
    for scorer in survival.SCORERS:
        these = [
            row
            for part in ("needles", "paraphrase")
            for row in survival.select(rows, part, scorer, survival.RATIOS[0])
        ]
        shares = [
            _kept([row for row in these if int(row.depth * _DEPTH_BANDS) == band]) for band in bands
        ]
        axes.plot(bands, shares, marker="o", label=scorer, color=_COLOURS[scorer])
    labels = [f"{100 * b // _DEPTH_BANDS}–{100 * (b + 1) // _DEPTH_BANDS} %" for b in bands]
    axes.set_xticks(list(bands), labels, fontsize=8)
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel("depth of the needle in the text")
    axes.set_ylabel("whole needle kept at 10 %")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _qa(axes: Axes, rows: Sequence[qa.Row]) -> None:
    groups = sorted({(row.part, row.ratio) for row in rows})
    series = {
        scorer: [_kept(qa.select(rows, part, scorer, ratio)) for part, ratio in groups]
        for scorer in survival.SCORERS
    }
    _bars(axes, [f"{part}\n{ratio:.0%}" for part, ratio in groups], series)
    relative = [qa.relative_f1(qa.select(rows, part, "ours", ratio)) for part, ratio in groups]
    at = [index for index, found in enumerate(relative) if found]
    found = [value for value in relative if value]
    axes.errorbar(
        at,
        [value for value, _, _ in found],
        yerr=[[v - low for v, low, _ in found], [high - v for v, _, high in found]],
        fmt="D",
        color="black",
        capsize=3,
        markersize=4,
        label="F1 / full prompt",
    )
    axes.axhline(1, color="grey", linewidth=0.5)
    axes.set_ylabel("all support kept")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _ttft(axes: Axes, rows: Sequence[timing.Ttft]) -> None:
    groups = sorted({(row.tokens, row.ratio) for row in rows})
    at = range(len(groups))
    these = [[r for r in rows if (r.tokens, r.ratio) == group] for group in groups]
    score = [median(r.score_ms for r in group) / 1e3 for group in these]
    total = [median(r.pflash_ms for r in group) / 1e3 for group in these]
    full = [median(r.full_ms for r in group) / 1e3 for group in these]
    axes.bar([i - 0.2 for i in at], full, 0.38, color=_COLOURS["uniform"], label="whole prompt")
    axes.bar([i + 0.2 for i in at], score, 0.38, color=_COLOURS["BM25"], label="scoring")
    rest = [a - b for a, b in zip(total, score, strict=True)]
    axes.bar(
        [i + 0.2 for i in at], rest, 0.38, bottom=score, color=_COLOURS["ours"], label="prefill"
    )
    for i, (group, height) in enumerate(zip(groups, total, strict=True)):
        factor = timing.speedup(rows, *group)
        axes.text(i + 0.2, height, f"{factor:.1f}x", ha="center", va="bottom", fontsize=8)
    axes.set_xticks(list(at), [f"{t // 1024}k\n{r:.0%}" for t, r in groups], fontsize=8)
    axes.set_ylabel("time to first token, s")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _chat(axes: Axes, turns: Sequence[dialogue.Turn]) -> None:
    for name in dialogue.VARIANTS:
        these = [turn for turn in turns if turn.variant == name]
        axes.plot(
            [turn.turn + 1 for turn in these],
            [turn.ttft_ms / 1e3 for turn in these],
            marker="o",
            markersize=4,
            label=name,
        )
    axes.set_yscale("log")
    axes.set_xlabel("turn")
    axes.set_ylabel("time to first token, s")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _kept(rows: Sequence[survival.Row] | Sequence[qa.Row]) -> float:
    return fmean(row.kept for row in rows) if rows else float("nan")
