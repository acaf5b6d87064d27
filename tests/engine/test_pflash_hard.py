"""What broke other systems that drop prompt tokens, each as a test against the real server."""

from __future__ import annotations

import base64
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, compress, running, scored_by
from gguf_edit import renamed_token, unused_token

ROOT = Path(__file__).resolve().parents[2]
NEEDLE = "The auxiliary pump of the Harlow basin was sealed on 14 March by Ines Okafor."
QUESTION = "Who sealed the auxiliary pump of the Harlow basin?"
PARAPHRASED = (
    "The vet warned that the old spaniel must never be given grapes again.",
    "Which food is dangerous for the dog?",
)
FAKE_HELPER = Path(__file__).with_name("fake_helper.py")


@pytest.fixture(scope="module")
def server(
    engine: Path, engine_model: Path, engine_scorer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("hard")
    args = scored_by(engine_scorer, "always")
    args += ["--pflash-keep-ratio", "0.2", "--pflash-min-keep-tokens", "0"]
    args += ["--pflash-timeout-ms", "600000", "--ctx-size", "16384", "--parallel", "1", "--jinja"]
    with running(engine, engine_model, folder / "log", *args) as started:
        yield started


def real_text(words: int, seed: int) -> list[str]:
    """Paragraphs of this repository's own pages, source and configuration, in a drawn order."""
    parts = []
    for name in (
        "README.md",
        "docs/architecture.md",
        "docs/security.md",
        "NOTICE.md",
        "flashlane/config/settings.py",
        "pyproject.toml",
        "docs/pflash-helper.md",
    ):
        parts += [part for part in (ROOT / name).read_text().split("\n\n") if part.strip()]
    random.Random(seed).shuffle(parts)
    chosen: list[str] = []
    while sum(len(part.split()) for part in chosen) < words:
        chosen.append(parts[len(chosen) % len(parts)])
    return chosen


def hidden(needle: str, depth: float, words: int, seed: int = 1) -> str:
    parts = real_text(words, seed)
    parts.insert(round(depth * len(parts)), needle)
    return "\n\n".join(parts)


def chat(server: Engine, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    body = {"messages": messages, "max_tokens": 2, "temperature": 0, "verbose": True, **fields}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.mark.parametrize("tokens", [2100, 2400, 4000, 8000, 11500])
def test_a_fact_in_the_middle_survives(server: Engine, tokens: int) -> None:
    text = hidden(NEEDLE, 0.5, round(tokens / 1.9))
    kept = compress(server, text=text, question=QUESTION)
    assert kept["reason"] == "compressed"
    assert abs(kept["original_tokens"] / tokens - 1) < 0.25
    assert NEEDLE in kept["text"]


@pytest.mark.parametrize("depth", [0.1, 0.5, 0.9])
def test_a_paraphrased_question_over_mixed_text(server: Engine, depth: float) -> None:
    needle, question = PARAPHRASED
    assert (
        needle in compress(server, text=hidden(needle, depth, 1500, 2), question=question)["text"]
    )


def test_the_later_of_two_corrections_survives(server: Engine) -> None:
    parts = real_text(1500, 3)
    said = [
        "The launch code of the Aldebaran relay is 4471.",
        "Correction: the launch code of the Aldebaran relay is not 4471 but 5582.",
        "Second correction: the launch code of the Aldebaran relay is in fact 6693.",
    ]
    for number, sentence in enumerate(said):
        parts.insert((number + 1) * len(parts) // 4, sentence)
    question = "What is the launch code of the Aldebaran relay?"
    assert said[2] in compress(server, text="\n\n".join(parts), question=question)["text"]


def test_of_two_functions_that_are_nearly_alike_both_survive(server: Engine) -> None:
    def function(name: str, sign: str) -> str:
        return (
            f"def {name}(total, rate):\n    taxed = total {sign} total * rate\n"
            f"    return round(taxed, 2)\n"
        )

    others = [
        f"def helper_{n}(item):\n    value = item * {n}\n    return value\n" for n in range(180)
    ]
    others.insert(60, function("gross_price", "+"))
    others.insert(120, function("gross_price_old", "-"))
    question = "Which of gross_price and gross_price_old is wrong, and in which line?"
    kept = compress(server, text="\n".join(others), question=question)["text"]
    for name, sign in (("gross_price", "+"), ("gross_price_old", "-")):
        assert f"def {name}(" in kept
        assert f"taxed = total {sign} total * rate" in kept


def test_neutral_labels_are_as_good_as_loud_ones(server: Engine) -> None:
    """Nothing is looked for by the words of somebody's benchmark."""
    facts = [
        f"Note {n}: the {what} of the north depot is {value}."
        for n, (what, value) in enumerate(
            [("keeper", "Maud Ferris"), ("door colour", "ochre"), ("opening hour", "six forty")]
        )
    ]
    parts = real_text(1500, 4)
    for number, fact in enumerate(facts):
        parts.insert((number + 1) * len(parts) // 4, fact)
    question = "What are the keeper, the door colour and the opening hour of the north depot?"
    kept = compress(server, text="\n\n".join(parts), question=question)["text"]
    assert all(fact in kept for fact in facts)


@pytest.mark.parametrize("stream", [False, True])
def test_thirty_tools_and_a_long_history_stay_whole(server: Engine, stream: bool) -> None:
    fields = {"user_id": {"type": "string"}, "assistant_name": {"type": "string"}}
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": "Looks it up.",
                "parameters": {"type": "object", "properties": fields},
            },
        }
        for n in range(30)
    ]
    messages = [{"role": "system", "content": "You help. " * 100}]
    for n in range(4):
        messages.append({"role": "user", "content": " ".join(real_text(200, n))})
        messages.append({"role": "assistant", "content": "Noted."})
    messages.append({"role": "user", "content": QUESTION})
    body = {
        "messages": messages,
        "tools": tools,
        "max_tokens": 4,
        "stream": stream,
        "timings_on_finish": True,
    }
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.text
    if stream:
        chunks = [json.loads(line) for line in reply.events() if line != "[DONE]"]
        timings = next(chunk["timings"] for chunk in chunks if "timings" in chunk)
    else:
        timings = reply.json()["timings"]
    assert timings["pflash"]["reason"] == "tools"
    assert timings["pflash"]["kept_tokens"] == timings["pflash"]["original_tokens"]


def test_a_detail_of_an_early_turn_can_be_asked_for_later(server: Engine) -> None:
    """A transcript that is nearly all output; the fifth question needs the second turn."""
    questions = [
        "Which files are there?",
        "What failed in this log?",
        "Is there a lock file?",
        "How long is the list?",
        "Under which number was the valve WX-3391 delivered?",
    ]
    detail = "valve WX-3391 delivered under number 88-1204-K at the side gate"
    messages: list[dict[str, Any]] = []
    for turn, question in enumerate(questions):
        output = real_text(250, 10 + turn)
        if turn == 1:
            output.insert(len(output) // 2, detail)
        material = "\n\n".join(output)
        content = f"{material}\n\n{question}" if turn < 4 else question
        messages.append({"role": "user", "content": content})
        answer = chat(server, messages)
        messages.append({"role": "assistant", "content": "It is in the output above."})
    assert answer["timings"]["pflash"]["reason"] == "compressed"
    assert detail in answer["__verbose"]["prompt"]


def test_past_the_scorers_context(server: Engine) -> None:
    """20k tokens by the model, whose trained context is 8k, and 200k by words."""
    text = hidden(NEEDLE, 0.7, 10_500, 5)
    kept = compress(server, text=text, question=QUESTION, keep_ratio=0.1)
    assert kept["original_tokens"] > 16_000 and NEEDLE in kept["text"]
    text = hidden(NEEDLE, 0.3, 105_000, 6)
    kept = compress(server, text=text, question=QUESTION, keep_ratio=0.05, scorer="lexical")
    assert kept["original_tokens"] > 180_000 and NEEDLE in kept["text"]


@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.2])
def test_no_middle_is_deleted_whole(server: Engine, ratio: float) -> None:
    """Bytes without a natural span: something of the middle stays, or nothing is dropped at all."""
    text = base64.b64encode(random.Random(1).randbytes(9000)).decode()
    kept = compress(server, text=text, question=QUESTION, keep_ratio=ratio)
    if kept["reason"] != "compressed":
        assert (kept["reason"], kept["text"]) == ("insufficient_middle_budget", text)
        return
    middle = [(a, b) for a, b in kept["spans"] if b > 200 and a < len(text) - 200]
    assert sum(b - a for a, b in middle) > 64


