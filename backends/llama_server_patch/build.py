"""Building the patched llama-server into the user's cache.

The source is llama.cpp as llama-cpp-python's sdist carries it, pinned by checksum. A build is
named by the hash of everything that goes into it, so an unchanged tree is never built twice; an
interrupted build goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from flashlane.backends.llama_server_patch.source import (
    PACKAGE,
    SDIST_SHA256,
    BuildError,
    Progress,
    layout,
    prepare_source,
)
from flashlane.locking import locked
from flashlane.packages import say
from flashlane.paths import cache_dir

__all__ = [
    "BACKEND_FLAGS",
    "BuildError",
    "build_flags",
    "build_key",
    "engine_path",
    "ensure_engine",
    "ensure_source",
]

_HERE = Path(__file__).resolve().parent
_LOG_TAIL_LINES = 15
_LIBRARY = re.compile(r"\.(so|dylib|metal|metallib)(\.|$)")

BACKEND_FLAGS: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("-DGGML_CUDA=ON",),
    "metal": ("-DGGML_METAL=ON",),
    "vulkan": ("-DGGML_VULKAN=ON",),
    "hip": ("-DGGML_HIP=ON",),
}
_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DGGML_RPC=OFF",
    "-DCMAKE_BUILD_RPATH=$ORIGIN",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
)
_TOOLS = {"cmake": "cmake", "c++": "g++", "patch": "patch"}


def build_flags(backend: str) -> tuple[str, ...]:
    """cmake flags of a backend, with those in CMAKE_ARGS and CUDA's architectures added."""
    if backend not in BACKEND_FLAGS:
        raise BuildError(f"backend is {backend!r}; accepted values: {', '.join(BACKEND_FLAGS)}")
    extra = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    if os.environ.get("CMAKE_CUDA_ARCHITECTURES") and backend == "cuda":
        extra.append(f"-DCMAKE_CUDA_ARCHITECTURES={os.environ['CMAKE_CUDA_ARCHITECTURES']}")
    if any(flag.replace(" ", "").startswith("-DGGML_RPC") for flag in extra):
        raise BuildError("CMAKE_ARGS sets GGML_RPC; the RPC backend is never built")
    metal_off = ("-DGGML_METAL=OFF",) if sys.platform == "darwin" and backend == "cpu" else ()
    return (*_FLAGS, *BACKEND_FLAGS[backend], *metal_off, *extra)


def build_key(backend: str = "cpu", *, patched: bool = True) -> str:
    """Names a build: hash of the source's checksum, our files, the flags and the compiler."""
    return _inputs(backend, patched, _target(_compiler()))[:16]


def engine_path(backend: str = "cpu", *, patched: bool = True) -> Path | None:
    """The built llama-server of this tree, or None when it is not built yet.

    Where no compiler is left to ask for its name, as in an image that got its cache by copy, the
    newest build of the same source and flags is taken.
    """
    root = cache_dir() / "engine"
    if shutil.which(_compiler()):
        server = root / build_key(backend, patched=patched) / "bin" / "llama-server"
        return server if server.is_file() else None
    inputs = _inputs(backend, patched)
    builds = [about for about in root.glob("*/BUILD.json") if _built_from(about) == inputs]
    builds.sort(key=lambda about: about.stat().st_mtime, reverse=True)
    return builds[0].parent / "bin" / "llama-server" if builds else None


def ensure_engine(backend: str = "cpu", *, patched: bool = True, say: Progress = say) -> Path:
    """Path of llama-server, built first if need be. Raises `BuildError`."""
    found = engine_path(backend, patched=patched)
    if found:
        return found
    _require_tools()
    key = build_key(backend, patched=patched)
    root = cache_dir() / "engine"
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f"{key}.lock", say):
        found = engine_path(backend, patched=patched)
        if found:
            return found
        work, log = root / f"{key}.work", root / f"{key}.log"
        source = prepare_source(work, patched=patched, say=say)
        started = time.monotonic()
        # the commit that the server names: what one build has stored is no other build's
        flags = (*build_flags(backend), f"-DLLAMA_BUILD_COMMIT={key}")
        _compile(source, work / "build", flags, log, say)
        minutes = (time.monotonic() - started) / 60
        server = _install(work, root / key, backend, patched, minutes)
    say(f"engine: built in {minutes:.1f} minutes: {server}")
    return server


def ensure_source(*, say: Progress = say) -> Path:
    """The unpatched llama.cpp tree, for its own tests; unpacked into the cache on first use."""
    root = cache_dir() / "engine"
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / "stock.lock", say):
        return prepare_source(root / "stock", patched=False, say=say)


def _exclusive(path: Path, say: Progress) -> contextlib.AbstractContextManager[None]:
    return locked(path, lambda: say("engine: another process builds this; waiting for it"))


