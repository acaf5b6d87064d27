"""What one run of PFlash's benchmark has at hand."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.data import Split
from bench.run import Run, RunOptions
from bench.server import Server
from bench.store import Store, key_of
from flashlane.models import sha256_of

_SCORING_LIMIT_MS = 300_000  # a slow machine shows slow scoring, not prompts left whole


@dataclass(frozen=True)
class Options(RunOptions):
    """`score` is the server's --pflash-score."""

    target: Path
    scorer: Path
    score: str
    split: Split
    window: int
    baseline_answers: bool


class Context(Run[Options]):
    def __init__(self, options: Options, store: Store) -> None:
        super().__init__(options, store)
        self.target_id = sha256_of(options.target)[:16]
        self.scorer_id = sha256_of(options.scorer)[:16]

    def key(self, case: str, **parts: object) -> str:
        """Of a result that the engine, both models or the server's options can change."""
        return key_of(
            case=case,
            engine=self.engine_id,
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
        return self.running(name, options.target, ctx_tokens, *pflash, *options.server_args, *args)

    def scorer(self, name: str, ctx_tokens: int) -> AbstractContextManager[Server]:
        """The scorer's own model as a plain server, one window a batch: its speed is the limit."""
        batch = str(max(self.options.window * 2, 512))
        return self.running(
            name,
            self.options.scorer,
            ctx_tokens,
            *("--batch-size", batch, "--ubatch-size", batch, "--flash-attn", "on"),
        )
