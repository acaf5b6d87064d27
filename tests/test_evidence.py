"""The parts of the evidence that need no proxy: metrics, words, and what backends answer."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import flashlane
from flashlane.backends.channel import BackendStatus
from flashlane.backends_view import backends_view
from flashlane.config import BackendConfig
from flashlane.metrics import exposition, sidecar_counts, totals
from flashlane.reload import ReloadState
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import free_port
from flashlane.verify.check import FIRST_FAILED
from flashlane.words import WORDS, in_words, sentences


def scraped(log: RouteLog, reload: ReloadState, *backends: BackendStatus) -> dict[Any, float]:
    with log.reading() as connection:
        text = exposition(totals(connection), reload, backends).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_count_what_the_log_holds(tmp_path: Path) -> None:
    log = RouteLog(tmp_path / "routes.sqlite")
    shared: dict[str, Any] = {"original_tokens": 100, "kept_tokens": 40, "kind": "code"}
    log.write(
        RouteRecord("a", 1.0, lane="pflash", ttft_ms=200.0, predicted_direct_ms=900.0, **shared)
    )
    log.write(
        RouteRecord("b", 1.0, lane="pflash", ttft_ms=900.0, predicted_direct_ms=400.0, **shared)
    )
    log.write(RouteRecord("c", 1.0, lane="direct", ttft_ms=100.0, predicted_direct_ms=999.0))
    log.write(RouteRecord("d", 1.0, lane="direct", status="error", feedback="wrong"))
    log.write(
        RouteRecord(
            "e",
            1.0,
            lane="verify",
            verdict="doubted",
            first_pass_tokens=30,
            draft_tokens=8,
            draft_accepted=3,
            sidecar="exact 0.90 safer",
            kind='odd"\n\\kind',
        )
    )
    status = BackendStatus(name="local", state="failed", base_url="", model="")
    found = scraped(log, ReloadState(5.0, 2, "broken", ("backends",)), status)
    assert found["flashlane_requests_total", "pflash", "ok"] == 2
    assert found["flashlane_requests_total", "direct", "error"] == 1
    assert found["flashlane_tokens_saved_total", "pflash"] == 120
    assert found["flashlane_first_pass_tokens_total", "verify"] == 30
    assert found["flashlane_time_saved_seconds_total", "pflash"] == pytest.approx(0.7)
    assert found["flashlane_time_lost_seconds_total", "pflash"] == pytest.approx(0.5)
    assert ("flashlane_time_saved_seconds_total", "direct") not in found
    assert found["flashlane_ttft_seconds_bucket", "pflash", "0.25"] == 1
    assert found["flashlane_ttft_seconds_bucket", "pflash", "1"] == 2
    assert found["flashlane_ttft_seconds_count", "pflash"] == 2
    assert found["flashlane_ttft_seconds_sum", "pflash"] == pytest.approx(1.1)
    assert found["flashlane_verdicts_total", "doubted"] == 1
    assert found["flashlane_feedback_total", "direct", "wrong"] == 1
    assert found["flashlane_draft_accepted_tokens_total", 'odd"\n\\kind'] == 3
    assert found["flashlane_sidecar_total", "active", "safer"] == 1
    assert found["flashlane_config_reloads_total",] == 2
    assert found["flashlane_config_valid",] == 0
    assert found["flashlane_config_waiting_keys",] == 1
    assert found["flashlane_backend_state", "local", "failed"] == 1


def test_an_empty_log_is_counted_too(tmp_path: Path) -> None:
    path = tmp_path / "routes.sqlite"
    found = scraped(RouteLog(path), ReloadState(5.0))
    assert found["flashlane_config_valid",] == 1
    assert path.stat().st_mode & 0o077 == 0


def test_sidecar_notes_become_counts() -> None:
    notes = [
        ("exact 0.90 safer", 2),
        ("exact 0.80 safer", 1),
        ("timeout", 3),
        ("shadow: broad 0.70 agree, too late", 4),
        ("shadow: unanswered", 5),
    ]
    assert sidecar_counts(notes) == {
        ("active", "safer"): 3,
        ("active", "timeout"): 3,
        ("shadow", "agree"): 4,
        ("shadow", "unanswered"): 5,
    }


def test_every_code_that_the_router_or_the_check_gives_has_words() -> None:
    package = Path(flashlane.__file__).parent
    codes = {
        node.args[0].value
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason" and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }
    assert len(codes) > 60 and FIRST_FAILED not in codes
    assert {*codes, FIRST_FAILED, "prefix_held", "prefix_overloaded"} - set(WORDS) == set()


def test_codes_become_sentences() -> None:
    assert in_words("pays") == "compression saves time"
    assert in_words("some_new_code") == "some new code"
    assert sentences("") == []
    assert [reason["code"] for reason in sentences("pays,unsure")] == ["pays", "unsure"]


POOL = {"budget_tokens": 100, "resident_tokens": 40, "hits": {"slot": 3, "ram": "many"}, "x": "y"}


@pytest.mark.parametrize(
    ("answer", "pool"),
    [
        ({"kvflash": {"policy": "lru", "resident_pool": POOL}}, True),
        ({"kvflash": {"configured": False}}, False),
        ([], False),
        (None, False),
    ],
    ids=["pool", "none", "list", "silence"],
)
def test_a_backend_is_shown_whatever_it_answers(answer: object, pool: bool) -> None:
    """The last of them takes the connection and says nothing."""
    port = free_port()
    ready = BackendConfig(model="/models/some/a.gguf", port=port)
    stopped = BackendConfig(model="b", port=free_port())
    status = BackendStatus(name="ready", state="ready", base_url="", model="", starts=2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()

    async def look() -> list[dict[str, Any]]:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            return await backends_view({"ready": ready, "stopped": stopped}, {"ready": status})

    started = time.monotonic()
    first, second = asyncio.run(look())
    assert time.monotonic() - started < 5
    assert (first["state"], first["model"], first["starts"]) == ("ready", "a.gguf", 2)
    assert (second["state"], second["pool"]) == ("unknown", None)
    assert (first["pool"] is not None) == pool
    if pool:
        assert (first["pool"]["resident_tokens"], first["pool"]["policy"]) == (40, "lru")
        assert first["pool"]["hits"] == {"slot": 3, "sibling": 0, "ram": 0, "disk": 0}
        assert "x" not in first["pool"]
