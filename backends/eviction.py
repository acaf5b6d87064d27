"""Which models must stop so that another fits: a pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A loaded model. `bytes` is its memory, `last_used` any monotonic time."""

    name: str
    bytes: int
    last_used: float
    busy: bool = False


class CannotFit(RuntimeError):
    """The target does not fit into the budget, whatever may be stopped; the message says why."""


def eviction_for(target: Running, running: Sequence[Running], budget_bytes: int | None) -> list[str]:
    """Names to stop, in order, so that `target` fits into `budget_bytes` beside the rest.

    Least recently used first, idle ones only, no more than needed, never the target itself.
    No budget (None) stops nothing. Raises `CannotFit`.
    """
    if budget_bytes is None:
        return []
    others = [model for model in running if model.name != target.name]
    excess = target.bytes + sum(model.bytes for model in others) - budget_bytes
    if target.bytes > budget_bytes:
        raise CannotFit(
            f"{target.name} needs {_mb(target.bytes)} MB and memory_budget_mb is {_mb(budget_bytes)}; "
            "raise memory_budget_mb or use a smaller model"
        )
    chosen: list[Running] = []
    for model in sorted((m for m in others if not m.busy), key=lambda m: m.last_used):
        if excess <= 0:
            break
        chosen.append(model)
        excess -= model.bytes
    if excess > 0:
        busy = ", ".join(m.name for m in others if m.busy)
        raise CannotFit(f"{target.name} does not fit while {busy} are busy; try again later")
    # A large victim can make an earlier small one unnecessary.
    for model in list(chosen):
        if excess + model.bytes <= 0:
            chosen.remove(model)
            excess += model.bytes
    return [model.name for model in chosen]


def _mb(count: int) -> int:
    return -(-count // 1_000_000)
