"""The page of a benchmark beside its JSON: goals, figures and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.plots import Plot, draw
from bench.results import Goal, commit, goal_table, machine, write_json
from bench.store import Json, Record


@dataclass(frozen=True)
class Page:
    """`intro` says how to read it, `models` which were used, `titles` which rows of the data are
    shown under which title."""

    name: str
    intro: str
    models: str
    quick: int | None
    titles: Mapping[str, str]


def write(
    folder: Path,
    page: Page,
    command: str,
    goals: Sequence[Goal],
    data: Record,
    plots: Sequence[Plot],
) -> None:
    """Writes `page.name`.json, `page.name`.md and the plots into `folder`."""
    write_json(folder / f"{page.name}.json", command=command, goals=goals, data=data)
    about = machine()
    parts = [f"# {page.name}", page.intro]
    if page.quick is not None:
        parts.append(f"**A quick run of {page.quick} cases a part: a trial, not a result.**\n")
    parts.append(
        f"Commit {commit()}; {about['processor']}, {about['cores']} cores; {page.models}. "
        f"Again: `{command}`.\n"
    )
    parts += ["## Goals\n", goal_table(goals), ""]
    for key, title in page.titles.items():
        rows = data[key]
        if isinstance(rows, list) and rows:
            parts += [f"## {title}\n", _table([row for row in rows if isinstance(row, dict)]), ""]
    drawn = draw(folder, page.name, plots)
    parts += [f"![{path.stem}]({path.name})\n" for path in drawn]
    (folder / f"{page.name}.md").write_text("\n".join(parts))


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
