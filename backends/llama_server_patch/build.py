"""Building the patched llama-server into the user's cache.

The source is llama.cpp as llama-cpp-python's sdist carries it, pinned by checksum. A build is
named by the hash of everything that goes into it, so an unchanged tree is never built twice; an
interrupted build goes on where it stopped.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flashlane.models import sha256_of
from flashlane.paths import cache_dir

PACKAGE = "llama-cpp-python==0.3.36"
SDIST = "llama_cpp_python-0.3.36.tar.gz"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
_SOURCE_PREFIX = "llama_cpp_python-0.3.36/vendor/llama.cpp/"
_HERE = Path(__file__).resolve().parent

BACKEND_FLAGS = {
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

Progress = Callable[[str], None]


class BuildError(RuntimeError):
    """The engine cannot be built; the message says what to do."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def build_flags(backend: str) -> tuple[str, ...]:
    """cmake flags of a backend, with those in CMAKE_ARGS and CUDA's architectures added."""
    if backend not in BACKEND_FLAGS:
        raise BuildError(f"backend is {backend!r}; accepted values: {', '.join(BACKEND_FLAGS)}")
    extra = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    if os.environ.get("CMAKE_CUDA_ARCHITECTURES") and backend == "cuda":
        extra.append(f"-DCMAKE_CUDA_ARCHITECTURES={os.environ['CMAKE_CUDA_ARCHITECTURES']}")
    if any(flag.replace(" ", "").startswith("-DGGML_RPC") for flag in extra):
        raise BuildError("CMAKE_ARGS sets GGML_RPC; the RPC backend is never built")
    return (*_FLAGS, *BACKEND_FLAGS[backend], *extra)


def build_key(backend: str = "cpu", *, patched: bool = True) -> str:
    """Names a build: hash of the source's checksum, our files, the flags and the compiler."""
    digest = hashlib.sha256(SDIST_SHA256.encode())
    for flag in build_flags(backend):
        digest.update(flag.encode() + b"\0")
    digest.update(_compiler_version().encode())
    if patched:
        copies, patches = _layout()
        for path in (_HERE / "layout.json", *copies, *patches):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def engine_path(backend: str = "cpu", *, patched: bool = True) -> Path | None:
    """The built llama-server of this tree, or None when it is not built yet."""
    server = cache_dir() / "engine" / build_key(backend, patched=patched) / "bin" / "llama-server"
    return server if server.is_file() else None


def ensure_engine(backend: str = "cpu", *, patched: bool = True, say: Progress = _say) -> Path:
    """Path of llama-server, built first if need be. Raises `BuildError`."""
    build_flags(backend)
    _require_tools()
    found = engine_path(backend, patched=patched)
    if found:
        return found
    key = build_key(backend, patched=patched)
    root = cache_dir() / "engine"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock", say):
        found = engine_path(backend, patched=patched)
        if found:
            return found
        work = root / f"{key}.work"
        source = _prepare_source(work, patched, say)
        started = time.monotonic()
        _compile(source, work / "build", build_flags(backend), work / "build.log", say)
        minutes = (time.monotonic() - started) / 60
        return _install(work, root / key, backend, patched, minutes, say)


def ensure_source(*, say: Progress = _say) -> Path:
    """The unpatched llama.cpp tree, for its own tests; unpacked into the cache on first use."""
    root = cache_dir() / "engine"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / "stock.lock", say):
        return _prepare_source(root / "stock", False, say)


def _require_tools() -> None:
    for tool, package in _TOOLS.items():
        if shutil.which(os.environ.get("CXX", tool) if tool == "c++" else tool) is None:
            what = "a C++ compiler" if tool == "c++" else tool
            raise BuildError(
                f"{what} is needed to build llama-server and was not found; "
                f"install it: apt-get install {package} (Debian), brew install "
                f"{'gcc' if tool == 'c++' else tool} (macOS)"
            )


def _compiler_version() -> str:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return ""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True)
    return done.stdout.split("\n", 1)[0]


def _layout() -> tuple[dict[Path, str], list[Path]]:
    layout = json.loads((_HERE / "layout.json").read_text())
    return (
        {_HERE / source: target for source, target in layout["copy"].items()},
        [_HERE / patch for patch in layout["patches"]],
    )


