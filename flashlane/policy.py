"""The routing decision: safe, then pays, then the lane. One pure function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from flashlane.config import PolicyConfig
from flashlane.decision import (
    BROAD_KINDS,
    DOUBT_SEED,
    EXACT_KINDS,
    Cost,
    Decision,
    Held,
    LaneOption,
    Reason,
    Recollection,
    Signals,
)
from flashlane.gears import gear_for
from flashlane.request import Lane, RequestError, RequestView

COMPRESSING: tuple[Lane, ...] = ("pflash", "verify")
_RATIO_STEP = 0.8
"""The ratio falls in steps where a prompt grows: each new ratio is a new compressed prefix."""
_MIN_RATIO = 0.001
_NOTHING_HELD = Held(0)


def decide(
    view: RequestView,
    signals: Signals,
    policy: PolicyConfig,
    lanes: Mapping[Lane, LaneOption],
    memory: Recollection | None = None,
) -> Decision:
    """Which lane `view` takes. `lanes` holds those configured for its model, `direct` always.

    `memory` is what is known of its conversation. A lane that the client forces wins where it is
    allowed, and so does its keep ratio. Raises `RequestError` when the forced lane is not
    configured for the model, or may not serve this kind of request.
    """
    ratios = {lane: keep_ratio_for(lane, view, signals, policy, memory) for lane in lanes}
    cached = {lane: _cached(lane, lanes[lane], ratios[lane], view, memory) for lane in lanes}
    costs = _costs(view, signals, lanes, ratios, cached)
    costs_ms = {lane: cost.total_ms for lane, cost in costs.items()}
    lane, reasons = _choose(view, signals, policy, lanes, costs_ms, cached, memory)
    gear = None
    drafting = lanes[lane].drafting
    if drafting is not None:
        gear, reason = gear_for(signals.kind, drafting)
        reasons.append(reason)
    return Decision(
        lane=lane,
        group=lanes[lane].group,
        exact=signals.exact,
        keep_ratio=ratios[lane],
        gear=gear,
        reasons=tuple(reasons),
        costs_ms=costs_ms,
        ask=view.ask,
        estimated_tokens=view.estimated_tokens,
        min_keep_tokens=view.controls.min_keep_tokens if lane in COMPRESSING else None,
        kind=signals.kind,
        confidence=signals.confidence,
        conversation=view.conversation,
        costs=costs,
    )


def keep_ratio_for(
    lane: Lane,
    view: RequestView,
    signals: Signals,
    policy: PolicyConfig,
    memory: Recollection | None = None,
) -> float:
    """Share of the material that `lane` keeps, in (0, 1]; 1.0 in the direct lane.

    It is by the kind of ask, and less where that would keep more than `max_kept_tokens`. An exact
    ask in the pflash lane, whose answers nobody checks, keeps `policy.keep_ratio` at least. What a
    conversation's lane holds was shortened by some ratio and is of use to that ratio alone: it
    stays, unless this ask needs more of the text.
    """
    if lane not in COMPRESSING:
        return 1.0
    if view.controls.keep_ratio is not None:
        return view.controls.keep_ratio
    ratio = policy.keep_ratios.get(signals.kind, policy.keep_ratio)
    if signals.exact and lane == "pflash":
        ratio = max(ratio, policy.keep_ratio)
    kept = view.context_tokens * ratio
    if kept > policy.max_kept_tokens:
        steps = math.ceil(math.log(policy.max_kept_tokens / kept, _RATIO_STEP) - 1e-9)
        ratio = max(math.floor(10_000 * ratio * _RATIO_STEP**steps) / 10_000, _MIN_RATIO)
    held = memory.held.get(lane) if memory else None
    stays = held is not None and held.tokens > 0 and ratio <= held.keep_ratio < 1.0
    if held and stays and view.context_tokens * held.keep_ratio <= policy.max_kept_tokens:
        return held.keep_ratio
    return ratio


def _cached(
    lane: Lane, option: LaneOption, ratio: float, view: RequestView, memory: Recollection | None
) -> int:
    """Tokens of the whole prompt that the lane's engine need not read again at `ratio`."""
    held = memory.held.get(lane, _NOTHING_HELD) if memory else _NOTHING_HELD
    of_conversation = held.tokens if held.keep_ratio == ratio else 0
    return min(max(option.cached_tokens, of_conversation), view.estimated_tokens)


def _costs(
    view: RequestView,
    signals: Signals,
    lanes: Mapping[Lane, LaneOption],
    ratios: Mapping[Lane, float],
    cached: Mapping[Lane, int],
) -> dict[Lane, Cost]:
    """Predicted time to the first token that the client may have, by lane."""
    costs = {
        lane: _first_pass(lane, option, view, ratios[lane], cached[lane])
        for lane, option in lanes.items()
    }
    if "verify" in costs:
        option = lanes["verify"]
        doubt = option.doubts.get(signals.kind, DOUBT_SEED)
        second_ms = doubt * (costs["direct"].total_ms + _writing_ms(option, view))
        costs["verify"] = replace(costs["verify"], second_ms=second_ms)
    return costs


