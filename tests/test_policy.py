"""The decision: safe, then pays, then the lane."""

from __future__ import annotations

import timeit
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.config import FlashlaneConfig, PolicyConfig
from flashlane.decision import (
    BROAD_KINDS,
    EXACT_KINDS,
    UNDECIDED_KINDS,
    Decision,
    Drafting,
    GearRecord,
    Held,
    LaneOption,
    Reason,
    Recollection,
    Signals,
)
from flashlane.exactness import exactness
from flashlane.policy import decide, keep_ratio_for
from flashlane.request import Controls, Lane, RequestError, RequestView, read_request
from flashlane.router import route

MATERIAL = "The harbour opened in 1901. Every list must be exact, word for word. " * 200
LANES: dict[Lane, LaneOption] = {
    "direct": LaneOption("local", 100.0),
    "pflash": LaneOption("local-pflash", 100.0),
}
CHECKED: dict[Lane, LaneOption] = {**LANES, "verify": LaneOption("local-verify", 100.0)}


def body(ask: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": "local",
        "messages": [{"role": "user", "content": f"{MATERIAL}\n\n{ask}"}],
        **fields,
    }


def decided(request: dict[str, Any], lanes: dict[Lane, LaneOption] = LANES) -> Decision:
    view = read_request(request)
    return decide(view, exactness(view), PolicyConfig(), lanes)


def view_of(tokens: int, context: int | None = None, **fields: Any) -> RequestView:
    """A request of `tokens` estimated tokens, `context` of them material."""
    return RequestView(
        kind="chat",
        model="local",
        ask="…",
        instructions=(),
        context=(),
        estimated_tokens=tokens,
        context_tokens=tokens - 20 if context is None else context,
        **fields,
    )


def signals_of(kind: str) -> Signals:
    exact = kind not in BROAD_KINDS
    return Signals(exact, kind, (Reason("exact_ask" if exact else "broad_ask", kind),))


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"messages": [{"role": "user", "content": f"{MATERIAL}\n\nWhat was the date?"}]}, ""),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n"),
        ({"n_probs": 3}, "n_probs"),
    ],
)
def test_what_extra_body_lays_over_the_body_decides(extra: dict[str, Any], code: str) -> None:
    """LiteLLM merges extra_body into the request after the router has read it."""
    data = body("Summarise the text.")
    assert route({**data}, None, "chat", FlashlaneConfig(), (), lanes=LANES).lane == "pflash"
    decision = route(
        {**data, "extra_body": extra}, None, "chat", FlashlaneConfig(), (), lanes=LANES
    )
    assert decision.lane == "direct" and decision.exact
    assert any(code in reason.text for reason in decision.reasons)


@pytest.mark.parametrize(
    "ask",
    [
        "Summarise the text.",
        "What is this about?",
        "Explain the main ideas.",
        "Fasse den Text zusammen.",
        "Résume ce texte.",
        "Resume el texto.",
        "Riassumi il testo.",
        "总结这篇文章",
        "この文章を要約してください",
        "요약해 주세요",
    ],
)
def test_broad_asks_are_compressed(ask: str) -> None:
    decision = decided(body(ask))
    assert decision.lane == "pflash"
    assert decision.group == "local-pflash"
    assert codes(decision) == ["broad_ask", "pays"]
    assert decision.costs_ms["pflash"] < decision.costs_ms["direct"]


@pytest.mark.parametrize(
    "ask",
    [
        "What was the invoice total?",
        "List every harbour.",
        "How many harbours are there?",
        "Quote the first sentence.",
        "Translate the text to German.",
        "Fix the bug in parse().",
        "Summarise it and list every date.",
        "Wie viele Häfen gibt es?",
        "列出所有港口",
        "Hmm, the text above.",
        "Answer in JSON.",
    ],
)
def test_exact_and_unsure_asks_go_direct(ask: str) -> None:
    decision = decided(body(ask))
    assert decision.lane == "direct"
    assert decision.exact
    assert decision.keep_ratio == 1.0


