"""The lock: every line pinned by hash, no poisoned LiteLLM, no registry named."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

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


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8", "1.107.0", "1.107.9"])
def test_the_packages_range_refuses_the_poisoned_ones(version: str) -> None:
    """Also by name, so that they stay out when the range is widened."""
    text = (REQUIREMENTS.parent / "pyproject.toml").read_text()
    (line,) = re.findall(r'"litellm\[proxy\]([^"]+)"', text)
    assert version not in SpecifierSet(line)
    named = ",".join(part for part in line.split(",") if part.startswith("!="))
    assert version not in SpecifierSet(named)


def test_runtime_and_dev_agree() -> None:
    pattern = re.compile(r"^([a-z0-9-]+==[^\\\n]+)", re.M)
    runtime, dev = (
        {pin.strip() for pin in pattern.findall((REQUIREMENTS / name).read_text())}
        for name in ("runtime.txt", "dev.txt")
    )
    assert runtime <= dev
