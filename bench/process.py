"""A llama-server process on a free loopback port, stopped by its own pid: benchmarks and tests."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashlane.serve import free_port

_START_LIMIT_S = 60.0
_HEALTH_LIMIT_S = 60.0
_STOP_LIMIT_S = 15.0
_TAIL_CHARS = 2000


class ServerError(RuntimeError):
    """The server did not start, or answered with an error: what it said."""


def engine_env(server: Path) -> dict[str, str]:
    """The environment for `server`: no inherited options, and its libraries from its own folder.

    CMake writes the build folder into a binary as its library path; a copy of the binary would
    otherwise load the libraries of whatever was built there last.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_ARG_", "PYTEST_"))}
    env["LD_LIBRARY_PATH"] = str(server.parent)
    return env


@contextmanager
def running_process(
    server: Path, model: Path, log: Path, *args: str, start_limit_s: float = _START_LIMIT_S
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """(port, process) of `server` on `model` with `args`, once healthy; stopped at the end.

    Raises `ServerError` with the end of its log when it exits or is not healthy in time.
    """
    port = free_port()
    command = [str(server), "--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *args], stdout=output, stderr=output, env=engine_env(server)
        )
    try:
        _wait_healthy(port, process, log, start_limit_s)
        yield port, process
    finally:
        process.terminate()
        try:
            process.wait(timeout=_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_healthy(port: int, process: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        if _healthy(port):
            return
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-_TAIL_CHARS:]
    raise ServerError(f"llama-server did not become healthy ({log}):\n{tail}")


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_HEALTH_LIMIT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
