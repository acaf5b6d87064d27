"""The result files of PFlash's benchmark."""

from __future__ import annotations

from pathlib import Path

from bench import report
from bench.pflash import dialogue, qa, stall, survival, timing
from bench.pflash.context import Options
from bench.pflash.goals import goals_of
from bench.pflash.measured import Measured
from bench.pflash.plots import plots_of
from bench.results import Goal
from bench.store import Record

_INTRO = """\
Every figure comes from one engine on one machine; times compare requests made in turn in the same
run. Texts, names and questions are those of the **{split}** split: nothing was tuned on the
reported one. Shares count a prompt that came back uncompressed as lost. **BM25** ranks whole
sentences by the question alone, without the server; **BM25 in our order** is the server's own
selection with BM25 in its scorer's place.
"""
_TITLES = {
    "survival": "Evidence kept",
    "qa": "Question answering",
    "ttft": "Time to first token",
    "scorer_cost": "Scorer's cost",
    "chat": "Chat over one document",
    "stall": "Decoding while another prompt is scored",
}


def write(
    folder: Path, name: str, options: Options, command: str, measured: Measured
) -> list[Goal]:
    """Writes `name`.json, `name`.md and the plots into `folder`; gives the goals."""
    goals = goals_of(measured)
    data: Record = {
        "split": options.split,
        "quick": options.quick,
        "target": options.target.name,
        "scorer": options.scorer.name if options.score == "model" else options.score,
        "server_args": list(options.server_args),
        "survival": survival.summary(measured.survival),
        "qa": qa.summary(measured.qa),
        "ttft": timing.summary_ttft(measured.ttft),
        "scorer_cost": timing.summary_cost(measured.cost),
        "chat": dialogue.summary(measured.chat),
        "stall": stall.summary(measured.stall),
    }
    page = report.Page(
        name,
        _INTRO.format(split=options.split),
        f"target {data['target']}, scorer {data['scorer']}",
        options.quick,
        _TITLES,
    )
    report.write(folder, page, command, goals, data, plots_of(measured))
    return goals
