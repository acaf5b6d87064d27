"""A stored state is taken by the same build, model, adapters and parameters alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_process import running
from gguf_edit import renamed_token
from kvflash_server import ALONE, KVFLASH, PAGE, ask, pool

from bench import tiny_models
from bench.tiny_models import text

ARGS = ("--ctx-size", "2048", "--parallel", "2", "--kv-unified", "--kvflash-tau", str(PAGE), *ALONE)
PROMPT = text(1, 300)

Look = Callable[..., str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.dense(tmp_path / "model.gguf")


@pytest.fixture
def look(engine: Path, model: Path, tmp_path: Path) -> Look:
    """Where a server that is started with some more arguments finds the prompt's state."""
    folder = tmp_path / "store"
    folder.mkdir()
    store = ("--kvflash-store", str(folder), "--kvflash-store-mb", "100")

    def start(*args: str, engine: Path = engine, model: Path = model) -> str:
        everything = (*ARGS, *KVFLASH, *store, *args)
        with running(engine, model, tmp_path / "log", *everything) as server:
            tier: str = ask(server, PROMPT)[1]["kvflash"]["tier"]
            assert pool(server)["damaged"] == 0
            return tier

    assert start() == "none"
    assert start() == "disk"
    return start


@pytest.mark.parametrize(
    "args",
    [
        ("--cache-type-k", "q8_0", "--flash-attn", "on"),
        ("--flash-attn", "off"),
        ("--rope-freq-base", "20000"),
        ("--rope-scaling", "linear", "--rope-scale", "2"),
        ("--rope-scaling", "yarn", "--yarn-orig-ctx", "1024"),
        ("--override-kv", "llama.rope.freq_base=float:30000"),
        ("--no-kv-unified",),
    ],
    ids=lambda args: args[0].removeprefix("--") + "-" + args[-1].removeprefix("--"),
)
def test_other_parameters(look: Look, args: tuple[str, ...]) -> None:
    assert look(*args) == "none"
    assert look(*args) == "disk"
    assert look() == "disk"


def test_other_sizes_are_no_other_state(look: Look) -> None:
    assert look("--ctx-size", "4096", "--parallel", "3", "--batch-size", "256") == "disk"


def test_other_models(look: Look, model: Path, tmp_path: Path) -> None:
    other = tiny_models.dense(tmp_path / "other.gguf", seed=1)
    renamed = tmp_path / "renamed.gguf"
    renamed_token(model, renamed, 300)
    same = shutil.copy(model, tmp_path / "same.gguf")
    assert look(model=other) == "none"
    assert look(model=renamed) == "none"
    assert look(model=same) == "disk"
    # another file under the same name
    shutil.copy(other, model)
    assert look() == "disk" and look(model=same) == "disk"
    tiny_models.dense(model, seed=2)
    assert look() == "none"


def test_other_adapters(look: Look, tmp_path: Path) -> None:
    path = tiny_models.adapter(tmp_path / "adapter.gguf", seed=1)
    assert look("--lora", str(path)) == "none"
    assert look("--lora", str(path)) == "disk"
    assert look("--lora-scaled", f"{path}:0.5") == "none"
    assert look("--lora", str(path), "--lora-init-without-apply") == "disk"  # that of none
    moved = shutil.copy(path, tmp_path / "moved.gguf")
    assert look("--lora", str(moved)) == "disk"
    tiny_models.adapter(path, seed=2)
    assert look("--lora", str(path)) == "none"


def test_adapters_of_a_request(engine: Path, model: Path, tmp_path: Path) -> None:
    path = tiny_models.adapter(tmp_path / "adapter.gguf", seed=1)
    lora = ("--lora", str(path), "--lora-init-without-apply")
    scales = (0.0, 1.0, 0.5)
    with (
        running(engine, model, tmp_path / "cold", *ARGS, *lora, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *ARGS, *lora, *KVFLASH) as server,
    ):
        answers = set()
        for turn in range(3):
            for scale in scales:
                prompt = PROMPT + text(10 + turn, 5)
                fields = {"lora": [{"id": 0, "scale": scale}]}
                answer, timings = ask(server, prompt, **fields)
                assert answer == ask(cold, prompt, cache_prompt=False, **fields)[0], (turn, scale)
                assert timings["kvflash"]["tier"] == ("ram" if turn else "none"), (turn, scale)
                answers.add((turn, tuple(answer)))
        assert len(answers) > 3


def test_another_build(look: Look, engine: Path, tmp_path: Path) -> None:
    """The same server with another commit in it, which is a build's name."""
    folder = tmp_path / "bin"
    shutil.copytree(engine.parent, folder, symlinks=True, copy_function=os.link)
    version = subprocess.run(
        [engine, "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(engine.parent)},
    )
    commit = (version.stdout + version.stderr).partition("commit ")[2].partition(")")[0].encode()
    assert commit.isalnum() and len(commit) > 6, version
    changed = 0
    for path in folder.iterdir():
        data = path.read_bytes()
        if not path.is_symlink() and commit in data:
            path.unlink()
            path.write_bytes(data.replace(commit, commit[::-1]))
            path.chmod(0o755)
            changed += 1
    assert changed
    assert look(engine=folder / engine.name) == "none"
