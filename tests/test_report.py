"""The report: sums of the route log that can be counted by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_cli import flashlane

from flashlane.keys import key_id_of, viewer_of
from flashlane.report import MAX_BUCKETS, Report, Scope, bucket_width, report
from flashlane.routelog import RouteLog, RouteRecord


def made(tmp_path: Path, *records: RouteRecord) -> RouteLog:
    log = RouteLog(tmp_path / "routes.sqlite")
    for record in records:
        log.write(record)
    return log


def report_of(log: RouteLog, until: float = 1e6, **scope: object) -> Report:
    with log.reading() as connection:
        return report(connection, Scope(until, **scope))  # type: ignore[arg-type]


def pflash(number: int, **fields: object) -> RouteRecord:
    values: dict[str, object] = {
        "lane": "pflash",
        "original_tokens": 1000,
        "kept_tokens": 400,
        "predicted_direct_ms": 900.0,
        "ttft_ms": 300.0,
        **fields,
    }
    return RouteRecord(f"p{number}", 100.0 + number, **values)  # type: ignore[arg-type]


def test_an_empty_log_has_an_empty_report(tmp_path: Path) -> None:
    found = report_of(made(tmp_path))
    assert (found.lanes, found.verdicts, found.drafts, found.buckets) == ((), (), (), ())
    json.dumps(found.to_json())


def test_lanes_count_ends_times_and_savings(tmp_path: Path) -> None:
    direct = [
        RouteRecord(f"d{n}", 50.0, lane="direct", ttft_ms=float(n), prompt_tokens=10, cost=0.25)
        for n in range(1, 101)
    ]
    log = made(
        tmp_path,
        *direct,
        RouteRecord("e", 51.0, lane="direct", status="error"),
        RouteRecord("r", 52.0, lane="direct", status="refused"),
        RouteRecord("x", 53.0, lane="direct", status="disconnected", predicted_direct_ms=9000.0),
        pflash(1),
        pflash(2, ttft_ms=1000.0, feedback="wrong"),
        pflash(3, ttft_ms=None, original_tokens=None),
    )
    first, second = report_of(log).lanes
    assert (first.lane, first.requests) == ("direct", 103)
    assert (first.failed, first.refused, first.disconnected) == (1, 1, 1)
    assert (first.ttft_p50_ms, first.ttft_p95_ms) == (50.0, 95.0)
    assert (first.tokens_saved, first.time_saved_ms, first.cost) == (0, 0.0, 25.0)
    assert first.original_tokens == first.processed_tokens == 1000
    assert (second.lane, second.requests, second.wrong, second.right) == ("pflash", 3, 1, 0)
    assert second.tokens_saved == 1200
    assert second.time_saved_ms == 600.0 - 100.0
    assert (second.ttft_p50_ms, second.ttft_p95_ms) == (300.0, 1000.0)


def test_a_first_pass_that_came_to_nothing_is_no_saving(tmp_path: Path) -> None:
    log = made(
        tmp_path,
        RouteRecord(
            "v",
            1.0,
            lane="verify",
            verdict="doubted",
            original_tokens=1000,
            kept_tokens=1000,
            first_pass_tokens=400,
            predicted_direct_ms=900.0,
            ttft_ms=1300.0,
        ),
    )
    lane = report_of(log).lanes[0]
    assert (lane.tokens_saved, lane.processed_tokens, lane.time_saved_ms) == (-400, 1400, -400.0)


def test_verdicts_and_drafts_have_shares(tmp_path: Path) -> None:
    log = made(
        tmp_path,
        pflash(1, verdict="accepted", kind="retrieval", draft_tokens=10, draft_accepted=4),
        pflash(2, verdict="accepted", kind="retrieval", draft_tokens=30, draft_accepted=16),
        pflash(3, verdict="accepted", kind="summary", draft_tokens=5),
        pflash(4, verdict="doubted", kind="code", draft_tokens=0, draft_accepted=0),
        pflash(5),
    )
    found = report_of(log)
    assert [(v.verdict, v.requests, v.share) for v in found.verdicts] == [
        ("accepted", 3, 0.75),
        ("doubted", 1, 0.25),
    ]
    assert [(d.kind, d.draft_tokens, d.acceptance) for d in found.drafts] == [
        ("retrieval", 40, 0.5),
        ("summary", 5, 0.0),
    ]


def test_buckets_have_no_gaps_and_sum_to_the_whole(tmp_path: Path) -> None:
    log = made(tmp_path, pflash(0), pflash(1), pflash(7200), pflash(1))
    found = report_of(log, until=100.0 + 7300)
    assert found.bucket_s == 300
    starts = [bucket.start for bucket in found.buckets]
    assert starts == [n * 300.0 for n in range(25)]
    assert [b.requests for b in found.buckets if b.requests] == [2, 1]
    assert sum(b.tokens_saved for b in found.buckets) == 1800
    assert found.buckets[0].time_saved_ms == 1200.0
    assert report_of(log, until=200.0, since=100.5).buckets[0].requests == 1


@pytest.mark.parametrize("hours", [0.1, 4, 5, 24, 24 * 7, 24 * 365, 24 * 365 * 40])
def test_a_chart_never_has_too_many_buckets(hours: float) -> None:
    width = bucket_width(hours * 3600)
    assert hours * 3600 / width <= MAX_BUCKETS
    assert width == 300 or hours * 3600 / width > MAX_BUCKETS / 8


def test_a_scope_is_a_span_and_a_key(tmp_path: Path) -> None:
    log = made(
        tmp_path,
        pflash(1, key_id="one"),
        pflash(2, key_id="two"),
        pflash(3, key_id="one"),
        pflash(4),
    )
    assert report_of(log).lanes[0].requests == 4
    assert report_of(log, key_id="one").lanes[0].requests == 2
    assert report_of(log, key_id="one", since=102.5).lanes[0].requests == 1
    assert report_of(log, until=102.5).lanes[0].requests == 2
    assert report_of(log, key_id="").lanes == ()  # whose key is not known sees nobody's records


def test_keys_are_named_without_being_told() -> None:
    key = SimpleNamespace(token="sk-secret", api_key="sk-secret", user_id="u", user_role=None)
    assert "secret" not in key_id_of(key) and key_id_of(key) == key_id_of(
        SimpleNamespace(**vars(key))
    )
    assert key_id_of(SimpleNamespace(token="sk-other")) != key_id_of(key)
    assert key_id_of(SimpleNamespace()) == "" == key_id_of(None)
    assert viewer_of(key).scope == key_id_of(key)
    admin = viewer_of(SimpleNamespace(user_role=SimpleNamespace(value="proxy_admin")))
    assert (admin.scope, admin.may_write) == (None, True)
    looking = viewer_of(SimpleNamespace(user_role="proxy_admin_viewer"))
    assert (looking.scope, looking.may_write) == (None, False)
    assert viewer_of(SimpleNamespace(user_role="internal_user")).admin is False


def test_routes_prints_the_summary(tmp_path: Path) -> None:
    now = time.time()
    old = {"lane": "direct", "ttft_ms": 7.0}
    made(
        tmp_path,
        RouteRecord("old", now - 7200, **old),  # type: ignore[arg-type]
        RouteRecord(
            "new",
            now - 60,
            lane="verify",
            verdict="accepted",
            feedback="wrong",
            kind="code",
            original_tokens=1000,
            kept_tokens=400,
            draft_tokens=10,
            draft_accepted=5,
        ),
    )
    text = " ".join(flashlane("routes", state=tmp_path).stdout.split())
    for part in ("direct", "verified accepted 1 (100%)", "wrong 1", "code: 50% of 10 tokens"):
        assert part in text
    done = flashlane("routes", "--summary", "--json", "--since", "1", state=tmp_path)
    found = json.loads(done.stdout)
    assert [(lane["lane"], lane["tokens_saved"]) for lane in found["lanes"]] == [("verify", 600)]
    lines = flashlane("routes", "--json", state=tmp_path).stdout.splitlines()
    assert [json.loads(line)["request_id"] for line in lines] == ["new", "old"]
    assert "no such requests" in flashlane("routes", "--since", "0.001", state=tmp_path).stdout
