"""From the pinned sdist to a source tree with our files and patches in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from flashlane.models import sha256_of
from flashlane.packages import DownloadError, download
from flashlane.paths import cache_dir

PACKAGE = "llama-cpp-python==0.3.36"
SDIST = "llama_cpp_python-0.3.36.tar.gz"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
SOURCE_PREFIX = "llama_cpp_python-0.3.36/vendor/llama.cpp/"
_HERE = Path(__file__).resolve().parent

Progress = Callable[[str], None]


class BuildError(RuntimeError):
    """The engine cannot be built; the message says what to do."""


def ensure_sdist(say: Progress) -> Path:
    """The sdist that carries llama.cpp's source, downloaded by hash unless it is there."""
    folder = cache_dir() / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SDIST
    if not target.exists():
        say(f"engine: downloading {PACKAGE} (77 MB)")
        try:
            # pip reads the metadata of an sdist with its build backend, which is installed here
            download(PACKAGE, SDIST_SHA256, folder, "--no-binary", ":all:", "--no-build-isolation")
        except DownloadError as error:
            raise BuildError(str(error)) from error
    if sha256_of(target) != SDIST_SHA256:
        target.unlink()
        raise BuildError(f"{SDIST} does not have the pinned checksum and was removed; try again")
    return target


def prepare_source(work: Path, *, patched: bool, say: Progress) -> Path:
    """`work`/source: the unpacked tree, with our files and patches when `patched`.

    It appears under that name only when it is whole, so an interrupted call leaves nothing that
    a later one would take for it. Raises `BuildError`.
    """
    source = work / "source"
    if source.is_dir():
        return source
    sdist = ensure_sdist(say)
    partial = work / "source.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    say("engine: unpacking the source")
    with tarfile.open(sdist) as archive:
        extract(archive, SOURCE_PREFIX, partial)
    if patched:
        copies, patches = layout()
        for path, target in copies.items():
            shutil.copyfile(path, partial / target)
        for patch in patches:
            _apply(patch, partial)
    partial.replace(source)
    return source


def layout() -> tuple[dict[Path, str], list[Path]]:
    """Our files with their places in the tree, and our patches in their order."""
    document = json.loads((_HERE / "layout.json").read_text())
    return (
        {_HERE / path: target for path, target in document["copy"].items()},
        [_HERE / patch for patch in document["patches"]],
    )


def extract(archive: tarfile.TarFile, prefix: str, target: Path) -> None:
    """Unpack what lies under `prefix` in `archive` into `target`: plain files and folders only.

    Links, special files and git's own are left out. Raises `BuildError` for a name that leads out
    of `target`, and when nothing lies under `prefix`.
    """
    count = 0
    for member in archive:
        name = member.name.removeprefix("./")
        if not name.startswith(prefix) or not (member.isfile() or member.isdir()):
            continue
        inside = PurePosixPath(name[len(prefix) :])
        if inside.is_absolute() or ".." in inside.parts:
            raise BuildError(f"the archive holds {member.name!r}, which leads out of its folder")
        if ".git" in inside.parts:  # a submodule's pointer, which would send git astray
            continue
        path = target / inside
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None
        with content, path.open("wb") as sink:
            shutil.copyfileobj(content, sink)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
        count += 1
    if not count:
        raise BuildError(f"the archive holds nothing under {prefix}")


def _apply(patch: Path, tree: Path) -> None:
    done = subprocess.run(
        ["patch", "-p1", "--forward", "--no-backup-if-mismatch", "-i", str(patch)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{patch.name} does not apply: {done.stdout.strip()}")
