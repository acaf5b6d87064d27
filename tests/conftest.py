"""Shared fixtures: one engine build, one model, one proxy for the whole session."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from flashlane.serve import free_port

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of the tests' own: the user's key and logs are left alone."""
    folder = tmp_path_factory.mktemp("state")
    before = os.environ.get("FLASHLANE_STATE_DIR")
    os.environ["FLASHLANE_STATE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["FLASHLANE_STATE_DIR"]
    else:
        os.environ["FLASHLANE_STATE_DIR"] = before


@pytest.fixture(scope="session")
def config_path(state: Path) -> Path:
    """The repository's own config on free ports, with its plugins folder beside it."""
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    port = free_port()
    for entry in document["model_list"]:
        entry["litellm_params"]["api_base"] = f"http://127.0.0.1:{port}/v1"
    document["flashlane"]["policy"]["min_saving_ms"] = 0  # also where a machine turns out fast
    backend = document["flashlane"]["backends"]["local"]
    backend["port"] = port
    if os.environ.get("FLASHLANE_TEST_SERVER"):
        backend["server"] = os.environ["FLASHLANE_TEST_SERVER"]
    folder = state / "config"
    folder.mkdir()
    (folder / "plugins").symlink_to(ROOT / "plugins")
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(frozen=True)
class RedisServer:
    """A real one, on a port of its own."""

    port: int
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="session")
def redis_or_none() -> Iterator[RedisServer | None]:
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield RedisServer(port, process)
    finally:
        process.kill()
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def redis_server(redis_or_none: RedisServer | None) -> RedisServer:
    if redis_or_none is None:
        pytest.skip("redis-server is not installed; as root, `make test` installs it")
    return redis_or_none
