"""What answers taught of each deployment: speeds, doubt, and what its drafter's gears are worth.

Exponentially weighted means, which begin at the config's seeds. They live in one private file that
all proxy workers read and write, and stay over restarts.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from flashlane.decision import DOUBT_SEED, Decision, GearRecord
from flashlane.flight import Flight
from flashlane.payload import as_mapping
from flashlane.statefile import StateFile

FILE_NAME = "learned-1.sqlite"
"""The number is that of the tables' form: another version's file is left alone."""
SCRIPT = """
CREATE TABLE IF NOT EXISTS means (
    engine TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, gear INTEGER NOT NULL,
    value REAL NOT NULL, samples INTEGER NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (engine, name, kind, gear)
) WITHOUT ROWID;
"""
NO_GEAR = -1
"""In a gear's place: whatever the engine did by itself."""

_RATE = 0.2
_DOUBT_RATE = 0.05
_DOUBT_WEIGHT = 4
"""Samples that the seed of doubt is worth."""
_SETTLED = 8
"""Samples from which on one that is far out moves the mean no more than one at the bound."""
_BOUND = 4.0
_MIN_PREFILL_TOKENS = 64
_MIN_ARRIVAL_TOKENS = 256
"""The same where the time to the first chunk is all there is: it holds the network as well."""
_MIN_SCORED_TOKENS = 256
_MIN_DECODE_TOKENS = 16
_MIN_DRAFT_TOKENS = 8
_MIN_ESTIMATE_TOKENS = 64
_MAX_ESTIMATE_ERROR = 5.0
_MAX_SPEED = 1e8
_MAX_OVERHEAD_MS = 60_000.0


class Key(NamedTuple):
    """One figure of an engine, or doubt of a model group; `name` says which. Speeds are in
    tokens/s."""

    engine: str
    name: str
    kind: str = ""
    gear: int = NO_GEAR


@dataclass(frozen=True)
class Mean:
    value: float
    samples: int


@dataclass(frozen=True)
class Sample:
    """One measured value. `seed` is what was thought before any, worth `weight` samples."""

    key: Key
    value: float
    seed: float | None = None
    weight: int = 1
    rate: float = _RATE
    bounded: bool = True


def after(before: Mean | None, sample: Sample) -> Mean:
    """The mean with `sample` in it: plain at first, exponentially weighted from 1 / rate on."""
    if before is None:
        if sample.seed is None:
            return Mean(sample.value, 1)
        before = Mean(sample.seed, sample.weight)
    value = sample.value
    if sample.bounded and before.samples >= _SETTLED:
        value = min(max(value, before.value / _BOUND), before.value * _BOUND)
    rate = max(sample.rate, 1.0 / (before.samples + 1))
    return Mean(before.value + rate * (value - before.value), before.samples + 1)


