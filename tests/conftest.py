"""Shared fixtures: one engine build, one model, one proxy for the whole session."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    document["flashlane"]["backends"]["local"]["port"] = port
    folder = state / "config"
    folder.mkdir()
    (folder / "plugins").symlink_to(ROOT / "plugins")
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
