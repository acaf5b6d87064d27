"""KVFlash's choice of slots on a dense model: which one a prompt goes on in, and who waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_process import running
from kvflash_server import ALONE, ANSWER, KVFLASH, PAGE, ask

from bench import tiny_models
from bench.tiny_models import text

pytestmark = pytest.mark.usefixtures("kvflash_trial")

ARGS = ("--ctx-size", "2048", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *ALONE)


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
