"""The parts of the benchmark, and the rows that they find."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from bench.parts import Part
from bench.pflash import dialogue, qa, stall, survival, timing
from bench.pflash.context import Context


@dataclass
class Measured:
    """Rows by kind; empty where no part that gives them was run."""

    survival: list[survival.Row] = field(default_factory=list)
    qa: list[qa.Row] = field(default_factory=list)
    ttft: list[timing.Ttft] = field(default_factory=list)
    cost: list[timing.Cost] = field(default_factory=list)
    chat: list[dialogue.Turn] = field(default_factory=list)
    stall: list[stall.Stall] = field(default_factory=list)


PARTS: tuple[Part[Context], ...] = (
    Part(
        "needles",
        "a fact whose question uses its words, 2k-16k tokens, 112 cases",
        "survival",
        survival.Row,
        partial(survival.measure, part="needles"),
    ),
    Part(
        "paraphrase",
        "a fact whose question shares no content word with it, 88 cases",
        "survival",
        survival.Row,
        partial(survival.measure, part="paraphrase"),
    ),
    Part(
        "two-hop",
        "two facts that one question needs, and a fact corrected later, 76 cases",
        "survival",
        survival.Row,
        partial(survival.measure, part="two-hop"),
    ),
    Part(
        "ruler",
        "RULER's retrieval and variable tracking at 4k and 8k, 56 cases",
        "survival",
        survival.Row,
        partial(survival.measure, part="ruler"),
    ),
    Part(
        "squad",
        "SQuAD in 3.2k-token contexts: support kept, answers, 102 questions",
        "qa",
        qa.Row,
        partial(qa.measure, part="squad"),
    ),
    Part(
        "hotpot",
        "HotpotQA likewise: both paragraphs' support, 104 questions",
        "qa",
        qa.Row,
        partial(qa.measure, part="hotpot"),
    ),
    Part(
        "ttft",
        "time to first token at 4k and 8k against the full prompt, 5 groups each",
        "ttft",
        timing.Ttft,
        timing.measure_ttft,
    ),
    Part(
        "scorer-cost",
        "the scorer's time against its own plain prefill",
        "cost",
        timing.Cost,
        timing.measure_cost,
    ),
    Part(
        "chat",
        "ten turns over one document, with PFlash and the KV cache together and alone",
        "chat",
        dialogue.Turn,
        dialogue.measure,
    ),
    Part(
        "stall",
        "decoding of one request while another's 16k prompt is scored",
        "stall",
        stall.Stall,
        stall.measure,
    ),
)
