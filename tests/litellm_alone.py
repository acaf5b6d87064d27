"""`litellm --config` in a folder of its own, without `flashlane serve` around it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from flashlane.routelog import RouteLog
from flashlane.serve import free_port, proxy_command

ROOT = Path(__file__).resolve().parent.parent
KEY = "sk-master-of-the-tests"


@dataclass(frozen=True)
class Running:
    url: str
    log: Path
    routes: RouteLog

    def get(self, path: str, key: str | None = KEY) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=_headers(key), timeout=60)

    def post(self, path: str, body: object, key: str | None = KEY) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", headers=_headers(key), json=body, timeout=300)


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


@contextlib.contextmanager
def running(folder: Path, files: Mapping[str, str], workers: int = 1) -> Iterator[Running]:
    """A proxy in `folder`, which gets `files`; one of them is config.yaml."""
    for name, text in files.items():
        (folder / name).write_text(text)
    port = free_port()
    log = folder / "proxy.log"
    command = [*proxy_command(folder / "config.yaml", "127.0.0.1", port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--num_workers", str(workers)],
            cwd=folder,
            env={
                **os.environ,
                "FLASHLANE_STATE_DIR": str(folder / "state"),
                "LITELLM_MASTER_KEY": KEY,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                # uvicorn ends a worker that imports for longer; a busy machine needs minutes.
                "TIMEOUT_WORKER_HEALTHCHECK": "120",
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 180
        while not _ready(url):
            tail = log.read_text(errors="replace")[-2000:]
            assert process.poll() is None and time.monotonic() < deadline, tail
            time.sleep(0.3)
        yield Running(url, log, RouteLog(folder / "state" / "routes.sqlite"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
