"""Set-up: engine, Python bindings, model, scorer, master key. A step done before costs nothing."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from flashlane.backends.llama_server_patch.build import (
    BACKEND_FLAGS,
    BuildError,
    engine_path,
    ensure_engine,
)
from flashlane.bindings import ensure_bindings
from flashlane.models import DEFAULT_MODEL, ModelError, ensure_model
from flashlane.packages import say
from flashlane.paths import state_dir
from flashlane.scorer import ensure_scorer


def ensure_master_key() -> str:
    """LiteLLM's master key, made once in a file that its owner alone can read."""
    path = state_dir() / "master_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        if key := path.read_text().strip():
            return key
        path.unlink()  # an interrupted call left it empty
        return ensure_master_key()
    with os.fdopen(descriptor, "w") as file:
        key = f"sk-{secrets.token_hex(32)}"
        file.write(key + "\n")
    return key


def run_setup(backend: str = "cpu", model: str = DEFAULT_MODEL) -> tuple[Path, Path]:
    """(llama-server, model file). Raises `BuildError` or `ModelError` with one sentence."""
    say("[1/5] engine: the patched llama-server")
    server = ensure_engine(backend)
    say("[2/5] bindings: llama_cpp on the engine's libraries")
    ensure_bindings(server, say)
    say(f"[3/5] model: {model}")
    path = ensure_model(model)
    say("[4/5] scorer: the small model by which PFlash reads a prompt")
    ensure_scorer(say)
    say("[5/5] master key")
    ensure_master_key()
    return server, path


def _built_backend() -> str:
    """The kind that is built already, an accelerator's first; `cpu` when none is."""
    return next((name for name in reversed(BACKEND_FLAGS) if engine_path(name)), "cpu")


def main() -> None:
    """`python -m flashlane.setup`: BACKEND names the engine's kind, else one built before stays."""
    try:
        run_setup(os.environ.get("BACKEND") or _built_backend())
    except (BuildError, ModelError) as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
