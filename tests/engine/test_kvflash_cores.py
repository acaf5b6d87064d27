"""KVFlash's pure cores in C++: page directory, eviction, admission, records and the disk tier.

Each runs under sanitizers; the disk tier also on folders that are shared, damaged and full.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PATCH = Path(__file__).resolve().parents[2] / "backends" / "llama_server_patch"
PAGES = ("kvflash-pages.cpp",)
RECORD = (*PAGES, "kvflash-record.cpp")
STORE = (*RECORD, "kvflash-store.cpp")
CHECKED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)


def _run(
    folder: Path,
    test: str,
    sources: tuple[str, ...],
    *arguments: str,
    flags: tuple[str, ...] = CHECKED,
) -> None:
    program = folder / test
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
    command += flags
    command += ["-I", str(PATCH / "src"), str(PATCH / "tests" / f"{test}.cpp")]
    command += [*(str(PATCH / "src" / source) for source in sources), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pages(tmp_path: Path) -> None:
    _run(tmp_path, "kvflash_pages", (*PAGES, "kvflash-evict.cpp"))


def test_records(tmp_path: Path) -> None:
    _run(tmp_path, "kvflash_record", RECORD)


def test_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    _run(tmp_path, "kvflash_store", STORE, str(folder))


@pytest.mark.parametrize("flags", [CHECKED, THREADS], ids=["memory", "threads"])
def test_pool(tmp_path: Path, flags: tuple[str, ...]) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    _run(tmp_path, "kvflash_pool", (*STORE, "kvflash-pool.cpp"), str(folder), flags=flags)