@pytest.mark.parametrize("field", ["tools", "response_format", "grammar"])
def test_structure_goes_direct(field: str) -> None:
    assert codes(decided(body("Summarise it.", **{field: {"type": "x"}}))) == ["structure"]


def test_short_prompts_go_direct() -> None:
    decision = decided(
        {"model": "local", "messages": [{"role": "user", "content": "Summarise: hi"}]}
    )
    assert codes(decision)[0] == "short_prompt"


def test_compression_must_pay() -> None:
    fast: dict[Lane, LaneOption] = {k: LaneOption(v.group, 1e6) for k, v in LANES.items()}
    assert codes(decided(body("Summarise it."), fast))[-1] == "no_saving"


def test_a_cached_prefix_is_not_thrown_away() -> None:
    cached = {**LANES, "direct": LaneOption("local", 100.0, cached_tokens=3000)}
    assert codes(decided(body("Summarise it."), cached))[-1] == "no_saving"


def test_a_lane_that_the_key_may_not_use() -> None:
    closed = {**LANES, "pflash": LaneOption("local-pflash", 100.0, allowed=False)}
    decision = decided(body("Summarise it."), closed)
    assert decision.lane == "direct"
    assert codes(decision)[-1] == "lane_not_allowed"


def test_forced_lane_wins() -> None:
    decision = decided(body("List every harbour.", route="pflash", pflash_keep_ratio=0.3))
    assert (decision.lane, decision.keep_ratio) == ("pflash", 0.3)
    assert codes(decision)[0] == "forced_lane"


def test_forced_lane_that_is_not_there() -> None:
    with pytest.raises(RequestError, match="verify lane, which model 'local' does not have"):
        decided(body("Summarise it.", route="verify"))


@pytest.mark.parametrize("field", ["tools", "response_format"])
def test_forced_compression_of_structure_is_refused(field: str) -> None:
    with pytest.raises(RequestError, match=field):
        decided(body("Summarise it.", route="pflash", **{field: {"type": "x"}}))


def test_a_forced_lane_says_what_it_costs_and_keeps_by_kind() -> None:
    decision = decided(body("List every harbour.", route="pflash"))
    assert decision.keep_ratio == 0.5, "an exact ask that nobody checks keeps keep_ratio at least"
    assert decided(body("Summarise it.", route="pflash")).keep_ratio == 0.4


@pytest.mark.parametrize("kind", ["retrieval", "checking"])
def test_kinds_that_can_be_checked_take_the_verify_lane(kind: str) -> None:
    decision = decide(view_of(4000), signals_of(kind), PolicyConfig(), CHECKED)
    assert (decision.lane, decision.group, decision.keep_ratio) == ("verify", "local-verify", 0.2)
    assert decision.exact and codes(decision) == ["exact_ask", "pays"]
    # 20 + 0.2 * 3980 tokens at 100 tokens/s, and three in ten of the direct lane's 40 s.
    assert decision.costs_ms["verify"] == pytest.approx(8160 + 0.3 * 40_000)


def test_doubt_that_was_learned_makes_the_verify_lane_dear() -> None:
    doubted = {**CHECKED, "verify": LaneOption("v", 100.0, doubts={"retrieval": 0.9})}
    decision = decide(view_of(4000), signals_of("retrieval"), PolicyConfig(), doubted)
    assert decision.lane == "direct" and codes(decision)[-1] == "no_saving"
    assert decide(view_of(4000), signals_of("checking"), PolicyConfig(), doubted).lane == "verify"


@pytest.mark.parametrize("kind", ["counting", "unsure", "code"])
def test_other_exact_kinds_stay_direct_beside_a_verify_lane(kind: str) -> None:
    assert decide(view_of(4000), signals_of(kind), PolicyConfig(), CHECKED).lane == "direct"