def _inputs(backend: str, patched: bool, target: str = "") -> str:
    digest = hashlib.sha256(SDIST_SHA256.encode())
    for flag in build_flags(backend):
        digest.update(flag.encode() + b"\0")
    digest.update(target.encode())
    if patched:
        copies, patches = layout()
        for path in (_HERE / "layout.json", *copies, *patches):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _built_from(about: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads(about.read_text()).get("inputs"))
    return None


def _require_tools() -> None:
    for tool, package in _TOOLS.items():
        if shutil.which(_compiler() if tool == "c++" else tool) is None:
            what = "a C++ compiler" if tool == "c++" else tool
            raise BuildError(
                f"{what} is needed to build llama-server and was not found; "
                f"install it: apt-get install {package} (Debian), brew install "
                f"{'gcc' if tool == 'c++' else tool} (macOS)"
            )


def _compiler() -> str:
    return os.environ.get("CXX") or "c++"


@functools.lru_cache(maxsize=4)
def _target(compiler: str) -> str:
    """The compiler and the processor that it builds for, as one text; empty without a compiler.

    A build uses this machine's own instructions (GGML_NATIVE), so a cache in a home folder that
    machines share holds one for each kind. The predefined macros tell version and instructions.
    """
    if shutil.which(compiler) is None:
        return ""
    for flags in (["-march=native"], ["-mcpu=native"], []):
        done = subprocess.run(
            [compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
    raise BuildError(f"{compiler} cannot compile: {done.stderr.strip().splitlines()[-1:]}")


def _compile(source: Path, build: Path, flags: tuple[str, ...], log: Path, say: Progress) -> None:
    configure = ["cmake", "-S", str(source), "-B", str(build), *flags]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    if shutil.which("ccache"):
        configure += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    jobs = os.cpu_count() or 2
    say(f"engine: building llama-server with {jobs} jobs; 6 to 9 minutes on 2 cores, once")
    with log.open("w") as sink:
        _run(configure, build.parent, sink, log, None)
        command = ["cmake", "--build", str(build), "--target", "llama-server", "-j", str(jobs)]
        _run(command, build.parent, sink, log, _percent(say))


def _percent(say: Progress) -> Progress:
    """Turns ninja's or make's lines into one line for every five percent."""
    started, shown = time.monotonic(), 0

    def progress(line: str) -> None:
        nonlocal shown
        match = re.match(r"\[\s*(\d+)(?:/(\d+)|%)\]", line)
        if not match:
            return
        percent = int(match[1]) * 100 // int(match[2]) if match[2] else int(match[1])
        if percent >= shown + 5:
            shown = percent - percent % 5
            say(f"engine: {percent:3d} % after {time.monotonic() - started:.0f} s")

    return progress


def _run(
    command: list[str], work: Path, sink: TextIO, log: Path, progress: Callable[[str], None] | None
) -> None:
    """Run `command`, its output into the log; whatever ends us ends its processes too."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A tree that is built under another name (its key) still finds its objects in ccache.
        env={**os.environ, "CCACHE_BASEDIR": str(work), "CCACHE_NOHASHDIR": "1"},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            sink.write(line)
            if progress:
                progress(line)
        process.wait()
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        process.stdout.close()
    if process.returncode:
        sink.flush()
        tail = "\n".join(log.read_text().splitlines()[-_LOG_TAIL_LINES:])
        raise BuildError(f"{command[0]} failed; the whole log is {log}:\n{tail}")


def _install(work: Path, target: Path, backend: str, patched: bool, minutes: float) -> Path:
    partial = work / "install"
    shutil.rmtree(partial, ignore_errors=True)
    bin_dir = partial / "bin"
    bin_dir.mkdir(parents=True)
    for path in (work / "build" / "bin").iterdir():
        if path.name == "llama-server" or _LIBRARY.search(path.name):
            shutil.copy2(path, bin_dir / path.name, follow_symlinks=False)
    _prove(bin_dir / "llama-server")
    about = {
        "package": PACKAGE,
        "inputs": _inputs(backend, patched),
        "backend": backend,
        "patched": patched,
        "flags": build_flags(backend),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "minutes": round(minutes, 1),
    }
    (partial / "BUILD.json").write_text(json.dumps(about, indent=2) + "\n")
    if target.is_symlink():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)  # what is left of a damaged build
    partial.replace(target)
    shutil.rmtree(work, ignore_errors=True)
    return target / "bin" / "llama-server"


def _prove(server: Path) -> None:
    """The copy starts and finds its libraries away from where it was linked."""
    done = subprocess.run(
        [str(server), "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise BuildError(f"the built llama-server does not start: {done.stderr.strip()[-300:]}")


def main() -> None:
    """`python -m flashlane.backends.llama_server_patch.build` prints the server's path."""
    parser = argparse.ArgumentParser(description="Build the patched llama-server into the cache.")
    parser.add_argument("--backend", default="cpu", help=", ".join(BACKEND_FLAGS))
    try:
        print(ensure_engine(parser.parse_args().backend))
    except BuildError as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
