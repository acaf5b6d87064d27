"""The way to a config's supervisor: connect to it, or start it first.

`connect_or_start(config_path)` gives a `Client` that holds a lease: the supervisor runs for as
long as somebody holds one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

import flashlane
from flashlane.backends import channel
from flashlane.backends.channel import BackendStatus, ControlError, Reply, Request
from flashlane.backends.process import log_file, open_log
from flashlane.locking import locked
from flashlane.paths import cache_dir, config_file, state_dir

log = logging.getLogger("flashlane.control")

_ANSWER_S = 10.0
_START_S = 60.0
_ENSURE_S = 900.0
_SHUTDOWN_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Endpoint:
    """A backend that answers."""

    base_url: str
    pid: int
    model: str
    run: str


def connect_or_start(config_path: Path, *, lease_grace_s: float = 10.0) -> Client:
    """A client that holds a lease on the one supervisor of `config_path`.

    Of several processes that find none, one starts it. `lease_grace_s`: how long a supervisor
    started here outlives its last lease. Raises `ControlError`.
    """
    client = Client(config_path, lease_grace_s=lease_grace_s)
    client.connect()
    return client


class Client:
    """Talks to the supervisor, from any thread or event loop of this process.

    When the supervisor is gone it is looked for, or started, once more per call.
    """

    def __init__(self, config_path: Path, *, lease_grace_s: float = 10.0) -> None:
        self._config_path = config_file(config_path)
        self._place = channel.place_of(self._config_path)
        self._lease_grace_s = lease_grace_s
        self._lease: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    async def ensure(self, backend: str) -> Endpoint:
        """Wait until `backend` answers, started first if need be. Raises `ControlError`."""
        return _endpoint(await self._call_async(Request(cmd="ensure", backend=backend), _ENSURE_S))

    def ensure_sync(self, backend: str) -> Endpoint:
        """`ensure`, for callers without an event loop."""
        return _endpoint(self._call(Request(cmd="ensure", backend=backend), _ENSURE_S))

    def status(self) -> tuple[BackendStatus, ...]:
        return self._call(Request(cmd="status"), _ANSWER_S).backends

    async def status_async(self) -> tuple[BackendStatus, ...]:
        """`status`, for an event loop. Raises `ControlError`."""
        return (await self._call_async(Request(cmd="status"), _ANSWER_S)).backends

    def supervisor_pid(self) -> int:
        return self._call(Request(cmd="status"), _ANSWER_S).pid or 0

    def stop(self, backend: str) -> None:
        """Stop `backend`; the next `ensure` starts it again. Raises `ControlError`."""
        self._call(Request(cmd="stop", backend=backend), _SHUTDOWN_S)

    def close(self, shutdown: bool = False) -> None:
        """Give the lease back. With `shutdown`, a supervisor that owners started and that nobody
        else holds a lease on stops now, with its servers, and this waits until it has."""
        with self._lock:
            used = self._lease is not None or self._process is not None
            if shutdown and used and not self._lease_holds():
                # Ours was killed and another owner started a new one, or our start was interrupted.
                if self._lease is not None:
                    self._lease.close()
                    self._lease = None
                with contextlib.suppress(ControlError):
                    self._lease = self._take_lease()
            lease, self._lease = self._lease, None
            process, self._process = self._process, None
        if lease is None:
            if shutdown and process is not None and process.poll() is None:
                process.terminate()
                process.wait(timeout=_SHUTDOWN_S)
            return
        with lease, contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if not shutdown:
                return
            lease.settimeout(_SHUTDOWN_S)
            if _exchange(lease, Request(cmd="shutdown", if_last=True)).stopping:
                self._wait_gone()
                if process is not None:
                    process.wait(timeout=_ANSWER_S)

    def connect(self) -> None:
        """Hold a lease, on a supervisor started now where none runs. Raises `ControlError`."""
        with self._lock:
            if self._lease_holds():
                return
            if self._lease is not None:
                self._lease.close()
                self._lease = None
            with locked(self._place.start_lock):
                self._lease = self._take_lease() or self._start()

    def _take_lease(self) -> socket.socket | None:
        """A connection that holds a lease; None when no supervisor answers."""
        lease = socket.socket(socket.AF_UNIX)
        try:
            lease.settimeout(_ANSWER_S)
            lease.connect(str(self._place.socket))
            reply = _exchange(lease, Request(cmd="lease"))
            if not reply.ok:
                raise ControlError(reply.error or "the supervisor refused a lease")
            if reply.config_digest != channel.config_digest(self._config_path):
                if _exchange(lease, Request(cmd="shutdown", if_last=True)).stopping:
                    self._wait_gone()
                    lease.close()
                    return None
                log.warning(
                    "%s changed after its supervisor (pid %s) had started: backends keep their "
                    "old settings until every proxy that uses it has been stopped",
                    self._config_path,
                    reply.pid,
                )
        except OSError:
            lease.close()
            return None
        except ControlError:
            lease.close()
            raise
        lease.setblocking(False)  # from here on it is only looked at
        return lease

    def _start(self) -> socket.socket:
        path = log_file("supervisor")
        sink = open_log(path)
        begin = os.fstat(sink).st_size
        package = str(Path(flashlane.__file__).resolve().parent.parent)
        search = os.environ.get("PYTHONPATH")
        command = [sys.executable, "-m", "flashlane.backends.supervisor", "--owner-leases"]
        command += ["--config", str(self._config_path)]
        try:
            process = self._process = subprocess.Popen(
                [*command, "--lease-grace-s", str(self._lease_grace_s)],
                cwd="/",
                env={
                    **os.environ,
                    "PYTHONPATH": package + (os.pathsep + search if search else ""),
                    "FLASHLANE_STATE_DIR": str(state_dir()),
                    "FLASHLANE_CACHE_DIR": str(cache_dir()),
                },
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # Ctrl-C at the terminal is for the owner: its lease ends
            )
        finally:
            os.close(sink)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            lease = self._take_lease()
            if lease is not None:
                return lease
            if process.poll() is not None:
                with path.open("rb") as file:
                    file.seek(begin)
                    lines = file.read().decode("utf-8", "replace").strip().splitlines()
                said = lines[-1].removeprefix("flashlane: ") if lines else "no message"
                raise ControlError(f"the supervisor did not start: {said} (log: {path})")
            time.sleep(_POLL_S)
        process.kill()
        process.wait()
        raise ControlError(f"the supervisor did not answer within {_START_S:.0f} s; see {path}")

    def _lease_holds(self) -> bool:
        """True while our lease's connection is open: nothing is ever sent on it unasked."""
        lease = self._lease
        if lease is None:
            return False
        try:
            return bool(lease.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _call(self, request: Request, limit_s: float) -> Reply:
        for attempt in (1, 2):
            self.connect()
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(limit_s)
                    connection.connect(str(self._place.socket))
                    return _checked(_exchange(connection, request))
            except OSError as error:
                if attempt == 2:
                    raise ControlError(_LOST) from error
                time.sleep(_POLL_S)
        raise AssertionError

    async def _call_async(self, request: Request, limit_s: float) -> Reply:
        if not self._lease_holds():
            await asyncio.to_thread(self.connect)
        try:
            return await self._ask(request, limit_s)
        except OSError:
            await asyncio.to_thread(self.connect)
        try:
            return await self._ask(request, limit_s)
        except OSError as error:
            raise ControlError(_LOST) from error

    async def _ask(self, request: Request, limit_s: float) -> Reply:
        reader, writer = await asyncio.open_unix_connection(
            self._place.socket, limit=channel.LINE_LIMIT_BYTES
        )
        try:
            writer.write(request.model_dump_json().encode() + b"\n")
            await writer.drain()
            try:
                line = await asyncio.wait_for(reader.readline(), limit_s)
            except asyncio.TimeoutError as error:
                raise ControlError(
                    f"backend {request.backend!r} was not ready within {limit_s:.0f} s"
                ) from error
        finally:
            writer.close()
        return _checked(_parsed(line))

    def _wait_gone(self) -> None:
        """Wait until the supervisor has given up its lock, which is the last thing it does."""
        deadline = time.monotonic() + _SHUTDOWN_S
        with self._place.lock.open("rb") as file:
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                time.sleep(_POLL_S)


_LOST = "the supervisor ended twice while it was asked; see supervisor.log among flashlane's logs"


def _exchange(connection: socket.socket, request: Request) -> Reply:
    """Send one request, read one reply. Raises `OSError`, also when the peer closes instead."""
    connection.sendall(request.model_dump_json().encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(channel.LINE_LIMIT_BYTES)
        if not part:
            break
        line += part
        if len(line) > channel.LINE_LIMIT_BYTES:
            raise ControlError("the supervisor's answer is too long")
    return _parsed(line)


def _parsed(line: bytes) -> Reply:
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the supervisor closed the connection")
    try:
        return Reply.model_validate_json(line)
    except ValidationError as error:
        raise ControlError(
            "the supervisor answered in a form of another flashlane version; stop the proxy that "
            "started it, then try again"
        ) from error


def _checked(reply: Reply) -> Reply:
    if not reply.ok:
        raise ControlError(reply.error or "the supervisor refused")
    return reply


def _endpoint(reply: Reply) -> Endpoint:
    found = reply.backends[0]
    return Endpoint(found.base_url, found.pid or 0, found.model, found.run)
