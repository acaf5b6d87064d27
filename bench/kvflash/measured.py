"""The parts of the benchmark, and the rows that they find."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.kvflash import affinity, miss, replay, tiers
from bench.kvflash.context import Context
from bench.parts import Part


@dataclass
class Measured:
    """Rows by kind; empty where no part that gives them was run."""

    traces: list[replay.Row] = field(default_factory=list)
    growing: list[replay.Row] = field(default_factory=list)
    miss: list[miss.Miss] = field(default_factory=list)
    affinity: list[affinity.Sent] = field(default_factory=list)
    warm: list[tiers.Warm] = field(default_factory=list)


PARTS: tuple[Part[Context], ...] = (
    Part(
        "traces",
        "chats over two slots in several orders, a tiny model, and a short trace on the target",
        "traces",
        replay.Row,
        replay.measure_traces,
    ),
    Part(
        "growing",
        "growing chats on models with windows, recurrent and hybrid memory",
        "growing",
        replay.Row,
        replay.measure_growing,
    ),
    Part(
        "miss",
        "requests whose prefix is nowhere, with KVFlash and without, 80 pairs",
        "miss",
        miss.Miss,
        miss.measure,
    ),
    Part(
        "affinity",
        "8 chats over two backends behind the proxy, one of which is killed",
        "affinity",
        affinity.Sent,
        affinity.measure,
    ),
    Part(
        "ttft",
        "time to first token behind a known prefix of 4k tokens from each tier, 3 groups",
        "warm",
        tiers.Warm,
        tiers.measure,
    ),
)
