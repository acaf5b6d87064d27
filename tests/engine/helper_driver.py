"""Drives the server's `pflash_helper` class from Python: compiles the program around it, under
sanitizers, and sees to it that no process of a helper is left.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.process import engine_env

_PATCH = Path(__file__).resolve().parents[2] / "backends" / "llama_server_patch"
_FAKE = Path(__file__).with_name("fake_helper.py")
_LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")
SPANS = [[0, 5], [5, 9], [9, 14]]
TEXT = "alphabetagamma"


def compiled(engine: Path, source: Path, folder: Path) -> Path:
    """The driver program in `folder`, linked with the libraries beside `engine`; built once."""
    target = folder / "pflash_helper"
    if target.exists():
        return target
    sources = ["tests/pflash_helper.cpp", "src/pflash-helper.cpp", "src/pflash-child.cpp"]
    parts = ("common", "include", "ggml/include", "vendor")
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    command = [compiler, "-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-pthread"]
    command += [f"-I{_PATCH / 'src'}", *(f"-I{source / part}" for part in parts)]
    command += [*(str(_PATCH / source) for source in sources), "-o", str(target)]
    command += [f"-L{engine.parent}", *(f"-l{name}" for name in _LIBRARIES)]
    command.append(f"-Wl,-rpath-link,{engine.parent}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


class Driver:
    """The compiled program, one line in and one out."""

    def __init__(self, process: subprocess.Popen[bytes], notes: Path, log: Path) -> None:
        self.process = process
        self.log = log
        self._notes = notes
        self.end_ms = math.nan

    def do(self, **op: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(op).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text(errors="replace")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def score(self, **fields: Any) -> dict[str, Any]:
        return self.do(op="score", **{"text": TEXT, "spans": SPANS, **fields})

    def counters(self) -> dict[str, Any]:
        return self.do(op="counters")

    def sleep(self, seconds: float) -> None:
        self.do(op="sleep", ms=int(seconds * 1000))

    def notes(self) -> list[dict[str, Any]]:
        lines = self._notes.read_text().splitlines()
        return [json.loads(line) for line in lines]

    def pids(self) -> list[int]:
        return [entry["pid"] for entry in self.notes() if "pid" in entry]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.end_ms = self.read()["end_ms"]
        assert self.process.wait(timeout=10) == 0, self.log.read_text(errors="replace")


@contextmanager
def driving(
    program: Path, engine: Path, folder: Path, *command: str, pass_fds: tuple[int, ...] = ()
) -> Iterator[Driver]:
    """A driver whose helper is `command`; at its end, no process that the helper noted is left."""
    notes, log = folder / "notes", folder / "log"
    notes.touch()
    env = engine_env(engine) | {
        "FAKE_NOTES": str(notes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "LLAMA_API_KEY": "secret",
        "LLAMA_ARG_PORT": "1",
    }
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(program), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            pass_fds=pass_fds,
        )
    driver = Driver(process, notes, log)
    try:
        yield driver
        if process.poll() is None:
            driver.close()
        assert gone(driver.pids())
    finally:
        process.kill()
        process.wait()


def fake(mode: str, *rest: str) -> tuple[str, ...]:
    return (sys.executable, "-SE", str(_FAKE), mode, *rest)


def gone(pids: list[int], within_s: float = 2.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
