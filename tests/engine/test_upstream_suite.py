"""llama.cpp's own server tests have the same pass set on the patched and on the stock server."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream_suite import outcomes, prepare

# Fewer than this many passes means that the suite did not really run.
_LEAST_PASSED = 100


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_same_pass_set(
    engine: Path, stock_engine: Path, engine_model: Path, engine_source: Path, tmp_path: Path
) -> None:
    suites = {"stock": stock_engine, "patched": engine}
    folders = {name: prepare(engine_source, tmp_path / name) for name in suites}
    seen = {name: outcomes(suites[name], engine_model, folders[name]) for name in suites}

    different = _different(seen)
    if different:
        # Some of these tests race against the clock: a difference has to show itself again.
        for name in suites:
            seen[name] |= outcomes(suites[name], engine_model, folders[name], different)

    passed = [test for test, outcome in seen["stock"].items() if outcome == "passed"]
    assert len(passed) >= _LEAST_PASSED
    again = _different(seen)
    assert not again, {test: {name: seen[name].get(test) for name in suites} for test in again}


def _different(seen: dict[str, dict[str, str]]) -> list[str]:
    tests = seen["stock"].keys() | seen["patched"].keys()
    return sorted(test for test in tests if seen["stock"].get(test) != seen["patched"].get(test))
