"""One llama-server process: started, watched, started again, stopped.

A server that hangs without ending is not noticed: only the end of its process is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import psutil

from flashlane.backends.channel import BackendStatus, ControlError, State
from flashlane.backends.command import api_key, server_command, server_environment
from flashlane.config import BackendConfig
from flashlane.paths import state_dir

log = logging.getLogger("flashlane.supervisor")

LOG_LIMIT_BYTES = 8 << 20
_POLL_S = 0.05
_RESTART_WAITS_S = (0.0, 0.5, 1.0, 2.0, 4.0)
_PORT_WAIT_S = 2.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Limits:
    """Time limits, in seconds. `crashes` ends within `crash_window_s` are the last restart."""

    start_s: float = 600.0
    stop_s: float = 10.0
    busy_wait_s: float = 60.0
    lease_grace_s: float = 10.0
    crash_window_s: float = 60.0
    crashes: int = 5


@dataclass(frozen=True)
class Program:
    """What to run: the server, its model file, the flags that it knows, PFlash's model file."""

    server: Path
    model: Path
    known_flags: frozenset[str]
    scorer: Path | None = None


class ServerProcess:
    """A backend's process and its state. Owned by one event loop, so it needs no lock."""

    def __init__(
        self, name: str, config: BackendConfig, limits: Limits, on_change: Callable[[], None]
    ) -> None:
        self.name = name
        self.config = config
        self.state: State = "stopped"
        self.error: str | None = None
        self.starts = 0
        self.run = ""
        self.last_used = time.monotonic()
        self.waiting = 0
        self._limits = limits
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._ends: deque[float] = deque(maxlen=limits.crashes)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def active(self) -> bool:
        """True while it holds memory, or is about to."""
        return self.state in ("starting", "ready", "stopping")

    def status(self) -> BackendStatus:
        return BackendStatus(
            name=self.name,
            state=self.state,
            base_url=self.config.base_url,
            model=self.config.model,
            pid=self.pid,
            run=self.run if self._process is not None else "",
            starts=self.starts,
            error=self.error,
        )

    def start(self, program: Program) -> None:
        """Begin starting. Raises `ControlError` where it ended too often just now."""
        self._refuse_crash_loop()
        self.error = None
        self._enter("starting")
        self._task = asyncio.create_task(self._run(program), name=f"backend {self.name}")
        self._task.add_done_callback(self._watch_failed)

    async def ready(self) -> None:
        """Wait until it answers. Raises `ControlError` when it will not."""
        self.waiting += 1
        try:
            if self.state == "ready" and self._has_ended():
                self._enter("starting")  # the watch is about to see it
            while self.state in ("starting", "stopping"):
                await self._settled.wait()
        finally:
            self.waiting -= 1
            self.last_used = time.monotonic()
        if self.state != "ready":
            raise ControlError(self.error or f"backend {self.name!r} was stopped")

    async def busy(self) -> bool:
        """True when a slot works on a request, when somebody waits for it, or when it does not say.

        A server whose `args` switch its slots page off counts as idle.
        """
        if self.waiting or self.state != "ready":
            return True
        key = api_key(self.config, os.environ)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
                reply = await client.get(f"{self.config.base_url}/slots", headers=headers)
            slots = reply.json() if reply.status_code == 200 else []
        except (httpx.HTTPError, ValueError):
            return True
        return any(isinstance(slot, dict) and slot.get("is_processing") for slot in slots)

    async def stop(self) -> None:
        """End the process, by force after a limit, and do not start it again."""
        self._enter("stopping")
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._end_process()
        self._enter("stopped")

    async def _run(self, program: Program) -> None:
        was_ready = False
        while True:
            try:
                code = await self._serve_once(program)
            except ControlError as error:
                # What never worked will not work the next time; what worked may.
                if not was_ready:
                    self._fail(str(error))
                    return
                self.error = str(error)
            else:
                was_ready = True
                self.error = f"backend {self.name!r} {_ending(code)}; its log is {self.log_path}"
            log.warning("%s; starting it again", self.error)
            self._enter("starting")
            self._ends.append(time.monotonic())
            try:
                self._refuse_crash_loop()
            except ControlError as error:
                self._fail(str(error))
                return
            await asyncio.sleep(self._restart_wait_s())

    def _watch_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"backend {self.name!r} is no longer watched: {error}")

    async def _serve_once(self, program: Program) -> int:
        """One process from start to end; its exit code. Raises `ControlError` before ready."""
        started = time.monotonic()
        await self._require_free_port()
        try:
            environment = server_environment(self.config, os.environ)
        except LookupError as error:
            raise ControlError(f"backend {self.name!r}: {error}") from error
        command = server_command(
            self.name,
            self.config,
            program.server,
            program.model,
            program.known_flags,
            program.scorer,
        )
        sink = open_log(self.log_path)
        begin = os.fstat(sink).st_size
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )
        except OSError as error:
            raise ControlError(
                f"backend {self.name!r}: {program.server} cannot be run: {error.strerror}"
            ) from error
        finally:
            os.close(sink)
        self.starts += 1
        self.run = uuid4().hex
        self._on_change()
        try:
            await self._until_ready(begin)
            log.info("backend %s is ready after %.2f s", self.name, time.monotonic() - started)
            self.error = None
            self._enter("ready")
            return await self._process.wait()
        except ControlError:
            await self._end_process()
            raise
        finally:
            if self._process is not None and self._process.returncode is not None:
                self._process = None
                self._on_change()

    async def _until_ready(self, log_begin: int) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + self._limits.start_s
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            while time.monotonic() < deadline:
                healthy = False
                with contextlib.suppress(httpx.HTTPError):
                    healthy = (
                        await client.get(f"{self.config.base_url}/health")
                    ).status_code == 200
                if process.returncode is not None:
                    raise ControlError(
                        f"backend {self.name!r} {_ending(process.returncode)} while it was "
                        f"starting; {self.log_path} ends with: {_tail(self.log_path, log_begin)}"
                    )
                if healthy:
                    return
                await asyncio.sleep(_POLL_S)
        raise ControlError(
            f"backend {self.name!r} was not ready within {self._limits.start_s:.0f} s and was "
            f"stopped; see {self.log_path}"
        )

    async def _require_free_port(self) -> None:
        """A process that just ended may hold its port for a moment more."""
        deadline = time.monotonic() + _PORT_WAIT_S
        while (reason := _port_problem(self.config.host, self.config.port)) is not None:
            if time.monotonic() > deadline:
                who = await asyncio.to_thread(_listener, self.config.port)
                raise ControlError(
                    f"backend {self.name!r}: port {self.config.port} on {self.config.host} cannot "
                    f"be used ({reason}{who}); stop what listens there, or set "
                    f"flashlane.backends.{self.name}.port to a free one"
                )
            await asyncio.sleep(_POLL_S)

    async def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            # Its own session: a helper program that it started goes with it.
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    os.killpg(process.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), self._limits.stop_s)
                break
        self._process = None
        self._on_change()

    def _has_ended(self) -> bool:
        """Ask the system: the event loop hears of an end only when every thread is gone."""
        if self._process is None or self._process.returncode is not None:
            return True
        try:
            status = psutil.Process(self._process.pid).status()
        except psutil.NoSuchProcess:
            return True
        return status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

    def _refuse_crash_loop(self) -> None:
        if len(self._ends) < self._limits.crashes:
            return
        left = self._ends[0] + self._limits.crash_window_s - time.monotonic()
        if left > 0:
            raise ControlError(
                f"backend {self.name!r} ended {self._limits.crashes} times within "
                f"{self._limits.crash_window_s:.0f} s and is left stopped for {left:.0f} s; see "
                f"{self.log_path}"
            )

    def _restart_wait_s(self) -> float:
        since = time.monotonic() - self._limits.crash_window_s
        recent = sum(end > since for end in self._ends)
        return _RESTART_WAITS_S[min(recent, len(_RESTART_WAITS_S)) - 1]

    def _fail(self, error: str) -> None:
        log.error("%s", error)
        self.error = error
        self._task = None
        self._enter("failed")

    def _enter(self, state: State) -> None:
        self.state = state
        if state in ("starting", "stopping"):
            self._settled.clear()
        else:
            self._settled.set()

    @property
    def log_path(self) -> Path:
        return log_file(self.name)


def log_file(name: str) -> Path:
    return state_dir() / "logs" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.log"


def open_log(path: Path) -> int:
    """Descriptor that appends to `path`, mode 0600; a long log becomes `.1` first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _tail(path: Path, begin: int, lines: int = 3) -> str:
    with path.open("rb") as file:
        file.seek(max(begin, path.stat().st_size - 4096))
        text = file.read().decode("utf-8", "replace")
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def die_with(parent: int, number: int = signal.SIGKILL) -> Callable[[], None] | None:
    """What a child runs so that the kernel sends it `number` when `parent` ends, however it ends.

    None where the kernel cannot (only Linux can).
    """
    if sys.platform != "linux":
        return None
    prctl = _libc().prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _port_problem(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _listener(port: int) -> str:
    """Name and process id of who listens, as far as the system lets us see it; else empty."""
    with contextlib.suppress(psutil.Error, OSError):
        for found in psutil.net_connections("tcp"):
            if found.status != psutil.CONN_LISTEN or not found.laddr or not found.pid:
                continue
            if found.laddr.port == port:
                return f", by {psutil.Process(found.pid).name()} (pid {found.pid})"
    return ""
