"""The route log: one record for every request, in an embedded SQLite file and, if wanted, JSONL.

Several proxy workers write to one file (WAL, one short transaction a record). A record is
keyed by request id and written once its end is known; a later, more successful end of the same
request (a fallback that worked after a failed attempt) replaces an earlier one. What a client
says of an answer afterwards belongs to the request, and stays.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "disconnected", "error", "refused"]
Feedback = Literal["right", "wrong", "slow"]
"""What a client may say of an answer: that its lane was right, or wrong, or took too long."""

_RANK: dict[str, int] = {"refused": 0, "error": 1, "disconnected": 2, "ok": 3}
"""How good an end is; of two ends of one request the better one stands."""

SCHEMA_VERSION = 4


@dataclass(frozen=True)
class RouteRecord:
    """One request's end. Times in ms, `time` in Unix seconds, None where nothing was measured."""

    request_id: str
    time: float
    key_alias: str = ""
    key_id: str = ""
    """Names the API key without telling it; empty for a request whose key was refused."""
    endpoint: str = ""
    model: str = ""
    group: str = ""
    deployment: str = ""
    lane: str = ""
    exact: bool | None = None
    kind: str = ""
    confidence: float | None = None
    gear: int | None = None
    conversation: str = ""
    keep_ratio: float | None = None
    reasons: str = ""
    placement: str = ""
    """Why this deployment of the group, with the arithmetic; empty where there was no choice."""
    stream: bool = False
    estimated_tokens: int | None = None
    prompt_tokens: int | None = None
    original_tokens: int | None = None
    kept_tokens: int | None = None
    pflash_reason: str = ""
    score_ms: float | None = None
    predicted_ttft_ms: float | None = None
    predicted_direct_ms: float | None = None
    """Predicted time to first token of the direct lane, whichever lane was taken."""
    ttft_ms: float | None = None
    total_ms: float | None = None
    completion_tokens: int | None = None
    decode_tokens_per_s: float | None = None
    cached_tokens: int | None = None
    draft_tokens: int | None = None
    draft_accepted: int | None = None
    cost: float | None = None
    """Of the whole request; `first_pass_cost` is the first pass's share of it."""
    verdict: str = ""
    """accepted or doubted in the verify lane, unchecked where it was cut short, else empty."""
    verdict_reasons: str = ""
    answered_by: str = ""
    """The lane whose answer the client got, where two passes may have run."""
    first_pass_tokens: int | None = None
    """Prompt tokens that the first pass processed where a second one followed."""
    first_pass_ms: float | None = None
    first_pass_cost: float | None = None
    sidecar: str = ""
    feedback: str = ""
    """What the client reported of the answer afterwards."""
    status: Status = "ok"
    error: str = ""
    """The error's class and HTTP status, never its message: that may quote the prompt."""
    ask: str | None = None
    """The ask's text; stored only when `route_log.store_text` is on."""


_COLUMNS = [f.name for f in fields(RouteRecord)]
_KEPT = ("request_id", "feedback")
"""What a better end of a request leaves as it is."""
_TYPES = {
    "request_id": "TEXT PRIMARY KEY",
    "time": "REAL NOT NULL",
    "exact": "INTEGER",
    "gear": "INTEGER",
    "stream": "INTEGER",
    **{
        name: "INTEGER" for name in _COLUMNS if name.endswith("_tokens") or name == "draft_accepted"
    },
    **dict.fromkeys(("keep_ratio", "confidence", "decode_tokens_per_s"), "REAL"),
    **dict.fromkeys(("cost", "first_pass_cost"), "REAL"),
    **{name: "REAL" for name in _COLUMNS if name.endswith("_ms")},
}


