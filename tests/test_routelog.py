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


def test_roundtrip_and_summary(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite", tmp_path / "routes.jsonl")
    first = record(
        "a", lane="pflash", original_tokens=100, kept_tokens=40, stream=True, exact=False
    )
    assert log.write(first)
    assert list(log.records()) == [first]
    row = log.summary()[0]
    assert (row["lane"], row["original_tokens"], row["processed_tokens"]) == ("pflash", 100, 40)
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


def test_a_log_of_version_1_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "routes.sqlite"
    RouteLog(path).write(record("old"))
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE routes DROP COLUMN placement")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    log = RouteLog(path)
    log.write(record("new", placement="left: 0 ms wait"))
    assert {r.request_id: r.placement for r in log.records()} == {
        "old": "",
        "new": "left: 0 ms wait",
    }


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
