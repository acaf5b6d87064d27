"""The plots of PFlash's benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from bench.pflash import dialogue, qa, survival, timing
from bench.pflash.measured import Measured
from bench.plots import Plot, bars, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "ours": "#1f6f8b",
    "BM25 in our order": "#8bb8c5",
    "BM25": "#e0a458",
    "uniform": "#b8b8b8",
}
_DEPTH_BANDS = 5


def plots_of(measured: Measured) -> list[Plot]:
    return [
        Plot("survival", bool(measured.survival), lambda axes: _survival(axes, measured.survival)),
        Plot("depth", bool(measured.survival), lambda axes: _depth(axes, measured.survival)),
        Plot("qa", bool(measured.qa), lambda axes: _qa(axes, measured.qa)),
        Plot("ttft", bool(measured.ttft), lambda axes: _ttft(axes, measured.ttft)),
        Plot("chat", bool(measured.chat), lambda axes: _chat(axes, measured.chat)),
    ]


def _survival(axes: Axes, rows: Sequence[survival.Row]) -> None:
    groups = sorted({(row.part, row.ratio) for row in rows})
    series = {
        scorer: [_kept(survival.select(rows, part, scorer, ratio)) for part, ratio in groups]
        for scorer in survival.SCORERS
    }
    bars(axes, [f"{part}\n{ratio:.0%}" for part, ratio in groups], series, _COLOURS)
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
    legend(axes)


def _qa(axes: Axes, rows: Sequence[qa.Row]) -> None:
    groups = sorted({(row.part, row.ratio) for row in rows})
    series = {
        scorer: [_kept(qa.select(rows, part, scorer, ratio)) for part, ratio in groups]
        for scorer in survival.SCORERS
    }
    bars(axes, [f"{part}\n{ratio:.0%}" for part, ratio in groups], series, _COLOURS)
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
    legend(axes)


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
    legend(axes)


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
    legend(axes)


def _kept(rows: Sequence[survival.Row] | Sequence[qa.Row]) -> float:
    return fmean(row.kept for row in rows) if rows else float("nan")
