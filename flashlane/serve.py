"""Running the proxy with its supervisor, and ending both without a trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from flashlane.backends.control import Client
from flashlane.backends.process import die_with
from flashlane.config import load_config
from flashlane.paths import state_dir
from flashlane.setup import ensure_master_key

PROXY_PORT = 4000
_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 15.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ServeError(RuntimeError):
    """The proxy did not come up; the message says what to do."""


@dataclass(frozen=True)
class Proxy:
    """A running LiteLLM proxy that answers its health check."""

    base_url: str
    key: str
    process: subprocess.Popen[bytes]
    log: Path


def proxy_command(config_path: Path, host: str, port: int) -> list[str]:
    litellm = shutil.which("litellm", path=str(Path(sys.executable).parent)) or "litellm"
    return [litellm, "--config", str(config_path), "--host", host, "--port", str(port)]


@contextlib.contextmanager
def running_proxy(
    config_path: Path, port: int = PROXY_PORT, *, host: str = "127.0.0.1"
) -> Iterator[Proxy]:
    """Start supervisor and proxy, wait until the proxy is ready, and stop both at the end.

    Raises `ServeError` when the port is taken or the proxy ends early, `ConfigError` when the
    config is wrong. Starts no second supervisor where one runs for this config already.
    """
    load_config(config_path)
    _require_free(host, port)
    key = os.environ.get("LITELLM_MASTER_KEY") or ensure_master_key()
    log = state_dir() / "logs" / "proxy.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    supervisor = Client(config_path)
    process: subprocess.Popen[bytes] | None = None
    try:
        supervisor.connect()
        process = subprocess.Popen(
            proxy_command(config_path, host, port),
            cwd=config_path.parent,
            env={
                **os.environ,
                "LITELLM_MASTER_KEY": key,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_TELEMETRY": "False",
                "FLASHLANE_CONFIG": str(config_path),
                "PYTHONUNBUFFERED": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone; we stop it in order
            preexec_fn=die_with(os.getpid(), signal.SIGTERM),
        )
        url = f"http://{host}:{port}"
        _wait_ready(url, process, log)
        yield Proxy(url, key, process, log)
    finally:
        os.close(descriptor)
        with _no_interrupts():
            if process is not None:
                _stop(process)
            supervisor.close(shutdown=True)


def free_port() -> int:
    """A loopback port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServeError(
                f"port {port} on {host} cannot be used ({error.strerror}); "
                "stop what listens there or pass --port with another"
            ) from error


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServeError(f"LiteLLM ended with code {process.returncode}:\n{_tail(log)}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health/liveliness", timeout=2.0).status_code == 200:
                return
        time.sleep(0.3)
    raise ServeError(f"LiteLLM did not answer within {_START_LIMIT_S:.0f} s:\n{_tail(log)}")


def _tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the proxy's whole process group to end, then end it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_STOP_LIMIT_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """A second Ctrl-C, or the terminal that closes, must not leave processes behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_on_terminate() -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the way out is one; also where a shell started
    us in the background with SIGINT ignored."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in _ENDING:
        signal.signal(number, interrupt)
