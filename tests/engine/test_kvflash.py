"""KVFlash in the real server, as far as it goes: states are restored, and answers stay the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running

ARGS = ("--ctx-size", "4096", "--parallel", "2", "--kv-unified")
KVFLASH = ("--kvflash", "auto", "--kvflash-tau", "32", "--metrics")
DOCUMENTS = 4


def document(seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(
        f"Item {draw.randrange(10**6)} costs {draw.randrange(100)} coins." for _ in range(50)
    )


def ask(server: Engine, seed: int, turn: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    prompt = f"{document(seed)} Question {turn}: what costs most?"
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, **fields}
    reply = server.post("/completion", body)
    assert reply.status == 200, reply.text
    answer = reply.json()
    return answer["content"], answer["timings"]


@pytest.fixture(scope="module")
def warm(
    engine: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, int], str]:
    """Answers of a server without KVFlash that holds each document in a slot while it asks."""
    answers = {}
    log = tmp_path_factory.mktemp("warm") / "log"
    with running(engine, engine_model, log, *ARGS, "--cache-ram", "0") as server:
        for seed in range(DOCUMENTS):
            for turn in range(3):
                answers[seed, turn], timings = ask(server, seed, turn, id_slot=0)
                assert "kvflash" not in timings
    return answers


@pytest.fixture
def server(engine: Path, engine_model: Path, tmp_path: Path) -> Iterator[Engine]:
    with running(engine, engine_model, tmp_path / "log", *ARGS, *KVFLASH) as started:
        yield started


def test_more_conversations_than_slots(server: Engine, warm: dict[tuple[int, int], str]) -> None:
    for turn in range(3):
        for seed in range(DOCUMENTS):
            answer, timings = ask(server, seed, turn)
            kvflash = timings["kvflash"]
            assert answer == warm[seed, turn], (seed, turn)
            assert kvflash["tier"] == ("ram" if turn else "none")
            if turn:
                assert timings["prompt_n"] <= 32 and kvflash["restored_tokens"] > 500
    pool = server.get("/props").json()["kvflash"]["resident_pool"]
    assert pool["hits"]["ram"] == 2 * DOCUMENTS and pool["misses"] == DOCUMENTS
    assert pool["restored_tokens"] > 500 * 2 * DOCUMENTS and pool["damaged"] == 0
    assert 'kvflash_hits_total{tier="ram"} 8' in server.get("/metrics").text


def test_a_slot_that_holds_it_goes_on(server: Engine, warm: dict[tuple[int, int], str]) -> None:
    for turn in range(3):
        answer, timings = ask(server, 0, turn)
        assert answer == warm[0, turn]
        assert timings["kvflash"]["tier"] in (("slot", "sibling", "ram") if turn else ("none",))


def test_states_outlive_the_server(
    engine: Path, engine_model: Path, tmp_path: Path, warm: dict[tuple[int, int], str]
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store = ("--kvflash-store", str(folder), "--kvflash-store-mb", "500")
    for turn in range(2):
        with running(engine, engine_model, tmp_path / f"{turn}", *ARGS, *KVFLASH, *store) as server:
            for seed in range(DOCUMENTS):
                answer, timings = ask(server, seed, turn)
                assert answer == warm[seed, turn], (seed, turn)
                assert timings["kvflash"]["tier"] == ("disk" if turn else "none"), timings
    # another window size changes the state's shape, another model its meaning: neither is taken
    other = ("--cache-type-k", "q8_0", "--flash-attn", "on")
    with running(engine, engine_model, tmp_path / "q8", *ARGS, *KVFLASH, *store, *other) as server:
        assert ask(server, 0, 1)[1]["kvflash"]["tier"] == "none"


def test_restoring_can_be_switched_off(
    engine: Path, engine_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_KVFLASH_HIDDEN_STATE_RESTORE", "0")
    with running(engine, engine_model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        for turn in range(2):
            for seed in range(3):
                assert ask(server, seed, turn)[1]["kvflash"]["tier"] in ("none", "slot")
        assert server.get("/props").json()["kvflash"]["restores"] is False
