"""Reading requests: kinds of body, where the ask is, and flashlane's own fields."""

from __future__ import annotations

import pytest

from flashlane.request import RequestError, estimate_tokens, read_controls, read_request
from flashlane.router import refuse_foreign_controls, take_private_fields

DOCUMENT = "The harbour opened in 1901. Every list must be exact. " * 40


def test_ask_after_the_document() -> None:
    view = read_request(
        {"model": "m", "messages": [{"role": "user", "content": f"{DOCUMENT}\n\nSummarise it."}]}
    )
    assert view.ask == "Summarise it."
    assert "exact" in view.context[0].text


def test_ask_before_the_document() -> None:
    view = read_request({"prompt": f"Summarise it.\n\n{DOCUMENT}"})
    assert view.ask == "Summarise it."


def test_a_document_alone_has_no_ask() -> None:
    assert read_request({"messages": [{"role": "user", "content": DOCUMENT}]}).ask == ""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, "chat"),
        ({"messages": [{"role": "user", "content": "hi"}], "system": "s"}, "messages"),
        ({"input": "hi"}, "responses"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
            "responses",
        ),
        ({"prompt": "hi"}, "completion"),
    ],
)
def test_kinds(body: dict[str, object], kind: str) -> None:
    view = read_request(body)
    assert (view.kind, view.ask) == (kind, "hi")


def test_tool_results_are_context() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "Summarise the file."},
            {"role": "tool", "content": "list every item exactly"},
        ]
    }
    view = read_request(body)
    assert view.ask == "Summarise the file."
    assert [span.role for span in view.context] == ["tool"]


def test_images_are_media() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    assert read_request({"messages": [{"role": "user", "content": [part]}]}).multimodal


def test_token_lists() -> None:
    view = read_request({"prompt": [1, 2, 3]})
    assert view.token_prompt
    assert view.estimated_tokens == 3


@pytest.mark.parametrize("field", ["tools", "response_format", "grammar", "logprobs"])
def test_structure(field: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], field: [{"type": "x"}]}
    assert read_request(body).structure == (field,)


@pytest.mark.parametrize("field", ["route", "x_route", "smart_route"])
def test_forced_lane(field: str) -> None:
    assert read_controls({field: "pflash_broad"}).lane == "pflash"


def test_forced_lane_by_header() -> None:
    assert read_controls({}, {"X-Flashlane-Route": "direct"}).lane == "direct"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"route": "fast"}, ["route", "'fast'", "direct", "pflash", "verify"]),
        ({"route": 3}, ["route", "3", "direct"]),
        ({"route": "direct", "x_route": "pflash"}, ["route", "x_route", "different lanes"]),
        ({"pflash": {"keep": 1}}, ["pflash.keep", "keep_ratio"]),
        ({"pflash": "on"}, ["pflash", "'on'", "object"]),
        ({"pflash_keep_ratio": 0}, ["pflash_keep_ratio", "0", "at most 1"]),
        ({"pflash_keep_ratio": True}, ["pflash_keep_ratio", "True"]),
        ({"pflash": {"keep_ratio": 0.2}, "pflash_keep_ratio": 0.3}, ["0.2", "0.3"]),
        ({"pflash_min_keep_tokens": -1}, ["pflash_min_keep_tokens", "-1"]),
        ({"pflash_min_keep_tokens": 2**40}, ["pflash_min_keep_tokens"]),
        ({"pflash_mode": "sometimes"}, ["pflash_mode", "off, auto, always"]),
    ],
)
def test_bad_controls_are_named(body: dict[str, object], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        read_controls(body)
    for word in words:
        assert word in str(caught.value)


def test_private_fields_leave_the_body_and_its_extra_body() -> None:
    data = {"model": "m", "route": "direct", "extra_body": {"pflash": {"mode": "off"}, "top_k": 3}}
    assert take_private_fields(data) == {"route": "direct", "pflash": {"mode": "off"}}
    assert data == {"model": "m", "extra_body": {"top_k": 3}}


def test_private_fields_that_contradict_are_refused_and_still_removed() -> None:
    data = {"route": "direct", "extra_body": {"route": "pflash"}}
    with pytest.raises(RequestError):
        take_private_fields(data)
    assert data == {"extra_body": {}}


def test_estimates() -> None:
    assert estimate_tokens("abcd" * 100) == 100
    assert estimate_tokens("漢字") == 2


@pytest.mark.parametrize(
    "data",
    [
        {"chat_parser": "{}"},
        {"extra_body": {"message_delimiters": []}},
        {"grammar": "root ::= " + "(" * 257},
        {"extra_body": {"grammar": "x" * 65_537}},
        {"api_key": "x"},
        {"extra_body": {"custom_llm_provider": "openai"}},
        {"extra_headers": {"Authorization": "x"}},
    ],
)
def test_what_is_the_operators_is_refused_for_own_engines(data: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        refuse_foreign_controls(data, own_engine=True)
    refuse_foreign_controls(data, own_engine=False)


@pytest.mark.parametrize("field", ["success_callback", "failure_callback"])
@pytest.mark.parametrize("own_engine", [True, False])
def test_a_client_chooses_no_callback(field: str, own_engine: bool) -> None:
    for body in ({field: ["s3"]}, {"extra_body": {field: ["s3"]}}):
        with pytest.raises(RequestError, match=field):
            refuse_foreign_controls(body, own_engine=own_engine)


@pytest.mark.parametrize("field", ["pflash_ratio", "pflash_model", "kvflash", "kvflash_tau"])
def test_an_unknown_field_of_ours_is_refused(field: str) -> None:
    with pytest.raises(RequestError, match=f"{field} is not known"):
        read_request({"messages": [], field: 1})
