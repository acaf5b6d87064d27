"""The reference helper in Python: its pure parts, and the real model behind the server's class."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from helper_driver import compiled, driving

from flashlane.backends import pflash_helper
from flashlane.backends.pflash_helper import (
    Window,
    combined,
    lines_of,
    order_of,
    shared_words,
    windows_of,
)
from flashlane.bindings import bound_libraries

NEEDLE = "The vault in the cellar opens with the code 48-17-93. "
SENTENCES = [
    f"{who} {did} {what}. "
    for who in ("The gardener", "Our archive", "A committee", "Her cousin")
    for did in ("described", "repaired", "counted")
    for what in ("the northern fence", "two dozen maps", "some copper wire")
]


def spans_of(sentences: list[str]) -> list[list[int]]:
    spans, at = [], 0
    for sentence in sentences:
        spans.append([at, at + len(sentence.encode())])
        at = spans[-1][1]
    return spans


def test_windows_hold_every_byte_of_every_span_once() -> None:
    spans = [(0, 10), (10, 100), (100, 260), (300, 310), (310, 2900), (2900, 2900), (2900, 2950)]
    windows = windows_of(spans)
    assert windows == [
        Window(0, 100, (0, 1)),
        Window(100, 260, (2,)),
        Window(300, 310, (3,)),
        Window(310, 1334, (4,)),
        Window(1334, 2358, (4,)),
        Window(2358, 2900, (4,)),
        Window(2900, 2950, (6,)),
    ]


def test_rare_shared_words_count_and_common_ones_do_not() -> None:
    texts = ["the fence"] * 20 + ["the vault"] + ["保险箱的密码"]
    shares = shared_words("the code of the vault", texts)
    assert max(shares) == shares[20] > 0.2
    assert shares[0] < 0.01
    assert max(range(22), key=shared_words("密码是什么", texts).__getitem__) == 21


def test_words_order_the_reading_and_the_rest_is_spread() -> None:
    windows = [Window(i, i + 1, (i,)) for i in range(100)]
    lexical = [float(i == 60) for i in range(100)]
    order = order_of(windows, lexical)
    assert order[0] == 60 and sorted(order) == list(range(100))
    quarters = {index // 25 for index in order[1:9]}
    assert quarters == {0, 1, 2, 3}


def test_unread_spans_are_neither_best_nor_worst() -> None:
    scores = combined([2.0, None, 0.0, 1.0], [0.0] * 4)
    assert scores[2] < scores[1] < scores[0]
    assert combined([None, None], [0.5, 0.25]) == [2.0, 1.0]
    assert combined([1.0, 1.0], [0.0, 0.0]) == [0.0, 0.0]


def test_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pflash_helper, "LINE_LIMIT_BYTES", 8)
    stream = io.BytesIO(b"short\n" + b"x" * 100 + b"\n" + b"1234567\n" + b"cut off")
    assert list(lines_of(stream)) == [b"short\n", None, b"1234567\n"]


@pytest.fixture
def command(engine_model: Path) -> list[str]:
    if bound_libraries() is None:
        pytest.skip("no llama_cpp in this environment; `make setup` installs it")
    module = "flashlane.backends.pflash_helper"
    return [sys.executable, "-m", module, "--model", str(engine_model)]


def test_it_answers_whatever_comes_and_ends_with_its_input(command: list[str]) -> None:
    request = {"schema": 1, "id": 4, "timeout_ms": 60_000, "keep_ratio": 0.5, "question": "code?"}
    lines = [
        b"no json",
        b'{"id": 1}',
        json.dumps({**request, "text": "ab", "spans": [[0, 3]]}).encode(),
        json.dumps({**request, "text_base64": "?", "spans": [[0, 1]]}).encode(),
        json.dumps({**request, "text": "ab", "text_base64": "YWI=", "spans": []}).encode(),
        json.dumps({**request, "text": "ab", "spans": [], "extra": 1}).encode(),
        json.dumps({**request, "text": "ab", "spans": []}).encode(),
        json.dumps({**request, "text": "", "question": "", "spans": [[0, 0]]}).encode(),
        json.dumps({**request, "text": "\u0000 <|im_end|> 🙂", "spans": [[0, 8]]}).encode(),
        json.dumps({**request, "text_base64": "/wBhgA==", "spans": [[0, 2], [2, 4]]}).encode(),
    ]
    done = subprocess.run(
        command, input=b"\n".join(lines) + b"\n", capture_output=True, timeout=120, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [None, 1, 4, 4, 4, 4, 4, 4, 4, 4]
    assert all("error" in answer for answer in answers[:6])
    assert [len(answer["scores"]) for answer in answers[6:]] == [0, 1, 1, 2]
    assert all(math.isfinite(score) for answer in answers[6:] for score in answer["scores"])


def test_a_missing_model_is_said_on_stderr(command: list[str]) -> None:
    done = subprocess.run(
        [*command[:-1], "/no/such.gguf"], input=b"", capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1 and done.stdout == b""
    assert b"/no/such.gguf" in done.stderr


def test_the_server_s_class_gets_scores_of_the_real_model(
    command: list[str],
    engine: Path,
    engine_source: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = compiled(engine, engine_source, tmp_path_factory.getbasetemp())
    with driving(program, engine, tmp_path, *command) as driver:
        for at in (3, 20):
            sentences = [*SENTENCES[:at], NEEDLE, *SENTENCES[at:]]
            reply = driver.score(
                text="".join(sentences),
                spans=spans_of(sentences),
                question="What number opens the safe?",
                timeout_ms=100_000,
            )
            assert reply["failure"] == ""
            assert max(range(37), key=reply["scores"].__getitem__) == at
        # too much to read in the time: the words alone must do
        sentences = [*SENTENCES * 20, NEEDLE, *SENTENCES * 20]
        reply = driver.score(
            text="".join(sentences),
            spans=spans_of(sentences),
            question="Which code opens the vault?",
            timeout_ms=4000,
        )
        assert reply["failure"] == "" and reply["ms"] < 4000
        assert max(range(1441), key=reply["scores"].__getitem__) == 720
        reply = driver.score(spans=[[0, 99]], timeout_ms=4000)
        assert reply["failure"] == "helper_error"
        assert driver.counters()["started"] == 1
    assert driver.end_ms < 2000
