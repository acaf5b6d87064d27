"""A private SQLite file that several proxy workers share, read and written off the event loop."""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("flashlane.state")

Work = Callable[[sqlite3.Connection], None]
_MAX_WAITING = 4096
_BUSY_S = 10.0
_REFRESH_S = 0.25
_QUIET_S = 60.0
"""A file that cannot be used is complained of this often."""


class StateFile:
    """Does work on one file in a thread of its own, in the order in which it was asked for.

    Each piece is one transaction, which other processes see whole or not at all. What fails is
    logged and dropped: nothing kept here is worth a request. What other processes have written is
    read about `refresh_s` later, without anybody having to ask.
    """

    def __init__(self, path: Path, script: str, refresh_s: float = _REFRESH_S) -> None:
        """`script` makes the tables where they are not there yet."""
        self.path = path
        self._refresh_s = refresh_s
        self._watchers: list[Work] = []
        self._read_at = 0.0
        self._read_version: int | None = None
        self._wrote = False
        self._script = script
        self._waiting: queue.Queue[Work | threading.Event | None] = queue.Queue(_MAX_WAITING)
        self._connection: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._complained = -_QUIET_S

    def watch(self, read: Work) -> None:
        """Have `read` called when the file has changed, and once at the start."""
        self._watchers.append(read)

    def start(self) -> None:
        """Begin to watch, unless that has begun."""
        if self._thread is None:
            self._started()

    def soon(self, work: Work) -> bool:
        """Do `work` later; False where too much is waiting already. Never waits."""
        return self._put(work)

    def settle(self, limit_s: float = 10.0) -> bool:
        """Wait until all that was asked for before is done; False after `limit_s`."""
        done = threading.Event()
        return self._put(done) and done.wait(limit_s)

    def close(self) -> None:
        """Finish what is waiting and let go of the file."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    def _put(self, work: Work | threading.Event) -> bool:
        self._started()
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            return False
        return True

    def _started(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="flashlane-state", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            work: Work | threading.Event | None
            try:
                work = self._waiting.get(timeout=max(self._refresh_s, 0.01))
            except queue.Empty:
                self._quietly(self._refresh)
                continue
            if work is None:
                break
            if isinstance(work, threading.Event):
                self._quietly(self._refresh)
                work.set()
                continue
            self._quietly(lambda work=work: self._do(work))  # type: ignore[misc]
            self._quietly(self._refresh)
        self._drop()

    def _quietly(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self._drop()
            self._complain(error)

    def _refresh(self) -> None:
        """Let the watchers read what has been written since they did, by whomever."""
        now = time.monotonic()
        if not self._watchers or now - self._read_at < self._refresh_s:
            return
        self._read_at = now
        connection = self._opened()
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._read_version and not self._wrote:
            return
        self._read_version, self._wrote = version, False
        for read in self._watchers:
            read(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_private(self.path, self._script)
            self._read_version = None
        return self._connection

    def _do(self, work: Work) -> None:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            work(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        self._wrote = True

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained >= _QUIET_S:
            self._complained = now
            log.error("%s cannot be used, what is learned is not kept: %s", self.path, error)


def open_private(path: Path, script: str) -> sqlite3.Connection:
    """A connection in WAL mode to a file that its owner alone may read.

    Raises `OSError` or `sqlite3.Error`.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(script)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
