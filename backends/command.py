"""The command line and the environment of a llama-server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flashlane.config import BackendConfig

_OPTIONAL = ("--no-webui", "--metrics")
"""Given only to a server that knows them: `server:` may name a build of the user's own."""


def server_command(
    name: str,
    backend: BackendConfig,
    server: Path,
    model: Path,
    known_flags: frozenset[str] = frozenset(_OPTIONAL),
    scorer: Path | None = None,
) -> list[str]:
    """Arguments that start `server` as backend `name`. Holds no key: see `server_environment`.

    `scorer` is the file that `pflash.model` names.

    llama-server's `-c` is shared by its slots, so it gets `context_tokens` for each of them. The
    user's own `args` come last: where a flag is given twice, llama-server takes the last.
    """
    command = [str(server), "-m", str(model), "--alias", name]
    command += ["--host", backend.host, "--port", str(backend.port)]
    command += ["-c", str(backend.context_tokens * backend.slots), "-np", str(backend.slots)]
    if backend.threads is not None:
        command += ["--threads", str(backend.threads)]
    command += [flag for flag in _OPTIONAL if flag in known_flags]
    pflash = backend.pflash.model_dump(exclude_none=True)
    if scorer is not None:
        pflash["model"] = scorer
    for key, value in pflash.items():
        command += [f"--pflash-{key.replace('_', '-')}", str(value)]
    for key, value in backend.kvflash.model_dump(exclude_none=True).items():
        flag = "--kvflash" if key == "budget" else f"--kvflash-{key.replace('_', '-')}"
        command += [flag, str(value)]
    return [*command, *backend.args]


_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|CREDENTIALS?)(_|$)|PASSW|_URL$|^LITELLM_")
"""Names of variables that hold a secret; a URL of a database or a proxy may carry a password."""


def server_environment(backend: BackendConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without secrets and without settings of llama-server, which come from the
    config alone; with the server's own key where it has one.

    Raises `LookupError` with one sentence when `api_key_env` names an empty variable.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("LLAMA_ARG_") and not _SECRET.search(name.upper())
    }
    key = api_key(backend, environment)
    return {**kept, "LLAMA_API_KEY": key} if key else kept


def api_key(backend: BackendConfig, environment: Mapping[str, str]) -> str | None:
    """The key that clients of `backend` must send; None when it asks for none."""
    if backend.api_key_env is None:
        return None
    key = environment.get(backend.api_key_env)
    if not key:
        raise LookupError(
            f"api_key_env is {backend.api_key_env!r}, and that variable is not set where the "
            "supervisor was started; set it to the server's key"
        )
    return key
