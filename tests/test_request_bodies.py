"""Reading whole bodies: turns, follow-ups, every API, and bodies that nobody should send."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.request import Kind, RequestError, RequestView, estimate_tokens, read_request
from flashlane.router import take_private_fields

DOCUMENT = "The harbour opened in 1901. Every list must be exact. " * 40
ASK = "Summarise it."


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def chat(*contents: object) -> RequestView:
    """A chat in which an assistant says "ok" between a user's messages."""
    messages: list[dict[str, Any]] = []
    for content in contents:
        messages += [user(content), {"role": "assistant", "content": "ok"}]
    return read_request({"messages": messages[:-1]})


BODIES: dict[str, tuple[dict[str, Any], Kind, str]] = {
    "chat": ({"messages": [user(f"{DOCUMENT}\n\n{ASK}")]}, "chat", "messages[0]"),
    "parts": (
        {"messages": [user([{"type": "text", "text": text} for text in (DOCUMENT, ASK)])]},
        "chat",
        "messages[0].content[1]",
    ),
    "two messages": ({"messages": [user(DOCUMENT), user(ASK)]}, "chat", "messages[1]"),
    "completion": ({"prompt": f"{DOCUMENT}\n\n{ASK}"}, "completion", "prompt"),
    "texts": ({"prompt": [f"{ASK}\n\n{DOCUMENT}"]}, "completion", "prompt[0]"),
    "anthropic": (
        {
            "system": "Be kind.",
            "messages": [user([{"type": "text", "text": f"{DOCUMENT}\n\n{ASK}"}])],
        },
        "messages",
        "messages[0].content[0]",
    ),
    "anthropic tool result": (
        {
            "system": [{"type": "text", "text": "Be kind."}],
            "messages": [
                user(ASK),
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "input": {}}]},
                user([{"type": "tool_result", "tool_use_id": "1", "content": DOCUMENT}]),
            ],
        },
        "messages",
        "messages[0]",
    ),
    "nested tool result": (
        {
            "messages": [
                user(
                    [
                        {"type": "text", "text": ASK},
                        {"type": "tool_result", "content": [{"type": "text", "text": DOCUMENT}]},
                    ]
                )
            ]
        },
        "chat",
        "messages[0].content[0]",
    ),
    "responses text": (
        {"input": f"{ASK}\n\n{DOCUMENT}", "instructions": "x"},
        "responses",
        "input",
    ),
    "responses items": (
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": ASK}]},
                {"type": "function_call", "name": "read", "arguments": "{}", "call_id": "1"},
                {"type": "function_call_output", "call_id": "1", "output": DOCUMENT},
            ]
        },
        "responses",
        "input[0].content[0]",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_body(name: str) -> None:
    body, kind, where = BODIES[name]
    view = read_request(body)
    assert (view.kind, view.ask, view.ask_where) == (kind, ASK, (where,))
    assert [span.text.strip() for span in view.context if span.role != "assistant"] == [
        DOCUMENT.strip()
    ]
    assert view.estimated_tokens == pytest.approx(len(DOCUMENT) // 4, abs=12)
    assert view.context_tokens == pytest.approx(len(DOCUMENT) // 4, abs=3)
    assert not (view.multimodal or view.token_prompt or view.structure)


def test_rules_are_the_system_s_and_the_developer_s() -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        user(ASK),
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        user("Go on."),
    ]
    view = read_request({"messages": messages})
    assert [(s.text, s.role) for s in view.instructions][:2] == [
        ("Be kind.", "system"),
        ("Be brief.", "system"),
    ]


def test_a_follow_up_takes_the_ask_that_it_leans_on() -> None:
    view = chat(f"{DOCUMENT}\n\nWhich gate does the first clause name?", "and the second one?")
    assert view.ask == "Which gate does the first clause name?\nand the second one?"
    assert view.ask_where == ("messages[0]", "messages[2]")
    view = chat(f"{DOCUMENT}\n\nList the dates.", "And the names?", "now in French")
    assert view.ask.split("\n") == ["List the dates.", "And the names?", "now in French"]


def test_an_ask_of_its_own_stands_alone() -> None:
    view = chat(f"{DOCUMENT}\n\nList every date.", "Thank you. Now write a poem about the harbour.")
    assert "List" not in chat(f"{DOCUMENT}\n\nList every date.", "Write a poem about it.").ask
    assert view.ask_where[-1] == "messages[2]"


def test_material_alone_goes_with_the_ask_before_it() -> None:
    view = chat("I will paste a report. List every date in it.", DOCUMENT)
    assert view.ask.startswith("I will paste a report. List every date in it.")
    assert view.ask_where[0] == "messages[0]"


def test_old_asks_are_not_dug_up() -> None:
    assert "Count" not in chat("Count the gates.", *["Describe the harbour."] * 3).ask


def test_a_title_is_not_sure() -> None:
    view = read_request({"prompt": f"Harbour report\n\n{DOCUMENT}\n\n{DOCUMENT}"})
    assert [(span.text, span.sure) for span in view.instructions] == [("Harbour report", False)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 5, "max_completion_tokens": 3}, 3),
        ({"max_tokens": "5"}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 2.5}, None),
    ],
)
def test_max_tokens(fields: dict[str, Any], expected: int | None) -> None:
    assert read_request({"prompt": "hi", **fields}).max_tokens == expected


