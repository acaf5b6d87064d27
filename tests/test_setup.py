"""Set-up without its long steps: keys of builds, refusals, models, the master key."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from flashlane.backends.llama_server_patch import build, source
from flashlane.backends.llama_server_patch.source import BuildError
from flashlane.models import CATALOGUE, CatalogueModel, ModelError, Part, ensure_model, find_model
from flashlane.setup import ensure_master_key

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHLANE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)


# Builds.


def test_a_key_is_stable_and_moves_with_flags_and_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    key = build.build_key()
    assert key == build.build_key()
    assert key != build.build_key("cuda")
    assert key != build.build_key(patched=False)
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    assert key != build.build_key()


def test_a_key_moves_with_every_patched_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours.cpp"
    ours.write_text("int one;")
    monkeypatch.setattr(build, "layout", lambda: ({ours: "common/ours.cpp"}, []))
    before = build.build_key()
    ours.write_text("int two;")
    assert build.build_key() != before


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BuildError, match="'tpu'; accepted values: cpu, cuda, metal, vulkan, hip"):
        build.ensure_engine("tpu")


def test_the_rpc_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_RPC=ON")
    with pytest.raises(BuildError, match="RPC"):
        build.build_flags("cpu")


def test_cuda_architectures_become_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_CUDA_ARCHITECTURES", "90")
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" in build.build_flags("cuda")
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" not in build.build_flags("cpu")


@pytest.mark.parametrize(
    ("present", "sentence"),
    [
        ((), "cmake is needed .* apt-get install cmake"),
        (("cmake",), r"a C\+\+ compiler is needed .* apt-get install g\+\+"),
        (("cmake", "c++"), "patch is needed .* apt-get install patch"),
    ],
)
def test_a_missing_tool_is_one_sentence(
    present: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in present:
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=sentence) as error:
        build.ensure_engine()
    assert "\n" not in str(error.value)


def test_the_command_says_it_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flashlane.backends.llama_server_patch.build"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("flashlane: cmake is needed")
    assert done.stdout == ""


def test_a_copied_cache_is_used_where_no_compiler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "cache" / "engine" / "somekey"
    (built / "bin").mkdir(parents=True)
    (built / "bin" / "llama-server").write_text("")
    (built / "BUILD.json").write_text(f'{{"inputs": "{build._inputs("cpu", True)}"}}')
    assert build.engine_path() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.engine_path() == built / "bin" / "llama-server"
    assert build.engine_path("cuda") is None


_FAKE_CMAKE = """#!/bin/sh
case "$1" in
  -S) mkdir -p "$4" ;;
  --build)
    echo "[106/212] Building"
    [ -z "$FAIL" ] || { echo "the reason"; exit 2; }
    mkdir -p "$2/bin"; ln -sf libx.so.1 "$2/bin/libx.so"; touch "$2/bin/libx.so.1" "$2/bin/other"
    printf '#!/bin/sh\\n' > "$2/bin/llama-server"; chmod 755 "$2/bin/llama-server" ;;
esac
"""


@pytest.fixture
def fake_cmake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cmake that builds nothing in no time, and a source that is there."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "cmake").write_text(_FAKE_CMAKE)
    (folder / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def unpacked(work: Path, **_: object) -> Path:
        (work / "source").mkdir(parents=True, exist_ok=True)
        return work / "source"

    monkeypatch.setattr(build, "prepare_source", unpacked)


@pytest.mark.usefixtures("fake_cmake")
def test_a_build_is_installed_whole_and_only_once(tmp_path: Path) -> None:
    lines: list[str] = []
    server = build.ensure_engine(say=lines.append)
    assert sorted(path.name for path in server.parent.iterdir()) == [
        "libx.so",
        "libx.so.1",
        "llama-server",
    ]
    assert (server.parent / "libx.so").is_symlink()
    about = json.loads((server.parent.parent / "BUILD.json").read_text())
    assert about["package"] == source.PACKAGE
    assert "-DGGML_RPC=OFF" in about["flags"]
    assert any("6 to 9 minutes" in line for line in lines)
    assert any("50 %" in line for line in lines)
    assert not list((tmp_path / "cache" / "engine").glob("*.work"))
    lines.clear()
    assert build.ensure_engine(say=lines.append) == server
    assert lines == []


@pytest.mark.usefixtures("fake_cmake")
def test_a_failed_build_shows_its_log_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(BuildError, match=r"cmake failed; .*\.log:\n(.*\n)*the reason"):
        build.ensure_engine(say=lambda line: None)
    assert build.engine_path() is None
    monkeypatch.delenv("FAIL")
    assert build.ensure_engine(say=lambda line: None).is_file()


@pytest.mark.usefixtures("fake_cmake")
def test_a_damaged_build_is_replaced() -> None:
    server = build.ensure_engine(say=lambda line: None)
    server.unlink()
    assert build.ensure_engine(say=lambda line: None) == server
    assert server.is_file()


# Archives.


def archive_of(*members: tuple[str, bytes | None]) -> tarfile.TarFile:
    """A tar in memory; None makes a symbolic link to /etc/passwd."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for name, content in members:
            about = tarfile.TarInfo(name)
            if content is None:
                about.type, about.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(about)
            else:
                about.size, about.mode = len(content), 0o4755
                archive.addfile(about, io.BytesIO(content))
    memory.seek(0)
    return tarfile.open(fileobj=memory)


