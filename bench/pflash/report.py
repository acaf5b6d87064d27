"""The result files: JSON, a Markdown page with the goals and the figures, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.pflash import dialogue, qa, stall, survival, timing
from bench.pflash.context import Options
from bench.pflash.goals import goals_of
from bench.pflash.measured import Measured
from bench.pflash.plots import draw
from bench.results import Goal, commit, goal_table, machine, write_json
from bench.store import Json, Record

_INTRO = """\
Every figure comes from one engine on one machine; times compare requests made in turn in the same
run. Texts, names and questions are those of the **{split}** split: nothing was tuned on the
reported one. Shares count a prompt that came back uncompressed as lost. **BM25** ranks whole
sentences by the question alone, without the server; **BM25 in our order** is the server's own
selection with BM25 in its scorer's place.
"""


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
    write_json(folder / f"{name}.json", command=command, goals=goals, data=data)
    plots = draw(folder, name, measured)
    page = _page(name, options, command, goals, data, plots)
    (folder / f"{name}.md").write_text(page)
    return goals


def _page(
    name: str,
    options: Options,
    command: str,
    goals: Sequence[Goal],
    data: Record,
    plots: Sequence[Path],
) -> str:
    about = machine()
    parts = [f"# {name}", _INTRO.format(split=options.split)]
    if options.quick is not None:
        parts.append(f"**A quick run of {options.quick} cases a part: a trial, not a result.**\n")
    parts.append(
        f"Commit {commit()}; {about['processor']}, {about['cores']} cores; target "
        f"{data['target']}, scorer {data['scorer']}. Again: `{command}`.\n"
    )
    parts += ["## Goals\n", goal_table(goals), ""]
    titles = {
        "survival": "Evidence kept",
        "qa": "Question answering",
        "ttft": "Time to first token",
        "scorer_cost": "Scorer's cost",
        "chat": "Chat over one document",
        "stall": "Decoding while another prompt is scored",
    }
    for key, title in titles.items():
        rows = data[key]
        if isinstance(rows, list) and rows:
            parts += [f"## {title}\n", _table([row for row in rows if isinstance(row, dict)]), ""]
    parts += [f"![{path.stem}]({path.name})\n" for path in plots]
    return "\n".join(parts)


def _table(rows: Sequence[Record]) -> str:
    """Markdown of flat fields; nested ones are left to the JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [n for n in names if not any(isinstance(row.get(n), dict | list) for row in rows)]
    shown = [name.replace("_", " ") for name in names]
    lines = [f"| {' | '.join(shown)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(_cell(row.get(name)) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value)
