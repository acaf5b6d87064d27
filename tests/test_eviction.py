"""The eviction choice, as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashlane.backends.eviction import CannotFit, Running, eviction_for

models = st.lists(
    st.builds(Running, st.text("abcdef", min_size=1, max_size=3), st.integers(1, 50), st.floats(0, 9), st.booleans()),
    max_size=8,
    unique_by=lambda m: m.name,
)


@given(models, st.integers(1, 60), st.integers(1, 200))
def test_stops_enough_idle_ones_and_no_more(running: list[Running], size: int, budget: int) -> None:
    target = Running("target", size, 10.0)
    by_name = {m.name: m for m in running}
    try:
        stopped = eviction_for(target, running, budget)
    except CannotFit:
        assert size + sum(m.bytes for m in running if m.busy) > budget or size > budget
        return
    left = sum(m.bytes for m in running if m.name not in stopped)
    assert left + size <= budget
    assert all(not by_name[name].busy for name in stopped)
    for name in stopped:
        assert left + size + by_name[name].bytes > budget


def test_least_recently_used_first() -> None:
    running = [Running("new", 10, 2.0), Running("old", 10, 1.0)]
    assert eviction_for(Running("t", 10, 3.0), running, 20) == ["old"]


def test_no_budget_stops_nothing() -> None:
    assert eviction_for(Running("t", 10, 0.0), [Running("a", 10, 0.0)], None) == []


def test_too_large_is_said() -> None:
    with pytest.raises(CannotFit, match="memory_budget_mb"):
        eviction_for(Running("t", 5_000_000, 0.0), [], 4_000_000)
