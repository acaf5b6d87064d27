"""The line from a proxy to its supervisor: find it or start it, hold a lease, ask for backends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flashlane.paths import state_dir

PROTOCOL = 1
_START_LIMIT_S = 30.0
_ENSURE_LIMIT_S = 900.0
"""Long enough for a first use that has to load a large model."""
_MAX_SOCKET_PATH = 100


def socket_path(config_path: Path) -> Path:
    """The socket of the supervisor of one config, in a folder that its owner alone can enter."""
    name = hashlib.sha256(str(config_path.resolve()).encode()).hexdigest()[:16] + ".sock"
    folder = state_dir() / "run"
    if len(str(folder / name)) > _MAX_SOCKET_PATH:  # the kernel's limit is 108 bytes
        owner = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"flashlane-{os.getuid()}-{owner}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise RuntimeError(f"{folder} must belong to this user alone (mode 0700)")
    return folder / name


class Client:
    """A lease on a running supervisor, and requests to it. Starts another when it is gone."""

    def __init__(self, config_path: Path) -> None:
        self.config_path = config_path
        self._lease: socket.socket | None = None
        self.connect()

    def connect(self) -> None:
        """Take a lease from the supervisor, started first if none answers."""
        path = socket_path(self.config_path)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one of several workers starts it
            lease = _try_connect(path)
            if lease is None:
                lease = _start(self.config_path, path)
            self.close()
            self._lease = lease
            self.supervisor_pid = int(_ask(lease, {"op": "lease"})["pid"])

    async def ensure(self, backend: str) -> dict[str, Any]:
        """Wait until `backend` is ready. Raises `RuntimeError` with the supervisor's sentence."""
        try:
            return await self._ask_async({"op": "ensure", "backend": backend})
        except (ConnectionError, FileNotFoundError):
            await asyncio.to_thread(self.connect)
            return await self._ask_async({"op": "ensure", "backend": backend})

    def status(self) -> dict[str, Any]:
        with contextlib.closing(_connect(socket_path(self.config_path))) as line:
            return _ask(line, {"op": "status"})

    def close(self, *, shutdown: bool = False) -> None:
        """Give the lease back; with `shutdown` stop the supervisor and wait until it is gone."""
        if self._lease is None:
            return
        if shutdown:
            with contextlib.suppress(OSError, RuntimeError):
                _ask(self._lease, {"op": "shutdown"})
                deadline = time.monotonic() + 20.0
                while _alive(self.supervisor_pid) and time.monotonic() < deadline:
                    time.sleep(0.05)
        self._lease.close()
        self._lease = None

    async def _ask_async(self, message: dict[str, Any]) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(str(socket_path(self.config_path)))
        try:
            writer.write(json.dumps({"v": PROTOCOL, **message}).encode() + b"\n")
            await writer.drain()
            line = await asyncio.wait_for(reader.readline(), _ENSURE_LIMIT_S)
            return _checked(line)
        finally:
            writer.close()


def connect_or_start(config_path: Path) -> Client:
    """A client of this config's supervisor, which is started if it does not run yet."""
    return Client(config_path)


def _try_connect(path: Path) -> socket.socket | None:
    try:
        return _connect(path)
    except OSError:
        return None


def _connect(path: Path) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(path))
    except OSError:
        line.close()
        raise
    return line


def _start(config_path: Path, path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    logs = state_dir() / "logs"
    logs.mkdir(exist_ok=True, mode=0o700)
    log = logs / "supervisor.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # A session of its own: Ctrl-C at a terminal reaches it as the loss of its lease.
        process = subprocess.Popen(
            [sys.executable, "-m", "flashlane.backends.supervisor", "--config", str(config_path)],
            stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True,
        )
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        line = _try_connect(path)
        if line is not None:
            return line
        if process.poll() is not None:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"the supervisor ended at its start: {' '.join(tail)}")
        time.sleep(0.05)
    process.terminate()
    raise RuntimeError(f"the supervisor did not answer within {_START_LIMIT_S:.0f} s; see {log}")


def _ask(line: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    line.sendall(json.dumps({"v": PROTOCOL, **message}).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        part = line.recv(65536)
        if not part:
            raise ConnectionError("the supervisor closed the line")
        data += part
    return _checked(data)


def _checked(line: bytes) -> dict[str, Any]:
    if not line:
        raise ConnectionError("the supervisor closed the line")
    reply = json.loads(line)
    if not reply.get("ok"):
        raise RuntimeError(str(reply.get("error")))
    return dict(reply)


def _alive(pid: int) -> bool:
    """Whether `pid` runs; a child of ours that ended is collected first."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
