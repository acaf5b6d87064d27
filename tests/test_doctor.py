"""`flashlane doctor`: what it finds, and that every finding says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flashlane import doctor
from flashlane.setup import ensure_master_key


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHLANE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)


def config_with(tmp_path: Path, *, port: int, model: str = "smollm2-135m") -> Path:
    path = tmp_path / "litellm_config.yaml"
    path.write_text(f"flashlane: {{backends: {{local: {{model: {model}, port: {port}}}}}}}\n")
    return path


def check(path: Path, name: str) -> doctor.Check:
    return next(found for found in doctor.run_checks(path) if found.name == name)


def test_whatever_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failed = [c for c in doctor.run_checks(config_with(tmp_path, port=18199)) if not c.ok]
    assert {"C++ compiler", "cmake", "patch", "engine", "master key", "model of local"} <= {
        c.name for c in failed
    }
    assert [c for c in failed if not c.fix] == []


def test_a_taken_port_is_found(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = check(config_with(tmp_path, port=port), "port of local")
    assert not found.ok
    assert str(port) in found.message


@pytest.mark.parametrize(
    ("pflash", "found", "fix"),
    [
        ("{score: model, model: smollm2-135m}", "scorer of local", "flashlane setup"),
        ("{score: model, model: /no/such.gguf}", "scorer of local", "give the path of a GGUF file"),
        ("{drafter: /no/such/helper}", "helper of local", "correct `pflash.drafter`"),
    ],
)
def test_what_pflash_lacks_is_found(tmp_path: Path, pflash: str, found: str, fix: str) -> None:
    path = config_with(tmp_path, port=18199)
    path.write_text(path.read_text().replace("port: 18199", f"port: 18199, pflash: {pflash}"))
    missing = check(path, found)
    assert not missing.ok
    assert missing.fix is not None
    assert missing.fix.startswith(fix)


def test_a_helper_that_is_there_is_found(tmp_path: Path) -> None:
    path = config_with(tmp_path, port=18199)
    drafter = "port: 18199, pflash: {drafter: /bin/cat}"
    path.write_text(path.read_text().replace("port: 18199", drafter))
    assert check(path, "helper of local").ok


def test_a_broken_config_is_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "litellm_config.yaml"
    path.write_text("flashlane: {backend: {}}\n")
    found = check(path, "config")
    assert not found.ok
    assert "did you mean 'backends'" in found.message


def test_a_master_key_that_others_can_read_is_found(tmp_path: Path) -> None:
    path = config_with(tmp_path, port=18199)
    ensure_master_key()
    assert check(path, "master key").ok
    (tmp_path / "state" / "master_key").chmod(0o640)
    found = check(path, "master key")
    assert not found.ok
    assert found.fix is not None
    assert found.fix.startswith("chmod 600")


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8", "1.107.0", "1.107.3"])
def test_a_poisoned_litellm_is_found(version: str) -> None:
    assert not doctor._litellm(lambda name: version).ok


@pytest.mark.parametrize("version", ["1.82.6", "1.82.9", "1.108.4", "1.110.7"])
def test_other_versions_of_litellm_are_not(version: str) -> None:
    assert doctor._litellm(lambda name: version).ok


def test_a_model_that_is_no_file_names_the_known_ones(tmp_path: Path) -> None:
    found = check(config_with(tmp_path, port=18199, model="/nowhere.gguf"), "model of local")
    assert not found.ok
    assert found.fix is not None
    assert "smollm2-135m" in found.fix