def test_short_messages_keep_their_middles(server: Engine) -> None:
    """What would be left of a small message is no middle: it stays whole."""
    notes = [
        " ".join(f"Point {n}.{i} is about matter {n * 31 + i}." for i in range(20))
        for n in range(6)
    ]
    messages: list[dict[str, Any]] = []
    for note in notes:
        messages += [{"role": "user", "content": note}, {"role": "assistant", "content": "Yes."}]
    long = "\n\n".join(real_text(1500, 7))
    messages.append({"role": "user", "content": f"{long}\n\n{QUESTION}"})
    answer = chat(server, messages, pflash={"mode": "always", "keep_ratio": 0.1})
    assert answer["timings"]["pflash"]["reason"] == "compressed"
    assert all(note in answer["__verbose"]["prompt"] for note in notes)


def test_a_question_that_is_a_document_is_refused(server: Engine) -> None:
    reply = server.post("/pflash/compress", {"text": "x" * 4000, "question": "why? " * 2000})
    assert reply.status == 400
    assert "question has 10000 bytes; at most 8192" in reply.text


def test_tokens_without_text(engine: Path, engine_model: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange.gguf"
    unused_token(engine_model, strange, 20_000)
    args = ["--pflash-mode", "always", "--pflash-score", "lexical", "--ctx-size", "4096"]
    with running(engine, strange, tmp_path / "log", *args) as server:
        reply = server.post("/completion", {"prompt": [20_000] * 1000, "n_predict": 1})
        assert reply.status == 200
        assert reply.json()["timings"]["pflash"]["reason"] == "no_text"
        mixed = server.post(
            "/completion", {"prompt": [20_000] * 500 + list(range(500, 1500)), "n_predict": 1}
        )
        assert mixed.status == 200


def test_a_scorer_of_another_vocabulary(
    engine: Path, engine_model: Path, engine_scorer: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    renamed_token(engine_scorer, other, 30_000)
    args = scored_by(other, "always")
    args += ["--pflash-timeout-ms", "600000", "--ctx-size", "4096"]
    with running(engine, engine_model, tmp_path / "log", *args) as server:
        kept = compress(server, text=hidden(NEEDLE, 0.5, 700), question=QUESTION, keep_ratio=0.2)
        assert NEEDLE in kept["text"]
        assert server.get("/props").json()["pflash"]["scorer_model"]["retokenized"] == 1


@pytest.mark.parametrize(
    ("mode", "failure"),
    [
        (["hang"], "helper_timeout"),
        (["signal"], "helper_exit"),
        (["flood"], "helper_output_limit"),
        (["raw", "no json"], "helper_garbage"),
        (["raw", '{"schema": 1, "id": $ID, "scores": [NaN, 1]}'], "helper_nan"),
        (["raw", '{"schema": 1, "id": $ID, "keep": [-1]}'], "helper_indices"),
        (["raw", '{"schema": 1, "id": $ID, "keep": ["0"]}'], "helper_indices"),
    ],
    ids=["hang", "crash", "65 MiB", "garbage", "NaN", "negative", "strings"],
)
def test_a_helper_that_fails_leaves_the_prompt_whole(
    engine: Path, engine_model: Path, tmp_path: Path, mode: list[str], failure: str
) -> None:
    program = tmp_path / "helper"
    command = f"exec {sys.executable} {FAKE_HELPER} " + " ".join(f"'{part}'" for part in mode)
    program.write_text(f"#!/bin/sh\nFAKE_NOTES={tmp_path / 'notes'} {command}\n")
    program.chmod(0o700)
    args = ["--pflash-mode", "always", "--pflash-score", "external-helper", "--metrics"]
    args += ["--pflash-drafter", str(program), "--pflash-timeout-ms", "4000", "--ctx-size", "4096"]
    text = f"{hidden(NEEDLE, 0.5, 500)}\n\n{QUESTION}"
    with running(engine, engine_model, tmp_path / "log", *args) as server:
        answer = chat(server, [{"role": "user", "content": text}])
        pflash = answer["timings"]["pflash"]
        assert (pflash["reason"], pflash["failure"]) == (failure, failure)
        assert pflash["kept_tokens"] == pflash["original_tokens"]
        assert text in answer["__verbose"]["prompt"]
        helper = server.get("/props").json()["pflash"]["helper"]
        assert helper["failures"] == {failure: 1} and helper["answered"] == 0
        assert f'pflash_helper_failures_total{{kind="{failure}"}} 1' in server.get("/metrics").text
        assert server.get("/health").status == 200
    assert os.access(program, os.X_OK)
