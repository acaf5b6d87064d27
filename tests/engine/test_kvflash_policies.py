"""KVFlash's policies in the real server: of three prefixes two may stay, and each decides which.

Unfinished, so the server refuses `--kvflash` without the variable that this file sets.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running

from bench.process import engine_env

# Slots for three documents and the questions. Two documents of about 190 tokens fit, three do not.
ARGS = ("--ctx-size", "4096", "--parallel", "4", "--kv-unified", "--metrics")
KVFLASH = ("--kvflash", "500", "--kvflash-tau", "32")
READING_LIMIT_S = 120.0

LIGHTHOUSE = (
    "The lighthouse at Varnholm stands on a reef of black granite, three miles off the coast.",
    "Its lamp burned whale oil until 1891, when the keeper Anders Holt fitted a paraffin burner.",
    "The lens was ground in Paris and carried over the sea in eleven crates packed with straw.",
    "In thick fog the keepers fired a brass cannon once every quarter of an hour.",
    "A green light was shown to the north, where ships came in from the herring grounds.",
)
BAKERY = (
    "The bakery opens at five, when the first trays of rye rolls leave the stone oven.",
    "Flour is delivered on Tuesdays by the mill at Ostheim, in sacks of twenty-five kilograms.",
    "The sourdough is fed with warm water twice a day and rests under a linen cloth.",
    "Almond cakes are baked for weddings alone and have to be ordered a week ahead.",
    "An apprentice earns nine hundred a month and takes home the bread that was not sold.",
)
TRAINS = (
    "The night train to Lisbon leaves platform seven at ten minutes past nine.",
    "Seats in the sleeping carriage are booked with the conductor and cost forty more.",
    "Bicycles travel in the last wagon, which is taken off at the border station.",
    "On Sundays the dining car is closed and passengers are given a cold meal in a box.",
    "A delay of over an hour is refunded by a voucher that is valid for one year.",
)
ABOUT_THE_LIGHTHOUSE = "What did the keepers of the lighthouse at Varnholm do in thick fog?"


def document(sentences: tuple[str, ...]) -> str:
    return " ".join(sentences * 2)


def ask(server: Engine, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": 2, "temperature": 0}
    reply = server.post("/completion", body)
    assert reply.status == 200, reply.text
    timings: dict[str, Any] = reply.json()["timings"]
    return timings


def kvflash(server: Engine) -> dict[str, Any]:
    section: dict[str, Any] = server.get("/props").json()["kvflash"]
    return section


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READING_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def settle(server: Engine) -> dict[str, Any]:
    """The ranker's counters, once everything is read."""
    wait_until(lambda: kvflash(server).get("ranker", {"pending": 0})["pending"] == 0)
    ranker: dict[str, Any] = kvflash(server).get("ranker", {})
    return ranker


def documents_then_a_question(server: Engine) -> dict[str, Any]:
    """Timings of the lighthouse's document when it is asked for again.

    It was used before the others, and a question without a document asks about it.
    """
    texts = {"lighthouse": LIGHTHOUSE, "bakery": BAKERY, "trains": TRAINS}
    prompts = {name: f"{document(text)}\n\nWhat is written here?" for name, text in texts.items()}
    ask(server, prompts["lighthouse"])
    ask(server, prompts["bakery"])
    ask(server, ABOUT_THE_LIGHTHOUSE)
    settle(server)
    ask(server, prompts["trains"])
    settle(server)
    assert kvflash(server)["resident_pool"]["evicted"] == 0
    ask(server, ABOUT_THE_LIGHTHOUSE)  # three documents are idle now, one too many
    assert kvflash(server)["resident_pool"]["evicted"] == 1
    return ask(server, f"{prompts['lighthouse']} Tell me.")


