"""The result files of the router's benchmark."""

from __future__ import annotations

from pathlib import Path

from bench import report
from bench.results import Goal
from bench.router import exact, mixed, overhead, places, speed, verify
from bench.router.context import Options
from bench.router.goals import goals_of
from bench.router.measured import Measured
from bench.router.plots import plots_of
from bench.store import Record

_INTRO = """\
**direct** is the whole prompt, **pflash** the compressed one, **verify** a compressed one whose
answer is checked. Times of the same row compare requests made in turn in one run.
"""
_TITLES = {
    "asks": "Which asks are taken for exact",
    "places": "Where the ask is found",
    "speed": "What a decision takes",
    "overhead": "What the plugins add to LiteLLM",
    "verify": "The verify lane against the direct lane",
    "mixed": "A mixed trace",
}


def write(
    folder: Path, name: str, options: Options, command: str, measured: Measured
) -> list[Goal]:
    """Writes `name`.json, `name`.md and the plots into `folder`; gives the goals."""
    goals = goals_of(measured)
    models = {label: path.name for label, path in options.named.items()}
    data: Record = {
        "quick": options.quick,
        "models": {**models},
        "server_args": list(options.server_args),
        "asks": exact.summary(measured.asks),
        "places": places.summary(measured.places),
        "speed": speed.summary(measured.speed),
        "overhead": overhead.summary(measured.overhead),
        "verify": verify.summary(measured.verify),
        "mixed": mixed.summary(measured.mixed),
    }
    shown = ", ".join(f"{label} {file}" for label, file in models.items())
    page = report.Page(name, _INTRO, shown, options.quick, _TITLES)
    report.write(folder, page, command, goals, data, plots_of(measured))
    return goals
