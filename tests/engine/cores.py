"""The pure cores in C++: their checks are compiled, mostly under sanitizers, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PATCH = Path(__file__).resolve().parents[2] / "backends" / "llama_server_patch"
CHECKED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-O1", "-g", "-fsanitize=thread")
_LIMIT_S = 120


def compiled(folder: Path, test: str, sources: tuple[str, ...], *flags: str) -> Path:
    """The program of tests/`test`.cpp and the named sources."""
    program = folder / test
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", *flags]
    command += ["-I", str(PATCH / "src"), str(PATCH / "tests" / f"{test}.cpp")]
    command += [*(str(PATCH / "src" / source) for source in sources), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def check(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
