"""KVFlash where a state cannot be cut back anywhere: sliding windows, recurrent and hybrid memory.

Every answer is compared with that of a server that holds nothing and processes the whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running
from kvflash_server import ALONE, ANSWER, EXACT, KVFLASH, PAGE, Tokens, ask, pool

from bench import tiny_models
from bench.tiny_models import text
from flashlane.models import ensure_model

KINDS = {
    "windowed": tiny_models.windowed,
    "recurrent": tiny_models.recurrent,
    "hybrid": tiny_models.hybrid,
}
ARGS = ("--ctx-size", "4096", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *EXACT)
TURNS, NEW = 3, 40
DOCUMENT = 500

Cold = Callable[[Tokens], Tokens]


@pytest.fixture(scope="module", params=sorted(KINDS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[request.param](tmp_path_factory.mktemp("model") / f"{request.param}.gguf")


@pytest.fixture(scope="module")
def cold(engine: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    """The answer of a server that holds nothing."""
    log = tmp_path_factory.mktemp("cold") / "log"
    with running(engine, model, log, *ARGS, "--cache-ram", "0") as server:
        yield lambda prompt: ask(server, prompt, cache_prompt=False)[0]


class Chat:
    """A conversation that grows by its answer and a question in every turn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.prompt = text(seed, DOCUMENT)
        self.turn = 0

    def go_on(self, server: Engine, cold: Cold) -> dict[str, Any]:
        self.turn += 1
        self.prompt = self.prompt + text(1000 * self.seed + self.turn, NEW)
        answer, timings = ask(server, self.prompt)
        assert answer == cold(self.prompt), (self.seed, self.turn)
        self.prompt = self.prompt + answer
        if self.turn > 1:
            # the last token of the answer was never processed
            assert timings["prompt_n"] <= NEW + 1, (self.seed, self.turn, timings)
        return dict(timings["kvflash"])


def test_answers_differ(cold: Cold) -> None:
    """Else the comparisons would prove nothing: the answer depends on the document's first half."""
    rest = text(9, DOCUMENT // 2)
    answers = {tuple(cold(text(seed, DOCUMENT // 2) + rest)) for seed in range(8)}
    assert len(answers) > 2 and all(len(set(answer)) > 1 for answer in answers)


def test_growing_in_its_slot(engine: Path, model: Path, cold: Cold, tmp_path: Path) -> None:
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        chat = Chat(1)
        tiers = [chat.go_on(server, cold)["tier"] for _ in range(TURNS)]
        assert tiers == ["none", "slot", "slot"]


def test_growing_through_memory(engine: Path, model: Path, cold: Cold, tmp_path: Path) -> None:
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        chats = [Chat(seed) for seed in range(4)]
        for turn in range(TURNS):
            for chat in chats:
                assert chat.go_on(server, cold)["tier"] == ("ram" if turn else "none")
        assert pool(server)["hits"]["ram"] == (TURNS - 1) * len(chats)


def test_growing_through_restarts(engine: Path, model: Path, cold: Cold, tmp_path: Path) -> None:
    store = ("--kvflash-store", str(tmp_path), "--kvflash-store-mb", "100")
    chats = [Chat(seed) for seed in range(3)]
    for turn in range(TURNS):
        with running(engine, model, tmp_path / f"{turn}", *ARGS, *KVFLASH, *store) as server:
            for chat in chats:
                assert chat.go_on(server, cold)["tier"] == ("disk" if turn else "none")
            assert pool(server)["damaged"] == 0


def test_one_document_and_many_questions(
    engine: Path, model: Path, cold: Cold, tmp_path: Path
) -> None:
    document = text(1, DOCUMENT)
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        for number in range(6):
            question = text(2000 + number, 60)
            answer, timings = ask(server, document + question)
            assert answer == cold(document + question), number
            if number >= 2:
                assert timings["prompt_n"] <= len(question) + 1, timings
        assert pool(server)["boundaries"] > 0
        # two documents under one beginning, in turns
        for number in range(6):
            prompt = document[:200] + text(3000 + number % 2, 300) + text(4000 + number, 20)
            answer, timings = ask(server, prompt)
            assert answer == cold(prompt), number
            if number >= 4:
                assert timings["prompt_n"] <= 20 + 1, (number, timings)


def test_a_state_one_token_past_where_prompts_part(
    engine: Path, model: Path, cold: Cold, tmp_path: Path
) -> None:
    """What was captured after one question's first token is not a beginning of another's."""
    document = text(1, DOCUMENT)
    one, other = text(50, 1), text(51, 1)
    assert one != other
    prompts = [document + one + text(52, 3)]  # captured 4 tokens before its end: at the document's
    prompts += [document + one + text(53, 30)]  # and where these two part, one token later
    prompts += [document + other + text(54 + number, 30) for number in range(3)]
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH, "--parallel", "1") as server:
        for number, prompt in enumerate(prompts):
            if number == 3:
                ask(server, text(60, 2 * PAGE))  # the slot's state comes back from memory
            answer, timings = ask(server, prompt)
            assert answer == cold(prompt), (number, timings)
            assert not number or timings["prompt_n"] <= 31 + PAGE, (number, timings)


def test_a_turn_that_is_asked_otherwise(
    engine: Path, model: Path, cold: Cold, tmp_path: Path
) -> None:
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH) as server:
        chat = Chat(1)
        for _ in range(TURNS):
            chat.go_on(server, cold)
        before = len(chat.prompt) - NEW - ANSWER
        for number in range(3):
            other = chat.prompt[:before] + text(5000 + number, NEW)
            answer, timings = ask(server, other)
            assert answer == cold(other)
            assert timings["prompt_n"] <= NEW + PAGE, (number, timings)
        # the same once more: one token at least is processed
        answer, timings = ask(server, other)
        assert answer == cold(other) and 1 <= timings["prompt_n"] <= PAGE


def test_gemma(engine: Path, tmp_path: Path) -> None:
    """A real model with a window, by text: what it said is read anew."""
    model = ensure_model("gemma-3-270m")
    args = ("--ctx-size", "2048", "--parallel", "1", "--kvflash-tau", str(PAGE), *ALONE)
    texts = [
        "".join(f"Entry {n}: the {n + start}th stone is grey.\n" for n in range(45))
        for start in (10, 30)
    ]
    with (
        running(engine, model, tmp_path / "cold", *args, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *args, *KVFLASH) as server,
    ):
        for turn in range(TURNS):
            for number, prompt in enumerate(texts):
                body = {"prompt": prompt, "temperature": 0, "n_predict": ANSWER}
                answer = server.post("/completion", body).json()
                expected = cold.post("/completion", {**body, "cache_prompt": False}).json()
                assert answer["content"] == expected["content"], (number, turn)
                timings = answer["timings"]
                assert timings["kvflash"]["tier"] == ("ram" if turn else "none")
                if turn:
                    assert timings["prompt_n"] <= PAGE, (turn, timings)
                texts[number] += answer["content"] + "\nEntry"
