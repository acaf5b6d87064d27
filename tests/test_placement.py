"""The choice of a deployment: prefill saved against the wait, in ms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.placement import Candidate, Placement, place

SPEED = 100.0


def candidate(label: str, **fields: Any) -> Candidate:
    return Candidate(
        label, **{"slots": 2, "expected_ms": 4000.0, "prefill_tokens_per_s": SPEED, **fields}
    )


def placed(*candidates: Candidate, tokens: int = 1000, min_saving_ms: float = 500.0) -> Placement:
    return place(tokens, candidates, min_saving_ms)


def test_the_longest_beginning_decides() -> None:
    placement = placed(candidate("a", held_tokens=400), candidate("b", held_tokens=900))
    assert placement.labels == ("b",)
    assert placement.reason.code == "prefix_held"
    assert placement.reason.text == (
        "b: 0 ms wait + 1000 ms prefill (900 of 1000 tokens held); "
        "a: 0 ms wait + 6000 ms prefill (400 of 1000 tokens held)"
    )


@pytest.mark.parametrize(
    ("in_flight", "label", "code"),
    [(1, "a", "prefix_held"), (5, "a", "prefix_held"), (6, "b", "prefix_overloaded")],
)
def test_a_long_queue_outweighs_what_is_held(in_flight: int, label: str, code: str) -> None:
    """900 tokens are 9000 ms; five requests before it are 4 queued x 4000 ms / 2 slots = 8000."""
    placement = placed(candidate("a", held_tokens=900, in_flight=in_flight), candidate("b"))
    assert (placement.labels, placement.reason.code) == ((label,), code)


def test_the_arithmetic_of_a_queue_is_shown() -> None:
    placement = placed(candidate("a", held_tokens=900, in_flight=6), candidate("b"))
    assert "10000 ms wait (5 queued x 4000 ms / 2 slots) + 1000 ms prefill" in placement.reason.text


def test_what_nobody_holds_is_left_to_litellm() -> None:
    placement = placed(candidate("a", in_flight=9), candidate("b"))
    assert (placement.labels, placement.reason.code) == (("a", "b"), "prefix_unknown")


def test_a_short_common_beginning_binds_nobody() -> None:
    common = candidate("a", held_tokens=49)
    assert placed(common, candidate("b")).labels == ("a", "b")
    assert placed(common, candidate("b"), tokens=98).labels == ("a",)
    assert placed(candidate("a", held_tokens=50), candidate("b")).labels == ("a",)


def test_equals_are_left_to_litellm() -> None:
    held = [candidate(label, held_tokens=900) for label in "ab"]
    assert placed(*held, candidate("c")).labels == ("a", "b")


def test_a_server_that_kept_nothing_lately_is_not_trusted() -> None:
    forgetful = candidate("a", held_tokens=900, trust=0.1, in_flight=2)
    assert placed(forgetful, candidate("b")).labels == ("b",)


def test_a_hint_breaks_ties_and_proves_nothing() -> None:
    hinted = candidate("b", hinted=True)
    assert placed(candidate("a"), hinted).labels == ("b",)
    assert placed(candidate("a"), hinted).reason.code == "cache_key"
    assert placed(candidate("a", held_tokens=900), hinted).labels == ("a",)
    assert placed(candidate("a"), candidate("b", hinted=True, in_flight=2)).labels == ("a", "b")
    both = [candidate("a", held_tokens=900), candidate("b", held_tokens=900, hinted=True)]
    assert placed(*both).labels == ("b",)


candidates = st.lists(
    st.builds(
        Candidate,
        label=st.uuids().map(str),
        held_tokens=st.integers(0, 2000),
        in_flight=st.integers(0, 9),
        slots=st.integers(1, 4),
        expected_ms=st.floats(0, 1e5),
        prefill_tokens_per_s=st.floats(1, 1e5),
        trust=st.floats(0, 1),
        hinted=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(st.integers(1, 2000), candidates)
def test_somebody_is_always_chosen_and_nobody_is_cheaper(
    tokens: int, given_candidates: list[Candidate]
) -> None:
    placement = place(tokens, given_candidates)
    assert placement.labels
    if placement.reason.code not in ("prefix_held", "prefix_overloaded"):
        return
    costs = {
        c.label: c.wait_ms + c.prefill_ms(tokens - int(min(c.held_tokens, tokens) * c.trust))
        for c in given_candidates
    }
    assert max(costs[label] for label in placement.labels) <= min(costs.values()) + 1.01


@settings(deadline=None)
@given(st.integers(1, 2000), candidates, st.integers(0, 2000), st.integers(0, 9))
def test_holding_more_and_less_work_never_loses_the_request(
    tokens: int, others: list[Candidate], more: int, less: int
) -> None:
    first = others[0]
    label = first.label
    before = place(tokens, others)
    if label not in before.labels or not before.reason.code.startswith("prefix_held"):
        return
    better = Candidate(
        label,
        min(2000, first.held_tokens + more),
        max(0, first.in_flight - less),
        first.slots,
        first.expected_ms,
        first.prefill_tokens_per_s,
        1.0,
        True,
    )
    assert label in place(tokens, [better, *others[1:]]).labels