def test_lru_lets_the_oldest_go(engine: Path, engine_model: Path, tmp_path: Path) -> None:
    with running(engine, engine_model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        again = documents_then_a_question(server)
        assert again["kvflash"]["tier"] == "ram"
        assert "ranker" not in kvflash(server)
        assert kvflash(server)["policy"] == "lru"


@pytest.mark.parametrize("policy", ["qk", "drafter"])
def test_what_is_asked_about_stays(
    engine: Path, engine_model: Path, tmp_path: Path, policy: str
) -> None:
    args = (*KVFLASH, "--kvflash-policy", policy, "--kvflash-drafter", str(engine_model))
    with running(engine, engine_model, tmp_path / "log", *ARGS, *args) as server:
        again = documents_then_a_question(server)
        assert again["kvflash"]["tier"] == "slot"
        assert again["prompt_n"] < 32
        ranker = kvflash(server)["ranker"]
        assert ranker["questions"] == 3 and ranker["failed"] == 0
        assert ranker["scored"] >= 2 and ranker["pages"] > 10
        assert ranker["pages_ms"] > 0
        assert kvflash(server)["policy"] == policy
        metrics = server.get("/metrics").text
        assert "llamacpp:kvflash_ranker_questions 3" in metrics
        assert "llamacpp:kvflash_ranker_pages_ms_total " in metrics


def test_pflash_and_the_policy_share_a_model(
    engine: Path, engine_model: Path, tmp_path: Path
) -> None:
    """And both read: a prompt is shortened while prefixes are read in the background."""
    pflash = ("--pflash-mode", "always", "--pflash-score", "model")
    model = ("--pflash-model", str(engine_model), "--pflash-min-keep-tokens", "16")
    args = (*KVFLASH, "--kvflash-policy", "qk", *pflash, *model)
    log = tmp_path / "log"
    with running(engine, engine_model, log, *ARGS, *args) as server:
        for text in (LIGHTHOUSE, BAKERY):
            timings = ask(server, f"{document(text) * 2}\n\nWhat does the apprentice earn?")
            assert timings["pflash"]["reason"] == "compressed"
        ranker = settle(server)
        assert ranker["questions"] == 1 and ranker["pages"] > 0 and ranker["failed"] == 0
    # the target, and one scorer for both
    assert log.read_text().count("load_tensors: loading model tensors") <= 2


def test_sleep_and_wake(engine: Path, engine_model: Path, tmp_path: Path) -> None:
    args = (*KVFLASH, "--kvflash-policy", "qk", "--kvflash-drafter", str(engine_model))
    log = tmp_path / "log"
    with running(engine, engine_model, log, *ARGS, *args, "--sleep-idle-seconds", "1") as server:
        for _ in range(2):
            ask(server, document(LIGHTHOUSE))  # it falls asleep while this is read
            wait_until(lambda: server.get("/props").json()["is_sleeping"])
        ask(server, ABOUT_THE_LIGHTHOUSE)
        assert settle(server)["questions"] == 1
        server.process.terminate()
        assert server.process.wait(timeout=15) == 0


@pytest.mark.parametrize("policy", ["qk", "drafter"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--kvflash", "100"], ["--kvflash-drafter FILE", "--pflash-model FILE", "lru"]),
        (["--kvflash-drafter", "MODEL"], ["needs --kvflash"]),
        (["--kvflash", "100", "--kvflash-drafter", "NO_MODEL"], ["cannot read with", "as a model"]),
    ],
)
def test_what_a_policy_needs(
    engine: Path,
    engine_model: Path,
    tmp_path: Path,
    policy: str,
    args: list[str],
    words: list[str],
) -> None:
    no_model = tmp_path / "no.gguf"
    no_model.write_bytes(b"GGUF")
    files = {"MODEL": str(engine_model), "NO_MODEL": str(no_model)}
    command = [str(engine), "--model", str(engine_model), "--ctx-size", "256"]
    done = subprocess.run(
        [*command, "--kvflash-policy", policy, *(files.get(arg, arg) for arg in args)],
        capture_output=True,
        text=True,
        timeout=60,
        env=engine_env(engine),
    )
    assert done.returncode != 0
    for word in (f"--kvflash-policy {policy}", *words):
        assert word in done.stdout + done.stderr
