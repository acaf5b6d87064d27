"""The files that a benchmark leaves: JSON with its goals, and a Markdown table."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from bench.store import Json, Record

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Goal:
    """A measured value and what it should reach; `value` is None when it was not measured."""

    id: str
    text: str
    value: float | None
    goal: float
    op: Literal[">=", "<="] = ">="
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.goal if self.op == ">=" else self.value <= self.goal

    def as_json(self) -> Record:
        value = None if self.value is None else round(self.value, 4)
        return {
            "id": self.id,
            "text": self.text,
            "value": value,
            "goal": self.goal,
            "op": self.op,
            "met": self.met,
            "note": self.note,
        }


def commit() -> str:
    """The commit measured, with `-dirty` when files differ from it; `unknown` outside git."""
    described = _git("describe", "--always", "--abbrev=12", "--dirty", "--exclude=*")
    return described or "unknown"


def machine() -> Record:
    """Processor, cores, memory in bytes, system, and the load when the report was written."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def goal_table(goals: Sequence[Goal]) -> str:
    """Markdown: one row per goal."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    lines = ["| What | Measured | Goal | Met | Cases |", "|---|---|---|---|---|"]
    for goal in goals:
        value = "–" if goal.value is None else f"{goal.value:.4g}"
        sign = "≥" if goal.op == ">=" else "≤"
        lines.append(
            f"| {goal.text} | {value} | {sign} {goal.goal:g} | {words[goal.met]} | {goal.note} |"
        )
    return "\n".join(lines)


def write_json(path: Path, *, command: str, goals: Sequence[Goal], data: dict[str, Json]) -> None:
    """Writes the result file whole, or leaves the one before."""
    content: dict[str, Json] = {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": command,
        "goals": [goal.as_json() for goal in goals],
        "data": data,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def _git(*args: str) -> str:
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
