"""PFlash's pure cores in C++: spans, the ask, BM25, literals, ranking and frozen masks.

Each group of checks runs under sanitizers; large texts also without, where only linear time ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PATCH = Path(__file__).resolve().parents[2] / "backends" / "llama_server_patch"
TEXT = (
    "pflash-ask.cpp",
    "pflash-ask-blocks.cpp",
    "pflash-ask-words.cpp",
    "pflash-chars.cpp",
    "pflash-json-spans.cpp",
    "pflash-lexical.cpp",
    "pflash-literals.cpp",
    "pflash-sentences.cpp",
    "pflash-spans.cpp",
)
RANK = ("pflash-masks.cpp", "pflash-rank.cpp", "pflash-select.cpp")
CHECKED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LARGE_BYTES = 2 << 20


def _compile(folder: Path, test: str, sources: tuple[str, ...], *flags: str) -> Path:
    program = folder / test
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"
    paths = [str(PATCH / "src" / source) for source in sources]
    subprocess.run(
        [
            compiler,
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            *flags,
            "-I",
            str(PATCH / "src"),
            str(PATCH / "tests" / f"{test}.cpp"),
            *paths,
            "-o",
            str(program),
            "-pthread",
        ],
        check=True,
    )
    return program


def _check(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def text_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("text"), "pflash_text", TEXT, *CHECKED)


@pytest.fixture(scope="module")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("rank"), "pflash_rank", RANK, *CHECKED)


@pytest.mark.parametrize("group", ["spans", "ask", "bm25", "literals", "large"])
def test_text(text_program: Path, group: str) -> None:
    _check(text_program, group)


def test_recall(tmp_path: Path) -> None:
    _check(_compile(tmp_path, "pflash_recall", (*TEXT, "pflash-recall.cpp"), *CHECKED))


@pytest.mark.parametrize(
    "group", ["rank", "paragraphs", "adaptive", "take", "masks", "lru", "threads"]
)
def test_rank(rank_program: Path, group: str) -> None:
    _check(rank_program, group)


def test_large_texts_take_linear_time(tmp_path: Path) -> None:
    _check(_compile(tmp_path, "pflash_text", TEXT, "-O2"), "large", str(LARGE_BYTES))


def test_masks_under_threads(tmp_path: Path) -> None:
    _check(_compile(tmp_path, "pflash_rank", RANK, "-O1", "-fsanitize=thread"), "threads")
