"""KVFlash's pure cores in C++: pages, boundaries, eviction, records, the disk tier, the ranker.

Each runs under sanitizers; the disk tier also on folders that are shared, damaged and full.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cores import CHECKED, THREADS, check, compiled

PAGES = ("kvflash-pages.cpp",)
MEMORY = ("kvflash-memory.cpp",)
RECORD = (*PAGES, *MEMORY, "kvflash-record.cpp")
STORE = (*RECORD, "kvflash-store.cpp")
CUT = ("kvflash-cut.cpp",)
POOL = (*STORE, *CUT, "kvflash-pool.cpp")
RANKER = (*PAGES, "kvflash-match.cpp", "kvflash-ranker.cpp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


def test_pages(tmp_path: Path) -> None:
    check(compiled(tmp_path, "kvflash_pages", (*PAGES, "kvflash-evict.cpp"), *CHECKED))


def test_boundaries(tmp_path: Path) -> None:
    sources = (*PAGES, *CUT, "kvflash-boundaries.cpp")
    check(compiled(tmp_path, "kvflash_boundaries", sources, *CHECKED))


def test_matches(tmp_path: Path) -> None:
    check(compiled(tmp_path, "kvflash_match", ("kvflash-match.cpp",), *CHECKED))


@pytest.mark.parametrize("flags", [CHECKED, THREADS], ids=["memory", "threads"])
def test_ranker(tmp_path: Path, flags: tuple[str, ...]) -> None:
    check(compiled(tmp_path, "kvflash_ranker", RANKER, *flags))


@pytest.mark.parametrize("flags", [CHECKED, THREADS], ids=["memory", "threads"])
def test_memory(tmp_path: Path, flags: tuple[str, ...]) -> None:
    check(compiled(tmp_path, "kvflash_memory", MEMORY, *flags))


def test_records(tmp_path: Path) -> None:
    check(compiled(tmp_path, "kvflash_record", RECORD, *CHECKED))


def test_store(tmp_path: Path, folder: Path) -> None:
    check(compiled(tmp_path, "kvflash_store", STORE, *CHECKED), folder)


def test_store_reads_by_several_threads(tmp_path: Path, folder: Path) -> None:
    check(compiled(tmp_path, "kvflash_store", STORE, *THREADS), folder, "large")


@pytest.mark.parametrize("flags", [CHECKED, THREADS], ids=["memory", "threads"])
def test_pool(tmp_path: Path, folder: Path, flags: tuple[str, ...]) -> None:
    check(compiled(tmp_path, "kvflash_pool", POOL, *flags), folder)
