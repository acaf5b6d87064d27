"""What is remembered of conversations: bounded, aged, and the same for all workers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flashlane.conversations import SCRIPT, Conversations, Trace
from flashlane.decision import Held, Recollection
from flashlane.statefile import StateFile


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "learned.sqlite", SCRIPT)


def test_the_last_lane_and_what_each_holds(file: StateFile) -> None:
    memory = Conversations(file)
    assert memory.recall("a", 0.0, 60.0) is None
    memory.remember("a", Trace("direct", 1000, 1.0, "local@1", 10.0))
    memory.remember("a", Trace("pflash", 2000, 0.4, "local@1", 20.0))
    assert memory.recall("a", 30.0, 60.0) == Recollection(
        "pflash", {"direct": Held(1000), "pflash": Held(2000, 0.4)}
    )
    file.close()


def test_an_answer_of_two_passes_leaves_both_and_is_the_verify_lanes(file: StateFile) -> None:
    memory = Conversations(file)
    memory.remember(
        "a",
        Trace("verify", 1000, 0.2, "s", 10.0),
        Trace("direct", 1000, 1.0, "s", 10.0, last=False),
    )
    found = memory.recall("a", 10.0, 60.0)
    assert found is not None and found.lane == "verify" and found.held["direct"].tokens == 1000
    file.close()


def test_old_traces_and_ended_servers_hold_nothing(file: StateFile) -> None:
    memory = Conversations(file)
    memory.remember("a", Trace("direct", 1000, 1.0, "local@1", 10.0))
    memory.remember("a", Trace("pflash", 2000, 0.4, "local@2", 50.0))
    found = memory.recall("a", 80.0, 60.0)
    assert found is not None and set(found.held) == {"pflash"}
    assert memory.recall("a", 111.0, 60.0) is None
    found = memory.recall("a", 60.0, 60.0, lambda server: server == "local@2")
    assert found is not None and found.held == {"direct": Held(0), "pflash": Held(2000, 0.4)}
    file.close()


def test_the_least_recently_used_goes_first(file: StateFile) -> None:
    memory = Conversations(file, limit=2)
    for number, name in enumerate("abac"):
        memory.remember(name, Trace("direct", 10, 1.0, "s", float(number)))
    assert [memory.recall(name, 5.0, 60.0) is not None for name in "abc"] == [True, False, True]
    assert len(memory) == 2
    file.close()


def test_two_workers_know_of_each_others_conversations(tmp_path: Path) -> None:
    files = [StateFile(tmp_path / "learned.sqlite", SCRIPT, 0.0) for _ in range(2)]
    one, other = (Conversations(file) for file in files)
    one.remember("a", Trace("pflash", 2000, 0.4, "s", 20.0))
    assert files[0].settle()
    other.recall("a", 30.0, 60.0)
    assert files[1].settle()
    found = other.recall("a", 30.0, 60.0)
    assert found is not None and (found.lane, found.held["pflash"]) == ("pflash", Held(2000, 0.4))
    other.remember("a", Trace("direct", 3000, 1.0, "s", 40.0))
    one.remember("a", Trace("pflash", 2100, 0.4, "s", 30.0))
    assert all(file.settle() for file in files)
    one.recall("a", 50.0, 60.0)
    assert files[0].settle()
    found = one.recall("a", 50.0, 60.0)
    assert found is not None and found.lane == "direct" and found.held["pflash"].tokens == 2100
    for file in files:
        file.close()


def test_an_older_trace_never_replaces_a_newer_one(tmp_path: Path) -> None:
    files = [StateFile(tmp_path / "learned.sqlite", SCRIPT, 0.0) for _ in range(2)]
    one, other = (Conversations(file) for file in files)
    one.remember("a", Trace("direct", 3000, 1.0, "s", 40.0))
    assert files[0].settle()
    other.remember("a", Trace("direct", 100, 1.0, "s", 30.0))
    other.recall("a", 50.0, 60.0)
    assert files[1].settle()
    found = other.recall("a", 50.0, 60.0)
    assert found is not None and found.held["direct"].tokens == 3000
    for file in files:
        file.close()


def test_the_file_is_pruned(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "learned.sqlite", SCRIPT)
    memory = Conversations(file, limit=10)
    for number in range(512):
        memory.remember(f"n{number}", Trace("direct", 10, 1.0, "s", 4e9 + number))
    assert file.settle()
    file.close()
    with closing(sqlite3.connect(tmp_path / "learned.sqlite")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
    assert 30 <= count <= 31
