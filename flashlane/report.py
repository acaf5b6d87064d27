"""What the route log proves: counts, times, savings, verdicts and complaints of a span of time.

All sums are made by SQLite, which lets go of Python's lock meanwhile: a proxy goes on serving.
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_BUCKETS = 48
_WIDTHS_S = (300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)

TOKENS_SAVED = "(coalesce(original_tokens - kept_tokens, 0) - coalesce(first_pass_tokens, 0))"
"""SQL: prompt tokens that were not processed, less those of a first pass that came to nothing."""
TIME_SAVED_MS = "CASE WHEN lane NOT IN ('', 'direct') THEN predicted_direct_ms - ttft_ms END"
"""SQL: what the lane saved to the first token against the predicted direct lane; it may be
negative, and is NULL where either time is not known."""


@dataclass(frozen=True)
class Scope:
    """Which records count. Unix times in seconds; `since` and `key_id` None mean all."""

    until: float
    since: float | None = None
    key_id: str | None = None

    @property
    def where(self) -> str:
        return (
            "time >= coalesce(:since, 0) AND time <= :until "
            "AND (:key_id IS NULL OR (key_id = :key_id AND key_id != ''))"
        )

    @property
    def values(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LaneReport:
    """One lane; `lane` is empty for requests that have none, such as embeddings.

    Percentiles are of requests with a measured time; token sums of those whose counts are known.
    """

    lane: str
    requests: int
    failed: int
    refused: int
    disconnected: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    decode_tokens_per_s: float | None
    original_tokens: int
    processed_tokens: int
    cached_tokens: int
    tokens_saved: int
    time_saved_ms: float
    cost: float
    right: int
    wrong: int
    """Misroutes, as clients reported them."""
    slow: int


@dataclass(frozen=True)
class VerdictReport:
    """One outcome of the verify lane and its share of all of them, in [0, 1]."""

    verdict: str
    requests: int
    share: float


@dataclass(frozen=True)
class DraftReport:
    """Speculative decoding of one kind of ask. `acceptance` is accepted / drafted tokens."""

    kind: str
    requests: int
    draft_tokens: int
    acceptance: float


@dataclass(frozen=True)
class Bucket:
    """What was saved from `start` (Unix seconds) on, for the width of a bucket."""

    start: float
    requests: int = 0
    tokens_saved: int = 0
    time_saved_ms: float = 0.0


@dataclass(frozen=True)
class Report:
    since: float | None
    until: float
    lanes: tuple[LaneReport, ...] = ()
    verdicts: tuple[VerdictReport, ...] = ()
    drafts: tuple[DraftReport, ...] = ()
    bucket_s: int = _WIDTHS_S[0]
    buckets: tuple[Bucket, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def report(connection: sqlite3.Connection, scope: Scope) -> Report:
    """The report of the records in `scope`. Raises `sqlite3.Error`."""
    first = scope.since
    if first is None:
        found = _rows(connection, "SELECT min(time) AS first FROM routes WHERE {where}", scope)
        first = found[0]["first"]
    width = bucket_width(scope.until - first) if first is not None else _WIDTHS_S[0]
    return Report(
        since=scope.since,
        until=scope.until,
        lanes=_lanes(connection, scope),
        verdicts=_verdicts(connection, scope),
        drafts=_drafts(connection, scope),
        bucket_s=width,
        buckets=() if first is None else _buckets(connection, scope, first, width),
    )


def bucket_width(span_s: float) -> int:
    """The smallest width in seconds that cuts `span_s` into `MAX_BUCKETS` at most."""
    return next((width for width in _WIDTHS_S if span_s <= width * MAX_BUCKETS), _WIDTHS_S[-1])


def _lanes(connection: sqlite3.Connection, scope: Scope) -> tuple[LaneReport, ...]:
    counted = _rows(
        connection,
        f"""SELECT lane, count(*) AS requests,
                   sum(status = 'error') AS failed,
                   sum(status = 'refused') AS refused,
                   sum(status = 'disconnected') AS disconnected,
                   avg(decode_tokens_per_s) AS decode_tokens_per_s,
                   coalesce(sum(coalesce(original_tokens, prompt_tokens)), 0) AS original_tokens,
                   coalesce(sum(coalesce(kept_tokens, prompt_tokens)), 0)
                     + coalesce(sum(first_pass_tokens), 0) AS processed_tokens,
                   coalesce(sum(cached_tokens), 0) AS cached_tokens,
                   sum({TOKENS_SAVED}) AS tokens_saved,
                   coalesce(sum({TIME_SAVED_MS}), 0.0) AS time_saved_ms,
                   coalesce(sum(cost), 0.0) AS cost,
                   sum(feedback = 'right') AS "right", sum(feedback = 'wrong') AS wrong,
                   sum(feedback = 'slow') AS slow
            FROM routes WHERE {{where}} GROUP BY lane ORDER BY requests DESC, lane""",  # noqa: S608
        scope,
    )
    # The nearest rank: the smallest time that at least so many hundredths do not exceed.
    ranks = _rows(
        connection,
        """SELECT lane, ttft_ms, r = (n * 50 + 99) / 100 AS p50, r = (n * 95 + 99) / 100 AS p95
           FROM (SELECT lane, ttft_ms, row_number() OVER (PARTITION BY lane ORDER BY ttft_ms) AS r,
                        count(*) OVER (PARTITION BY lane) AS n
                 FROM routes WHERE ttft_ms IS NOT NULL AND {where})
           WHERE p50 OR p95""",
        scope,
    )
    times = {
        name: {row["lane"]: row["ttft_ms"] for row in ranks if row[name]} for name in ("p50", "p95")
    }
    return tuple(
        LaneReport(
            ttft_p50_ms=times["p50"].get(row["lane"]),
            ttft_p95_ms=times["p95"].get(row["lane"]),
            **row,
        )
        for row in counted
    )


def _verdicts(connection: sqlite3.Connection, scope: Scope) -> tuple[VerdictReport, ...]:
    rows = _rows(
        connection,
        """SELECT verdict, count(*) AS requests FROM routes WHERE verdict != '' AND {where}
           GROUP BY verdict ORDER BY requests DESC, verdict""",
        scope,
    )
    total = sum(row["requests"] for row in rows)
    return tuple(VerdictReport(share=row["requests"] / total, **row) for row in rows)


def _drafts(connection: sqlite3.Connection, scope: Scope) -> tuple[DraftReport, ...]:
    rows = _rows(
        connection,
        """SELECT kind, count(*) AS requests, sum(draft_tokens) AS draft_tokens,
                  coalesce(sum(draft_accepted), 0) * 1.0 / sum(draft_tokens) AS acceptance
           FROM routes WHERE draft_tokens > 0 AND {where}
           GROUP BY kind ORDER BY draft_tokens DESC, kind""",
        scope,
    )
    return tuple(DraftReport(**row) for row in rows)


def _buckets(
    connection: sqlite3.Connection, scope: Scope, first: float, width: int
) -> tuple[Bucket, ...]:
    """Every bucket of the span, also those without a request."""
    rows = _rows(
        connection,
        f"""SELECT CAST(time / {width} AS INTEGER) AS number, count(*) AS requests,
                   sum({TOKENS_SAVED}) AS tokens_saved,
                   coalesce(sum({TIME_SAVED_MS}), 0.0) AS time_saved_ms
            FROM routes WHERE {{where}} GROUP BY number""",  # noqa: S608
        scope,
    )
    found = {row.pop("number"): row for row in rows}
    numbers = range(int(first // width), int(scope.until // width) + 1)
    return tuple(Bucket(start=number * width, **found.get(number, {})) for number in numbers)


def _rows(connection: sqlite3.Connection, query: str, scope: Scope) -> list[dict[str, Any]]:
    cursor = connection.execute(query.format(where=scope.where), scope.values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