@pytest.mark.parametrize(
    "fields", [{"structure": ("tools",)}, {"multimodal": True}, {"token_prompt": True}]
)
def test_the_verify_lane_takes_no_structure_and_no_media(fields: dict[str, Any]) -> None:
    view = view_of(4000, **fields)
    assert decide(view, signals_of("retrieval"), PolicyConfig(), CHECKED).lane == "direct"


def test_a_broad_kind_that_is_to_be_checked_is() -> None:
    policy = PolicyConfig(verify_kinds=("summary",))
    assert decide(view_of(4000), signals_of("summary"), policy, CHECKED).lane == "verify"
    assert decide(view_of(4000), signals_of("summary"), policy, LANES).lane == "pflash"
    assert decide(view_of(4000), signals_of("retrieval"), policy, CHECKED).lane == "direct"


def test_the_ratio_is_by_kind_and_bounded_by_what_it_keeps() -> None:
    policy = PolicyConfig(max_kept_tokens=10_000)
    ratios = {
        kind: keep_ratio_for("pflash", view_of(4000), signals_of(kind), policy)
        for kind in BROAD_KINDS
    }
    assert ratios["summary"] == 0.4 and ratios["comparison"] == 0.5
    for context in (25_000, 25_001, 60_000, 10_000_000):
        ratio = keep_ratio_for("pflash", view_of(context, context), signals_of("summary"), policy)
        assert context * ratio <= 10_000 and (context == 25_000) == (ratio == 0.4)
        assert context * ratio >= 0.79 * 10_000, "no further down than the bound asks"
    view = view_of(1_000_000, controls=Controls(keep_ratio=0.9))
    assert keep_ratio_for("pflash", view, signals_of("summary"), policy) == 0.9
    assert keep_ratio_for("direct", view, signals_of("summary"), policy) == 1.0


def test_what_is_cached_in_a_lane_makes_it_cheap() -> None:
    cached = {**LANES, "pflash": LaneOption("p", 100.0, 1000.0, cached_tokens=2000)}
    costs = decide(view_of(4000), signals_of("summary"), PolicyConfig(), cached).costs_ms
    # Half of the prompt is new: half of 20 + 0.4 * 3980 tokens, half of the scoring.
    assert costs["pflash"] == pytest.approx(8060 + 1990)


def test_tokens_are_counted_as_the_engine_counts_them() -> None:
    dense = {lane: LaneOption("g", 100.0, tokens_per_estimate=1.5) for lane in LANES}
    costs = decide(view_of(4000), signals_of("summary"), PolicyConfig(), dense).costs_ms
    assert costs["direct"] == pytest.approx(60_000)


def test_a_conversation_stays_where_its_prefix_is() -> None:
    memory = Recollection("direct", {"direct": Held(2900)})
    decision = decide(view_of(4000), signals_of("summary"), PolicyConfig(), LANES, memory)
    assert decision.lane == "direct", "11 s of new tokens against 16 s for a short form of all"
    memory = Recollection("direct", {"direct": Held(2300)})
    assert decide(view_of(4000), signals_of("summary"), PolicyConfig(), LANES, memory).lane == (
        "pflash"
    )
    wide = PolicyConfig(flip_margin_ms=1000)
    decision = decide(view_of(4000), signals_of("summary"), wide, LANES, memory)
    assert decision.lane == "direct" and codes(decision) == ["broad_ask", "stays"]
    assert "880 ms saved, not more than 1000 ms" in decision.reasons[-1].text
    memory = Recollection("direct", {"direct": Held(1000)})
    decision = decide(view_of(4000), signals_of("summary"), PolicyConfig(), LANES, memory)
    assert decision.lane == "pflash" and codes(decision) == ["broad_ask", "pays", "flips"]
    assert "direct with 1000 tokens in its cache 30000 ms: 13880 ms saved" in (
        decision.reasons[-1].text
    )


