"""PFlash's scorers in the real server: what the question needs stays, turn after turn."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, compress, running, scored_by

FILLER = [
    "The ferry left the quay an hour late because fog had settled on the river.",
    "Nobody in the village could agree on when the old mill had burned down.",
    "She kept the letters in a tin box under the stairs and never spoke of them.",
    "A second survey of the ridge found no trace of the path that the map showed.",
    "They replaced the roof in spring, and the rain held off until the last tile.",
    "The orchestra rehearsed the slow movement twice and then went home early.",
    "Market days brought carts from as far away as the salt works on the coast.",
    "He counted the lamps along the pier and wrote the number in pencil.",
]
NEEDLE = "The spare key to the observatory hangs behind the barometer in the hall."
QUESTION = "Where can I find the spare key to the observatory?"
GRAPES = "The vet warned that the old spaniel must never be given grapes again."
PARAPHRASED = "Which food is dangerous for the dog?"


def filler(n: int, start: int = 0) -> list[str]:
    return [f"{FILLER[i % len(FILLER)][:-1]}, as entry {i} says." for i in range(start, start + n)]


def document(needle: str = NEEDLE, depth: float = 0.5, sentences: int = 60) -> str:
    lines = filler(sentences)
    lines.insert(int(depth * sentences), needle)
    return " ".join(lines)


@pytest.fixture(scope="module")
def server(
    engine: Path, engine_model: Path, engine_scorer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("model")
    ranges = folder / "ranges"
    ranges.mkdir()
    args = scored_by(engine_scorer, "auto")
    args += ["--pflash-min-tokens", "256", "--pflash-keep-ratio", "0.2", "--pflash-timeout-ms"]
    args += ["120000", "--pflash-protected-prefix", "16", "--pflash-protected-suffix", "16"]
    args += ["--pflash-min-keep-tokens", "64", "--pflash-debug-dir", str(ranges), "--metrics"]
    with running(
        engine, engine_model, folder / "log", *args, "--ctx-size", "16384", "--parallel", "2"
    ) as started:
        yield started


@pytest.fixture(scope="module")
def lexical(
    engine: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("lexical")
    args = ["--pflash-mode", "auto", "--pflash-score", "lexical", "--pflash-min-tokens", "256"]
    args += ["--pflash-keep-ratio", "0.2", "--pflash-protected-suffix", "16", "--pflash-marker"]
    args += [" [...] ", "--pflash-protected-prefix", "16", "--pflash-min-keep-tokens", "64"]
    with running(
        engine, engine_model, folder / "log", *args, "--ctx-size", "16384", "--parallel", "2"
    ) as started:
        yield started


def chat(server: Engine, messages: list[dict[str, Any]] | str, **fields: Any) -> dict[str, Any]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    fields = {"pflash": {"mode": "always"}, "max_tokens": 2, **fields}
    reply = server.post(
        "/v1/chat/completions", {"messages": messages, "temperature": 0, "verbose": True, **fields}
    )
    assert reply.status == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["__verbose"]["prompt"])


@pytest.mark.parametrize("depth", [0.05, 0.5, 0.95])
@pytest.mark.parametrize(
    ("needle", "question"),
    [(NEEDLE, QUESTION), (GRAPES, PARAPHRASED)],
    ids=["lexical", "paraphrased"],
)
def test_what_the_question_needs_stays(
    server: Engine, depth: float, needle: str, question: str
) -> None:
    body = chat(server, f"{document(needle, depth)}\n\n{question}")
    assert needle in prompt_of(body)
    pflash = body["timings"]["pflash"]
    assert (pflash["scorer"], pflash["reason"]) == ("model", "compressed")
    assert pflash["kept_tokens"] < 0.4 * pflash["original_tokens"]
    assert body["usage"]["prompt_tokens"] == pflash["kept_tokens"]
    details = body["usage"]["prompt_tokens_details"]
    assert details["original_tokens"] == pflash["original_tokens"]
    assert body["timings"]["prompt_ms"] >= pflash["score_ms"] > 0


@pytest.mark.parametrize(
    "layout",
    [
        "{question}\n\n{document}",
        "{document}\n\n{question}",
        "{question}\n\n{document}\n\nAnswer in one short sentence.",
        "Answer in one short sentence.\n\n{document}\n\nQuestion: {question}",
    ],
    ids=["question first", "question last", "instruction follows", "instruction first"],
)
def test_the_ask_is_found_and_kept_wherever_it_stands(server: Engine, layout: str) -> None:
    text = layout.format(question=QUESTION, document=document(depth=0.4))
    prompt = prompt_of(chat(server, text))
    assert NEEDLE in prompt and QUESTION in prompt
    assert "Answer in one" not in layout or "Answer in one short sentence." in prompt


def test_another_ratio_of_the_same_text_is_not_read_anew(server: Engine) -> None:
    def reused() -> int:
        return int(server.get("/props").json()["pflash"]["scorer_model"]["reused"])

    text, before = document(depth=0.3), reused()
    wide = compress(server, text=text, question=QUESTION, keep_ratio=0.3)
    narrow = compress(server, text=text, question=QUESTION, keep_ratio=0.1)
    assert reused() == before + 1
    assert NEEDLE in narrow["text"] and len(narrow["text"]) < len(wide["text"])
    compress(server, text=text, question=PARAPHRASED, keep_ratio=0.1)
    compress(server, text=text + " And so on.", question=QUESTION, keep_ratio=0.1)
    assert reused() == before + 1


def test_spans_are_kept_whole_and_in_order(server: Engine) -> None:
    lines = filler(60)
    prompt = prompt_of(chat(server, " ".join(lines) + "\n\n" + QUESTION))
    kept = [line for line in lines if line in prompt]
    assert 4 < len(kept) < 40
    assert [prompt.index(line) for line in kept] == sorted(prompt.index(line) for line in kept)
    rest = prompt
    for line in kept:
        rest = rest.replace(line, "")
    assert "as entry" not in rest


def test_a_document_full_of_role_words(server: Engine) -> None:
    trap = document() + " user assistant system <|im_start|> said the sign. " + document(depth=0.9)
    body = chat(server, [{"role": "user", "content": f"{QUESTION}\n\n{trap}"}])
    assert NEEDLE in prompt_of(body)


def test_the_system_message_and_other_roles_stay_whole(server: Engine) -> None:
    rules = " ".join(filler(30, 500))
    said = " ".join(filler(30, 700))
    body = chat(
        server,
        [
            {"role": "system", "content": rules},
            {"role": "user", "content": "Hello there."},
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"{document()}\n\n{QUESTION}"},
        ],
    )
    assert rules in prompt_of(body) and said in prompt_of(body)
    assert body["timings"]["pflash"]["reason"] == "compressed"


def test_two_hops_and_the_later_of_two_facts(server: Engine) -> None:
    lines = filler(90)
    hops = [
        "The green ledger belongs to Ottoline Marsh.",
        "Ottoline Marsh keeps everything she owns in the boathouse.",
        "The meeting was set for Tuesday at noon.",
        "Correction: the meeting was moved to Friday at nine.",
    ]
    for place, hop in zip((12, 40, 55, 77), hops, strict=True):
        lines.insert(place, hop)
    text = " ".join(lines)
    prompt = prompt_of(chat(server, f"{text}\n\nWhere does the owner of the green ledger keep it?"))
    assert hops[0] in prompt and hops[1] in prompt
    assert hops[3] in prompt_of(chat(server, f"{text}\n\nWhen is the meeting?"))


def test_identifiers_that_the_question_names_are_in(server: Engine) -> None:
    lines = [f"job {i:04d} finished with status {i % 7} after {i * 3} ms" for i in range(120)]
    prompt = prompt_of(chat(server, "\n".join(lines) + "\n\nWhat happened to job 0087?"))
    assert lines[87] in prompt


def test_code_with_two_near_duplicates(server: Engine) -> None:
    body = "\n\n".join(
        f"def helper_{i}(values):\n    total = {i}\n    for value in values:\n"
        "        total += value\n    return total"
        for i in range(20)
    )
    good = "def sum_prices(prices):\n    return sum(prices)"
    bad = "def sum_prices_net(prices, tax):\n    return sum(prices) - len(prices)"
    text = body[:900] + "\n\n" + good + "\n\n" + body[900:] + "\n\n" + bad
    prompt = prompt_of(chat(server, f"{text}\n\nWhy is sum_prices_net wrong?"))
    assert "return sum(prices) - len(prices)" in prompt


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"第{i}項は棚に置かれた。鍵は気圧計の裏に掛かっている。" for i in range(60)),
        "QmFzZTY0" * 250,
        "🙂🚀👩‍👩‍👧 " * 150,
        "no blanks at all:" + "x" * 4000,
    ],
    ids=["CJK", "base64", "emoji", "one word"],
)
def test_any_script(server: Engine, text: str) -> None:
    body = chat(server, f"{text}\n\n鍵はどこですか。")
    assert body["timings"]["pflash"]["reason"] in ("compressed", "insufficient_middle_budget")
    assert "\ufffd" not in prompt_of(body)


def test_longer_than_the_scorers_context(server: Engine) -> None:
    found = compress(
        server, text=document(depth=0.7, sentences=640), question=QUESTION, keep_ratio=0.05
    )
    assert found["original_tokens"] > 12_000
    assert NEEDLE in found["text"] and found["scorer"] == "model"


def test_a_conversation_keeps_its_compressed_prefix(server: Engine) -> None:
    """Frozen masks: the second turn reads from the cache what the first one left there."""
    text = f"{document(depth=0.3)}\n\n{QUESTION}"
    first = chat(server, text, max_tokens=8)
    turns = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And who keeps the letters?"},
    ]
    second = chat(server, turns)
    head = prompt_of(first)[: prompt_of(first).index(QUESTION)]
    assert prompt_of(second).startswith(head)
    report = second["timings"]["pflash"]
    assert report["mask_hits"] == 1 and report["reason"] == "compressed"
    assert report["score_ms"] < first["timings"]["pflash"]["score_ms"] / 4
    assert second["timings"]["cache_n"] > 0.8 * first["usage"]["prompt_tokens"]
    assert server.get("/props").json()["pflash"]["masks"]["hits"] > 0


def test_a_later_question_brings_dropped_text_back(lexical: Engine) -> None:
    """Recall: inside the newest message, so that what is before it stays as it was."""
    asked = "The harbour master's telephone number is 5512-0098."
    text = f"{document(asked, depth=0.35)}\n\nWho kept letters in a tin box?"
    first = chat(lexical, text, max_tokens=4)
    assert asked not in prompt_of(first)
    turns = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "What is the harbour master's telephone number?"},
    ]
    second = chat(lexical, turns)
    assert prompt_of(second).count(asked) == 1
    assert prompt_of(second).index(asked) > prompt_of(first).index("Who kept letters")
    assert 0 < second["timings"]["pflash"]["recalled_tokens"] <= 128
    assert second["timings"]["cache_n"] > 0.8 * first["usage"]["prompt_tokens"]
    turns += [
        {"role": "assistant", "content": second["choices"][0]["message"]["content"]},
        {"role": "user", "content": "Thank you."},
    ]
    third = chat(lexical, turns)
    assert prompt_of(third).count(asked) == 1
    assert third["timings"]["cache_n"] > 0.8 * second["usage"]["prompt_tokens"]


def test_auto_leaves_whole_what_it_saw_whole(server: Engine) -> None:
    text = f"{document(depth=0.2)}\n\nWhat do they say of the ferry?"
    whole = chat(server, text, pflash={"mode": "off"})
    assert whole["timings"]["pflash"]["kept_tokens"] == whole["usage"]["prompt_tokens"]
    report = chat(server, text, pflash={"mode": "auto"})["timings"]["pflash"]
    assert report["reason"] == "seen_whole"
    report = chat(server, text, pflash={"mode": "always"})["timings"]["pflash"]
    assert report["reason"] == "compressed"


def test_the_same_prompt_is_compressed_once_and_alike_for_eight_clients(server: Engine) -> None:
    text = f"{document(depth=0.6, sentences=50)}\n\nWhich survey found no trace?"
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda _: chat(server, text), range(8)))
    assert len({prompt_of(body) for body in bodies}) == 1
    assert len({body["timings"]["pflash"]["kept_tokens"] for body in bodies}) == 1


def test_an_answer_goes_on_while_a_prompt_is_scored(server: Engine) -> None:
    """The scorer runs beside the decode thread: tokens keep coming, however slowly."""
    arrivals: list[float] = []
    body = {
        "messages": [{"role": "user", "content": "Count from one to two hundred."}],
        "max_tokens": 200,
        "ignore_eos": True,
        "stream": True,
    }
    scored: list[float] = []

    def score() -> None:
        compress(server, text=document(sentences=200), question=QUESTION, keep_ratio=0.11)
        scored.append(time.monotonic())

    thread = threading.Thread(target=score)
    import urllib.request

    request = urllib.request.Request(
        server.base + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as stream:
        for line in stream:
            if line.startswith(b"data: {"):
                arrivals.append(time.monotonic())
                if len(arrivals) == 3:
                    thread.start()
    thread.join(timeout=300)
    begun = arrivals[2]
    assert sum(begun < moment < scored[0] for moment in arrivals) > 5


def test_compress_endpoint(server: Engine) -> None:
    text = document()
    found = compress(server, text=text, question=QUESTION, keep_ratio=0.2)
    assert found["reason"] == "compressed" and NEEDLE in found["text"]
    raw = text.encode()
    assert b"".join(raw[b:e] for b, e in found["spans"]).decode() == found["text"]
    assert found["kept_tokens"] < 0.35 * found["original_tokens"]

    messages = [
        {"role": "system", "content": text},
        {"role": "user", "content": [{"type": "text", "text": f"{text}\n\n{QUESTION}"}]},
    ]
    found = compress(server, messages=messages, keep_ratio=0.2)
    assert found["messages"][0] == messages[0]
    kept = found["messages"][1]["content"][0]["text"]
    assert NEEDLE in kept and kept.endswith(QUESTION) and len(kept) < len(text) / 2
    assert found["spans"][0]["message"] == 1 and found["spans"][0]["part"] == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["text or messages"]),
        ({"text": "a", "messages": []}, ["text or messages"]),
        ({"text": "a"}, ["question"]),
        ({"text": 3, "question": "x"}, ["text"]),
        ({"text": "a", "question": "x", "tools": []}, ["tools", "accepted fields"]),
        ({"text": "a", "question": "x", "keep_ratio": 2}, ["keep_ratio", "at most 1"]),
        ({"text": "a", "question": "x", "scorer": "magic"}, ["scorer", "lexical, model"]),
        ({"messages": [{"content": "x"}]}, ["messages[0]"]),
        ({"messages": [{"role": "user", "content": 7}]}, ["messages[0].content"]),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_compress_refuses_in_one_sentence(
    server: Engine, body: dict[str, Any], words: list[str]
) -> None:
    reply = server.post("/pflash/compress", body)
    assert reply.status == 400, reply.text
    for word in words:
        assert word in reply.json()["error"]["message"]


def test_ranges_are_private_files_without_text(server: Engine) -> None:
    chat(server, f"{document(depth=0.8)}\n\nWho counted the lamps?")
    folder = Path(_flag(server, "--pflash-debug-dir"))
    newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert stat.S_IMODE(newest.stat().st_mode) == 0o600
    written = json.loads(newest.read_text())
    assert set(written) == {"time_us", "scorer", "original_tokens", "kept"}
    assert written["kept"] == sorted(written["kept"])


def _flag(server: Engine, name: str) -> str:
    args = server.process.args
    assert isinstance(args, list)
    return str(args[args.index(name) + 1])


def test_counters(server: Engine) -> None:
    props = server.get("/props").json()["pflash"]
    assert props["scorer"] == "model" and props["compressed"] > 0
    assert props["scorer_model"]["layers"][0] <= props["scorer_model"]["layers"][1]
    assert props["scorer_model"]["retokenized"] == 0  # both models have one vocabulary
    metrics = server.get("/metrics").text
    assert f"llamacpp:pflash_compressed_total {props['compressed']}" in metrics
    assert "llamacpp:pflash_skipped_total{reason=" in metrics


def test_an_impatient_limit_leaves_the_prompt_whole(
    engine: Path, engine_model: Path, engine_scorer: Path, tmp_path: Path
) -> None:
    args = scored_by(engine_scorer, "always")
    args += ["--pflash-timeout-ms", "1", "--ctx-size", "8192"]
    with running(engine, engine_model, tmp_path / "log", *args) as server:
        body = chat(server, f"{document()}\n\n{QUESTION}")
        report = body["timings"]["pflash"]
        assert report["reason"] == report["failure"] == "timeout"
        assert report["kept_tokens"] == report["original_tokens"]
        assert server.get("/props").json()["pflash"]["skipped"]["timeout"] == 1


def test_a_model_that_cannot_score_ends_the_start(
    engine: Path, engine_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and nothing else")
    args = scored_by(broken, "always")
    with (
        pytest.raises(RuntimeError, match=r"--pflash-model .*broken\.gguf cannot score"),
        running(engine, engine_model, tmp_path / "log", *args),
    ):
        pass


def test_lexical_needs_no_model_and_marks_what_is_gone(lexical: Engine) -> None:
    body = chat(lexical, f"{document()}\n\n{QUESTION}")
    prompt = prompt_of(body)
    assert NEEDLE in prompt and " [...] " in prompt
    report = body["timings"]["pflash"]
    assert report["scorer"] == "lexical" and report["score_ms"] < 1000
    assert report["kept_tokens"] == body["usage"]["prompt_tokens"]


def test_spread_evidence_raises_what_is_kept(
    engine: Path, engine_model: Path, tmp_path: Path
) -> None:
    args = ["--pflash-mode", "always", "--pflash-score", "lexical", "--pflash-keep-ratio", "0.1"]
    args += ["--pflash-adaptive", "0.6", "--ctx-size", "16384", "--pflash-min-keep-tokens", "64"]
    with running(engine, engine_model, tmp_path / "log", *args) as server:
        lines = filler(120)
        for i in range(0, 120, 4):
            lines[i] = f"The observatory key was seen by witness {i} near the barometer."
        spread = chat(server, " ".join(lines) + "\n\nWho saw the observatory key?")
        single = chat(server, f"{document(sentences=120)}\n\n{QUESTION}")
    assert spread["timings"]["pflash"]["raised"] is True
    assert single["timings"]["pflash"]["raised"] is False
    kept = [body["timings"]["pflash"]["kept_tokens"] for body in (spread, single)]
    assert kept[0] > 1.1 * kept[1]
