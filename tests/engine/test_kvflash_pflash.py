"""KVFlash beside PFlash: a shortened prompt is never taken for the whole one, nor the other way."""

from __future__ import annotations

from pathlib import Path

from engine_process import running
from kvflash_server import EXACT, KVFLASH, PAGE, say

from bench import tiny_models

ARGS = ("--ctx-size", "4096", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *EXACT)
PFLASH = ("--pflash-mode", "always", "--pflash-keep-ratio", "0.4", "--pflash-min-keep-tokens", "64")
MODES = ("always", "off")


def test_whole_and_shortened_prompts_are_apart(engine: Path, tmp_path: Path) -> None:
    model = tiny_models.dense(tmp_path / "dense.gguf")
    reading = "\n".join(f"Shelf {n} holds {n * 37 % 91} jars of plum jam." for n in range(30))
    chat = [{"role": "user", "content": f"{reading}\n\nHow many jars does shelf 7 hold?"}]
    more = [{"role": "assistant", "content": "Some."}, {"role": "user", "content": "And shelf 8?"}]
    args = (*ARGS, *PFLASH)
    with (
        running(engine, model, tmp_path / "cold", *args, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *args, *KVFLASH) as server,
    ):
        for turn, messages in enumerate([chat, chat + more]):
            read = []
            for mode in MODES:
                answer, timings = say(server, mode, messages)
                assert answer == say(cold, mode, messages, cache_prompt=False)[0], (turn, mode)
                assert (timings["pflash"]["reason"] == "compressed") == (mode == "always")
                read.append(timings["prompt_n"] + timings["cache_n"])
                # what begins both of them is no more than this
                assert (timings["kvflash"]["restored_tokens"] > 256) == (turn > 0), (turn, timings)
            assert read[0] + 100 < read[1]
