"""The supervisor's control channel: where its socket lies, and what is said on it.

One JSON object per line, each way, over a Unix socket that its owner alone can open. A
connection that has sent `lease` keeps the supervisor alive for as long as it stays open.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from flashlane.paths import config_file, state_dir

VERSION = 1
LINE_LIMIT_BYTES = 1 << 16
_SOCKET_PATH_LIMIT_BYTES = 100
"""`sun_path` holds 108 bytes on Linux and 104 on macOS, its end included."""

State = Literal["stopped", "starting", "ready", "failed", "stopping"]


class ControlError(RuntimeError):
    """One sentence on why the supervisor, or a backend, cannot do what was asked."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Request(_Message):
    """`if_last`: shut down only where this connection holds the last lease."""

    v: int = VERSION
    cmd: Literal["status", "ensure", "stop", "shutdown", "lease"]
    backend: str | None = None
    if_last: bool = False


class BackendStatus(_Message):
    """What a backend does now. `pid` is None while no process runs; `run` names the process."""

    name: str
    state: State
    base_url: str
    model: str
    pid: int | None = None
    run: str = ""
    starts: int = 0
    error: str | None = None


class Reply(_Message):
    """`error` is set exactly when `ok` is false. `config_digest` names the config in force."""

    v: int = VERSION
    ok: bool
    error: str | None = None
    pid: int | None = None
    stopping: bool = False
    leases: int = 0
    config_digest: str = ""
    backends: tuple[BackendStatus, ...] = ()


@dataclass(frozen=True)
class Place:
    """The files of one config's supervisor, all in a folder that its owner alone can enter."""

    socket: Path
    lock: Path
    start_lock: Path
    children: Path


def place_of(config_path: Path) -> Place:
    """Where the supervisor of `config_path` is found. Raises `ControlError`."""
    name = hashlib.sha256(os.fsencode(config_file(config_path))).hexdigest()[:16]
    folder = state_dir() / "run"
    if len(os.fsencode(folder / f"{name}.sock")) > _SOCKET_PATH_LIMIT_BYTES:
        short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        folder = Path(f"/tmp/flashlane-{os.getuid()}-{short}")  # noqa: S108 - checked below
    _make_private(folder)
    return Place(
        socket=folder / f"{name}.sock",
        lock=folder / f"{name}.lock",
        start_lock=folder / f"{name}.start.lock",
        children=folder / f"{name}.children.json",
    )


def config_digest(config_path: Path) -> str:
    return hashlib.sha256(config_path.read_bytes()).hexdigest()


def is_own_peer(connection: socket.socket) -> bool:
    """True when the peer runs under our user id. Where the system does not tell, the modes of
    folder and socket are the check."""
    if sys.platform != "linux":
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", raw)
    return bool(user == os.getuid())


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise ControlError(
            f"{folder} is not a folder of our own; remove it, or set FLASHLANE_STATE_DIR to a "
            "short path"
        )
    if info.st_mode & 0o077:
        folder.chmod(0o700)