def test_a_conversation_keeps_its_name_as_it_grows() -> None:
    system = {"role": "system", "content": "Be kind."}
    messages = [system, user(f"{DOCUMENT}\n\n{ASK}")]
    name = read_request({"messages": messages}).conversation
    assert name
    later = {"role": "system", "content": "Be brief."}
    for more in ({"role": "assistant", "content": "ok"}, user("And?"), later, user("more")):
        messages.append(more)
        assert read_request({"messages": messages}).conversation == name
    for _ in range(50):
        messages.append(user("again"))
    assert read_request({"messages": messages}).conversation == name
    others = [
        [{"role": "system", "content": "Be rude."}, messages[1]],
        [system, user(f"{DOCUMENT} \n\n{ASK}")],
        [messages[1]],
    ]
    names = {read_request({"messages": other}).conversation for other in others}
    assert len(names | {name}) == 4


def test_a_conversation_s_name_is_read_from_a_bounded_head() -> None:
    one, other = ("a" * 5000 + end for end in "xy")
    assert chat(one).conversation == chat(other).conversation
    assert chat(one).conversation != chat(one + "z").conversation
    assert (
        read_request({"prompt": [1, 2]}).conversation
        != read_request({"prompt": [1, 3]}).conversation
    )
    assert read_request({}).conversation == ""
    assert read_request({"input": "hi", "previous_response_id": "r"}).conversation == ""


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "input_image", "image_url": "data:"},
        {"type": "document", "source": {}},
        {"type": ["text"], "text": "hi"},
        {"text": "no type"},
        5,
        {"type": "tool_result", "content": [{"type": "image"}]},
    ],
)
def test_what_is_no_text_is_media(part: object) -> None:
    view = read_request({"messages": [user([{"type": "text", "text": ASK}, part])]})
    assert view.multimodal
    assert view.ask.startswith(ASK)


@pytest.mark.parametrize("items", [{"a": 1}, ["x"], [5], [None], [{"content": {}}], [user(3)]])
def test_messages_of_a_wrong_type_are_media(items: object) -> None:
    assert read_request({"messages": items}).multimodal


def test_a_screenshot_is_media() -> None:
    output = {"type": "computer_call_output", "output": {"type": "computer_screenshot"}}
    assert read_request({"input": [user("hi"), output]}).multimodal


def test_several_prompts_are_structure() -> None:
    assert read_request({"prompt": ["a", "b"]}).structure == ("prompt",)


@pytest.mark.parametrize(
    "prompt", [{"a": 1}, 5, [1, "a"], ["a", 1], [1.5], [None], [[1], 2], [[1], ["a"]], [[[1]]]]
)
def test_a_prompt_of_a_wrong_type_is_refused(prompt: object) -> None:
    with pytest.raises(RequestError) as caught:
        read_request({"prompt": prompt})
    assert caught.value.param == "prompt"


def test_token_prompts() -> None:
    view = read_request({"prompt": [[1, 2], [3]]})
    assert (view.token_prompt, view.estimated_tokens, view.ask) == (True, 3, "")


def nested(depth: int, kind: type = list) -> object:
    value: Any = "hi"
    for _ in range(depth):
        value = [value] if kind is list else {"type": "tool_result", "content": [value]}
    return value


@pytest.mark.parametrize("depth", [5, 50, 100_000])
@pytest.mark.parametrize("kind", [list, dict])
def test_deep_nesting(depth: int, kind: type) -> None:
    value = nested(depth, kind)
    for body in (
        {"messages": [user([value])]},
        {"messages": value},
        {"messages": [{"role": value, "content": "hi"}], "system": value},
        {"input": [{"type": "function_call_output", "output": value}]},
        {"input": value, "instructions": value},
        {"system": value, "messages": []},
        {"messages": [], "model": value, "tools": value, "stream": value, "max_tokens": value},
    ):
        view = read_request(body)
        assert view.ask in ("", "hi")
        if depth > 10 and not body.get("model"):
            assert view.multimodal
    for body in ({"prompt": value}, {"prompt": "x", "route": value}, {"pflash": value}):
        with pytest.raises(RequestError):
            read_request(body)
    route = {"route": value, "extra_body": {"route": nested(depth, kind)}}
    if depth > 10_000:
        with pytest.raises(RequestError):
            take_private_fields(route)


