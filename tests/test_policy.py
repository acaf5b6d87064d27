"""The decision: safe, then pays, then the lane."""

from __future__ import annotations

from typing import Any

import pytest

from flashlane.config import FlashlaneConfig, PolicyConfig
from flashlane.decision import Decision, LaneOption
from flashlane.exactness import exactness
from flashlane.policy import decide
from flashlane.request import Lane, RequestError, read_request
from flashlane.router import route

MATERIAL = "The harbour opened in 1901. Every list must be exact, word for word. " * 200
LANES: dict[Lane, LaneOption] = {
    "direct": LaneOption("local", 100.0),
    "pflash": LaneOption("local-pflash", 100.0),
}


def body(ask: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": "local",
        "messages": [{"role": "user", "content": f"{MATERIAL}\n\n{ask}"}],
        **fields,
    }


def decided(request: dict[str, Any], lanes: dict[Lane, LaneOption] = LANES) -> Decision:
    view = read_request(request)
    return decide(view, exactness(view), PolicyConfig(), lanes)


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