def test_extraction_takes_files_under_the_prefix_only(tmp_path: Path) -> None:
    archive = archive_of(("p/a/x.c", b"x"), ("other/y", b"y"), ("p/link", None), ("p/.git", b"z"))
    source.extract(archive, "p/", tmp_path / "out")
    found = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*")]
    assert sorted(map(str, found)) == ["a", "a/x.c"]
    assert stat.S_IMODE((tmp_path / "out/a/x.c").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["p/../../evil", "p//etc/evil", "p/a/../../evil"])
def test_extraction_refuses_names_that_lead_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="leads out"):
        source.extract(archive_of((name, b"x")), "p/", tmp_path / "out")
    assert not list(tmp_path.rglob("evil"))


def test_extraction_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="nothing under"):
        source.extract(archive_of(("q/x", b"x")), "p/", tmp_path)


def test_a_changed_sdist_is_removed(tmp_path: Path) -> None:
    sdist = tmp_path / "cache" / "downloads" / source.SDIST
    sdist.parent.mkdir(parents=True)
    sdist.write_bytes(b"not it")
    with pytest.raises(BuildError, match="pinned checksum"):
        source.ensure_sdist(lambda line: None)
    assert not sdist.exists()


def test_every_file_of_the_layout_is_there() -> None:
    copies, patches = source.layout()
    assert [path for path in (*copies, *patches) if not path.is_file()] == []


# Models.


def tiny_model(monkeypatch: pytest.MonkeyPatch, *, sha256: str | None = None) -> CatalogueModel:
    """A model of two parts, whose wheels lie in the download folder already."""
    from flashlane.paths import cache_dir

    folder = cache_dir() / "downloads" / "tiny"
    folder.mkdir(parents=True)
    parts = []
    for number, content in enumerate((b"GGUF-one", b"-two"), 1):
        wheel = folder / f"tiny_part{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"tiny/{number}.bin", content)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        parts.append(Part(f"tiny-part{number}==1.0", digest, f"tiny/{number}.bin"))
    model = CatalogueModel(
        name="tiny",
        title="tiny",
        parts=tuple(parts),
        sha256=sha256 or hashlib.sha256(b"GGUF-one-two").hexdigest(),
        size_bytes=12,
        licence="none",
        context_tokens=1,
    )
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    return model


def test_parts_are_joined_and_never_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(monkeypatch)
    lines: list[str] = []
    assert ensure_model("tiny", say=lines.append).read_bytes() == b"GGUF-one-two"
    assert len(lines) == 2
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # a second download would fail
    assert ensure_model("tiny", say=lines.append) == model.path == find_model("tiny")
    assert len(lines) == 2
    assert not (model.path.parent.parent / "downloads" / "tiny").exists()


def test_another_checksum_is_refused_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(monkeypatch, sha256="0" * 64)
    with pytest.raises(ModelError, match="checksum"):
        ensure_model("tiny", say=lambda line: None)
    assert not model.path.exists()
    assert find_model("tiny") is None


def test_a_file_that_changed_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model(monkeypatch)
    path = ensure_model("tiny", say=lambda line: None)
    path.write_bytes(b"GGUF-one-xxx")
    assert find_model("tiny") is None


def test_a_path_must_be_gguf(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(b"GGUF....")
    bad.write_bytes(b"ELF")
    assert ensure_model(str(good)) == good
    with pytest.raises(ModelError, match="not a GGUF file"):
        ensure_model(str(bad))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'nix': no such file.* one of: smollm2-135m, qwen2\.5"):
        ensure_model("nix")


# Pins: requirements/ is what people and scanners read; the code carries the same.


def pins(name: str) -> dict[str, str]:
    words = (REQUIREMENTS / name).read_text().replace("\\\n", " ").split()
    digests = (word.removeprefix("--hash=sha256:") for word in words[1::2])
    return dict(zip(words[::2], digests, strict=True))


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("models.txt", "smollm2-135m"),
        ("bench-model.txt", "qwen2.5-coder-1.5b"),
        ("test-model.txt", "gemma-3-270m"),
    ],
)
def test_the_catalogue_agrees_with_the_requirements(file: str, model: str) -> None:
    assert pins(file) == {part.package: part.wheel_sha256 for part in CATALOGUE[model].parts}


def test_the_engine_agrees_with_the_requirements() -> None:
    assert pins("engine.txt") == {source.PACKAGE: source.SDIST_SHA256}


# The master key.


def test_the_master_key_is_private_and_stays() -> None:
    from flashlane.paths import state_dir

    key = ensure_master_key()
    path = state_dir() / "master_key"
    assert key.startswith("sk-")
    assert len(key) == 67
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    assert ensure_master_key() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_master_key_is_made_anew() -> None:
    from flashlane.paths import state_dir

    (state_dir() / "master_key").touch(mode=0o600)
    assert ensure_master_key().startswith("sk-")
