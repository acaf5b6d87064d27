"""The values that a routing decision is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
class LaneOption:
    """A lane that this request could take: its LiteLLM model group and its speeds (tokens/s)."""

    group: str
    prefill_tokens_per_s: float
    scorer_tokens_per_s: float | None = None
    """None: the scorer reads nothing, its cost is neglected (`uniform`)."""
    cached_tokens: int = 0
    allowed: bool = True


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
