"""llama-cpp-python on the libraries of our own build: no second compile, one source of truth.

The package's sdist is the one that the engine is built from. It is installed without its
libraries, and the folder where it looks for them becomes a link to the engine's. That also holds
for the part of the package that does not read LLAMA_CPP_LIB_PATH.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from flashlane.backends.llama_server_patch.source import PACKAGE, BuildError, ensure_sdist

_DISTRIBUTION, _VERSION = PACKAGE.split("==")
_NO_LIBRARIES = "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"


def bound_libraries() -> Path | None:
    """The library folder that this environment's llama_cpp loads; None without bindings."""
    try:
        if importlib.metadata.version(_DISTRIBUTION) != _VERSION:
            return None
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    libraries = Path(spec.origin).parent / "lib"
    return libraries.resolve() if libraries.is_symlink() and libraries.exists() else None


def ensure_bindings(server: Path, say: Callable[[str], None]) -> None:
    """Install llama_cpp into this environment, bound to the libraries beside `server`.

    Raises `BuildError`.
    """
    engine = server.parent.resolve()
    if bound_libraries() == engine:
        return
    try:
        installed = importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed != _VERSION:
        _install(say)
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise BuildError(f"{PACKAGE} was installed, but llama_cpp cannot be found")
    libraries = Path(spec.origin).parent / "lib"
    if libraries.is_dir() and not libraries.is_symlink():
        if any(libraries.iterdir()):
            raise BuildError(
                f"{libraries} holds libraries of another build; "
                f"uninstall {_DISTRIBUTION} and run set-up again"
            )
        libraries.rmdir()
    libraries.unlink(missing_ok=True)
    libraries.symlink_to(engine, target_is_directory=True)


def _install(say: Callable[[str], None]) -> None:
    sdist = ensure_sdist(say)
    say(f"bindings: installing {PACKAGE} without its libraries")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            str(sdist),
        ],
        env={**os.environ, "CMAKE_ARGS": _NO_LIBRARIES},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise BuildError(f"{PACKAGE} could not be installed:\n{tail}")
