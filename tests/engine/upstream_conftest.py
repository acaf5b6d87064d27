"""conftest for llama.cpp's own server tests, run with neither network nor their model files.

`test_upstream_suite` copies it over upstream's conftest. Every preset gets the one local model, so
tests that expect another model's words fail; they fail alike on both binaries under comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import utils  # type: ignore[import-not-found]  # upstream's, beside the copy

_TEST_LIMIT_S = 60
_REMOTE = ("model_hf_repo", "model_hf_file", "model_url", "mmproj_url")
_start = utils.ServerProcess.start


def _start_locally(server: Any, timeout_seconds: int = 30) -> None:
    remote = [name for name in _REMOTE if getattr(server, name)]
    if remote and not server.models_dir and not server.models_preset:
        for name in _REMOTE:
            setattr(server, name, None)
        server.model_file = os.environ["LOCAL_MODEL"]
    server.offline = True
    _start(server, timeout_seconds)


utils.ServerProcess.start = _start_locally
utils.DEFAULT_REQUEST_TIMEOUT = _TEST_LIMIT_S


@pytest.fixture(autouse=True)
def stop_servers() -> Iterator[None]:
    """Ends the test's servers, and the test itself when it waits for something that never comes."""

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"test ran longer than {_TEST_LIMIT_S} s")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(_TEST_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        for server in set(utils.server_instances):
            server.stop()
