"""The command line: `explain` and `routes`, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def flashlane(
    *args: str, text: str = "", cwd: Path = ROOT, state: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flashlane.cli", *args],
        input=text,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "FLASHLANE_STATE_DIR": str(state)} if state else None,
    )


def request(content: str, **fields: object) -> str:
    return json.dumps(
        {"model": "local", "messages": [{"role": "user", "content": content}], **fields}
    )


def test_explain_json() -> None:
    done = flashlane("explain", "--json", text=request("hi"))
    decision = json.loads(done.stdout)
    assert decision["lane"] == "direct"
    assert set(decision) >= {"lane", "exact", "keep_ratio", "gear", "reasons", "costs_ms", "ask"}
    assert set(decision["reasons"][0]) == {"code", "text"}


def test_explain_words_without_a_config(tmp_path: Path) -> None:
    done = flashlane("explain", text=request("A fact. " * 2000 + "\n\nSummarise it."), cwd=tmp_path)
    assert "lane        pflash" in done.stdout
    assert "[broad_ask]" in done.stdout


def test_explain_batch_keeps_going_after_a_bad_line(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    batch.write_text("\n".join([request("hi"), "{", request("hi", route="warp")]))
    lines = [
        json.loads(line) for line in flashlane("explain", "--batch", str(batch)).stdout.splitlines()
    ]
    assert lines[0]["lane"] == "direct"
    assert lines[1]["line"] == 2
    assert "route is 'warp'" in lines[2]["error"]


def test_explain_survives_any_bytes_in_a_batch(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    lines = [request("hi"), '{"a": ' + "[" * 20_000, request("hi \ud800"), request("漢字")]
    batch.write_bytes("\n".join(lines).encode() + b"\n\xff\n" + request("hi").encode())
    done = flashlane("explain", "--batch", str(batch))
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in answer for answer in answers] == [False, True, False, False, True, False]
    assert "漢字" in done.stdout


def test_explain_decides_as_the_proxy_does() -> None:
    text = request("hi", extra_body={"route": "warp"})
    assert "route is 'warp'" in flashlane("explain", text=text).stderr
    refused = flashlane(
        "explain",
        "--config",
        str(ROOT / "litellm_config.yaml"),
        text=request("hi", chat_parser="{}"),
    )
    assert "chat_parser" in refused.stderr


def test_explain_refuses_in_one_sentence() -> None:
    for text in ("", "[]", "[" * 20_000, request("hi", route="warp")):
        done = flashlane("explain", text=text)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("flashlane: ")


def test_routes_refuses_an_unknown_lane() -> None:
    done = flashlane("routes", "--lane", "warp")
    assert done.returncode == 1
    assert "direct, pflash, verify" in done.stderr


def test_routes_says_what_is_wrong_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "routes.sqlite").write_bytes(b"not a database" * 100)
    done = flashlane("routes", state=tmp_path)
    assert done.returncode == 1 and "routes.sqlite" in done.stderr
    assert "Traceback" not in done.stderr
    done = flashlane("routes", "--config", str(tmp_path / "none.yaml"))
    assert done.returncode == 1 and "none.yaml" in done.stderr
