"""llama-cpp-python on the engine's own libraries, as set-up leaves it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flashlane.backends.llama_server_patch.build import engine_path
from flashlane.bindings import bound_libraries, ensure_bindings
from flashlane.models import ensure_model

_READ_VOCABULARY = """
import sys, llama_cpp
from llama_cpp import _ggml
model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
print(model.n_vocab(), model.detokenize(model.tokenize(b"Hello world")).decode())
maps = open("/proc/self/maps").read() if sys.platform == "linux" else sys.argv[2]
print(sys.argv[2] in maps)
"""


def test_the_bindings_load_the_engines_libraries_and_a_model() -> None:
    server = engine_path()
    if server is None:
        pytest.skip("no engine is built; `make test` builds it")
    ensure_bindings(server, print)
    assert bound_libraries() == server.parent.resolve()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _READ_VOCABULARY,
            str(ensure_model("smollm2-135m")),
            str(server.parent.resolve()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["49152 Hello world", "True"]
