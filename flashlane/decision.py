"""The values that a routing decision is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flashlane.request import Lane


@dataclass(frozen=True)
class Reason:
    """Why: a stable `code` for machines and one sentence for people."""

    code: str
    text: str


EXACT_KINDS = (
    "retrieval",
    "quoting",
    "enumeration",
    "counting",
    "transformation",
    "code",
    "schema",
    "checking",
    "precision",
)
"""Kinds of ask for which leaving out parts of the text could make the answer wrong."""
BROAD_KINDS = ("summary", "explanation", "comparison", "brainstorm", "judgement")
"""Kinds of ask for which the gist of the text is enough."""
UNDECIDED_KINDS = ("unsure", "structure", "multimodal", "token_prompt")
"""What stands in the kind's place where the words of the ask did not decide; all count as exact."""


@dataclass(frozen=True)
class Signals:
    """What the instruction spans say about how exact the answer must be.

    `kind` is one of `EXACT_KINDS`, `BROAD_KINDS` or `UNDECIDED_KINDS`; `confidence` is between
    0 and 1, of `exact` being right.
    """

    exact: bool
    kind: str
    reasons: tuple[Reason, ...]
    confidence: float = 1.0


@dataclass(frozen=True)
class GearRecord:
    """What answers at one gear did: running means over `answers` of them."""

    decode_tokens_per_s: float
    acceptance: float | None = None
    """Share of the drafted tokens that the model took; None where nothing was drafted."""
    answers: int = 1


@dataclass(frozen=True)
class Drafting:
    """A drafter, the gears it may take, and what they were worth so far.

    `records` are by kind of ask, then by gear; those of all kinds together stand under "".
    `turns` counts the requests of each kind. One in `explore_every` tries another gear.
    """

    choices: tuple[int, ...]
    explore_every: int
    records: Mapping[str, Mapping[int, GearRecord]] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)
    limit: int = 64
    """The engine drafts no more tokens than this."""
    asked: int | None = None
    """The gear that the client named."""


DOUBT_SEED = 0.3
"""Share of first passes that are doubted, until answers have told better."""
_NO_DOUBTS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class LaneOption:
    """A lane that this request could take: its LiteLLM model group and its speeds (tokens/s)."""

    group: str
    prefill_tokens_per_s: float
    scorer_tokens_per_s: float | None = None
    """None: the scorer reads nothing, its cost is neglected (`uniform`)."""
    cached_tokens: int = 0
    """Of the whole prompt; a compressing lane has their shorter form in its cache."""
    allowed: bool = True
    tokens_per_estimate: float = 1.0
    """Tokens of a prompt for each token that `estimate_tokens` counts."""
    doubts: Mapping[str, float] = field(default_factory=lambda: _NO_DOUBTS)
    """By kind of ask: share of the first passes that were doubted; only for the verify lane."""
    drafting: Drafting | None = None
    """None: no drafter, or its gear is the engine's own choice."""
    overhead_ms: float = 0.0
    """Between sending a request and its first token, beside the engine's own prompt time."""
    decode_tokens_per_s: float | None = None
    answer_tokens: float = 0.0
    """What its answers are long, on average; 0 where none is known."""


@dataclass(frozen=True)
class Cost:
    """Predicted time to the first token that the client may have, in ms, by its parts.

    `second_ms`: the share of the verify lane's requests that need a second pass, times what the
    first answer took to write and the second pass to begin. `cached_tokens` are estimated tokens
    of the whole prompt that need not be read again.
    """

    score_ms: float
    prefill_ms: float
    overhead_ms: float = 0.0
    second_ms: float = 0.0
    cached_tokens: int = 0

    @property
    def total_ms(self) -> float:
        return self.score_ms + self.prefill_ms + self.overhead_ms + self.second_ms


@dataclass(frozen=True)
class Held:
    """What a lane's engine keeps of a conversation: `tokens` of its last prompt, whole, which it
    read shortened to `keep_ratio`; 1.0 in the direct lane."""

    tokens: int
    keep_ratio: float = 1.0


@dataclass(frozen=True)
class Recollection:
    """A conversation so far: the lane of its last request, and what each of its lanes holds."""

    lane: Lane
    held: Mapping[Lane, Held] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Where a request goes and why. `keep_ratio` is 1.0 when nothing is compressed.

    `gear` is how many tokens a drafter runs ahead, 0 for none; None leaves it to the engine.
    """

    lane: Lane
    group: str
    exact: bool
    keep_ratio: float
    gear: int | None
    reasons: tuple[Reason, ...]
    costs_ms: Mapping[Lane, float] = field(default_factory=dict)
    ask: str = ""
    estimated_tokens: int = 0
    min_keep_tokens: int | None = None
    kind: str = "unsure"
    confidence: float = 1.0
    conversation: str = ""
    """Names the conversation that the request goes on with, for those that decide again."""
    costs: Mapping[Lane, Cost] = field(default_factory=dict)
    """`costs_ms` by their parts."""

    @property
    def reason_codes(self) -> str:
        return ",".join(reason.code for reason in self.reasons)

    def to_json(self, *, with_ask: bool = True) -> dict[str, Any]:
        out: dict[str, Any] = {
            "lane": self.lane,
            "group": self.group,
            "exact": self.exact,
            "kind": self.kind,
            "confidence": round(self.confidence, 4),
            "keep_ratio": round(self.keep_ratio, 4),
            "gear": self.gear,
            "reasons": [{"code": r.code, "text": r.text} for r in self.reasons],
            "costs_ms": {lane: round(ms, 1) for lane, ms in self.costs_ms.items()},
            "estimated_tokens": self.estimated_tokens,
        }
        if with_ask:
            out["ask"] = self.ask
        return out