class RouteLog:
    """Writer and reader of one route log. Methods raise `OSError` or `sqlite3.Error`."""

    def __init__(self, path: Path, jsonl: Path | None = None) -> None:
        self.path = path
        self.jsonl = jsonl
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def write(self, record: RouteRecord) -> bool:
        """Store `record`; False when a better end of the same request is already there."""
        values = asdict(record)
        rank = _RANK[record.status]
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        marks = ", ".join(f":{name}" for name in _COLUMNS)
        updates = ", ".join(f'"{n}" = excluded."{n}"' for n in _COLUMNS if n not in _KEPT)
        with self._lock:
            connection = self._open()
            with connection:
                statement = (
                    f"INSERT INTO routes (rank, {names}) VALUES (:rank, {marks}) "  # noqa: S608
                    f"ON CONFLICT (request_id) DO UPDATE SET rank = excluded.rank, {updates} "
                    "WHERE excluded.rank > routes.rank"
                )
                changed = connection.execute(statement, {"rank": rank, **values}).rowcount
            if changed and self.jsonl:
                self._append_jsonl(values)
        return bool(changed)

    def feedback(self, request_id: str, value: Feedback, key_id: str | None = None) -> bool:
        """Note what a client says of a request; the last word stands.

        False where no such request is recorded, or not for `key_id` where that is given.
        """
        with self._lock:
            connection = self._open()
            owner = "" if key_id is None else " AND key_id = :key_id AND key_id != ''"
            named = {"request_id": request_id, "key_id": key_id}
            with connection:
                changed = connection.execute(
                    f"UPDATE routes SET feedback = :value WHERE request_id = :request_id{owner}",  # noqa: S608
                    {"value": value, **named},
                ).rowcount
            if changed and self.jsonl:
                names = ", ".join(f'"{name}"' for name in _COLUMNS)
                row = connection.execute(
                    f"SELECT {names} FROM routes WHERE request_id = ?",  # noqa: S608
                    (request_id,),
                ).fetchone()
                self._append_jsonl(asdict(_record(row)))
        return bool(changed)

    def _append_jsonl(self, values: dict[str, Any]) -> None:
        assert self.jsonl is not None
        line = json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"
        self.jsonl.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.jsonl, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def records(
        self,
        limit: int = 50,
        lane: str | None = None,
        *,
        since: float | None = None,
        key_id: str | None = None,
    ) -> Iterator[RouteRecord]:
        """The newest `limit` records, newest first: of one lane, from `since` (Unix time in
        seconds) on, and of one key, where these are given."""
        if not self.path.exists():
            return
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        with self.reading() as connection:
            rows = connection.execute(
                f"SELECT {names} FROM routes WHERE (:lane IS NULL OR lane = :lane) "  # noqa: S608
                "AND time >= coalesce(:since, 0) AND (:key_id IS NULL OR key_id = :key_id) "
                "ORDER BY time DESC LIMIT :limit",
                {"lane": lane, "since": since, "key_id": key_id, "limit": limit},
            ).fetchall()
        yield from map(_record, rows)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for reading; the file is made where there is none."""
        if not self.path.exists():
            self._make()
        with closing(self._connect()) as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._make()
            self._connection = self._connect()
        return self._connection

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self.path.chmod(0o600)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        columns = ", ".join(f'"{name}" {_TYPES.get(name, "TEXT")}' for name in _COLUMNS)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in range(SCHEMA_VERSION + 1):
            connection.close()
            raise sqlite3.DatabaseError(
                f"{self.path} has route log schema {version}, this version reads "
                f"{SCHEMA_VERSION}; move the file away to start a new one"
            )
        with connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS routes (rank INTEGER NOT NULL, {columns})"
            )
            if 0 < version < SCHEMA_VERSION:
                _add_columns(connection)
            connection.execute("CREATE INDEX IF NOT EXISTS routes_time ON routes (time)")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection


def _record(row: Sequence[Any]) -> RouteRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["stream"] = bool(values["stream"])
    values["exact"] = None if values["exact"] is None else bool(values["exact"])
    return RouteRecord(**values)


def _add_columns(connection: sqlite3.Connection) -> None:
    """The columns that an older version lacked, unless another process has just added them."""
    connection.execute("BEGIN IMMEDIATE")
    there = {row[1] for row in connection.execute("PRAGMA table_info(routes)")}
    for name in _COLUMNS:
        if name not in there:
            kind = _TYPES.get(name, "TEXT NOT NULL DEFAULT ''")
            connection.execute(f'ALTER TABLE routes ADD COLUMN "{name}" {kind}')
