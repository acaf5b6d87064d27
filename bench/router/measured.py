"""The parts of the benchmark, and the rows that they find."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.parts import Part
from bench.router import exact, mixed, overhead, places, speed, verify
from bench.router.context import Context


@dataclass
class Measured:
    """Rows by kind; empty where no part that gives them was run."""

    asks: list[exact.Row] = field(default_factory=list)
    places: list[places.Row] = field(default_factory=list)
    speed: list[speed.Times] = field(default_factory=list)
    overhead: list[overhead.Round] = field(default_factory=list)
    verify: list[verify.Row] = field(default_factory=list)
    mixed: list[mixed.Row] = field(default_factory=list)


PARTS: tuple[Part[Context], ...] = (
    Part(
        "asks",
        "exact and broad asks told apart, reported half",
        "asks",
        exact.Row,
        exact.measure,
    ),
    Part(
        "places",
        "asks found after, before and amid material, reported half",
        "places",
        places.Row,
        places.measure,
    ),
    Part(
        "speed",
        "reading, exactness and decision of prompts of 4k and 128k tokens",
        "speed",
        speed.Times,
        speed.measure,
    ),
    Part(
        "overhead",
        "LiteLLM with the plugins and without, in turn, before an engine that answers at once",
        "overhead",
        overhead.Round,
        overhead.measure,
    ),
    Part(
        "verify",
        "110 questions through the verify lane and the direct lane",
        "verify",
        verify.Row,
        verify.measure,
    ),
    Part(
        "mixed",
        "200 mixed requests under the router, always direct and always compressed",
        "mixed",
        mixed.Row,
        mixed.measure,
    ),
)