class Figures:
    """What was learned, as it stood at one moment."""

    def __init__(self, means: Mapping[Key, Mean]) -> None:
        self.means = means

    def of(self, engine: str, name: str) -> float | None:
        mean = self.means.get((engine, name, "", NO_GEAR))  # type: ignore[call-overload]
        return mean.value if mean else None

    def doubts(self, group: str) -> Mapping[str, float]:
        """By kind of ask, of the verify lane's model group `group`."""
        return self._doubts.get(group, {})

    def gears(self, engine: str) -> Mapping[str, Mapping[int, GearRecord]]:
        """By kind of ask, those of all kinds under "", then by gear."""
        return self._gears.get(engine, {})

    @cached_property
    def _doubts(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for key, mean in self.means.items():
            if key.name == "doubt":
                found.setdefault(key.engine, {})[key.kind] = mean.value
        return found

    @cached_property
    def _gears(self) -> dict[str, dict[str, dict[int, GearRecord]]]:
        found: dict[str, dict[str, dict[int, GearRecord]]] = {}
        for key, mean in self.means.items():
            if key.name != "decode" or key.gear == NO_GEAR:
                continue
            taken = self.means.get(Key(key.engine, "acceptance", key.kind, key.gear))
            record = GearRecord(mean.value, taken.value if taken else None, mean.samples)
            found.setdefault(key.engine, {}).setdefault(key.kind, {})[key.gear] = record
        return found


class Speeds:
    """This process's view of what all workers learn. No call waits for the file."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._figures = read_figures(file.path)
        file.watch(self._read)
        self.turns: dict[str, Counter[str]] = {}
        """Requests of this process whose gear was chosen, by model group and kind of ask."""

    def figures(self) -> Figures:
        """What is known, by all workers up to a moment ago."""
        self._file.start()
        return self._figures

    def learn(self, samples: Sequence[Sample]) -> None:
        """Take `samples` in: here at once, for the others as soon as the file takes them."""
        if not samples:
            return
        with self._lock:
            means = dict(self._figures.means)
            for sample in samples:
                means[sample.key] = after(means.get(sample.key), sample)
            self._figures = Figures(means)
        now = time.time()
        self._file.soon(lambda connection: _write(connection, samples, now))

    def took(self, decision: Decision) -> None:
        """Count a request whose gear was chosen."""
        if decision.gear is not None:
            self.turns.setdefault(decision.group, Counter())[decision.kind] += 1

    def _read(self, connection: sqlite3.Connection) -> None:
        found = Figures(_means(connection))
        with self._lock:
            self._figures = found


def read_figures(path: Path) -> Figures:
    """What the file at `path` holds; nothing where there is none that can be read."""
    if not path.exists():
        return Figures({})
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return Figures(_means(connection))
    except sqlite3.Error:
        return Figures({})


def _means(connection: sqlite3.Connection) -> dict[Key, Mean]:
    rows = connection.execute("SELECT engine, name, kind, gear, value, samples FROM means")
    return {Key(*row[:4]): Mean(row[4], row[5]) for row in rows}


def _write(connection: sqlite3.Connection, samples: Iterable[Sample], now: float) -> None:
    """Inside a transaction: what another worker learned meanwhile is what a sample adds to."""
    for sample in samples:
        key = sample.key
        name = (key.engine, key.name, key.kind, key.gear)
        row = connection.execute(
            "SELECT value, samples FROM means "
            "WHERE engine = ? AND name = ? AND kind = ? AND gear = ?",
            name,
        ).fetchone()
        mean = after(Mean(*row) if row else None, sample)
        connection.execute(
            "INSERT OR REPLACE INTO means VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*name, mean.value, mean.samples, now),
        )


@dataclass(frozen=True)
class Seeds:
    """What the config says of an engine, in tokens/s."""

    prefill: float | None = None
    decode: float | None = None
    scorer: float | None = None


def samples_of(
    flight: Flight, engine: str, seeds: Seeds, scorer: str = "", scorer_seeds: Seeds | None = None
) -> list[Sample]:
    """What a request that ended well tells of the `engine` that answered it.

    `scorer` is the engine that shortened the prompt, where it was another one. Figures from too
    few tokens, and those that cannot be, are left out.
    """
    decision = flight.decision
    if decision is None:
        return []
    found = _prompt_samples(flight, engine, seeds)
    found += _scorer_samples(flight, scorer or engine, scorer_seeds or seeds)
    found += _answer_samples(flight, decision, engine, seeds)
    if decision.lane == "verify" and flight.verdict in ("accepted", "doubted"):
        doubted = 1.0 if flight.verdict == "doubted" else 0.0
        key = Key(decision.group, "doubt", decision.kind)
        found.append(Sample(key, doubted, DOUBT_SEED, _DOUBT_WEIGHT, _DOUBT_RATE, bounded=False))
    return found


def _prompt_samples(flight: Flight, engine: str, seeds: Seeds) -> list[Sample]:
    timings, decision = flight.timings, flight.decision
    if decision is None or flight.verdict == "doubted":
        return []  # the figures of two passes
    found = []
    pflash = as_mapping(timings.get("pflash"))
    tokens, ms = _number(timings, "prompt_n"), _number(timings, "prompt_ms")
    least = _MIN_PREFILL_TOKENS
    if ms is not None:
        # The server's prompt time holds the scorer's and the restoring of saved state.
        ms -= _number(pflash, "score_ms") or 0.0
        ms -= _number(as_mapping(timings.get("kvflash")), "restore_ms") or 0.0
    elif flight.first_chunk is not None and flight.sent is not None and not pflash:
        tokens = (flight.prompt_tokens or 0) - (flight.reused_tokens or 0)
        ms = 1000.0 * (flight.first_chunk - flight.sent)
        least = _MIN_ARRIVAL_TOKENS
    if tokens is not None and ms is not None and tokens >= least and ms > 0:
        found += _speed(Key(engine, "prefill"), 1000.0 * tokens / ms, seeds.prefill)
    found += _overhead(flight, engine)
    original = _number(pflash, "original_tokens")
    if original is None and (decision.lane == "direct" or pflash):
        original = flight.prompt_tokens
    if original and decision.estimated_tokens >= _MIN_ESTIMATE_TOKENS:
        scale = original / decision.estimated_tokens
        if 1 / _MAX_ESTIMATE_ERROR <= scale <= _MAX_ESTIMATE_ERROR:
            found.append(Sample(Key(engine, "tokens_per_estimate"), scale, 1.0))
    return found


def _overhead(flight: Flight, engine: str) -> list[Sample]:
    """What lies between sending a request and its first token, beside the engine's own time."""
    prompt_ms = _number(flight.timings, "prompt_ms")
    if prompt_ms is None or flight.check is not None:
        return []  # a checked answer is held back
    if not flight.stream or flight.first_chunk is None or flight.sent is None:
        return []
    ms = 1000.0 * (flight.first_chunk - flight.sent) - prompt_ms
    return [Sample(Key(engine, "overhead_ms"), ms)] if 0.0 < ms <= _MAX_OVERHEAD_MS else []


def _scorer_samples(flight: Flight, scorer: str, seeds: Seeds) -> list[Sample]:
    pflash = as_mapping(flight.timings.get("pflash"))
    original, ms = _number(pflash, "original_tokens"), _number(pflash, "score_ms")
    # What an earlier turn had scored is not scored again.
    fresh = pflash.get("reason") == "compressed" and not pflash.get("mask_hits")
    if not fresh or original is None or original < _MIN_SCORED_TOKENS or not ms or ms <= 0:
        return []
    return _speed(Key(scorer, "scorer"), 1000.0 * original / ms, seeds.scorer)


def _answer_samples(flight: Flight, decision: Decision, engine: str, seeds: Seeds) -> list[Sample]:
    timings = flight.timings
    written, speed = _number(timings, "predicted_n"), _number(timings, "predicted_per_second")
    if written is None or speed is None or written < 1:
        return []
    found = [Sample(Key(engine, "answer_tokens"), written)]
    if written < _MIN_DECODE_TOKENS:
        return found
    found += _speed(Key(engine, "decode"), speed, seeds.decode)
    if flight.gear is None:
        return found
    drafted, taken = _number(timings, "draft_n"), _number(timings, "draft_n_accepted")
    for kind in ("", decision.kind):
        found += _speed(Key(engine, "decode", kind, flight.gear), speed)
        if drafted is not None and taken is not None and drafted >= _MIN_DRAFT_TOKENS:
            key = Key(engine, "acceptance", kind, flight.gear)
            found.append(Sample(key, min(taken / drafted, 1.0), bounded=False))
    return found


def _speed(key: Key, value: float, seed: float | None = None) -> list[Sample]:
    possible = math.isfinite(value) and 0 < value <= _MAX_SPEED
    return [Sample(key, value, seed)] if possible else []


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
