"""What the verify lane knows of one request while it is in the air."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashlane.request import RequestView

NUMBER_KEY = "flashlane_pass"
"""Key of the metadata that says which pass a call of LiteLLM belongs to: 1 or 2."""
FIRST_FAILED = "first_pass_failed"
"""The doubt about a first pass that gave no answer."""


@dataclass
class Check:
    """The passes of one request. `group` answers first, `direct_group` where that is doubted."""

    view: RequestView | None
    """None once the request has ended: it holds the prompt."""
    group: str
    direct_group: str
    current: int = 1
    fell_back: bool = False
    """LiteLLM gave the first pass up and asked another group, with the whole prompt."""
    settled: bool = False
    """The client has its answer."""
    costs: dict[int, float | None] = field(default_factory=dict)
    """By pass, as LiteLLM has logged them."""

    @property
    def cost(self) -> float | None:
        """Of all passes that were logged."""
        known = [cost for cost in self.costs.values() if cost is not None]
        return sum(known) if known else None

    @property
    def complete(self) -> bool:
        """Whether the record can be written: nothing more is to come."""
        return self.settled and self.current in self.costs

    @property
    def original(self) -> str:
        """All text of the request, material first."""
        view = self.view
        spans = (*view.context, *view.instructions) if view else ()
        return "\n\n".join(span.text for span in spans)
