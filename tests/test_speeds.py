"""Learned speeds: what a sample moves, what is no sample, and one truth for all workers."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashlane.decision import Decision
from flashlane.flight import Flight
from flashlane.speeds import (
    SCRIPT,
    Figures,
    Key,
    Mean,
    Sample,
    Seeds,
    Speeds,
    after,
    read_figures,
    samples_of,
)
from flashlane.statefile import StateFile

PREFILL = Key("local", "prefill")
TIMINGS = {
    "prompt_n": 1000,
    "cache_n": 0,
    "prompt_ms": 10_000.0,
    "predicted_n": 50,
    "predicted_per_second": 25.0,
}
REPORT = {
    "original_tokens": 4000,
    "kept_tokens": 1000,
    "score_ms": 2000.0,
    "mask_hits": 0,
    "reason": "compressed",
}


def flight(lane: Any = "direct", gear: int | None = None, **timings: Any) -> Flight:
    made = Flight("f", "r", "", "chat", "local", False)
    made.decision = Decision(
        lane, "local", False, 1.0, gear, (), kind="summary", estimated_tokens=1000
    )
    made.gear = gear
    made.timings = {**TIMINGS, **timings}
    return made


def told(made: Flight, **seeds: float) -> dict[Key, float]:
    return {s.key: s.value for s in samples_of(made, "local", Seeds(**seeds))}


def test_what_a_plain_answer_tells() -> None:
    assert told(flight()) == {
        PREFILL: 100.0,
        Key("local", "tokens_per_estimate"): 1.0,
        Key("local", "decode"): 25.0,
        Key("local", "answer_tokens"): float(TIMINGS["predicted_n"]),
    }


@pytest.mark.parametrize(
    "timings",
    [
        {"prompt_n": 63},
        {"prompt_ms": 0.0},
        {"prompt_ms": float("nan")},
        {"prompt_ms": "fast"},
        {"prompt_ms": None},
        {"prompt_n": True},
        {"pflash": {"score_ms": 10_000.0}},
        {"prompt_ms": 1e-9},
    ],
    ids=str,
)
def test_what_is_no_prefill_speed(timings: dict[str, Any]) -> None:
    assert PREFILL not in told(flight(**timings))


def test_scoring_and_restoring_are_not_prefill() -> None:
    made = flight("pflash", pflash=REPORT, kvflash={"restore_ms": 3000.0}, gear=None)
    found = told(made)
    assert found[PREFILL] == 200.0
    assert found[Key("local", "scorer")] == 2000.0
    assert found[Key("local", "tokens_per_estimate")] == 4.0


@pytest.mark.parametrize(
    "change", [{"mask_hits": 2}, {"reason": "insufficient_middle_budget"}, {"score_ms": 0.0}]
)
def test_what_an_earlier_turn_scored_is_no_scorer_speed(change: dict[str, Any]) -> None:
    found = told(flight("pflash", pflash={**REPORT, **change}))
    assert Key("local", "scorer") not in found


def test_the_compressor_is_another_engine_than_the_one_that_answers() -> None:
    made = flight("pflash", pflash=REPORT)
    made.timings = {"pflash": REPORT}
    assert {s.key for s in samples_of(made, "far", Seeds(), "local")} == {
        Key("local", "scorer"),
        Key("far", "tokens_per_estimate"),
    }


def test_an_engine_without_timings_is_timed_by_its_first_chunk() -> None:
    made = flight()
    made.timings, made.usage = {}, {"prompt_tokens": 1000}
    made.sent, made.first_chunk = 10.0, 12.0
    assert told(made)[PREFILL] == 500.0
    made.usage = {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 800}}
    assert PREFILL not in told(made), "200 tokens are too few for that"


def test_what_gears_are_worth_is_by_kind_and_for_all_kinds() -> None:
    found = told(flight(gear=8, draft_n=40, draft_n_accepted=30))
    for kind in ("", "summary"):
        assert found[Key("local", "decode", kind, 8)] == 25.0
        assert found[Key("local", "acceptance", kind, 8)] == 0.75
    assert Key("local", "acceptance", "", 8) not in told(
        flight(gear=8, draft_n=7, draft_n_accepted=7)
    )
    assert Key("local", "decode", "", 0) in told(flight(gear=0))
    assert Key("local", "decode", "", 0) not in told(flight(gear=0, predicted_n=15))


def test_doubt_is_of_the_verify_lane_by_kind() -> None:
    made = flight("verify", pflash=REPORT)
    made.verdict = "doubted"
    found = told(made)
    assert found[Key("local", "doubt", "summary")] == 1.0
    assert PREFILL not in found, "two passes left their figures"
    made.verdict = "accepted"
    assert told(made)[Key("local", "doubt", "summary")] == 0.0
    made.verdict = "unchecked"
    assert Key("local", "doubt", "summary") not in told(made)


def test_a_seed_counts_as_one_sample_and_fades() -> None:
    mean = after(None, Sample(PREFILL, 200.0, seed=100.0))
    assert mean == Mean(150.0, 2)
    for _ in range(30):
        mean = after(mean, Sample(PREFILL, 200.0, seed=100.0))
    assert mean.value == pytest.approx(200.0, abs=1.0)
    assert after(None, Sample(PREFILL, 200.0)) == Mean(200.0, 1)


def test_an_outlier_moves_a_settled_mean_little_and_a_new_truth_is_reached() -> None:
    settled = Mean(100.0, 20)
    assert after(settled, Sample(PREFILL, 1e7)).value == pytest.approx(160.0)
    assert after(settled, Sample(PREFILL, 1e-3)).value == pytest.approx(85.0)
    mean = settled
    for _ in range(20):
        mean = after(mean, Sample(PREFILL, 1000.0))
    assert mean.value == pytest.approx(1000.0, rel=0.1)


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40))
def test_a_mean_lies_among_its_samples(values: list[float]) -> None:
    mean: Mean | None = None
    for value in values:
        mean = after(mean, Sample(PREFILL, value))
    assert mean is not None and mean.samples == len(values)
    assert min(values) * 0.999 <= mean.value <= max(values) * 1.001


def test_figures_by_engine_and_kind() -> None:
    figures = Figures(
        {
            PREFILL: Mean(80.0, 3),
            Key("v", "doubt", "retrieval"): Mean(0.1, 9),
            Key("local", "decode"): Mean(20.0, 5),
            Key("local", "decode", "code", 8): Mean(40.0, 2),
            Key("local", "acceptance", "code", 8): Mean(0.6, 2),
            Key("local", "decode", "code", 0): Mean(22.0, 1),
        }
    )
    assert figures.of("local", "prefill") == 80.0 and figures.of("other", "prefill") is None
    assert figures.doubts("v") == {"retrieval": 0.1} and figures.doubts("w") == {}
    records = figures.gears("local")["code"]
    assert (records[8].acceptance, records[8].decode_tokens_per_s) == (0.6, 40.0)
    assert records[0].acceptance is None and figures.gears("other") == {}


def worker(path: Path) -> tuple[Speeds, StateFile]:
    file = StateFile(path, SCRIPT, refresh_s=0.0)
    return Speeds(file), file


def test_two_workers_share_what_they_learn(tmp_path: Path) -> None:
    path = tmp_path / "state" / "learned.sqlite"
    (one, file_one), (other, file_two) = worker(path), worker(path)
    try:
        one.learn([Sample(PREFILL, 200.0, seed=100.0)])
        assert one.figures().of("local", "prefill") == 150.0, "at once where it was learned"
        assert file_one.settle()
        other.learn([Sample(PREFILL, 300.0, seed=100.0)])
        assert file_two.settle()
        for speeds, file in ((one, file_one), (other, file_two)):
            speeds.figures()
            assert file.settle()
            assert speeds.figures().means[PREFILL] == Mean(200.0, 3)
    finally:
        file_one.close()
        file_two.close()
    assert read_figures(path).of("local", "prefill") == 200.0, "and after a restart"
    assert [stat.S_IMODE(p.stat().st_mode) for p in path.parent.glob("learned*")] == [0o600] * len(
        list(path.parent.glob("learned*"))
    )


_LEARNER = """
import sys
from pathlib import Path
from flashlane.speeds import SCRIPT, Key, Sample, Speeds
from flashlane.statefile import StateFile
file = StateFile(Path(sys.argv[1]), SCRIPT)
speeds = Speeds(file)
for _ in range(200):
    speeds.learn([Sample(Key("local", "prefill"), 100.0), Sample(Key("local", "decode"), 10.0)])
