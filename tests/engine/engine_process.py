"""A llama-server process for tests: started on a free loopback port, stopped by its own pid."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process import running_process

_REQUEST_LIMIT_S = 300.0


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


def compress(server: Engine, **body: Any) -> dict[str, Any]:
    """The answer of /pflash/compress."""
    reply = server.post("/pflash/compress", body)
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def scored_by(model: Path, mode: str) -> list[str]:
    """Options of a server whose PFlash scores with `model`."""
    return ["--pflash-mode", mode, "--pflash-score", "model", "--pflash-model", str(model)]


@contextmanager
def running(server: Path, model: Path, log: Path, *args: str) -> Iterator[Engine]:
    """Starts `server` with `args`, waits until it is healthy and stops it at the end.

    RuntimeError with the end of its log when it exits or is not healthy in time.
    """
    with running_process(server, model, log, *args) as (port, process):
        yield Engine(f"http://127.0.0.1:{port}", process)
