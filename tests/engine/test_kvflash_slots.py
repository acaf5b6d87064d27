"""KVFlash's choice of slots on a dense model: which one a prompt goes on in, and who waits."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running
from kvflash_server import ANSWER, EXACT, KVFLASH, PAGE, ask, pool, until

from bench import tiny_models
from bench.tiny_models import text

ARGS = ("--ctx-size", "2048", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *EXACT)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.dense(tmp_path_factory.mktemp("model") / "dense.gguf")


def test_without_restores_a_slot_goes_on_with_what_it_holds(
    engine: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_KVFLASH_HIDDEN_STATE_RESTORE", "0")
    document = text(1, 500)
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        for number in range(4):
            question = text(10 + number, 2 * PAGE)
            timings = ask(server, document + question)[1]
            if number:
                assert timings["kvflash"]["tier"] == "slot"
                assert timings["prompt_n"] <= len(question) + ANSWER


def test_more_than_the_budget_still_runs(engine: Path, model: Path, tmp_path: Path) -> None:
    args = ("--kvflash", "64", "--metrics")
    with running(engine, model, tmp_path / "log", *ARGS, *args) as server:
        ask(server, text(1, 500))
        # longer than the budget, with what is left of the context, and with more than there is
        assert len(ask(server, text(2, 1500), n_predict=500)[0]) == 500
        assert len(ask(server, text(3, 1500), n_predict=5000)[0]) > 500
        assert len(ask(server, text(4, 500), n_predict=ANSWER)[0]) == ANSWER
        ask(server, text(5, PAGE))  # and the others leave as it starts
        found = pool(server)
        assert found["deferred"] == 0 and found["budget_tokens"] == 64
        assert found["resident_tokens"] <= 64 and found["evicted"] >= 3


def test_what_slots_hold_is_told_as_it_changes(engine: Path, model: Path, tmp_path: Path) -> None:
    args = ("--slot-save-path", str(tmp_path))
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH, *args) as server:

        def held() -> tuple[int, int, int, int]:
            found = pool(server)
            names = ("resident_tokens", "prefixes", "active_tokens", "active_slots")
            return tuple(found[name] for name in names)

        for number, n_prompt in enumerate((200, 300), start=1):
            ask(server, text(number, n_prompt), id_slot=number - 1)
        # An answer ends before its slot is free; its last token is never processed.
        assert until(lambda: held() == (200 + 300 + 2 * (ANSWER - 1), 2, 0, 0))
        assert server.post("/slots/0?action=erase", {}).status == 200
        assert held() == (300 + ANSWER - 1, 1, 0, 0)


def test_cells_are_freed_for_what_is_restored(engine: Path, model: Path, tmp_path: Path) -> None:
    long = text(1, 1300)
    with running(engine, model, tmp_path / "log", *ARGS, "--parallel", "3", *KVFLASH) as server:
        ask(server, long)
        for seed in (2, 3, 4):
            ask(server, text(seed, 400))
        timings = ask(server, long + text(5, 10))[1]
        assert timings["kvflash"]["tier"] == "ram" and timings["prompt_n"] <= 10 + ANSWER


def test_who_waits_keeps_its_place(engine: Path, model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    args = (*ARGS, "--ctx-size", "8192", "--parallel", "4", *KVFLASH)
    with running(engine, model, log, *args) as server, ThreadPoolExecutor() as threads:

        def send(n_prompt: int, n_predict: int) -> Future[float]:
            def run() -> float:
                assert len(ask(server, text(n_prompt, n_prompt), n_predict=n_predict)[0])
                return time.monotonic()

            return threads.submit(run)

        long = send(100, 6000)
        until(lambda: pool(server)["active_slots"] == 1)
        large = send(200, 2500)  # no room beside the first
        until(lambda: pool(server)["deferred"] == 1)
        small = [send(50, 20)]  # room, but not their turn
        until(lambda: pool(server)["deferred"] == 2)
        small += [send(51, 20)]
        until(lambda: pool(server)["deferred"] == 3)
        assert not long.done()
        # the small ones start beside the large one, not after it
        assert long.result() < max(each.result() for each in small) < large.result()
    started = re.findall(r"kvflash: slot \d+, \d+ of (\d+) tokens", log.read_text())
    assert started == ["100", "200", "50", "51"]


def test_many_at_once(engine: Path, model: Path, tmp_path: Path) -> None:
    prompts = [text(seed % 8, 100 + 150 * (seed % 8)) + text(50 + seed, 30) for seed in range(32)]
    args = (*ARGS, "--parallel", "4")
    with running(engine, model, tmp_path / "cold", *ARGS, "--cache-ram", "0") as cold:
        expected = [ask(cold, prompt, cache_prompt=False)[0] for prompt in prompts]
    with running(engine, model, tmp_path / "log", *args, *KVFLASH) as server:
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda prompt: ask(server, prompt)[0], prompts))
        assert answers == expected
        assert pool(server)["deferred"] > 0


# The endpoints that save, restore and erase slots.


def slot(server: Engine, number: int, action: str, **fields: Any) -> dict[str, Any]:
    reply = server.post(f"/slots/{number}?action={action}", fields)
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_slots_that_a_client_saves_restores_and_erases(
    engine: Path, model: Path, tmp_path: Path
) -> None:
    document = text(1, 500)
    files = ("--slot-save-path", str(tmp_path))
    with (
        running(engine, model, tmp_path / "cold", *ARGS, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *ARGS, *files, *KVFLASH) as server,
    ):

        def look(question: int, number: int) -> str:
            prompt = document + text(question, 10)
            answer, timings = ask(server, prompt, id_slot=number)
            assert answer == ask(cold, prompt, cache_prompt=False)[0]
            assert (timings["prompt_n"] > 500) == (timings["kvflash"]["tier"] == "none")
            tier: str = timings["kvflash"]["tier"]
            return tier

        assert look(10, 0) == "none"
        assert slot(server, 0, "save", filename="kept")["n_saved"] > 500
        assert slot(server, 0, "erase")["n_erased"] > 500
        assert look(11, 0) == "none"
        slot(server, 0, "erase")
        # cells are found for it beside what idle slots hold
        for seed in (7, 8):
            ask(server, text(seed, 900), id_slot=1 if seed == 7 else 0)
        assert slot(server, 0, "restore", filename="kept")["n_restored"] > 500
        assert look(12, 0) == "slot"
        assert look(13, 0) == "slot"
        # what was evicted for it is not lost
        assert ask(server, text(7, 900) + text(14, 10))[1]["kvflash"]["tier"] == "ram"
        assert server.post("/slots/0?action=restore", {"filename": "missing"}).status == 400
        assert look(15, 0) == "none"


def test_a_restored_file_is_never_filed_as_ours(engine: Path, model: Path, tmp_path: Path) -> None:
    """Its state may be that of an adapter, which the file does not tell."""
    path = tiny_models.adapter(tmp_path / "adapter.gguf", seed=1)
    args = (*ARGS, "--lora", str(path), "--lora-init-without-apply")
    args += ("--slot-save-path", str(tmp_path))
    document = text(1, 500)
    with running(engine, model, tmp_path / "cold", *args, "--cache-ram", "0") as cold:
        ask(cold, document, id_slot=0, lora=[{"id": 0, "scale": 1.0}])
        slot(cold, 0, "save", filename="adapted")
        prompt = document + text(2, 10)
        expected = ask(cold, prompt, cache_prompt=False)[0]
    with running(engine, model, tmp_path / "log", *args, *KVFLASH) as server:
        slot(server, 0, "restore", filename="adapted")
        for seed in (7, 8, 9):
            ask(server, text(seed, 300), id_slot=0)
        for number in (1, 0):
            answer, timings = ask(server, prompt, id_slot=number)
            assert answer == expected
        slot(server, 0, "restore", filename="adapted")
        answer, timings = ask(server, prompt, id_slot=1)
        assert answer == expected and timings["kvflash"]["tier"] != "sibling"
