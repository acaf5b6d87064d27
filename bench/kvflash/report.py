"""The result files of KVFlash's benchmark."""

from __future__ import annotations

from pathlib import Path

from bench import report
from bench.kvflash import affinity, miss, replay, tiers
from bench.kvflash.context import Options
from bench.kvflash.goals import goals_of
from bench.kvflash.measured import Measured
from bench.kvflash.plots import plots_of
from bench.results import Goal
from bench.store import Record

_INTRO = """\
One binary with KVFlash on and off, on one machine; times compare requests made in turn in the same
run. **upstream** is the binary with KVFlash off and its prompt cache at its default size,
**upstream, same memory** with the size that KVFlash has. Traces on the tiny dense model count
tokens, not time. All variants get the same prompts.
"""
_TITLES = {
    "ttft": "Time to first token behind a known prefix",
    "traces": "Chats over two slots",
    "growing": "Growing chats where a state cannot be cut back anywhere",
    "miss": "A prefix that is nowhere",
    "affinity": "Two backends behind the proxy",
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
        "ttft": tiers.summary(measured.warm),
        "traces": replay.summary(measured.traces),
        "growing": replay.summary(measured.growing),
        "miss": miss.summary(measured.miss),
        "affinity": affinity.summary(measured.affinity),
    }
    shown = ", ".join(f"{label} {file}" for label, file in models.items())
    page = report.Page(name, _INTRO, shown, options.quick, _TITLES)
    report.write(folder, page, command, goals, data, plots_of(measured))
    return goals
