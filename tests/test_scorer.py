"""Making the scorer's model: the choice of its type, and that a failure leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashlane import scorer
from flashlane.models import ModelError
from flashlane.scorer import F32, Q4_0, Q8_0, ensure_scorer, scorer_path, scorer_type


@pytest.fixture
def bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, bindings on an engine of that name, and a model that is no GGUF file."""
    monkeypatch.setenv("FLASHLANE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    monkeypatch.setattr(scorer, "bound_libraries", lambda: tmp_path / "abc123" / "bin")
    source = tmp_path / "source.gguf"
    source.write_bytes(b"GGUF")
    monkeypatch.setattr(scorer, "ensure_model", lambda name, say: source)
    return tmp_path


@pytest.mark.parametrize(
    ("machine", "flags", "kind"),
    [
        ("x86_64", "flags : fma avx2", F32),
        ("AMD64", "", F32),
        ("x86_64", "flags : avx2 avx_vnni", Q4_0),
        ("x86_64", "flags : avx512f avx512_vnni", Q4_0),
        ("arm64", "", Q8_0),
        ("aarch64", "", Q8_0),
    ],
)
def test_type_follows_the_processor(machine: str, flags: str, kind: scorer.ScorerType) -> None:
    assert scorer_type(machine, flags) == kind


def test_path_names_model_type_and_engine(bound: Path) -> None:
    path = scorer_path()
    assert path is not None
    assert path.parent == bound / "cache" / "models"
    assert path.name == f"smollm2-135m-b179c9523d0e-scorer-16x{scorer_type().name}-abc123.gguf"


def test_without_bindings_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "bound_libraries", lambda: None)
    assert scorer_path() is None
    with pytest.raises(ModelError, match="flashlane setup"):
        ensure_scorer()


def test_what_is_there_is_not_made_again(bound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        made.append(source)
        target.write_bytes(b"GGUF")

    monkeypatch.setattr(scorer, "_convert", convert)
    said: list[str] = []
    assert ensure_scorer(said.append) == ensure_scorer(said.append) == scorer_path()
    assert len(made) == len(said) == 1


def test_failed_conversion_leaves_nothing(bound: Path) -> None:
    with pytest.raises(ModelError, match="could not be converted"):
        ensure_scorer(lambda line: None)
    assert [path.suffix for path in (bound / "cache" / "models").iterdir()] == [".lock"]
