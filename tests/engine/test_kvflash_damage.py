"""KVFlash's disk tier in the real server: whatever happens to the folder, answers stay right.

The pure checks go through every byte and length; here a few of each kind meet a server.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_process import Engine, running
from kvflash_server import ALONE, KVFLASH, PAGE, Tokens, ask, pool, until

from bench import tiny_models
from bench.tiny_models import text

ARGS = ("--ctx-size", "2048", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *ALONE)
DISK_ALONE = ("--cache-ram", "0", "--kvflash", "1", "--metrics")  # an idle state is written at once
PROMPTS = [text(seed, 300) for seed in range(4)]
VERSION_AT = 8  # of a record


def store(folder: Path) -> tuple[str, ...]:
    return ("--kvflash-store", str(folder), "--kvflash-store-mb", "100")


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.dense(tmp_path_factory.mktemp("model") / "dense.gguf")


@pytest.fixture(scope="module")
def cold(engine: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Tokens]:
    log = tmp_path_factory.mktemp("cold") / "log"
    with running(engine, model, log, *ARGS, "--cache-ram", "0") as server:
        return [ask(server, prompt, cache_prompt=False)[0] for prompt in PROMPTS]


@pytest.fixture
def folder(engine: Path, model: Path, cold: list[Tokens], tmp_path: Path) -> Path:
    """A folder with a record of each prompt."""
    made = tmp_path / "store"
    made.mkdir()
    with running(engine, model, tmp_path / "first", *ARGS, *KVFLASH, *store(made)) as server:
        assert [ask(server, prompt)[0] for prompt in PROMPTS] == cold
    assert len(records(made)) == len(PROMPTS)
    return made


def flipped(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(at * (len(data) - 1))] ^= 0x40
        path.write_bytes(data)

    return damage


def truncated(to: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(to * len(data))])

    return damage


def of_another_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[VERSION_AT] += 1
    path.write_bytes(data)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("while_running", [False, True], ids=["before", "running"])
@pytest.mark.parametrize(
    "damage",
    [
        flipped(0.0),
        flipped(0.002),
        flipped(0.5),
        flipped(1.0),
        truncated(0.0),
        truncated(0.001),
        truncated(0.5),
        truncated(0.999),
        of_another_version,
        a_folder,
    ],
    ids=["magic", "head", "body", "end", "empty", "short", "half", "nearly", "version", "folder"],
)
def test_a_damaged_record_is_a_miss(
    engine: Path,
    model: Path,
    cold: list[Tokens],
    folder: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    while_running: bool,
) -> None:
    damaged = records(folder)[:-1]
    if not while_running:
        for path in damaged:
            damage(path)
    with running(engine, model, tmp_path / "log", *ARGS, *KVFLASH, *store(folder)) as server:
        if while_running:
            ask(server, text(99, 100))  # it has seen the folder
            for path in damaged:
                damage(path)
        tiers = []
        for prompt, expected in zip(PROMPTS, cold, strict=True):
            answer, timings = ask(server, prompt)
            assert answer == expected
            tiers.append(timings["kvflash"]["tier"])
        assert sorted(tiers) == ["disk", "none", "none", "none"]
        assert pool(server)["damaged"] == len(damaged)
        assert f"kvflash_damaged_total {len(damaged)}" in server.get("/metrics").text


def test_a_full_disk(engine: Path, model: Path, cold: list[Tokens], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    limited = tmp_path / "llama-server"
    limited.write_text(
        f"#!/bin/sh\nulimit -f 20\ntrap '' XFSZ\nexport LD_LIBRARY_PATH={engine.parent}\n"
        f'exec {engine} "$@" > /dev/null 2>&1\n'
    )
    limited.chmod(0o755)
    with running(limited, model, tmp_path / "log", *ARGS, *DISK_ALONE, *store(folder)) as server:
        for _ in range(2):
            assert [ask(server, prompt)[0] for prompt in PROMPTS] == cold
        failed = until(lambda: pool(server)["disk_failed"])
        assert failed and pool(server)["disk_written"] == 0
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_written(
    engine: Path, model: Path, cold: list[Tokens], folder: Path, tmp_path: Path
) -> None:
    (own,) = folder.iterdir()
    shutil.rmtree(own)
    own.write_text("in the way")  # holds for root too, which may write everywhere
    with running(engine, model, tmp_path / "log", *ARGS, *DISK_ALONE, *store(folder)) as server:
        assert [ask(server, prompt)[0] for prompt in PROMPTS] == cold
        assert until(lambda: pool(server)["disk_failed"])
    assert own.read_text() == "in the way"


def test_killed_while_it_writes(
    engine: Path, model: Path, cold: list[Tokens], tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    draw = random.Random(1)
    for round_ in range(8):
        args = (*ARGS, *DISK_ALONE, *store(folder))
        with running(engine, model, tmp_path / f"{round_}", *args) as server:
            killer = threading.Timer(draw.uniform(0.02, 0.4), server.process.kill)
            killer.start()
            with contextlib.suppress(OSError, http.client.HTTPException):
                for number in range(1000):
                    which = (round_ + number) % len(PROMPTS)
                    assert ask(server, PROMPTS[which])[0] == cold[which]
            killer.join()
    with running(engine, model, tmp_path / "last", *ARGS, *KVFLASH, *store(folder)) as server:
        for prompt, expected in zip(PROMPTS, cold, strict=True):
            answer, timings = ask(server, prompt)
            assert answer == expected and timings["kvflash"]["tier"] == "disk"
        assert pool(server)["damaged"] == 0


def test_two_servers_share_a_folder(
    engine: Path, model: Path, cold: list[Tokens], tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    args = (*ARGS, *DISK_ALONE, *store(folder))
    with (
        running(engine, model, tmp_path / "one", *args) as one,
        running(engine, model, tmp_path / "other", *args) as other,
    ):
        assert [ask(one, prompt)[0] for prompt in PROMPTS] == cold
        assert until(lambda: len(records(folder)) >= len(PROMPTS) - 1)
        time.sleep(1.1)  # a server looks at the folder once in a second
        found = [ask(other, prompt) for prompt in PROMPTS[:-1]]
        assert [answer for answer, _ in found] == cold[:-1]
        assert {timings["kvflash"]["tier"] for _, timings in found} == {"disk"}
        wrong: list[str] = []

        def go(server: Engine, seed: int) -> None:
            draw = random.Random(seed)
            for _ in range(40):
                which = draw.randrange(len(PROMPTS))
                answer = ask(server, PROMPTS[which])[0]
                if answer != cold[which]:
                    wrong.append(f"{seed}: {which}: {answer}")

        threads = [threading.Thread(target=go, args=pair) for pair in ((one, 1), (other, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert pool(one)["damaged"] == pool(other)["damaged"] == 0
