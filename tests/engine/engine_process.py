"""A llama-server process for tests: started on a free loopback port, stopped by its own pid."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashlane.serve import free_port

_START_LIMIT_S = 60.0
_REQUEST_LIMIT_S = 300.0


def engine_env(server: Path) -> dict[str, str]:
    """The environment for `server`: no inherited options, and its libraries from its own folder.

    CMake writes the build folder into a binary as its library path; a copy of the binary would
    otherwise load the libraries of whatever was built there last.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_ARG_", "PYTEST_"))}
    env["LD_LIBRARY_PATH"] = str(server.parent)
    return env


@dataclass(frozen=True)
class Reply:
    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)

    def events(self) -> list[str]:
        """The data of a server-sent event stream, `[DONE]` included."""
        lines = self.text.splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@dataclass(frozen=True)
class Engine:
    base: str
    process: subprocess.Popen[bytes]

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        return self.send(path, json.dumps(body).encode())

    def get(self, path: str) -> Reply:
        return self.send(path, None)

    def send(self, path: str, data: bytes | None) -> Reply:
        request = urllib.request.Request(
            self.base + path, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_LIMIT_S) as answer:
                return Reply(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read().decode())


@contextmanager
def running(server: Path, model: Path, log: Path, *args: str) -> Iterator[Engine]:
    """Starts `server` with `args`, waits until it is healthy and stops it at the end.

    RuntimeError with the end of its log when it exits or is not healthy in time.
    """
    port = free_port()
    command = [str(server), "--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *args], stdout=output, stderr=output, env=engine_env(server)
        )
        engine = Engine(f"http://127.0.0.1:{port}", process)
        try:
            _wait_healthy(engine, log)
            yield engine
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_healthy(engine: Engine, log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline and engine.process.poll() is None:
        try:
            if engine.get("/health").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"llama-server did not become healthy:\n{tail}")
