"""What one run of the benchmark has at hand: files, options, finished cases, progress."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.pflash.data import Split
from bench.server import Server, engine_identity, running
from bench.store import Store, key_of
from flashlane.models import sha256_of

T = TypeVar("T")

_SCORING_LIMIT_MS = 300_000  # a slow machine shows slow scoring, not prompts left whole
_LINES_PER_PART = 10  # of progress, where it goes to a file


@dataclass(frozen=True)
class Options:
    """`score` is the server's --pflash-score; `quick`: cases of each part, None for all."""

    server: Path
    target: Path
    scorer: Path
    score: str
    split: Split
    quick: int | None
    threads: int | None
    window: int
    baseline_answers: bool
    server_args: tuple[str, ...]
    logs: Path


class Context:
    def __init__(self, options: Options, store: Store) -> None:
        self.options = options
        self.store = store
        self.target_id = sha256_of(options.target)[:16]
        self.scorer_id = sha256_of(options.scorer)[:16]
        self._engine_id = engine_identity(options.server)

    def key(self, case: str, **parts: object) -> str:
        """Of a result that the engine, both models or the server's options can change."""
        return key_of(
            case=case,
            engine=self._engine_id,
            target=self.target_id,
            scorer=self.scorer_id,
            score=self.options.score,
            threads=self.options.threads,
            server_args=list(self.options.server_args),
            **parts,
        )

    def plain_key(self, case: str, **parts: object) -> str:
        """Of a result that PFlash has no part in: the target alone makes it."""
        return key_of(case=case, target=self.target_id, **parts)

    def target(self, name: str, ctx_tokens: int, *args: str) -> AbstractContextManager[Server]:
        """The target with PFlash on in every request that does not say otherwise."""
        options = self.options
        pflash = ["--pflash-mode", "always", "--pflash-score", options.score]
        pflash += ["--pflash-timeout-ms", str(_SCORING_LIMIT_MS)]
        if options.score == "model":
            pflash += ["--pflash-model", str(options.scorer)]
        return self._running(name, options.target, ctx_tokens, *pflash, *options.server_args, *args)

    def scorer(self, name: str, ctx_tokens: int) -> AbstractContextManager[Server]:
        """The scorer's own model as a plain server, one window a batch: its speed is the limit."""
        batch = str(max(self.options.window * 2, 512))
        return self._running(
            name,
            self.options.scorer,
            ctx_tokens,
            *("--batch-size", batch, "--ubatch-size", batch, "--flash-attn", "on"),
        )

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

    def _running(
        self, name: str, model: Path, ctx_tokens: int, *args: str
    ) -> AbstractContextManager[Server]:
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


def number(record: Mapping[str, object], name: str) -> float:
    """A numeric field of a finished case. TypeError when it holds something else."""
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)