def test_an_exact_ask_leaves_the_compressed_lane_and_says_what_is_lost() -> None:
    memory = Recollection("pflash", {"pflash": Held(3000, 0.4)})
    decision = decide(view_of(4000), signals_of("code"), PolicyConfig(), LANES, memory)
    assert decision.lane == "direct" and codes(decision)[-1] == "flips"
    assert "3000 tokens" in decision.reasons[-1].text


def test_a_conversation_keeps_its_ratio_unless_it_needs_more() -> None:
    memory = Recollection("pflash", {"pflash": Held(3000, 0.5)})
    decision = decide(view_of(4000), signals_of("summary"), PolicyConfig(), LANES, memory)
    assert (decision.lane, decision.keep_ratio) == ("pflash", 0.5)
    assert decision.costs_ms["pflash"] == pytest.approx(10 * (20 + 0.5 * 3980) / 4)
    memory = Recollection("pflash", {"pflash": Held(3000, 0.3)})
    decision = decide(view_of(4000), signals_of("summary"), PolicyConfig(), LANES, memory)
    assert decision.keep_ratio == 0.4
    assert decision.costs_ms["pflash"] == pytest.approx(16_120), "another ratio, another prefix"


def test_a_gear_comes_with_the_lane() -> None:
    drafting = Drafting((0, 8), 20, {"": {8: GearRecord(50.0, 0.7), 0: GearRecord(30.0)}})
    lanes = {**LANES, "pflash": LaneOption("p", 100.0, drafting=drafting)}
    decision = decide(view_of(4000), signals_of("summary"), PolicyConfig(), lanes)
    assert (decision.gear, codes(decision)) == (8, ["broad_ask", "pays", "gear"])
    assert decide(view_of(4000), signals_of("code"), PolicyConfig(), lanes).gear is None


KINDS = (*EXACT_KINDS, *BROAD_KINDS, *UNDECIDED_KINDS)
speeds = st.floats(10.0, 20_000.0)
options = st.builds(
    LaneOption,
    group=st.just("g"),
    prefill_tokens_per_s=speeds,
    scorer_tokens_per_s=st.none() | speeds,
    cached_tokens=st.integers(0, 200_000),
    allowed=st.booleans(),
    doubts=st.fixed_dictionaries({}, optional={"retrieval": st.floats(0, 1)}),
)
lane_maps = st.fixed_dictionaries(
    {"direct": options}, optional={"pflash": options, "verify": options}
)
memories = st.none() | st.builds(
    Recollection,
    lane=st.sampled_from(["direct", "pflash", "verify"]),
    held=st.dictionaries(
        st.sampled_from(["direct", "pflash", "verify"]),
        st.builds(Held, st.integers(0, 200_000), st.sampled_from([0.2, 0.4, 0.5, 1.0])),
    ),
)


