"""CVE-2026-107183: a tool call must not be written to once the parser has given it away.

Compiles the parser under AddressSanitizer, from the pinned source and from the patched one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PATCHES = Path(__file__).parents[2] / "backends" / "llama_server_patch"
PATCH = PATCHES / "patches" / "0002-chat-peg-parser-cve-2026-107183.patch"
PROGRAM = PATCHES / "tests" / "tool_call_lifetime.cpp"
PARSER = Path("common/chat-peg-parser.cpp")
LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")
LIFETIMES = ("flush", "discard", "stale")


@pytest.fixture(scope="module")
def compiler() -> str:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"


@pytest.fixture(scope="module")
def programs(
    compiler: str, engine: Path, engine_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The test program around each parser: "pinned" and "patched"."""
    work = tmp_path_factory.mktemp("asan")
    include = [
        f"-I{engine_source / part}" for part in ("common", "include", "ggml/include", "vendor")
    ]
    flags = ["-std=c++17", "-O1", "-g1", "-fsanitize=address", "-fno-omit-frame-pointer", *include]
    # The program's own copy of the parser takes precedence over the one in the library.
    libraries = [f"-L{engine.parent}", *(f"-l{name}" for name in LIBRARIES)]
    libraries.append(f"-Wl,-rpath-link,{engine.parent}")
    built = {}
    for name in ("pinned", "patched"):
        tree = work / name
        (tree / PARSER.parent).mkdir(parents=True)
        shutil.copy(engine_source / PARSER, tree / PARSER)
        if name == "patched":
            _run(["patch", "-p1", "--fuzz=0", "-i", str(PATCH)], tree)
        built[name] = tree / "tool_call_lifetime"
        sources = [str(PROGRAM), str(tree / PARSER)]
        _run([compiler, *flags, *sources, "-o", str(built[name]), *libraries], tree)
    return built


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def _case(program: Path, name: str, engine: Path) -> subprocess.CompletedProcess[str]:
    # Leaks of the libraries' static tables are not what is tested.
    env = os.environ | {"LD_LIBRARY_PATH": str(engine.parent), "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(
        [str(program), name], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", [*LIFETIMES, "ordinary"])
def test_patched_parser_touches_no_ended_call(
    programs: dict[str, Path], engine: Path, name: str
) -> None:
    done = _case(programs["patched"], name, engine)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", LIFETIMES)
def test_sanitizer_sees_the_hole_in_the_pinned_parser(
    programs: dict[str, Path], engine: Path, name: str
) -> None:
    done = _case(programs["pinned"], name, engine)
    assert done.returncode != 0
    assert "ERROR: AddressSanitizer" in done.stderr
    assert "common_chat_peg_mapper::map" in done.stderr


def test_pinned_parser_handles_ordinary_calls(programs: dict[str, Path], engine: Path) -> None:
    done = _case(programs["pinned"], "ordinary", engine)
    assert done.returncode == 0, done.stderr
