"""Which deployment answers soonest: the wait in its queue against the prefill it saves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashlane.decision import Reason

_TIE_MS = 1.0
_BINDING_SHARE = 0.5
"""A beginning that is this much of the prompt decides, however few tokens it is."""
_SHOWN_CANDIDATES = 4


@dataclass(frozen=True)
class Candidate:
    """A deployment as the choice sees it.

    `held_tokens` of the prompt are thought to be in its cache, and `trust` of them found there.
    `in_flight` requests are on their way to it, `slots` of which run at once, for `expected_ms`
    each. `hinted`: it served the client's cache key last.
    """

    label: str
    held_tokens: int = 0
    in_flight: int = 0
    slots: int = 1
    expected_ms: float = 0.0
    prefill_tokens_per_s: float = 1.0
    trust: float = 1.0
    hinted: bool = False

    @property
    def queued(self) -> int:
        """Requests that must end before another one begins."""
        return max(0, self.in_flight + 1 - self.slots)

    @property
    def wait_ms(self) -> float:
        return self.queued * self.expected_ms / self.slots

    def prefill_ms(self, tokens: int) -> float:
        return 1000.0 * tokens / self.prefill_tokens_per_s


@dataclass(frozen=True)
class Placement:
    """`labels` of the deployments that are equally good, and why they are."""

    labels: tuple[str, ...]
    reason: Reason


def place(
    prompt_tokens: int, candidates: Sequence[Candidate], min_saving_ms: float = 0.0
) -> Placement:
    """Where a prompt of `prompt_tokens` goes.

    The cost of a candidate is its wait plus the prefill of what it does not hold. A beginning of
    less than half the prompt counts from `min_saving_ms` on: what every prompt begins with is no
    reason to send them all to one place. Where nothing is held, all are equal, and only the
    client's hint, at no cost in time, picks one of them.
    """
    everyone = tuple(candidate.label for candidate in candidates)
    held = {c.label: _binding(c, prompt_tokens, min_saving_ms) for c in candidates}
    costs = {
        c.label: c.wait_ms + c.prefill_ms(max(0, prompt_tokens - held[c.label])) for c in candidates
    }
    least_ms = min(costs.values(), default=0.0)
    best = [c for c in candidates if costs[c.label] <= least_ms + _TIE_MS]
    longest = max(held.values(), default=0)
    if not longest:
        least_wait_ms = min((c.wait_ms for c in candidates), default=0.0)
        free = [c for c in candidates if c.wait_ms <= least_wait_ms + _TIE_MS]
        hinted = tuple(c.label for c in free if c.hinted)[:1]
        if hinted:
            return Placement(
                hinted, Reason("cache_key", f"{hinted[0]} served this prompt_cache_key last")
            )
        return Placement(
            everyone, Reason("prefix_unknown", "no deployment is known to hold what it begins with")
        )
    most = max(held[c.label] for c in best)
    tied = tuple(c.label for c in best if held[c.label] == most)
    chosen = tuple(c.label for c in best if c.hinted and c.label in tied)[:1] or tied
    code = "prefix_held" if held[chosen[0]] == longest else "prefix_overloaded"
    order = sorted(candidates, key=lambda c: costs[c.label])
    lines = [_arithmetic(c, prompt_tokens, held[c.label]) for c in order[:_SHOWN_CANDIDATES]]
    return Placement(chosen, Reason(code, "; ".join(lines)))


def _binding(candidate: Candidate, prompt_tokens: int, min_saving_ms: float) -> int:
    held = int(min(candidate.held_tokens, prompt_tokens) * candidate.trust)
    if held >= _BINDING_SHARE * prompt_tokens or candidate.prefill_ms(held) >= min_saving_ms:
        return held
    return 0


def _arithmetic(candidate: Candidate, prompt_tokens: int, held: int) -> str:
    """`left: 1350 ms wait (3 queued x 900 ms / 2 slots) + 93 ms prefill (40 of 50 tokens held)`"""
    c = candidate
    queue = f" ({c.queued} queued x {c.expected_ms:.0f} ms / {c.slots} slots)" if c.queued else ""
    prefill_ms = c.prefill_ms(max(0, prompt_tokens - held))
    return (
        f"{c.label}: {c.wait_ms:.0f} ms wait{queue} + {prefill_ms:.0f} ms prefill "
        f"({held} of {prompt_tokens} tokens held)"
    )