@contextmanager
def _locked(path: Path, say: Progress) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("engine: another process builds this engine; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prepare_source(work: Path, patched: bool, say: Progress) -> Path:
    source = work / "source"
    if source.is_dir():
        return source
    partial = work / "source.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    sdist = _sdist(say)
    say("engine: unpacking the source")
    with tarfile.open(sdist) as archive:
        for member in archive:
            if not member.name.startswith(_SOURCE_PREFIX) or not (member.isfile() or member.isdir()):
                continue
            member.name = member.name[len(_SOURCE_PREFIX) :]
            if ".." in Path(member.name).parts or member.name.startswith("/") or member.name == ".git":
                continue
            archive.extract(member, partial)
    if patched:
        copies, patches = _layout()
        for path, target in copies.items():
            shutil.copyfile(path, partial / target)
        for patch in patches:
            done = subprocess.run(
                ["patch", "-p1", "--forward", "--no-backup-if-mismatch", "-i", str(patch)],
                cwd=partial, capture_output=True, text=True,
            )
            if done.returncode:
                raise BuildError(f"{patch.name} does not apply: {done.stdout.strip()}")
    os.replace(partial, source)
    return source


def _sdist(say: Progress) -> Path:
    folder = cache_dir() / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SDIST
    if not target.exists():
        say(f"engine: downloading {PACKAGE} (77 MB)")
        requirements = folder / "engine.txt"
        requirements.write_text(f"{PACKAGE} --hash=sha256:{SDIST_SHA256}\n")
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
             "--no-build-isolation", "--require-hashes", "--dest", str(folder), "-r", str(requirements)],
            capture_output=True, text=True,
        )
        if done.returncode or not target.exists():
            tail = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise BuildError(f"{PACKAGE} could not be downloaded: {tail}")
    if sha256_of(target) != SDIST_SHA256:
        target.unlink()
        raise BuildError(f"{SDIST} had another checksum than the pinned one and was removed; try again")
    return target


def _compile(source: Path, build: Path, flags: tuple[str, ...], log: Path, say: Progress) -> None:
    configure = ["cmake", "-S", str(source), "-B", str(build), *flags]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    if shutil.which("ccache"):
        configure += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    jobs = os.cpu_count() or 2
    say(f"engine: building llama-server with {jobs} jobs; 6 to 9 minutes on 2 cores, once")
    with log.open("w") as sink:
        _run(configure, sink, log, None)
        shown = -1

        def progress(line: str) -> None:
            nonlocal shown
            match = re.match(r"\[\s*(\d+)(?:/(\d+)|%)\]", line)
            if match:
                percent = int(match[1]) * 100 // int(match[2]) if match[2] else int(match[1])
                if percent // 5 > shown:
                    shown = percent // 5
                    say(f"engine: {percent:3d} %")

        _run(["cmake", "--build", str(build), "--target", "llama-server", "-j", str(jobs)], sink, log, progress)


def _run(command: list[str], sink: object, log: Path, progress: Progress | None) -> None:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        sink.write(line)  # type: ignore[attr-defined]
        if progress:
            progress(line)
    if process.wait():
        sink.flush()  # type: ignore[attr-defined]
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise BuildError(f"{command[0]} failed; the whole log is {log}:\n{tail}")


def _install(work: Path, target: Path, backend: str, patched: bool, minutes: float, say: Progress) -> Path:
    partial = work / "install"
    shutil.rmtree(partial, ignore_errors=True)
    bin_dir = partial / "bin"
    bin_dir.mkdir(parents=True)
    for path in (work / "build" / "bin").iterdir():
        if path.name == "llama-server" or re.search(r"\.(so|dylib)(\.|$)", path.name):
            shutil.copy2(path, bin_dir / path.name, follow_symlinks=False)
    about = {
        "package": PACKAGE, "backend": backend, "patched": patched, "compiler": _compiler_version(),
        "flags": build_flags(backend), "minutes": round(minutes, 1),
    }
    (partial / "BUILD.json").write_text(json.dumps(about, indent=2) + "\n")
    os.replace(partial, target)
    shutil.rmtree(work, ignore_errors=True)
    say(f"engine: built in {minutes:.1f} minutes")
    return target / "bin" / "llama-server"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the patched llama-server into the cache.")
    parser.add_argument("--backend", default="cpu", help=", ".join(BACKEND_FLAGS))
    try:
        print(ensure_engine(parser.parse_args().backend))
    except BuildError as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
