"""KVFlash beside speculative decoding: drafts after a restore are as good as a cold run's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running
from kvflash_server import EXACT, KVFLASH, PAGE, Tokens, ask, pool

from bench import tiny_models
from bench.tiny_models import text

ARGS = ("--ctx-size", "4096", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *EXACT)
CHATS, TURNS, NEW = 4, 3, 8
ANSWER = 40
NOISE = 0.05  # of the share of drafted tokens that is accepted


class Drafted:
    """How much was drafted, and how much of it accepted."""

    def __init__(self) -> None:
        self.drafted = self.accepted = 0

    def count(self, timings: dict[str, Any]) -> None:
        self.drafted += timings.get("draft_n", 0)
        self.accepted += timings.get("draft_n_accepted", 0)

    @property
    def share(self) -> float:
        return self.accepted / self.drafted


def growing(
    server: Engine, cold: Engine, chats: list[Tokens], asked: Callable[[Tokens, int], Tokens]
) -> tuple[Drafted, Drafted]:
    """Chats in turns through more than the slots; what was drafted after a restore and cold."""
    restored, whole = Drafted(), Drafted()
    for turn in range(TURNS):
        for number, prompt in enumerate(chats):
            if turn:
                prompt += asked(prompt, 100 * number + turn)
            answer, timings = ask(server, prompt, n_predict=ANSWER)
            expected, cold_timings = ask(cold, prompt, n_predict=ANSWER, cache_prompt=False)
            assert answer == expected, (turn, number)
            assert timings["kvflash"]["tier"] == ("ram" if turn else "none")
            if turn:
                assert timings["prompt_n"] <= NEW + 1
                restored.count(timings)
                whole.count(cold_timings)
            prompt += answer
    return restored, whole


@pytest.mark.parametrize("kind", ["dense", "windowed", "recurrent"])
def test_a_draft_model(engine: Path, tmp_path: Path, kind: str) -> None:
    """The target as its own draft: every token is accepted."""
    model = getattr(tiny_models, kind)(tmp_path / "model.gguf")
    args = (*ARGS, "--spec-type", "draft-simple", "-md", str(model), "--spec-draft-n-max", "4")
    with (
        running(engine, model, tmp_path / "cold", *args, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *args, *KVFLASH) as server,
    ):
        chats = [text(seed, 300) for seed in range(CHATS)]
        restored, whole = growing(server, cold, chats, lambda _, seed: text(seed, NEW))
        assert restored.drafted > 100 and whole.share > 0.9
        assert abs(restored.share - whole.share) <= NOISE


def test_a_draft_model_after_a_restart(engine: Path, tmp_path: Path) -> None:
    model = tiny_models.dense(tmp_path / "model.gguf")
    folder = tmp_path / "store"
    folder.mkdir()
    store = ("--kvflash-store", str(folder), "--kvflash-store-mb", "100")
    drafting = ("--spec-type", "draft-simple", "-md", str(model))
    prompt = text(1, 300)
    found = []
    for turn, args in enumerate([drafting, drafting, ()]):
        everything = (*ARGS, *KVFLASH, *store, *args)
        with running(engine, model, tmp_path / f"{turn}", *everything) as server:
            answer, timings = ask(server, prompt, n_predict=ANSWER)
            found.append((answer, timings["kvflash"]["tier"]))
            if args:
                assert timings["draft_n_accepted"] > 0.9 * timings["draft_n"] > 0
            assert pool(server)["damaged"] == 0
    # what was stored with a draft is not taken without one
    assert [tier for _, tier in found] == ["none", "disk", "none"]
    assert len({tuple(answer) for answer, _ in found}) == 1


def test_ngrams(engine: Path, tmp_path: Path) -> None:
    """Drafts come from the tokens themselves, of which the prompt holds the same."""
    target, _ = tiny_models.cycle_pair(tmp_path)
    args = (*ARGS, "--spec-type", "ngram-simple")
    with (
        running(engine, target, tmp_path / "cold", *args, "--cache-ram", "0") as cold,
        running(engine, target, tmp_path / "log", *args, *KVFLASH) as server,
    ):
        restored, whole = growing(server, cold, cycles(), around)
        assert restored.drafted > 50 and abs(restored.share - whole.share) <= NOISE


def test_dflash(engine: Path, tmp_path: Path) -> None:
    """The drafter looks further back than the new tokens go: at what was restored."""
    target, drafter = tiny_models.cycle_pair(tmp_path)
    args = (*ARGS, "--spec-type", "draft-dflash", "-md", str(drafter))
    with (
        running(engine, target, tmp_path / "cold", *args, "--cache-ram", "0") as cold,
        running(engine, target, tmp_path / "log", *args, *KVFLASH) as server,
    ):
        restored, whole = growing(server, cold, cycles(), around)
        assert restored.drafted > 50 and whole.share > 0.9
        assert abs(restored.share - whole.share) <= NOISE


def around(prompt: Tokens, _: int) -> Tokens:
    """The circle's next tokens."""
    return prompt[-tiny_models.LETTERS :][:NEW]


def cycles() -> list[Tokens]:
    """Prompts that the cycling target goes on with, each after a beginning of its own."""
    first = tiny_models.FIRST_LETTER
    return [
        text(seed, 200) + [first + at % tiny_models.LETTERS for at in range(seed, seed + 48)]
        for seed in range(CHATS)
    ]
