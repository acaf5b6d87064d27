"""The command line of one llama-server: a pure function of its config."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from flashlane.config import BackendConfig


def server_command(name: str, backend: BackendConfig, server: Path, model: Path) -> list[str]:
    """Arguments that start `backend`. The API key travels in the environment, not here."""
    command = [
        str(server), "--model", str(model), "--alias", name,
        "--host", backend.host, "--port", str(backend.port),
        "--ctx-size", str(backend.context_tokens * backend.slots),
        "--parallel", str(backend.slots), "--metrics",
    ]
    if backend.threads:
        command += ["--threads", str(backend.threads)]
    command += _flags("pflash", backend.pflash)
    command += _flags("kvflash", backend.kvflash)
    return [*command, *backend.args]


def _flags(prefix: str, section: BaseModel) -> list[str]:
    flags: list[str] = []
    for key, value in section.model_dump(exclude_none=True).items():
        flag = f"--{prefix}" if key == "budget" else f"--{prefix}-{key.replace('_', '-')}"
        flags += [flag, str(value)]
    return flags
