"""The gear: what was measured to write fastest, and a neighbour tried now and then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashlane.decision import Drafting, GearRecord
from flashlane.gears import choices_within, draft_limit, gear_for

CHOICES = (0, 4, 8, 16)


def gear(
    records: Mapping[int, GearRecord],
    turn: int = 0,
    of_all: Mapping[int, GearRecord] | None = None,
    choices: tuple[int, ...] = CHOICES,
) -> tuple[int, str]:
    drafting = Drafting(choices, 20, {"code": records, "": of_all or {}}, {"code": turn})
    chosen, reason = gear_for("code", drafting)
    return chosen, reason.code


def test_nothing_measured_starts_low() -> None:
    assert gear({}) == (4, "gear_start")
    assert gear({}, choices=(8, 16)) == (8, "gear_start")


def test_the_fastest_gear_wins_and_ties_go_to_less_drafting() -> None:
    records = {4: GearRecord(40.0, 0.9), 8: GearRecord(55.0, 0.7), 16: GearRecord(50.0, 0.4)}
    assert gear(records) == (8, "gear")
    assert gear({0: GearRecord(40.0), 4: GearRecord(40.0, 0.5)}) == (0, "gear")


def test_drafting_that_loses_is_switched_off() -> None:
    records = {0: GearRecord(31.0), 4: GearRecord(30.0, 0.5), 8: GearRecord(22.0, 0.3)}
    assert gear(records) == (0, "gear")


def test_drafts_that_nobody_takes_lose_before_gear_0_is_measured() -> None:
    assert gear({4: GearRecord(30.0, 0.05)}) == (0, "gear")
    assert gear({4: GearRecord(30.0, 0.15)}) == (4, "gear")


def test_what_all_kinds_measured_stands_in() -> None:
    of_all = {0: GearRecord(20.0), 8: GearRecord(50.0, 0.7)}
    assert gear({}, of_all=of_all) == (8, "gear")
    assert gear({8: GearRecord(15.0, 0.2)}, of_all=of_all) == (0, "gear"), "but not against it"


def test_every_twentieth_request_tries_a_neighbour() -> None:
    records = {8: GearRecord(50.0, 0.7)}
    tried = [gear(records, turn) for turn in range(40)]
    assert [n for n, (_, code) in enumerate(tried) if code == "gear_explored"] == [19, 39]
    assert tried[19][0] == 16, "most drafts are taken: deeper first"
    assert gear({8: GearRecord(50.0, 0.3)}, 19)[0] == 4, "few are: shallower first"


def test_exploring_visits_the_untried_then_gear_0_then_both_sides_in_turn() -> None:
    records = {8: GearRecord(50.0, 0.7), 16: GearRecord(45.0, 0.4)}
    assert gear(records, 19)[0] == 4
    records[4] = GearRecord(48.0, 0.9)
    assert gear(records, 19)[0] == 0
    records[0] = GearRecord(30.0)
    assert [gear(records, 20 * n + 19)[0] for n in range(4)] == [16, 4, 16, 4]


def test_a_machine_that_changes_its_mind_is_followed() -> None:
    """Speeds by gear on a machine where drafting wins at first and loses later."""
    measured: dict[int, float] = {}
    taken: list[int] = []
    for turn in range(800):
        records = {g: GearRecord(v, 0.5 if g else None) for g, v in measured.items()}
        now, _ = gear(records, turn)
        taken.append(now)
        true = {0: 30.0, 4: 42.0, 8: 50.0, 16: 33.0}[now] if turn < 400 else 30.0 - now
        measured[now] = measured.get(now, true) + 0.3 * (true - measured.get(now, true))
    assert taken[300:399].count(8) >= 93
    assert taken[700:].count(0) >= 93


@given(
    choices=st.sets(st.integers(0, 64), min_size=1, max_size=6).map(lambda c: tuple(sorted(c))),
    records=st.dictionaries(
        st.integers(0, 64),
        st.builds(GearRecord, st.floats(0.1, 1e4), st.none() | st.floats(0, 1)),
    ),
    turn=st.integers(0, 200),
)
def test_a_gear_is_one_of_the_choices_and_the_same_each_time(
    choices: tuple[int, ...], records: dict[int, GearRecord], turn: int
) -> None:
    chosen, code = gear(records, turn, choices=choices)
    assert chosen in choices
    assert gear(records, turn, choices=choices) == (chosen, code)


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        ((), None),
        (("-c", "4096"), None),
        (("-md", "d.gguf"), 3),
        (("--model-draft", "d.gguf", "--spec-draft-n-max", "16"), 16),
        (("--spec-draft-n-max=8", "--spec-draft-model=d.gguf"), 8),
        (("--spec-draft-n-max", "8"), None),
        (("--spec-type", "none"), None),
        (("--spec-type", "draft-dflash", "-md", "d.gguf"), 3),
        (("--spec-type", "draft-mtp"), 3),
        (("--spec-type", "ngram-mod"), 64),
        (("--spec-type", "draft-simple,ngram-mod", "--spec-draft-n-max", "12"), 12),
        (("--spec-default",), 64),
        (("--spec-type",), None),
    ],
)
def test_a_drafter_is_seen_in_the_arguments(args: tuple[str, ...], limit: int | None) -> None:
    assert draft_limit(args) == limit


def test_choices_beyond_the_engines_bound_are_one_choice() -> None:
    assert choices_within(CHOICES, 64) == CHOICES
    assert choices_within(CHOICES, 8) == (0, 4, 8)
    assert choices_within(CHOICES, 3) == (0, 3)
    assert choices_within(CHOICES, 0) == (0,)
