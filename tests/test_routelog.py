"""The route log: one record a request, the better end stands, private files."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from flashlane.decision import Decision, Reason
from flashlane.flight import FLIGHT_KEY, Flight, Flights
from flashlane.routelog import RouteLog, RouteRecord


def record(request_id: str = "a", **fields: object) -> RouteRecord:
    return RouteRecord(request_id=request_id, time=1.0, **fields)  # type: ignore[arg-type]


def test_roundtrip(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite", tmp_path / "routes.jsonl")
    first = record(
        "a", lane="pflash", original_tokens=100, kept_tokens=40, stream=True, exact=False
    )
    assert log.write(first)
    assert list(log.records()) == [first]
    assert json.loads((tmp_path / "routes.jsonl").read_text())["request_id"] == "a"


def test_a_later_success_replaces_a_failure_and_not_the_reverse(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite")
    log.write(record(status="error"))
    assert log.write(record(status="ok"))
    assert not log.write(record(status="error"))
    assert [r.status for r in log.records()] == ["ok"]


def test_files_are_private(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite", tmp_path / "routes.jsonl")
    log.write(record())
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_many_writers(tmp_path: Path) -> None:
    logs = [RouteLog(tmp_path / "routes.sqlite") for _ in range(4)]

    def write(number: int) -> None:
        for i in range(25):
            logs[number].write(record(f"{number}-{i}"))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(logs[0].records(limit=1000))) == 100


def test_another_schema_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "routes.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError, match="schema 99"):
        RouteLog(tmp_path / "routes.sqlite").write(record())


OLD_COLUMNS = """request_id TEXT PRIMARY KEY, time REAL NOT NULL, key_alias TEXT, endpoint TEXT,
model TEXT, "group" TEXT, deployment TEXT, lane TEXT, exact INTEGER, keep_ratio REAL, reasons TEXT,
stream INTEGER, estimated_tokens INTEGER, prompt_tokens INTEGER, original_tokens INTEGER,
kept_tokens INTEGER, pflash_reason TEXT, score_ms REAL, predicted_ttft_ms REAL, ttft_ms REAL,
total_ms REAL, completion_tokens INTEGER, decode_tokens_per_s REAL, cached_tokens INTEGER,
draft_tokens INTEGER, draft_accepted INTEGER, cost REAL, status TEXT, error TEXT, ask TEXT"""
OLD_ROW = """INSERT INTO routes (rank, request_id, time, key_alias, endpoint, model, "group",
deployment, lane, exact, reasons, stream, pflash_reason, status, error)
VALUES (3, 'old', 1.0, 'k', 'chat', 'm', 'g', 'd', 'pflash', 0, 'pays', 1, '', 'ok', '')"""


@pytest.mark.parametrize("version", [1, 2])
def test_a_log_of_an_older_version_goes_on(tmp_path: Path, version: int) -> None:
    path = tmp_path / "routes.sqlite"
    connection = sqlite3.connect(path)
    added = ", placement TEXT NOT NULL DEFAULT ''" if version == 2 else ""
    connection.execute(f"CREATE TABLE routes (rank INTEGER NOT NULL, {OLD_COLUMNS}{added})")
    connection.execute(OLD_ROW)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    log = RouteLog(path)
    new = RouteRecord(
        "new", 2.0, placement="left: 0 ms wait", key_id="k1", verdict="doubted", gear=3
    )
    assert log.write(new)
    old = RouteRecord(
        request_id="old",
        time=1.0,
        key_alias="k",
        endpoint="chat",
        model="m",
        group="g",
        deployment="d",
        lane="pflash",
        exact=False,
        reasons="pays",
        stream=True,
    )
    assert list(log.records()) == [new, old]
    assert log.feedback("old", "wrong")
    assert not log.feedback("old", "right", key_id="")
    assert next(iter(RouteLog(path).records(lane="pflash"))).feedback == "wrong"


def test_feedback_stays_when_a_better_end_comes(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite", tmp_path / "routes.jsonl")
    log.write(record(status="error"))
    assert log.feedback("a", "wrong")
    assert log.write(record(status="ok", lane="direct"))
    assert [(r.status, r.lane, r.feedback) for r in log.records()] == [("ok", "direct", "wrong")]
    assert log.feedback("a", "slow")
    lines = [json.loads(line) for line in (tmp_path / "routes.jsonl").read_text().splitlines()]
    assert [line["feedback"] for line in lines] == ["", "wrong", "", "slow"]
    assert lines[-1]["stream"] is False and lines[-1]["status"] == "ok"


def test_feedback_needs_the_request_and_its_key(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite")
    assert not log.feedback("a", "right")
    log.write(record("a", key_id="one"))
    log.write(record("nobody's"))
    assert not log.feedback("b", "right")
    assert not log.feedback("a", "right", key_id="other")
    assert not log.feedback("nobody's", "right", key_id="")
    assert {r.feedback for r in log.records()} == {""}
    assert log.feedback("a", "right", key_id="one")
    assert [r.request_id for r in log.records(key_id="one")] == ["a"]
    assert list(log.records(since=1.5)) == []


def test_a_flight_stores_no_text_unless_asked() -> None:
    flight = Flight("a", "a", "", "chat", "local", stream=True)
    flight.decision = Decision(
        "direct", "local", True, 1.0, 0, (Reason("unsure", "…"),), ask="secret"
    )
    flight.see_chunk({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
    flight.see_chunk({"timings": {"prompt_n": 7, "cache_n": 2, "predicted_per_second": 5.0}})
    done = flight.record("ok", "", store_text=False)
    assert (done.ask, done.prompt_tokens, done.cached_tokens) == (None, 9, 2)
    assert done.ttft_ms is not None
    assert flight.record("ok", "", store_text=True).ask == "secret"


def test_a_flight_says_why_it_went_where_it_went() -> None:
    flight = Flight("a", "a", "", "chat", "local", stream=False)
    metadata: dict[str, object] = {"spend_logs_metadata": {"kept": 1}, "tags": ["x"]}
    flight.announce(Decision("direct", "local", True, 1.0, 0, (Reason("unsure", "…"),)), metadata)
    flight.placed(Reason("prefix_unknown", "first try"))
    flight.placed(Reason("prefix_held", "left: 0 ms wait"))
    copied = dict(metadata)  # as LiteLLM does between the hooks
    summary, spend = copied["flashlane"], copied["spend_logs_metadata"]
    assert [r["code"] for r in summary["reasons"]] == ["unsure", "prefix_held"]  # type: ignore[index]
    assert summary["placement"] == "left: 0 ms wait"  # type: ignore[index]
    assert spend["kept"] == 1 and spend["flashlane"]["reasons"] == "unsure,prefix_held"  # type: ignore[index]
    assert copied["tags"] == ["x", "lane:direct"]
    done = flight.record("ok", "", store_text=False)
    assert (done.reasons, done.placement) == ("unsure,prefix_held", "left: 0 ms wait")


def test_a_flight_is_found_for_a_while_after_its_end() -> None:
    flights = Flights()
    flight = Flight("a", "a", "", "chat", "local", stream=False)
    data = {"metadata": {FLIGHT_KEY: "a"}}
    flights.begin(flight)
    assert flights.of(data) is flights.seen(data) is flight
    assert flights.end(flight) and not flights.end(flight)
    assert flights.of(data) is None and flights.seen(data) is flight
    for number in range(1000):
        flights.end(Flight(f"{number}", "", "", "chat", "local", stream=False))
    assert flights.seen(data) is None