assert file.settle(60)
file.close()
"""


def test_two_processes_lose_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "learned.sqlite"
    command = [sys.executable, "-c", _LEARNER, str(path)]
    running = [subprocess.Popen(command, cwd=Path(__file__).parent.parent) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert {mean.samples for mean in read_figures(path).means.values()} == {400}


def test_a_file_that_is_none_costs_nothing_but_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "learned.sqlite"
    path.write_text("no database, and long enough to be taken for a damaged one. " * 20)
    speeds, file = worker(path)
    for _ in range(3):
        speeds.learn([Sample(PREFILL, 100.0)])
        assert file.settle()
        assert speeds.figures().of("local", "prefill") == 100.0
    assert [record.levelname for record in caplog.records] == ["ERROR"], "said once"
    file.close()


def test_work_that_fails_leaves_nothing_half_done(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "s.sqlite", SCRIPT)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO means VALUES ('a', 'b', '', -1, 1.0, 1, 0.0)")
        raise sqlite3.OperationalError("disk full")

    file.soon(fails)
    assert file.settle()
    file.close()
    assert not read_figures(tmp_path / "s.sqlite").means


def test_samples_are_plain_values() -> None:
    """What is kept names engines and kinds of ask, never what was asked."""
    found = samples_of(flight(gear=4, draft_n=20, draft_n_accepted=10), "local", Seeds())
    assert "local" in json.dumps([s.key._asdict() for s in found])
    assert {s.key.kind for s in found} == {"", "summary"}
