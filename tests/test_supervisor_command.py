"""Command line, environment, memory estimate and socket place of a backend: no process runs."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from flashlane.backends import channel
from flashlane.backends.channel import ControlError
from flashlane.backends.command import server_command, server_environment
from flashlane.backends.memory import kv_bytes_per_token, memory_bytes, read_header
from flashlane.config import BackendConfig, KVFlashConfig, PFlashConfig


def _pairs(command: list[str]) -> dict[str, str]:
    return dict(itertools.pairwise(command))


def test_command_gives_each_slot_its_context() -> None:
    backend = BackendConfig(model="m", port=1234, context_tokens=4096, slots=3, threads=2)
    command = server_command("local", backend, Path("/bin/llama-server"), Path("/m.gguf"))
    pairs = _pairs(command)
    assert command[0] == "/bin/llama-server"
    assert pairs["-m"] == "/m.gguf"
    assert pairs["-c"] == "12288"
    assert pairs["-np"] == "3"
    assert pairs["--host"] == "127.0.0.1"
    assert pairs["--port"] == "1234"
    assert pairs["--alias"] == "local"
    assert pairs["--threads"] == "2"
    assert "--no-webui" in command
    assert not any("flash" in word for word in command)


def test_flash_settings_become_flags_and_own_args_come_last() -> None:
    backend = BackendConfig(
        model="m",
        port=1,
        pflash=PFlashConfig(mode="auto", keep_ratio=0.25, min_tokens=7),
        kvflash=KVFlashConfig(budget="auto", store_mb=5),
        args=("--jinja",),
    )
    command = server_command("b", backend, Path("s"), Path("m"), frozenset())
    pairs = _pairs(command)
    assert pairs["--pflash-mode"] == "auto"
    assert pairs["--pflash-keep-ratio"] == "0.25"
    assert pairs["--pflash-min-tokens"] == "7"
    assert pairs["--kvflash"] == "auto"
    assert pairs["--kvflash-store-mb"] == "5"
    assert "--pflash-score" not in command
    assert "--no-webui" not in command
    assert command[-1] == "--jinja"


def test_the_scorers_file_takes_the_place_of_its_name() -> None:
    backend = BackendConfig(model="m", port=1, pflash=PFlashConfig(score="model", model="smollm2"))
    command = server_command("b", backend, Path("s"), Path("m"), scorer=Path("/q8.gguf"))
    pairs = _pairs(command)
    assert pairs["--pflash-score"] == "model"
    assert pairs["--pflash-model"] == "/q8.gguf"


def test_the_key_travels_in_the_environment_and_the_proxys_keys_do_not() -> None:
    backend = BackendConfig(model="m", port=1, api_key_env="MY_SECRET")
    outside = {
        "MY_SECRET": "abc",
        "OPENAI_API_KEY": "x",
        "LITELLM_MASTER_KEY": "y",
        "LLAMA_API_KEY": "z",
        "LLAMA_ARG_SLOT_SAVE_PATH": "/",
        "HF_TOKEN": "t",
        "DATABASE_URL": "postgres://u:p@h/d",
        "PGPASSWORD": "p",
        "AWS_SECRET_ACCESS_KEY": "s",
        "CUDA_VISIBLE_DEVICES": "0",
        "PATH": "/bin",
    }
    inside = server_environment(backend, outside)
    assert inside["LLAMA_API_KEY"] == "abc"
    assert inside["PATH"] == "/bin"
    assert inside.keys() == {"PATH", "CUDA_VISIBLE_DEVICES", "LLAMA_API_KEY"}
    assert "abc" not in server_command("b", backend, Path("s"), Path("m"))
    without = server_environment(BackendConfig(model="m", port=1), outside)
    assert "LLAMA_API_KEY" not in without


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(LookupError, match="MY_SECRET"):
        server_environment(BackendConfig(model="m", port=1, api_key_env="MY_SECRET"), {})


def _gguf(entries: dict[str, int | str]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    body = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    for key, value in entries.items():
        body += text(key)
        if isinstance(value, str):
            body += struct.pack("<I", 8) + text(value)
        else:
            body += struct.pack("<II", 4, value)
    return body


def test_memory_counts_weights_and_kv_cache_of_all_slots(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    header: dict[str, int | str] = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
    }
    model.write_bytes(_gguf(header))
    assert kv_bytes_per_token(read_header(model)) == 2 * 2 * (16 + 16) * 2
    one = memory_bytes(BackendConfig(model="m", port=1, slots=1, context_tokens=1000), model)
    two = memory_bytes(BackendConfig(model="m", port=1, slots=2, context_tokens=1000), model)
    assert two - one == 1000 * 256
    assert memory_bytes(BackendConfig(model="m", port=1, memory_mb=3), model) == 3 * 2**20


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 60])
def test_a_broken_header_is_no_error(tmp_path: Path, content: bytes) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(content)
    assert memory_bytes(BackendConfig(model="m", port=1), model) > 0


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"x" * 1000)
    (tmp_path / "other-00001-of-00002.gguf").write_bytes(b"x" * 5000)
    single = tmp_path / "s.gguf"
    single.write_bytes(b"x" * 2000)
    backend = BackendConfig(model="m", port=1)
    first = tmp_path / "m-00001-of-00002.gguf"
    assert memory_bytes(backend, first) == memory_bytes(backend, single)


def test_socket_is_private_and_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / ("long" * 30)
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(state))
    place = channel.place_of(tmp_path / "config.yaml")
    folder = place.socket.parent
    try:
        assert len(str(place.socket)) <= 100
        assert folder.stat().st_mode & 0o777 == 0o700
        assert channel.place_of(tmp_path / "config.yaml") == place
        assert channel.place_of(tmp_path / "other.yaml").socket != place.socket
    finally:
        folder.rmdir()


def test_a_planted_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ControlError, match="not a folder of our own"):
        channel.place_of(tmp_path / "config.yaml")
