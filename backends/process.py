"""One llama-server process: start, readiness, restart with back-off, stop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path

import httpx

from flashlane.backends.command import server_command
from flashlane.backends.llama_server_patch.build import ensure_engine
from flashlane.config import BackendConfig
from flashlane.models import ensure_model
from flashlane.paths import state_dir

log = logging.getLogger("flashlane.supervisor")

_READY_LIMIT_S = 300.0
_STOP_LIMIT_S = 5.0
_CRASHES = 5
_CRASH_WINDOW_S = 60.0
_OVERHEAD_BYTES = 200_000_000
"""Compute buffers and program beside the model file; the KV cache is in `memory_mb` if it matters."""
_PR_SET_PDEATHSIG = 1


class BackendError(RuntimeError):
    """A backend that cannot serve: one sentence."""


class BackendProcess:
    """Owned by the supervisor's event loop alone."""

    def __init__(self, name: str, config: BackendConfig) -> None:
        self.name = name
        self.config = config
        self.last_used = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._exits: deque[float] = deque(maxlen=_CRASHES)
        self._model: Path | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process and process.returncode is None else None

    def memory_bytes(self) -> int:
        if self.config.memory_mb:
            return self.config.memory_mb * 1_000_000
        model = self._model or ensure_model(self.config.model)
        return model.stat().st_size + _OVERHEAD_BYTES

    async def ensure(self) -> None:
        """Running and ready when this returns. Raises `BackendError`."""
        self.last_used = time.monotonic()
        async with self._lock:
            if self.pid is None:
                await self._start()
            await self._ready()

    async def busy(self) -> bool:
        """Whether a slot is working; a server that does not answer counts as idle."""
        if self.pid is None:
            return False
        try:
            async with httpx.AsyncClient(timeout=2.0) as client:
                reply = await client.get(f"{self.config.base_url}/slots", headers=self._headers())
                return any(slot.get("is_processing") for slot in reply.json())
        except (httpx.HTTPError, ValueError, AttributeError):
            return False

    async def stop(self) -> None:
        """Ask the process to end, then end it."""
        if self._watch:
            self._watch.cancel()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), _STOP_LIMIT_S)
                return

    async def _start(self) -> None:
        self._check_crash_loop()
        await self._require_free_port()
        config = self.config
        try:
            server = Path(config.server) if config.server else await asyncio.to_thread(ensure_engine)
            self._model = await asyncio.to_thread(ensure_model, config.model)
        except RuntimeError as error:
            raise BackendError(f"backend {self.name!r}: {error}") from error
        environment = dict(os.environ)
        if config.api_key_env:
            key = os.environ.get(config.api_key_env)
            if not key:
                raise BackendError(
                    f"backend {self.name!r}: api_key_env names {config.api_key_env}, which is not set"
                )
            environment["LLAMA_API_KEY"] = key
        descriptor = os.open(self._log_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *server_command(self.name, config, server, self._model),
                env=environment, stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor, stderr=descriptor, preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise BackendError(
                f"backend {self.name!r}: {server} cannot be started ({error.strerror})"
            ) from error
        finally:
            os.close(descriptor)
        log.info("backend %s: started, pid %d", self.name, self._process.pid)
        self._watch = asyncio.get_running_loop().create_task(self._restart_on_exit(self._process))

    def _check_crash_loop(self) -> None:
        now = time.monotonic()
        if len(self._exits) == _CRASHES and now - self._exits[0] < _CRASH_WINDOW_S:
            raise BackendError(
                f"backend {self.name!r} ended {_CRASHES} times within {_CRASH_WINDOW_S:.0f} s; "
                f"see {self._log_path()}"
            )

    async def _restart_on_exit(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._exits.append(time.monotonic())
        log.warning("backend %s: pid %d ended with code %d; restarting", self.name, process.pid, code)
        recent = sum(time.monotonic() - t < _CRASH_WINDOW_S for t in self._exits)
        await asyncio.sleep(0.0 if recent <= 1 else 0.5 * 2**recent)
        async with self._lock:
            if self._process is process:
                try:
                    await self._start()
                except BackendError as error:
                    log.error("%s", error)

    async def _ready(self) -> None:
        process = self._process
        deadline = time.monotonic() + _READY_LIMIT_S
        async with httpx.AsyncClient(timeout=5.0) as client:
            while time.monotonic() < deadline:
                if process is None or process.returncode is not None:
                    raise BackendError(f"backend {self.name!r} ended while starting: {self._tail()}")
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.config.base_url}/health")).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise BackendError(f"backend {self.name!r} was not ready within {_READY_LIMIT_S:.0f} s")

    async def _require_free_port(self) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            host = self.config.base_url.removeprefix("http://").rsplit(":", 1)[0].strip("[]")
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(host, self.config.port), timeout=1.0
            )
            writer.close()
            raise BackendError(
                f"backend {self.name!r}: port {self.config.port} is taken by another program; "
                "stop it or give the backend another port"
            )

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self.config.api_key_env or "")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _log_path(self) -> Path:
        folder = state_dir() / "logs"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / f"{self.name}-{self.config.port}.log"

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = [s for s in self._log_path().read_text(errors="replace").splitlines() if s.strip()]
            errors = [s for s in lines if "error" in s.lower()] or lines
            return errors[-1][:300] if errors else "no output"
        return "no output"


def _die_with_parent() -> None:
    """In the child before exec: the kernel ends it when the supervisor is gone, however it went."""
    os.setpgrp()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
