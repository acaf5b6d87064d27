"""What the engine tests run on: the patched server, the stock one, a small model, the source.

Each comes from an environment variable, or else from the cache that `flashlane build` fills.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    path = Path(value).resolve()
    if not path.exists():
        raise FileNotFoundError(f"{variable}={value}: no such file or folder")
    return path


@pytest.fixture(scope="session")
def engine() -> Path:
    """The patched llama-server."""
    if named := _named("FLASHLANE_TEST_SERVER"):
        return named
    from flashlane.backends.llama_server_patch.build import ensure_engine

    return Path(ensure_engine())


@pytest.fixture(scope="session")
def stock_engine() -> Path:
    """llama-server of the same source, unpatched."""
    if named := _named("FLASHLANE_TEST_STOCK_SERVER"):
        return named
    from flashlane.backends.llama_server_patch.build import ensure_engine

    return Path(ensure_engine(patched=False))


@pytest.fixture(scope="session")
def engine_model() -> Path:
    """A small instruct model."""
    if named := _named("FLASHLANE_TEST_MODEL"):
        return named
    from flashlane.models import ensure_model

    return Path(ensure_model("smollm2-135m"))


@pytest.fixture(scope="session")
def engine_source() -> Path:
    """The unpatched llama.cpp tree."""
    if named := _named("FLASHLANE_TEST_SOURCE"):
        return named
    from flashlane.backends.llama_server_patch.build import ensure_source

    return Path(ensure_source())


@pytest.fixture(scope="session")
def engine_scorer(engine: Path) -> Path:
    """The scorer that set-up makes, on the bindings that set-up binds."""
    from flashlane.bindings import bound_libraries, ensure_bindings
    from flashlane.scorer import ensure_scorer

    if bound_libraries() is None:
        ensure_bindings(engine, print)
    return ensure_scorer(print)


@pytest.fixture(scope="session")
def one_layer_model(
    engine_model: Path, engine_scorer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The model's first layer, converted as the scorer is: where answers do not matter."""
    from flashlane import scorer

    target = tmp_path_factory.mktemp("model") / "one-layer.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer, "KEPT_LAYERS", 1)
        assert scorer.main([str(engine_model), str(target), scorer.Q8_0.name]) == 0
    return target