@settings(max_examples=400, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    tokens=st.integers(0, 300_000),
    lanes=lane_maps,
    memory=memories,
    verified=st.lists(st.sampled_from((*EXACT_KINDS, *BROAD_KINDS)), max_size=4),
    structure=st.sampled_from([(), ("tools",)]),
    multimodal=st.booleans(),
)
def test_nothing_exact_is_compressed_unless_its_answer_is_checked(
    kind: str,
    tokens: int,
    lanes: dict[Lane, LaneOption],
    memory: Recollection | None,
    verified: list[str],
    structure: tuple[str, ...],
    multimodal: bool,
) -> None:
    policy = PolicyConfig(verify_kinds=tuple(verified))
    view = view_of(tokens, max(0, tokens - 20), structure=structure, multimodal=multimodal)
    signals = signals_of(kind)
    decision = decide(view, signals, policy, lanes, memory)
    assert decision.lane in lanes
    assert 0 < decision.keep_ratio <= 1
    if decision.lane == "direct":
        assert decision.keep_ratio == 1.0
        return
    assert lanes[decision.lane].allowed
    assert not structure and not multimodal and tokens >= policy.min_prompt_tokens
    if decision.lane == "pflash":
        assert not signals.exact
    elif signals.exact:
        assert kind in verified and kind in EXACT_KINDS


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_flip_of_a_conversation_loses_a_prefix_for_less_than_it_saves(
    data: st.DataObject,
) -> None:
    """A chat grows turn by turn; each lane's engine keeps the last prompt that it read."""
    margins = st.sampled_from([0.0, 500.0, 5_000.0])
    policy = PolicyConfig(
        min_prompt_tokens=500,
        min_saving_ms=data.draw(margins),
        flip_margin_ms=data.draw(margins),
    )
    prefill = {lane: data.draw(st.floats(50.0, 5_000.0)) for lane in CHECKED}
    scorer = data.draw(st.none() | st.floats(500.0, 50_000.0))
    lanes = {lane: LaneOption("g", prefill[lane], scorer) for lane in CHECKED}
    memory: Recollection | None = None
    held: dict[Lane, Held] = {}
    tokens = 0
    for _ in range(data.draw(st.integers(2, 10))):
        tokens += data.draw(st.integers(50, 8_000))
        view, signals = view_of(tokens), signals_of(data.draw(st.sampled_from(KINDS)))
        decision = decide(view, signals, policy, lanes, memory)
        now = decision.lane
        if memory is not None and memory.lane != now and memory.held[memory.lane].tokens:
            last = memory.lane
            open_to_it = (
                last == "direct"
                or not signals.exact
                or (last == "verify" and signals.kind in policy.verify_kinds)
            )
            # Compressing a short prompt, or a checked kind without a check, is open to nobody.
            if last == "pflash" and signals.kind in policy.verify_kinds:
                open_to_it = False
            if view.estimated_tokens < policy.min_prompt_tokens and last != "direct":
                open_to_it = False
            ratio = keep_ratio_for(last, view, signals, policy, memory)
            if open_to_it and memory.held[last].keep_ratio == ratio:
                loss = alone(lanes[last], last, view, ratio) - alone(
                    lanes[last], last, view, ratio, memory.held[last].tokens
                )
                gross = decision.costs_ms[last] + loss - decision.costs_ms[now]
                assert gross > loss + policy.flip_margin_ms - 1e-6
                assert "flips" in codes(decision)
        held = {**held, now: Held(tokens, decision.keep_ratio)}
        memory = Recollection(now, held)


def alone(
    option: LaneOption, lane: Lane, view: RequestView, ratio: float, cached: int = 0
) -> float:
    """The lane's own prompt time in ms, worked out apart from the policy."""
    new = 1 - min(cached, view.estimated_tokens) / view.estimated_tokens
    kept = view.estimated_tokens - view.context_tokens
    kept += view.context_tokens * (ratio if lane != "direct" else 1)
    ms = 1000 * max(new * kept, 1) / option.prefill_tokens_per_s
    if lane != "direct" and option.scorer_tokens_per_s:
        ms += 1000 * new * view.context_tokens / option.scorer_tokens_per_s
    return ms


def test_a_decision_takes_no_time() -> None:
    """50 µs at most; the best of many runs, since others use the machine."""
    view, signals, policy = view_of(100_000), signals_of("retrieval"), PolicyConfig()
    memory = Recollection("verify", {"verify": Held(60_000, 0.2), "direct": Held(20_000)})
    drafting = Drafting((0, 4, 8, 16), 20, {"": {8: GearRecord(50.0, 0.7), 0: GearRecord(30.0)}})
    lanes = {**CHECKED, "verify": LaneOption("v", 100.0, 1000.0, 50_000, drafting=drafting)}
    runs = timeit.repeat(
        lambda: decide(view, signals, policy, lanes, memory), number=100, repeat=30
    )
    assert min(runs) / 100 < 50e-6
