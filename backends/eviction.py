"""Which models make room for another one. Pure: no process, no clock, no logging."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A model that is to run, and the memory it will take."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Running:
    """A model that holds memory now. `last_used` is any clock on which later is larger."""

    name: str
    bytes: int
    last_used: float
    busy: bool


class DoesNotFit(Exception):  # noqa: N818 - an answer of the policy, not a defect
    """The target cannot run now; the message is one sentence.

    `when_idle` is True when stopping models that are busy now would make room, so that waiting
    for them helps.
    """

    def __init__(self, message: str, *, when_idle: bool) -> None:
        super().__init__(message)
        self.when_idle = when_idle


def eviction_for(target: Target, running: Iterable[Running], budget_bytes: int | None) -> list[str]:
    """Names of the models to stop, in order, so that `target` fits into `budget_bytes`.

    Least recently used first, and no model whose stopping is not needed once the others are
    stopped. Never the target itself (its old size is not counted, so it may be in `running`) and
    never a busy model: a request in flight is worth more than a start that can wait. A budget of
    None is no limit. Raises `DoesNotFit`.
    """
    if budget_bytes is None:
        return []
    if target.bytes > budget_bytes:
        raise DoesNotFit(
            f"model {target.name!r} needs {_mb(target.bytes)} and memory_budget_mb allows "
            f"{_mb(budget_bytes)}; raise the budget, or lower context_tokens or slots",
            when_idle=False,
        )
    others = [entry for entry in running if entry.name != target.name]
    missing = sum(entry.bytes for entry in others) + target.bytes - budget_bytes
    chosen: list[Running] = []
    for entry in sorted(others, key=lambda entry: (entry.last_used, entry.name)):
        if missing <= 0:
            break
        if not entry.busy:
            chosen.append(entry)
            missing -= entry.bytes
    if missing > 0:
        busy = ", ".join(sorted(entry.name for entry in others if entry.busy))
        raise DoesNotFit(
            f"model {target.name!r} needs {_mb(target.bytes)} and {busy} is answering requests in "
            f"the memory it would take; try again, or raise memory_budget_mb",
            when_idle=True,
        )
    for entry in reversed(chosen.copy()):
        if missing + entry.bytes <= 0:
            chosen.remove(entry)
            missing += entry.bytes
    return [entry.name for entry in chosen]


def _mb(size_bytes: int) -> str:
    return f"{-(-size_bytes // 2**20)} MiB"
