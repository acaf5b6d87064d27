"""The eviction policy, without processes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashlane.backends.eviction import DoesNotFit, Running, Target, eviction_for

_sizes = st.integers(0, 50)
_running = st.lists(
    st.builds(
        Running,
        name=st.sampled_from("abcdef"),
        bytes=_sizes,
        last_used=st.floats(0, 10),
        busy=st.booleans(),
    ),
    unique_by=lambda entry: entry.name,
)
_targets = st.builds(Target, name=st.sampled_from("abx"), bytes=_sizes)


def _total(target: Target, running: list[Running], stopped: set[str]) -> int:
    kept = [e.bytes for e in running if e.name != target.name and e.name not in stopped]
    return target.bytes + sum(kept)


@given(_targets, _running, st.integers(0, 200))
def test_choice_fits_is_minimal_and_spares_busy_and_target(
    target: Target, running: list[Running], budget: int
) -> None:
    by_name = {entry.name: entry for entry in running}
    try:
        chosen = eviction_for(target, running, budget)
    except DoesNotFit as reason:
        idle = {entry.name for entry in running if not entry.busy}
        assert _total(target, running, idle) > budget
        assert reason.when_idle == (target.bytes <= budget)
        return
    assert len(set(chosen)) == len(chosen)
    assert target.name not in chosen
    assert not any(by_name[name].busy for name in chosen)
    assert _total(target, running, set(chosen)) <= budget
    for fewer in itertools.combinations(chosen, max(len(chosen) - 1, 0)):
        assert not chosen or _total(target, running, set(fewer)) > budget
    order = [by_name[name].last_used for name in chosen]
    assert order == sorted(order)


@given(_targets, _running, st.integers(0, 200))
def test_order_of_running_does_not_matter(
    target: Target, running: list[Running], budget: int
) -> None:
    def answer(entries: list[Running]) -> list[str] | str:
        try:
            return eviction_for(target, entries, budget)
        except DoesNotFit as reason:
            return str(reason)

    assert answer(running) == answer(running[::-1])


def test_least_recently_used_goes_first() -> None:
    running = [Running("new", 10, 3.0, False), Running("old", 10, 1.0, False)]
    assert eviction_for(Target("x", 10), running, 20) == ["old"]


def test_small_old_model_is_spared_when_a_larger_one_must_go_anyway() -> None:
    running = [Running("old", 1, 1.0, False), Running("large", 30, 2.0, False)]
    assert eviction_for(Target("x", 20), running, 40) == ["large"]


def test_no_budget_stops_nothing() -> None:
    assert eviction_for(Target("x", 10**15), [Running("a", 10, 1.0, False)], None) == []


def test_too_large_target_says_what_would_work() -> None:
    with pytest.raises(DoesNotFit, match="needs 3 MiB and memory_budget_mb allows 2 MiB") as caught:
        eviction_for(Target("x", 3 * 2**20), [], 2 * 2**20)
    assert not caught.value.when_idle


def test_busy_model_is_waited_for() -> None:
    with pytest.raises(DoesNotFit, match="a is answering requests") as caught:
        eviction_for(Target("x", 10), [Running("a", 10, 1.0, True)], 10)
    assert caught.value.when_idle
