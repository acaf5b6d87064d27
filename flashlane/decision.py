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


@dataclass(frozen=True)
class Signals:
    """What the instruction spans say about how exact the answer must be."""

    exact: bool
    kind: str
    reasons: tuple[Reason, ...]


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
    """Where a request goes and why. `keep_ratio` is 1.0 when nothing is compressed."""

    lane: Lane
    group: str
    exact: bool
    keep_ratio: float
    gear: int
    reasons: tuple[Reason, ...]
    costs_ms: Mapping[Lane, float] = field(default_factory=dict)
    ask: str = ""
    estimated_tokens: int = 0
    min_keep_tokens: int | None = None

    @property
    def reason_codes(self) -> str:
        return ",".join(reason.code for reason in self.reasons)

    def to_json(self, *, with_ask: bool = True) -> dict[str, Any]:
        out: dict[str, Any] = {
            "lane": self.lane,
            "group": self.group,
            "exact": self.exact,
            "keep_ratio": round(self.keep_ratio, 4),
            "gear": self.gear,
            "reasons": [{"code": r.code, "text": r.text} for r in self.reasons],
            "costs_ms": {lane: round(ms, 1) for lane, ms in self.costs_ms.items()},
            "estimated_tokens": self.estimated_tokens,
        }
        if with_ask:
            out["ask"] = self.ask
        return out
