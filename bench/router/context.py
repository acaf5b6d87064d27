"""What one run of the router's benchmark has at hand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.results import ROOT
from bench.run import Run, RunOptions
from bench.store import key_of
from flashlane.models import sha256_of

TARGET, SMALL, SCORER = "target", "small", "scorer"
_STATE = "FLASHLANE_STATE_DIR"


@dataclass(frozen=True)
class Options(RunOptions):
    """`named`: model files by the names that rows show."""

    named: Mapping[str, Path]


class Context(Run[Options]):
    def model(self, name: str) -> Path:
        """The file of a model. KeyError for an unknown name."""
        return self.options.named[name]

    def key(self, case: str, **parts: object) -> str:
        """Of a result that the engine, a model, the router's code or the options can change."""
        return self.engine_key(case, code=router_code(), **parts)

    def engine_key(self, case: str, **parts: object) -> str:
        """Of a result that the router has no part in."""
        return key_of(
            case=f"router/{case}",
            engine=self.engine_id,
            models={name: _id(path) for name, path in self.options.named.items()},
            threads=self.options.threads,
            server_args=list(self.options.server_args),
            **parts,
        )


@contextmanager
def own_state(folder: Path) -> Iterator[None]:
    """A state folder of this run's own: the user's key, log and learned speeds are left alone."""
    before = os.environ.get(_STATE)
    os.environ[_STATE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STATE]
        else:
            os.environ[_STATE] = before


@cache
def router_code() -> str:
    """Hash of the package and its hooks."""
    digest = hashlib.sha256()
    for folder in ("flashlane", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "backends" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _id(model: Path) -> str:
    return sha256_of(model)[:16]
