"""Which lane a conversation took last, and what its lanes hold: so that it stays where it pays.

Bounded by count and by age. Workers share one file; each knows of the others' conversations up to a
moment ago.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from flashlane.decision import Held, Recollection
from flashlane.request import Lane
from flashlane.statefile import StateFile

SCRIPT = """
CREATE TABLE IF NOT EXISTS conversations (
    name TEXT NOT NULL, lane TEXT NOT NULL, tokens INTEGER NOT NULL, keep_ratio REAL NOT NULL,
    server TEXT NOT NULL, last INTEGER NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (name, lane)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS conversations_time ON conversations (time);
"""
_MAX_CONVERSATIONS = 10_000
_OVERLAP_S = 5.0
"""Rows may appear in the file this much later than their time says."""
_MAX_AGE_S = 7 * 86_400.0
_PRUNE_EVERY = 256


@dataclass(frozen=True)
class Trace:
    """What one lane was left with: its last prompt's tokens, and the server that read them.

    `time` is Unix time. `last` is false where another lane's answer followed within one request.
    """

    lane: Lane
    tokens: int
    keep_ratio: float
    server: str
    time: float
    last: bool = True


class Conversations:
    """This process's view of all workers' conversations. No call waits for the file."""

    def __init__(
        self,
        file: StateFile,
        limit: int = _MAX_CONVERSATIONS,
    ) -> None:
        self._file = file
        self._limit = limit
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, dict[Lane, Trace]] = OrderedDict()
        self._seen_until = 0.0
        self._written = 0
        file.watch(self._read)

    def recall(
        self,
        name: str,
        now: float,
        ttl_s: float,
        holds: Callable[[str], bool] = lambda server: True,
    ) -> Recollection | None:
        """What is known of conversation `name`, not older than `ttl_s`; None for nothing.

        `holds` tells whether a server still runs as it did; one that does not has lost its cache.
        """
        self._file.start()
        with self._lock:
            traces = [t for t in self._traces.get(name, {}).values() if t.time >= now - ttl_s]
        if not traces:
            return None
        latest = max(traces, key=lambda trace: (trace.time, trace.last))
        held = {
            trace.lane: Held(trace.tokens if holds(trace.server) else 0, trace.keep_ratio)
            for trace in traces
        }
        return Recollection(latest.lane, held)

    def remember(self, name: str, *traces: Trace) -> None:
        """A request of conversation `name` has ended well and left `traces`."""
        self._take(name, traces)
        self._written += 1
        prune = self._written % _PRUNE_EVERY == 0
        self._file.soon(lambda connection: _write(connection, name, traces, self._limit, prune))

    def __len__(self) -> int:
        return len(self._traces)

    def _take(self, name: str, traces: tuple[Trace, ...]) -> None:
        with self._lock:
            known = self._traces.setdefault(name, {})
            for trace in traces:
                before = known.get(trace.lane)
                if before is None or before.time <= trace.time:
                    known[trace.lane] = trace
            self._traces.move_to_end(name)
            while len(self._traces) > self._limit:
                self._traces.popitem(last=False)

    def _read(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(
            "SELECT name, lane, tokens, keep_ratio, server, time, last FROM conversations "
            "WHERE time > ? ORDER BY time",
            (self._seen_until - _OVERLAP_S,),
        ).fetchall()
        for name, lane, tokens, keep_ratio, server, at, last in rows:
            if lane in get_args(Lane):
                self._take(name, (Trace(lane, tokens, keep_ratio, server, at, bool(last)),))
                self._seen_until = max(self._seen_until, at)


def _write(
    connection: sqlite3.Connection, name: str, traces: tuple[Trace, ...], limit: int, prune: bool
) -> None:
    for t in traces:
        connection.execute(
            "INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (name, lane) DO UPDATE SET tokens = excluded.tokens, "
            "keep_ratio = excluded.keep_ratio, server = excluded.server, last = excluded.last, "
            "time = excluded.time WHERE excluded.time >= conversations.time",
            (name, t.lane, t.tokens, t.keep_ratio, t.server, t.last, t.time),
        )
    if prune:
        connection.execute("DELETE FROM conversations WHERE time < ?", (time.time() - _MAX_AGE_S,))
        connection.execute(
            "DELETE FROM conversations WHERE time < (SELECT time FROM conversations "
            "ORDER BY time DESC LIMIT 1 OFFSET ?)",
            (3 * limit,),
        )
