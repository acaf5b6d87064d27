"""A private note of our children, and the end of those that a killed supervisor left behind.

On Linux the kernel ends them with the supervisor; elsewhere this does, at the next start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

_LIMIT_BYTES = 1 << 16
_STOP_S = 5.0


class Child(BaseModel):
    """`created`: start time of the process, which tells it from a later one of the same id."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    pid: int
    created: float


_children = TypeAdapter(list[Child])


def note_children(path: Path, pids: Iterable[int]) -> None:
    children = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            children.append(Child(pid=pid, created=psutil.Process(pid).create_time()))
    partial = path.with_suffix(".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_children.dump_json(children))
    partial.replace(path)


def end_orphans(path: Path) -> int:
    """End the processes noted in `path` that still run; how many there were."""
    try:
        with path.open("rb") as file:
            noted = _children.validate_json(file.read(_LIMIT_BYTES))
    except (OSError, ValidationError):
        return 0
    left = []
    for child in noted:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(child.pid)
            if abs(process.create_time() - child.created) < 1.0:
                process.terminate()
                left.append(process)
    _, stubborn = psutil.wait_procs(left, timeout=_STOP_S)
    for process in stubborn:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(stubborn, timeout=_STOP_S)
    path.unlink(missing_ok=True)
    return len(left)
