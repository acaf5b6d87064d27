"""What one run of a benchmark has at hand: engine, options, finished cases, progress."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.server import Server, engine_identity, running
from bench.store import Store

T = TypeVar("T")

_LINES_PER_PART = 10  # of progress, where it goes to a file


@dataclass(frozen=True)
class RunOptions:
    """`quick`: cases of each part, None for all. `server_args`: more options of the server."""

    server: Path
    quick: int | None
    threads: int | None
    server_args: tuple[str, ...]
    logs: Path


Options = TypeVar("Options", bound=RunOptions)


class Run(Generic[Options]):
    def __init__(self, options: Options, store: Store) -> None:
        self.options = options
        self.store = store
        self.engine_id = engine_identity(options.server)

    def cases(self, part: str, cases: Iterable[T], *, limit: bool = True) -> Iterator[T]:
        """The cases one after another, with progress; the first `quick` of them in a quick run."""
        chosen = list(cases)
        if limit and self.options.quick is not None:
            chosen = chosen[: self.options.quick]
        console = Console(stderr=True)
        if not console.is_terminal:
            yield from _noted(part, chosen)
            return
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            yield from progress.track(chosen, description=part)

    def running(
        self, name: str, model: Path, ctx_tokens: int, *args: str
    ) -> AbstractContextManager[Server]:
        """`model` under the engine measured, with the run's threads; `ctx_tokens` for all slots."""
        threads = self.options.threads
        fixed = ["--ctx-size", str(ctx_tokens), "--no-webui"]
        if threads is not None:
            fixed += ["--threads", str(threads), "--threads-batch", str(threads)]
        log = self.options.logs / f"{name}.log"
        return running(self.options.server, model, log, *fixed, *args)


def _noted(part: str, cases: list[T]) -> Iterator[T]:
    step = max(len(cases) // _LINES_PER_PART, 1)
    for number, case in enumerate(cases):
        if number % step == 0:
            print(f"{part}: {number} of {len(cases)}", file=sys.stderr, flush=True)
        yield case
