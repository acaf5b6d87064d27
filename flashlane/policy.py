"""The routing decision: safe, then pays, then the lane. One pure function."""

from __future__ import annotations

from collections.abc import Mapping

from flashlane.config import PolicyConfig
from flashlane.decision import Decision, LaneOption, Reason, Signals
from flashlane.request import Lane, RequestError, RequestView

_COMPRESSING: tuple[Lane, ...] = ("pflash", "verify")


def decide(
    view: RequestView,
    signals: Signals,
    policy: PolicyConfig,
    lanes: Mapping[Lane, LaneOption],
) -> Decision:
    """Which lane `view` takes. `lanes` holds those configured for its model, `direct` always.

    A lane that the client forces wins where it is allowed. Raises `RequestError` when the
    forced lane is not configured for the model, or may not serve this kind of request.
    """
    keep_ratio = view.controls.keep_ratio or policy.keep_ratio
    costs_ms = {lane: _cost_ms(lane, option, view, keep_ratio) for lane, option in lanes.items()}
    lane, reasons = _choose(view, signals, policy, lanes, costs_ms)
    return Decision(
        lane=lane,
        group=lanes[lane].group,
        exact=signals.exact,
        keep_ratio=keep_ratio if lane in _COMPRESSING else 1.0,
        gear=None,
        reasons=tuple(reasons),
        costs_ms=costs_ms,
        ask=view.ask,
        estimated_tokens=view.estimated_tokens,
        min_keep_tokens=view.controls.min_keep_tokens if lane in _COMPRESSING else None,
        kind=signals.kind,
        confidence=signals.confidence,
    )


def _choose(
    view: RequestView,
    signals: Signals,
    policy: PolicyConfig,
    lanes: Mapping[Lane, LaneOption],
    costs_ms: Mapping[Lane, float],
) -> tuple[Lane, list[Reason]]:
    forced = view.controls.lane
    field = view.controls.lane_field
    if forced is not None:
        _require_possible(forced, field, view, lanes)
        return forced, [
            Reason("forced_lane", f"{field} asks for the {forced} lane"),
            *signals.reasons,
        ]
    if view.estimated_tokens < policy.min_prompt_tokens:
        return "direct", [
            Reason(
                "short_prompt",
                f"about {view.estimated_tokens} prompt tokens, "
                f"compression starts at {policy.min_prompt_tokens}",
            ),
            *signals.reasons,
        ]
    if signals.exact:
        return "direct", list(signals.reasons)
    if "pflash" not in lanes:
        return "direct", [
            *signals.reasons,
            Reason("lane_not_configured", f"model {view.model!r} has no pflash lane"),
        ]
    if not lanes["pflash"].allowed:
        return "direct", [
            *signals.reasons,
            Reason("lane_not_allowed", f"this key may not use {lanes['pflash'].group!r}"),
        ]
    saved_ms = costs_ms["direct"] - costs_ms["pflash"]
    if saved_ms < policy.min_saving_ms:
        return "direct", [
            *signals.reasons,
            Reason(
                "no_saving",
                f"compressing would save {saved_ms:.0f} ms, "
                f"less than {policy.min_saving_ms:.0f} ms",
            ),
        ]
    return "pflash", [
        *signals.reasons,
        Reason(
            "pays",
            f"about {costs_ms['pflash']:.0f} ms to the first token instead of "
            f"{costs_ms['direct']:.0f} ms",
        ),
    ]


def _require_possible(
    lane: Lane, field: str, view: RequestView, lanes: Mapping[Lane, LaneOption]
) -> None:
    if lane not in lanes:
        raise RequestError(
            f"{field} asks for the {lane} lane, which model {view.model!r} does not have; "
            f"its lanes: {', '.join(lanes)}",
            field,
        )
    if lane == "direct":
        return
    if view.multimodal or view.structure or view.token_prompt:
        what = ", ".join(view.structure) or ("media" if view.multimodal else "token ids")
        raise RequestError(
            f"{field} asks for the {lane} lane, which never compresses a request with {what}; "
            "use direct",
            field,
        )


def _cost_ms(lane: Lane, option: LaneOption, view: RequestView, keep_ratio: float) -> float:
    """Predicted time to first token in ms: scoring, plus prefill of what is kept and not cached."""
    tokens = float(view.estimated_tokens)
    score_ms = 0.0
    if lane in _COMPRESSING:
        kept = view.context_tokens * keep_ratio
        tokens = view.estimated_tokens - view.context_tokens + kept
        if option.scorer_tokens_per_s:
            score_ms = 1000.0 * view.context_tokens / option.scorer_tokens_per_s
    uncached = max(tokens - option.cached_tokens, 1.0)
    return score_ms + 1000.0 * uncached / option.prefill_tokens_per_s
