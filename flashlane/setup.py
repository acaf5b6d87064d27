"""Set-up: engine, model, master key. Every step is skipped when its result is there."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from flashlane.backends.llama_server_patch.build import BuildError, ensure_engine
from flashlane.models import ModelError, ensure_model
from flashlane.paths import state_dir


def ensure_master_key() -> str:
    """LiteLLM's master key, made once in a file that its owner alone can read."""
    path = state_dir() / "master_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        key = f"sk-{secrets.token_hex(32)}"
        file.write(key + "\n")
    return key


def run_setup(backend: str = "cpu", model: str = "smollm2-135m") -> tuple[Path, Path]:
    """(llama-server, model file). Raises `BuildError` or `ModelError` with one sentence."""
    _say("[1/3] engine")
    server = ensure_engine(backend)
    _say("[2/3] model")
    path = ensure_model(model)
    _say("[3/3] master key")
    ensure_master_key()
    return server, path


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    try:
        run_setup(os.environ.get("BACKEND") or "cpu")
    except (BuildError, ModelError) as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