def test_ten_thousand_messages() -> None:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"message {i} of the chat"}
        for i in range(10_000)
    ]
    view = read_request({"messages": [*messages, user("Count the gates.")]})
    assert view.ask == "Count the gates."
    assert view.ask_where == ("messages[10000]",)
    assert len(view.context) == 10_000
    assert view.context[9_999].where == "messages[9999]"
    parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages]
    view = read_request({"messages": [*parts, user("Count the gates.")]})
    assert (view.ask, view.context[7].where) == ("Count the gates.", "messages[7].content[0]")
    assert read_request({"messages": [user("a gate")] * 10_000}).context


def test_ten_megabytes() -> None:
    for text in (DOCUMENT * 5000, "港は一九〇一年に開かれた。" * 400_000):
        view = read_request({"prompt": f"{text}\n\nCount the gates."})
        assert view.ask == "Count the gates."
        exact = estimate_tokens(text[:50_000]) * len(text) / 50_000
        assert view.estimated_tokens == pytest.approx(exact, rel=0.03)


def test_a_long_estimate_is_of_the_whole_text() -> None:
    mixed = "word " * 60_000 + "漢" * 100_000
    assert estimate_tokens(mixed) == pytest.approx(75_000 + 100_000, rel=0.05)


def test_lone_surrogates() -> None:
    body = json.loads('{"messages": [{"role": "user", "content": "Summarise \\ud800 it."}]}')
    view = read_request(body)
    assert view.ask == "Summarise \ud800 it."
    assert view.conversation
    for bad in ({"route": "\ud800"}, {"pflash": {"\ud800": 1}}, {"pflash_\ud800": 1}):
        with pytest.raises(RequestError) as caught:
            read_request(bad)
        str(caught.value).encode()
        caught.value.param.encode()


def test_errors_do_not_repeat_what_is_long() -> None:
    for bad in ({"route": "x" * 10_000}, {"pflash": {"x" * 10_000: 1}}, {"route": 10**5000}):
        with pytest.raises(RequestError) as caught:
            read_request(bad)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("body", [[], "x", 5, None])
def test_a_body_is_an_object(body: Any) -> None:
    with pytest.raises(RequestError):
        read_request(body)


NAMES = st.sampled_from(
    [
        *("messages", "input", "prompt", "system", "instructions", "role", "content", "text"),
        *("type", "output", "tool_result", "user", "assistant", "tool", "route", "pflash"),
        *("mode", "keep_ratio", "stream", "n", "model", "max_tokens", "response_format", "text"),
        *("format", "logprobs", "image_url", "pflash_mode", "direct", "function_call_output"),
        *("developer"),
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), NAMES, st.text(max_size=40)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(NAMES, st.text()), inner, max_size=5)
    ),
    max_leaves=25,
)
PART = st.one_of(
    st.text(max_size=900),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "input_text", "tool_result", "image"])},
        optional={"text": st.text(max_size=900), "content": JSON},
    ),
)
ITEM = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"role": st.one_of(st.sampled_from(["user", "system", "assistant", "tool"]), JSON)},
        optional={"content": st.one_of(st.text(max_size=900), st.lists(PART, max_size=4), JSON)},
    ),
)
BODY = st.one_of(
    st.dictionaries(NAMES, JSON, max_size=6),
    st.fixed_dictionaries({"messages": st.lists(ITEM, max_size=40)}, optional={"system": JSON}),
    st.fixed_dictionaries({"input": st.lists(ITEM, max_size=8)}, optional={"instructions": JSON}),
    st.fixed_dictionaries({"prompt": st.one_of(st.text(max_size=2000), JSON)}),
)


def texts_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in texts_in(one)]


@settings(max_examples=400, deadline=None)
@given(BODY, st.sampled_from([None, "chat", "completion", "messages", "responses"]))
def test_any_json_is_read_or_refused(body: dict[str, Any], kind: Kind | None) -> None:
    try:
        view = read_request(body, kind=kind)
    except RequestError as error:
        assert str(error)
        return
    texts = texts_in(body)
    for span in (*view.instructions, *view.context):
        assert any(span.text in text for text in texts)
        assert isinstance(span.role, str)
    asked = [span for span in view.instructions if span.role == "user"]
    assert view.ask == "\n".join(span.text for span in asked)
    assert list(dict.fromkeys(span.where for span in asked)) == list(view.ask_where)
    assert 0 <= view.context_tokens <= view.estimated_tokens
    assert read_request(body, kind=kind) == view


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_any_json_at_all(body: Any) -> None:
    try:
        read_request(body)
    except RequestError:
        return
    assert isinstance(body, dict)


def test_ten_megabytes_are_not_looked_through() -> None:
    body = {"messages": [user(f"{DOCUMENT * 5000}\n\n{ASK}")]}
    took_s = []
    for _ in range(5):
        start_s = time.thread_time()
        read_request(body)
        took_s.append(time.thread_time() - start_s)
    assert min(took_s) < 0.01