def _first_pass(
    lane: Lane, option: LaneOption, view: RequestView, ratio: float, cached_tokens: int
) -> Cost:
    """Scoring of the material, plus prefill of what is kept of it, both where not cached.

    Writing the answer that the client gets costs each lane the same and is left out.
    """
    fresh = option.tokens_per_estimate * (1.0 - cached_tokens / max(view.estimated_tokens, 1))
    tokens = float(view.estimated_tokens)
    score_ms = 0.0
    if lane in COMPRESSING:
        tokens -= view.context_tokens * (1.0 - ratio)
        if option.scorer_tokens_per_s:
            score_ms = 1000.0 * fresh * view.context_tokens / option.scorer_tokens_per_s
    prefill_ms = 1000.0 * max(fresh * tokens, 1.0) / option.prefill_tokens_per_s
    return Cost(score_ms, prefill_ms, option.overhead_ms, cached_tokens=cached_tokens)


def _writing_ms(option: LaneOption, view: RequestView) -> float:
    """Of an answer that is thrown away where it is doubted; 0 while its length is not known."""
    tokens = option.answer_tokens
    if view.max_tokens is not None:
        tokens = min(tokens, view.max_tokens)
    return 1000.0 * tokens / option.decode_tokens_per_s if option.decode_tokens_per_s else 0.0


def _choose(
    view: RequestView,
    signals: Signals,
    policy: PolicyConfig,
    lanes: Mapping[Lane, LaneOption],
    costs_ms: Mapping[Lane, float],
    cached: Mapping[Lane, int],
    memory: Recollection | None,
) -> tuple[Lane, list[Reason]]:
    forced = view.controls.lane
    field = view.controls.lane_field
    if forced is not None:
        _require_possible(forced, field, view, lanes)
        return forced, [
            Reason("forced_lane", f"{field} asks for the {forced} lane"),
            *signals.reasons,
        ]
    wanted, why_not = _safe_lane(view, signals, policy, lanes)
    reasons = list(signals.reasons)
    if wanted == "direct":
        reasons[:0] = [r for r in why_not if r.code == "short_prompt"]
        reasons += [r for r in why_not if r.code != "short_prompt"]
        lane: Lane = "direct"
    else:
        lane, pays = _paying(wanted, policy, costs_ms)
        reasons.append(pays)
    if memory is None or memory.lane == lane:
        return lane, reasons
    last = memory.lane
    if last != "direct" and not _may_stay(last, wanted, lanes):
        held = memory.held.get(last, _NOTHING_HELD).tokens
        lost = f"{last}, with {held} tokens in its cache, is not for this ask"
        return lane, [*reasons, Reason("flips", f"from {last} to {lane}: {lost}")]
    if not cached.get(last):
        return lane, reasons
    saved_ms = costs_ms[last] - costs_ms[lane]
    sums = (
        f"{lane} costs {costs_ms[lane]:.0f} ms, {last} with {cached[last]} tokens in its cache "
        f"{costs_ms[last]:.0f} ms: {saved_ms:.0f} ms saved, "
        f"{'more' if saved_ms > policy.flip_margin_ms else 'not more'} than "
        f"{policy.flip_margin_ms:.0f} ms"
    )
    if saved_ms > policy.flip_margin_ms:
        return lane, [*reasons, Reason("flips", f"from {last} to {lane}: {sums}")]
    kept = [reason for reason in reasons if reason.code not in ("pays", "no_saving")]
    return last, [*kept, Reason("stays", f"in the {last} lane: {sums}")]


def _safe_lane(
    view: RequestView, signals: Signals, policy: PolicyConfig, lanes: Mapping[Lane, LaneOption]
) -> tuple[Lane, list[Reason]]:
    """The lane that compresses as much as this ask allows; for `direct`, why it is no other."""
    if view.estimated_tokens < policy.min_prompt_tokens:
        words = (
            f"about {view.estimated_tokens} prompt tokens, "
            f"compression starts at {policy.min_prompt_tokens}"
        )
        return "direct", [Reason("short_prompt", words)]
    if view.multimodal or view.structure or view.token_prompt:
        return "direct", []
    kinds = EXACT_KINDS if signals.exact else BROAD_KINDS
    if signals.kind in policy.verify_kinds and signals.kind in kinds and _usable("verify", lanes):
        return "verify", []
    if signals.exact:
        return "direct", []
    if "pflash" not in lanes:
        return "direct", [Reason("lane_not_configured", f"model {view.model!r} has no pflash lane")]
    if not lanes["pflash"].allowed:
        return "direct", [
            Reason("lane_not_allowed", f"this key may not use {lanes['pflash'].group!r}")
        ]
    return "pflash", []


def _paying(
    wanted: Lane, policy: PolicyConfig, costs_ms: Mapping[Lane, float]
) -> tuple[Lane, Reason]:
    saved_ms = costs_ms["direct"] - costs_ms[wanted]
    if saved_ms < policy.min_saving_ms:
        return "direct", Reason(
            "no_saving",
            f"compressing would save {saved_ms:.0f} ms, less than {policy.min_saving_ms:.0f} ms",
        )
    doubts = ", a second pass where the first is doubted included" if wanted == "verify" else ""
    return wanted, Reason(
        "pays",
        f"about {costs_ms[wanted]:.0f} ms to the first token instead of "
        f"{costs_ms['direct']:.0f} ms{doubts}",
    )


def _may_stay(last: Lane, wanted: Lane, lanes: Mapping[Lane, LaneOption]) -> bool:
    """Whether a conversation's compressing lane may take this ask: `wanted`, or one that checks."""
    return wanted != "direct" and last in (wanted, "verify") and _usable(last, lanes)


def _usable(lane: Lane, lanes: Mapping[Lane, LaneOption]) -> bool:
    return lane in lanes and lanes[lane].allowed


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
