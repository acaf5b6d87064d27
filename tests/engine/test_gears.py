"""Gears: how far a drafter runs ahead, set by each request, and the drafters that are refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running
from kvflash_server import EXACT, KVFLASH, PAGE, Tokens, ask, say

from bench import tiny_models
from bench.process import ServerError
from bench.tiny_models import FIRST_LETTER, LETTERS, text
from flashlane.backends.channel import ControlError
from flashlane.backends.process import Limits, Program, ServerProcess
from flashlane.config import BackendConfig
from flashlane.serve import free_port

GEAR = "speculative.n_max"
ARGS = ("--ctx-size", "4096", "--parallel", "2", "--kv-unified", *EXACT)
DFLASH = ("--spec-type", "draft-dflash", "--spec-draft-n-max", "15", "-md")
PFLASH = ("--pflash-mode", "always", "--pflash-keep-ratio", "0.4", "--pflash-min-keep-tokens", "64")
ANSWER = 64
CIRCLE = [FIRST_LETTER + at % LETTERS for at in range(3 * LETTERS)]


@pytest.mark.parametrize("kind", ["dflash", "draft-simple", "ngram-simple"])
def test_a_request_sets_how_far_drafts_go(engine: Path, tmp_path: Path, kind: str) -> None:
    """Every draft is right, so those that go further leave the target fewer passes."""
    target, drafter = tiny_models.cycle_pair(tmp_path)
    options = {
        "dflash": (*DFLASH, str(drafter)),
        "draft-simple": (
            "--spec-type",
            "draft-simple",
            "--spec-draft-n-max",
            "15",
            "-md",
            str(target),
        ),
        "ngram-simple": ("--spec-type", "ngram-simple"),
    }
    with (
        running(engine, target, tmp_path / "cold", *ARGS) as cold,
        running(engine, target, tmp_path / "log", *ARGS, *options[kind]) as server,
    ):
        expected, plain = ask(cold, CIRCLE, n_predict=ANSWER)
        assert "draft_n" not in plain
        drafted = {}
        for gear in (0, 1, 4, 12, None, 0, 4):
            answer, timings = ask(server, CIRCLE, n_predict=ANSWER, **{GEAR: gear})
            assert answer == expected, gear
            if gear == 0:
                assert "draft_n" not in timings
                continue
            assert timings["draft_n_accepted"] > 0.9 * timings["draft_n"]
            again = drafted.setdefault(gear, timings["draft_n"])
            assert again == timings["draft_n"]  # another request's gear is gone
        assert drafted[1] < drafted[4] < drafted[12] <= drafted[None] < ANSWER
        assert drafted[1] <= ANSWER / 2 and drafted[12] > 0.6 * ANSWER


def test_wrong_drafts_change_no_answer(engine: Path, tmp_path: Path) -> None:
    target = tiny_models.dense(tmp_path / "model.gguf")
    drafter = tiny_models.drafter(tmp_path / "drafter.gguf")
    with (
        running(engine, target, tmp_path / "cold", *ARGS) as cold,
        running(engine, target, tmp_path / "log", *ARGS, *DFLASH, str(drafter)) as server,
    ):
        for seed, gear in itertools.product(range(3), (0, 1, 7, None)):
            answer, timings = ask(server, text(seed, 200), n_predict=ANSWER, **{GEAR: gear})
            assert answer == ask(cold, text(seed, 200), n_predict=ANSWER)[0], (seed, gear)
            assert ("draft_n" in timings) == (gear != 0)
            assert timings.get("draft_n_accepted", 0) < ANSWER / 2


def test_requests_at_once_have_gears_of_their_own(engine: Path, tmp_path: Path) -> None:
    target, drafter = tiny_models.cycle_pair(tmp_path)
    gears = [0, 2, 12, 0, 12, 2]
    with running(engine, target, tmp_path / "log", *ARGS, *DFLASH, str(drafter)) as server:
        alone = {gear: ask(server, CIRCLE, n_predict=ANSWER, **{GEAR: gear}) for gear in set(gears)}

        assert len({timings.get("draft_n") for _, timings in alone.values()}) == 3

        def one(gear: int) -> tuple[Tokens, dict[str, Any]]:
            return ask(server, CIRCLE, n_predict=ANSWER, **{GEAR: gear})

        with ThreadPoolExecutor(len(gears)) as pool:
            for gear, (answer, timings) in zip(gears, pool.map(one, gears), strict=True):
                expected, counted = alone[gear]
                assert answer == expected
                assert timings.get("draft_n") == counted.get("draft_n"), gear


CHAT = [{"role": "user", "content": "abcdefghijklmnop" * 3}]
BODIES: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": CIRCLE, "n_predict": ANSWER},
    "/v1/completions": {"prompt": CIRCLE, "max_tokens": ANSWER},
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": ANSWER},
    "/v1/messages": {"messages": CHAT, "max_tokens": ANSWER},
    "/v1/responses": {"input": "abcdefghijklmnop" * 3, "max_output_tokens": ANSWER},
}


def test_every_kind_of_body_takes_a_gear(engine: Path, tmp_path: Path) -> None:
    target, drafter = tiny_models.cycle_pair(tmp_path)
    args = (*ARGS, *DFLASH, str(drafter), *KVFLASH)  # with KVFlash every answer has timings
    with running(engine, target, tmp_path / "log", *args) as server:
        for path, body in BODIES.items():
            drafted = []
            for gear in (0, 1, 12):
                reply = server.post(path, {**body, "temperature": 0, GEAR: gear})
                assert reply.status == 200, (path, reply.text)
                drafted.append(reply.json()["timings"].get("draft_n", 0))
            assert 0 == drafted[0] < drafted[1] < drafted[2], (path, drafted)


def test_gears_that_are_none(engine: Path, tmp_path: Path) -> None:
    target, drafter = tiny_models.cycle_pair(tmp_path)
    with running(engine, target, tmp_path / "log", *ARGS, *DFLASH, str(drafter)) as server:
        for gear in (-1, "4", [4], {"n": 4}, True, 1.5, 1 << 40, 1 << 70):
            reply = server.post("/completion", {"prompt": CIRCLE, "n_predict": 4, GEAR: gear})
            assert reply.status == 400 and GEAR in reply.text, (gear, reply.text)
        # more than the drafter was made for is as much as it gives
        _, most = ask(server, CIRCLE, n_predict=ANSWER, **{GEAR: 1000})
        assert most["draft_n"] == ask(server, CIRCLE, n_predict=ANSWER)[1]["draft_n"]


def test_the_server_says_what_drafts(engine: Path, tmp_path: Path) -> None:
    target, drafter = tiny_models.cycle_pair(tmp_path)
    found = []
    for name, args in {
        "off": (),
        "dflash": ("--spec-type", "draft-dflash", "-md", str(drafter), "--spec-draft-n-max", "99"),
        "found": ("-md", str(drafter), "--spec-draft-n-max", "7"),
        "ngram": ("--spec-type", "ngram-mod"),
    }.items():
        with running(engine, target, tmp_path / name, *ARGS, *args) as server:
            found.append(server.get("/props").json()["gears"])
    assert found[0] == {"types": [], "n_max": 0}
    assert found[1] == {"types": ["draft-dflash"], "n_max": 15}  # a block is 16, the first is known
    assert found[2] == {"types": ["draft-dflash"], "n_max": 7}
    assert found[3]["types"] == ["ngram-mod"] and found[3]["n_max"] > 0


@pytest.mark.parametrize("pair", ["right", "wrong"])
def test_dflash_beside_pflash_and_kvflash(engine: Path, tmp_path: Path, pair: str) -> None:
    """Chats through more than the slots, whole and shortened, with drafts and without."""
    if pair == "right":
        target, drafter = tiny_models.cycle_pair(tmp_path)
    else:  # whose answers tell prompts apart
        target = tiny_models.dense(tmp_path / "model.gguf")
        drafter = tiny_models.drafter(tmp_path / "drafter.gguf")
    everything = (*PFLASH, *KVFLASH, "--kvflash-tau", str(PAGE), *DFLASH, str(drafter))
    chats = [_reading(topic) for topic in ("plum", "fig", "quince")]
    answers = set()
    with (
        running(engine, target, tmp_path / "cold", *ARGS, *PFLASH, "--cache-ram", "0") as cold,
        running(engine, target, tmp_path / "log", *ARGS, *everything) as server,
    ):
        for turn, number, mode in itertools.product(range(3), range(len(chats)), ("always", "off")):
            chat = chats[number][: 1 if turn < 2 else 3]  # twice the same, then one that has grown
            gear = (None, 0, 5)[(turn + number) % 3]
            answer, timings = say(server, mode, chat, max_tokens=ANSWER, **{GEAR: gear})
            where = (turn, number, mode, timings)
            expected = say(cold, mode, chat, max_tokens=ANSWER, cache_prompt=False)[0]
            assert answer == expected, where
            assert (timings["pflash"]["reason"] == "compressed") == (mode == "always"), where
            # what begins both a shortened prompt and the whole one is no more than this
            assert (timings["kvflash"]["restored_tokens"] > 256) == (turn > 0), where
            assert (timings.get("draft_n", 0) > 0) == (gear != 0), where
            if pair == "right" and gear != 0:
                assert timings["draft_n_accepted"] > ANSWER / 4, where
            answers.add((number, mode, answer))
        assert len({answer for _, _, answer in answers}) > (1 if pair == "wrong" else 0)


def _reading(fruit: str) -> list[dict[str, str]]:
    """A chat of three messages, whose last question is on another line of the same text."""
    lines = "\n".join(f"Shelf {n} holds {n * 37 % 91} jars of {fruit} jam." for n in range(30))
    return [
        {"role": "user", "content": f"{lines}\n\nHow many jars of {fruit} does shelf 7 hold?"},
        {"role": "assistant", "content": "Some."},
        {"role": "user", "content": "And shelf 8?"},
    ]


REFUSED: dict[str, tuple[str, Mapping[str, Any], Sequence[str]]] = {
    "gemma3": ("windowed", {}, ["reads layer 1", "architecture gemma3", "--spec-type"]),
    "recurrent": ("recurrent", {}, ["reads layer 1", "architecture mamba", "--spec-type"]),
    "the last layer": ("dense", {"dflash.target_layers": [2]}, ["reads layer 2", "with 2 layers"]),
    "no such layer": ("dense", {"dflash.target_layers": [7]}, ["reads layer 7", "has 2 layers"]),
    "a layer below 0": ("dense", {"dflash.target_layers": [-1]}, ["reads layer -1"]),
    "no mask": ("dense", {"tokenizer.ggml.mask_token_id": None}, ["names no mask token"]),
    "a mask that is none": ("dense", {"tokenizer.ggml.mask_token_id": 320}, ["names token 320"]),
    "more tokens": (
        "dense",
        {
            "tokenizer.ggml.tokens": [f"t{n}" for n in range(400)],
            "tokenizer.ggml.scores": [0.0] * 400,
            "tokenizer.ggml.token_type": [1] * 400,
        },
        ["has 400 tokens and the target 320"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_drafter_that_would_end_the_server(engine: Path, tmp_path: Path, name: str) -> None:
    kind, changed, said = REFUSED[name]
    target = getattr(tiny_models, kind)(tmp_path / "target.gguf")
    drafter = tiny_models.drafter(tmp_path / "drafter.gguf", changed)
    _refused(engine, target, tmp_path / "log", drafter, ["the drafter (-md", str(drafter), *said])


def test_a_drafter_of_another_width(engine: Path, tmp_path: Path) -> None:
    target = tiny_models.dense(tmp_path / "target.gguf")
    _, drafter = tiny_models.cycle_pair(tmp_path)
    _refused(engine, target, tmp_path / "log", drafter, ["is 320 wide and the target 64"])


def test_a_drafter_of_another_kind(engine: Path, tmp_path: Path) -> None:
    target = tiny_models.dense(tmp_path / "target.gguf")
    said = ["is of architecture llama", "--spec-type draft-simple"]
    _refused(engine, target, tmp_path / "log", target, said)


def _refused(engine: Path, target: Path, log: Path, drafter: Path, said: Sequence[str]) -> None:
    with (
        pytest.raises(ServerError),
        running(engine, target, log, *ARGS, *DFLASH, str(drafter)) as server,
    ):
        _answers(server)
    printed = log.read_text()
    lines = [line for line in printed.splitlines() if said[0] in line]
    assert len(lines) == 1 and all(part in lines[0] for part in said), printed
    assert "GGML_ASSERT" not in printed


def _answers(server: Engine) -> None:
    ask(server, text(0, 20))


def test_who_starts_servers_hears_why(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence is in what a client of the supervisor is told."""
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path))
    target = tiny_models.windowed(tmp_path / "target.gguf")
    drafter = tiny_models.drafter(tmp_path / "drafter.gguf")
    config = BackendConfig(
        model=str(target), port=free_port(), context_tokens=1024, args=[*DFLASH, str(drafter)]
    )

    async def started() -> str:
        server = ServerProcess("gemma", config, Limits(), lambda: None)
        server.start(Program(engine, target, frozenset()))
        with pytest.raises(ControlError) as error:
            await server.ready()
        assert server.state == "failed" and server.starts == 1
        return str(error.value)

    message = asyncio.run(started())
    assert "reads layer 1 of the target" in message and "architecture gemma3" in message
