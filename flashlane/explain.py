"""`flashlane explain`: the router's decision for a request that is not sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashlane.config import FlashlaneConfig, load_config, load_litellm
from flashlane.decision import Cost, Decision, Drafting, LaneOption, Signals
from flashlane.gears import draft_limit
from flashlane.lanes import (
    DEFAULT_PREFILL_TOKENS_PER_S,
    NOTHING_LEARNED,
    LanePlan,
    lane_options,
    lane_plans,
)
from flashlane.learning import drafting_of
from flashlane.paths import state_dir
from flashlane.policy import decide
from flashlane.request import Lane, RequestError, RequestView, shown
from flashlane.router import asked_gear, read
from flashlane.speeds import FILE_NAME, read_figures

_SHOWN_CHARS = 300


@dataclass(frozen=True)
class Explanation:
    """What was read, what that says, and what was decided."""

    view: RequestView
    signals: Signals
    decision: Decision
    learned: bool
    """Whether the speeds of answers are behind the costs, and not the config's alone."""

    def to_json(self) -> dict[str, Any]:
        view, costs = self.view, self.decision.costs
        return {
            **self.decision.to_json(),
            "ask_where": list(view.ask_where),
            "context_tokens": view.context_tokens,
            "signals": [{"code": r.code, "text": r.text} for r in self.signals.reasons],
            "cost_parts": {lane: _parts_json(cost) for lane, cost in costs.items()},
            "learned": self.learned,
        }

    def lines(self) -> Iterator[str]:
        """For people: a word on what each line is about, and the line."""
        view, signals, decision = self.view, self.signals, self.decision
        yield f"lane        {decision.lane} (model group {decision.group})"
        where = f" (in {', '.join(view.ask_where)})" if view.ask_where else ""
        ask = " ".join(view.ask.split())
        ask = ask if len(ask) <= _SHOWN_CHARS else f"{ask[:_SHOWN_CHARS]} …"
        yield f"ask         {ask or 'none was found'}{where}"
        yield (
            f"read        about {view.estimated_tokens} prompt tokens, "
            f"{view.context_tokens} of them material"
        )
        yield (
            f"exact       {'yes' if signals.exact else 'no'} "
            f"({signals.kind}, confidence {signals.confidence:.2g})"
        )
        yield f"keep ratio  {decision.keep_ratio:g}"
        yield f"gear        {'the engine decides' if decision.gear is None else decision.gear}"
        for lane, cost in decision.costs.items():
            yield (
                f"cost        {lane}: about {cost.total_ms:.0f} ms to the first token{_parts(cost)}"
            )
        yield f"speeds      {'learned from answers' if self.learned else 'of the config'}"
        for reason in decision.reasons:
            yield f"because     {reason.text} [{reason.code}]"


def _parts(cost: Cost) -> str:
    named = (
        ("scoring", cost.score_ms),
        ("prefill", cost.prefill_ms),
        ("overhead", cost.overhead_ms),
        ("second passes", cost.second_ms),
    )
    parts = [f"{ms:.0f} {name}" for name, ms in named if ms >= 0.5]
    held = [f"{cost.cached_tokens} tokens in the cache"] if cost.cached_tokens else []
    return f" ({', '.join([' + '.join(parts), *held])})" if len(parts) > 1 or held else ""


def _parts_json(cost: Cost) -> dict[str, float]:
    return {
        "score_ms": round(cost.score_ms, 1),
        "prefill_ms": round(cost.prefill_ms, 1),
        "overhead_ms": round(cost.overhead_ms, 1),
        "second_ms": round(cost.second_ms, 1),
        "cached_tokens": cost.cached_tokens,
    }


class Explainer:
    """Decides as the proxy would under `config_path`, or with both lanes assumed without one.

    What answers have taught is read from the state folder. What a conversation's lanes hold is
    known to the proxy alone: a request is taken for the first of its conversation.
    """

    def __init__(self, config_path: Path | None, headers: Mapping[str, str] | None = None) -> None:
        self._path = config_path
        self._headers = headers
        self._config = load_config(config_path) if config_path else FlashlaneConfig()
        self._deployments = tuple(load_litellm(config_path)) if config_path else ()
        self._figures = read_figures(state_dir() / FILE_NAME) if config_path else NOTHING_LEARNED

    def explain(self, text: str) -> Explanation:
        """Raises `ValueError` for text that is no JSON object, `RequestError` as the proxy does."""
        try:
            body = json.loads(text)
        except RecursionError as error:
            raise ValueError("the request is nested too deep") from error
        except ValueError as error:
            raise ValueError(f"the request is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise ValueError(f"the request is a JSON {type(body).__name__}; it must be an object")
        model = str(body.get("model") or "")
        groups = sorted({d.model_name for d in self._deployments})
        if self._path and model not in groups and not any("*" in group for group in groups):
            raise ValueError(f"model is {shown(model)}; {self._path.name} has: {', '.join(groups)}")
        view, signals = read(body, self._headers, None, self._config, self._deployments)
        lanes = self._lanes(model, asked_gear(body)[1])
        decision = decide(view, signals, self._config.policy, lanes)
        plan = lane_plans(self._config, self._deployments, model).get("direct")
        known = [self._figures.of(e.name, "prefill") for e in (plan.engines if plan else ())]
        return Explanation(view, signals, decision, any(known))

    def line(self, line: bytes, number: int) -> dict[str, Any]:
        """One line of a batch; a bad line becomes an object with `error` and its number."""
        try:
            return self.explain(line.decode("utf-8")).to_json()
        except (RequestError, ValueError) as error:
            return {"error": str(error), "line": number}

    def _lanes(self, model: str, asked: int | None) -> dict[Lane, LaneOption]:
        if self._path is None:
            return {
                "direct": LaneOption(model, DEFAULT_PREFILL_TOKENS_PER_S),
                "pflash": LaneOption(f"{model}-pflash", DEFAULT_PREFILL_TOKENS_PER_S),
            }
        plans = lane_plans(self._config, self._deployments, model)
        drafting = {
            lane: found
            for lane, plan in plans.items()
            if (found := self._drafting(plan, asked)) is not None
        }
        return lane_options(plans, figures=self._figures, drafting=drafting)

    def _drafting(self, plan: LanePlan, asked: int | None) -> Drafting | None:
        """By the backend's arguments: no server is asked."""
        if self._config.gears.mode == "off":
            return None
        limits = {
            engine: limit
            for engine in plan.engines
            if engine.backend and (limit := draft_limit(self._config.backends[engine.backend].args))
        }
        if not limits:
            return None
        return drafting_of(
            self._config, list(limits), min(limits.values()), self._figures, {}, asked
        )
