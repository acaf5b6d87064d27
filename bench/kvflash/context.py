"""What one run of KVFlash's benchmark has at hand: servers with it and without, and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench import tiny_models
from bench.kvflash.texts import Generated, Words, letters
from bench.run import Run, RunOptions
from bench.server import Server
from bench.store import Store, key_of
from flashlane.models import sha256_of

PAGE_TOKENS = 64
SLOTS = 2
_TINY: Mapping[str, Callable[[Path], Path]] = {
    "tiny dense": tiny_models.dense,
    "tiny windowed": tiny_models.windowed,
    "tiny recurrent": tiny_models.recurrent,
    "tiny hybrid": tiny_models.hybrid,
}
# Threads of a tiny model only wait for each other. Flash attention rounds a decoded token's states
# otherwise than a prefilled one's; random weights make other answers of that, without KVFlash too.
_TINY_ARGS = ("--threads", "1", "--threads-batch", "1", "--flash-attn", "off")
# Two slots over shared cells, as many as upstream's default shares; the rest is upstream's default.
_SHARED = ("--parallel", str(SLOTS), "--kv-unified")


@dataclass(frozen=True)
class Options(RunOptions):
    """`named`: the model files beside those made here, by the names that rows show."""

    named: Mapping[str, Path]


class Context(Run[Options]):
    def __init__(self, options: Options, store: Store) -> None:
        super().__init__(options, store)
        self._tiny: dict[str, Path] = {}

    def model(self, name: str) -> Path:
        """The file of a model; the tiny ones are made. KeyError for an unknown name."""
        if name not in _TINY:
            return self.options.named[name]
        if name not in self._tiny:
            folder = self.options.logs.parent / "models"
            folder.mkdir(parents=True, exist_ok=True)
            self._tiny[name] = _TINY[name](folder / f"{name.replace(' ', '-')}.gguf")
        return self._tiny[name]

    def model_id(self, name: str) -> str:
        return _id(self.model(name))

    def words(self, name: str, server: Server) -> Words:
        return letters if name in _TINY else Generated(server)

    def key(self, case: str, model: str, **parts: object) -> str:
        """Of a result that the engine, the model or the server's options can change."""
        return key_of(
            case=f"kvflash/{case}",
            engine=self.engine_id,
            model=self.model_id(model),
            threads=self.options.threads,
            server_args=list(self.options.server_args),
            **parts,
        )

    def upstream(
        self, name: str, model: str, ctx_tokens: int, *args: str
    ) -> AbstractContextManager[Server]:
        """The same binary with KVFlash off."""
        return self._server(name, model, ctx_tokens, *_SHARED, *args)

    def kvflash(
        self, name: str, model: str, ctx_tokens: int, *args: str
    ) -> AbstractContextManager[Server]:
        return self._server(
            name,
            model,
            ctx_tokens,
            *_SHARED,
            *("--kvflash", "auto", "--kvflash-tau", str(PAGE_TOKENS)),
            *self.options.server_args,
            *args,
        )

    def cold(self, name: str, model: str, ctx_tokens: int) -> AbstractContextManager[Server]:
        """One slot and no memory: what a prompt gives that was never seen."""
        return self._server(name, model, ctx_tokens, "--parallel", "1", "--cache-ram", "0")

    def _server(
        self, name: str, model: str, ctx_tokens: int, *args: str
    ) -> AbstractContextManager[Server]:
        own = _TINY_ARGS if model in _TINY else ()
        return self.running(name, self.model(model), ctx_tokens, *own, *args)


@cache
def _id(model: Path) -> str:
    return sha256_of(model)[:16]
