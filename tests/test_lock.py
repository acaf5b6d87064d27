"""The lock: every line pinned by hash, no poisoned LiteLLM, no registry named."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
LOCKS = sorted(REQUIREMENTS.glob("*.txt"))
POISONED = re.compile(r"^(1\.82\.[78]|1\.107\..*)$")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_every_requirement_has_a_hash(lock: Path) -> None:
    text = lock.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            assert "==" in line and "--hash=sha256:" in line, line[:80]
    assert "://" not in text


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt"])
def test_no_poisoned_litellm(name: str) -> None:
    versions = re.findall(r"^litellm==(\S+)", (REQUIREMENTS / name).read_text(), re.M)
    assert versions
    assert not [v for v in versions if POISONED.match(v)]


def test_the_installed_litellm_is_the_locked_one() -> None:
    version = importlib.metadata.version("litellm")
    assert not POISONED.match(version)
    assert f"litellm=={version} " in (REQUIREMENTS / "dev.txt").read_text()


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8", "1.107.0"])
def test_the_pattern_refuses_the_poisoned_ones(version: str) -> None:
    assert POISONED.match(version)
