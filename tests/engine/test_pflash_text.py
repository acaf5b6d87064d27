"""PFlash's pure cores in C++: spans, ask, BM25, literals, ranking, masks, held prompts.

Each group of checks runs under sanitizers; large texts also without, where only linear time ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cores import CHECKED, THREADS, check, compiled

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
LARGE_BYTES = 2 << 20


@pytest.fixture(scope="module")
def text_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("text"), "pflash_text", TEXT, *CHECKED)


@pytest.fixture(scope="module")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("rank"), "pflash_rank", RANK, *CHECKED)


@pytest.mark.parametrize("group", ["spans", "ask", "bm25", "literals", "large"])
def test_text(text_program: Path, group: str) -> None:
    check(text_program, group)


def test_recall(tmp_path: Path) -> None:
    check(compiled(tmp_path, "pflash_recall", (*TEXT, "pflash-recall.cpp"), *CHECKED))


@pytest.mark.parametrize(
    "group", ["rank", "paragraphs", "adaptive", "take", "masks", "lru", "threads"]
)
def test_rank(rank_program: Path, group: str) -> None:
    check(rank_program, group)


def test_held_prompts(tmp_path: Path) -> None:
    check(compiled(tmp_path, "pflash_held", ("pflash-held.cpp",), *CHECKED))


def test_held_prompts_under_threads(tmp_path: Path) -> None:
    check(compiled(tmp_path, "pflash_held", ("pflash-held.cpp",), *THREADS))


def test_large_texts_take_linear_time(tmp_path: Path) -> None:
    check(compiled(tmp_path, "pflash_text", TEXT, "-O2"), "large", str(LARGE_BYTES))


def test_masks_under_threads(tmp_path: Path) -> None:
    check(compiled(tmp_path, "pflash_rank", RANK, *THREADS), "threads")
