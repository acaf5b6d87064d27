"""Chains: what an engine renders alike has one name, what it renders differently has another."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.prefix import Chain, chain_of
from flashlane.request import Kind

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
TURNED = {"properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "type": "object"}
DOCUMENT = "The harbour opened in 1901 and closed in 1950. " * 100

texts = st.text(alphabet=st.characters(codec=None), max_size=80)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}),
    min_size=1,
    max_size=5,
)


def links(body: dict[str, Any], kind: Kind = "chat") -> list[bytes]:
    chain = chain_of(body, kind)
    assert chain is not None
    return chain.links


def chat(*contents: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents], **fields}


def said(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", **fields}]}


def tools(function: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return chat("hi", tools=[{"type": "function", "function": function, **fields}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (chat("hi"), chat([{"type": "text", "text": "hi"}])),
        (chat("hi"), {"messages": [{"content": "hi", "role": "user"}]}),
        (chat("hi"), chat([{"type": "text", "text": "hi", "cache_control": {"type": "x"}}])),
        (chat(""), chat([])),
        (chat(""), chat([{"type": "text", "text": ""}])),
        (chat("hi"), chat("hi", tools=[], temperature=1, max_tokens=9, model="other", stream=True)),
        (chat("hi"), chat("hi", tool_choice="none", response_format={"type": "json_object"})),
        (said(content=None, tool_calls=[CALL]), said(tool_calls=[CALL], content="")),
        (said(tool_calls=[CALL]), said(tool_calls=[dict(reversed(CALL.items()))])),
        (said(content="x"), said(content="x", refusal=None, tool_calls=None, annotations=[])),
        (
            tools({"name": "f", "description": "d", "parameters": SCHEMA}),
            tools({"parameters": SCHEMA, "strict": True, "description": "d", "name": "f"}),
        ),
        (tools({"name": "f"}), tools({"name": "f", "description": "", "parameters": {}})),
        (
            chat("hi", chat_template_kwargs={"a": 1, "b": 2}),
            chat("hi", chat_template_kwargs={"b": 2, "a": 1}),
        ),
    ],
)
def test_what_is_rendered_alike_has_one_name(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert links(one) == links(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (chat("hi"), chat("hi ")),
        (chat("hi"), chat("hi", "")),
        (chat("ab"), chat([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),
        (chat("a", "b"), chat("b", "a")),
        (chat("x"), said(content="x")),
        (chat("hi"), chat("hi", chat_template_kwargs={"enable_thinking": False})),
        (chat("hi"), chat("hi", lora=[{"id": 0, "scale": 0.5}])),
        (said(content="x"), said(content="x", reasoning_content="because")),
        (said(content="x"), said(content="x", tool_calls=[CALL])),
        (
            said(tool_calls=[CALL]),
            said(tool_calls=[{**CALL, "function": {"name": "f", "arguments": '{"a": 1}'}}]),
        ),
        (said(tool_calls=[CALL]), said(tool_calls=[{**CALL, "id": "c2"}])),
        (tools({"name": "f", "parameters": SCHEMA}), tools({"name": "f", "parameters": TURNED})),
        (tools({"name": "f"}), tools({"name": "g"})),
        (tools({"name": "f"}), chat("hi")),
        (
            chat([{"type": "image_url", "image_url": {"url": "a"}}]),
            chat([{"type": "image_url", "image_url": {"url": "b"}}]),
        ),
    ],
)
def test_what_is_rendered_differently_has_another(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert links(one)[-1] != links(other)[-1]


def test_one_conversation_in_three_apis_is_one_chain() -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    system = "Be kind."
    as_chat = {"messages": [{"role": "system", "content": system}, *turns]}
    blocks = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in turns]
    items = [
        {**turn, "type": "message", "content": [{"type": kind, "text": turn["content"]}]}
        for turn, kind in zip(turns, ("input_text", "output_text"), strict=True)
    ]
    assert links({"system": system, "messages": blocks}, "messages") == links(as_chat)
    assert links({"instructions": system, "input": items}, "responses") == links(as_chat)
    assert links({"input": "hi"}, "responses") == links(chat("hi"))


def test_tools_of_three_apis_are_one_chain() -> None:
    flat = {"name": "f", "description": "d"}
    nested = tools({**flat, "parameters": SCHEMA})
    anthropic = {**chat("hi"), "tools": [{**flat, "input_schema": SCHEMA, "cache_control": {}}]}
    responses = {"input": "hi", "tools": [{**flat, "type": "function", "parameters": SCHEMA}]}
    assert links(anthropic, "messages") == links(nested) == links(responses, "responses")


def test_tool_use_matters_in_every_api() -> None:
    def used(argument: int) -> list[list[bytes]]:
        block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": argument}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": f"{argument}"}
        item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": f"{argument}"}
        output = {"type": "function_call_output", "call_id": "c", "output": f"{argument}"}
        return [
            links({"messages": [{"role": "assistant", "content": [block]}]}, "messages"),
            links({"messages": [{"role": "user", "content": [result]}]}, "messages"),
            links({"input": [item]}, "responses"),
            links({"input": [output]}, "responses"),
        ]

    assert all(one != other for one, other in zip(used(1), used(2), strict=True))


def test_prompts_share_a_document_and_not_the_ask() -> None:
    one, other = links(chat(f"{DOCUMENT}\nWho?")), links(chat(f"{DOCUMENT}\nWhen?"))
    shared = [link for link in one if link in other]
    assert shared == one[: len(shared)]
    assert len(shared) == len(DOCUMENT) // 512


def test_text_completions_share_their_beginning() -> None:
    short, long = (
        chain_of({"prompt": DOCUMENT}, "completion"),
        links({"prompt": DOCUMENT * 2}, "completion"),
    )
    assert short is not None
    assert short.links[:-1] == long[: len(short.links) - 1]
    assert links({"prompt": [DOCUMENT]}, "completion") == short.links
    numbers = links({"prompt": list(range(300))}, "completion")
    assert numbers[:2] == links({"prompt": list(range(256))}, "completion")


@pytest.mark.parametrize("prompt", [None, "", [], ["one", "two"], [[1], [2]]])
def test_no_prompt_or_several_have_no_chain(prompt: Any) -> None:
    assert chain_of({"prompt": prompt}, "completion") is None
    assert chain_of({"messages": []}, "chat") is None


@settings(deadline=None)
@given(texts, st.lists(st.integers(0, 80), max_size=4))
def test_pieces_of_a_text_do_not_matter(text: str, cuts: list[int]) -> None:
    whole, parts = Chain(), Chain()
    whole.text(text * 20)
    last = 0
    for cut in sorted(cuts):
        parts.text((text * 20)[last:cut])
        last = max(last, cut)
    parts.text((text * 20)[last:])
    whole.link()
    parts.link()
    assert whole.links == parts.links


@settings(deadline=None)
@given(messages, messages)
def test_a_longer_conversation_goes_on_with_the_same_links(first: Any, more: Any) -> None:
    short, long = (
        chain_of({"messages": first}, "chat"),
        chain_of({"messages": first + more}, "chat"),
    )
    assert short is not None and long is not None
    assert long.links[: len(short.links)] == short.links
    assert long.tokens == sorted(long.tokens)


@settings(deadline=None)
@given(messages, messages)
def test_two_conversations_have_two_names(one: Any, other: Any) -> None:
    assert (links({"messages": one})[-1] == links({"messages": other})[-1]) == (one == other)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["role", "content", "type", "text", "tools", "messages", "function", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_body_breaks_it(value: Any) -> None:
    for kind in ("chat", "messages", "responses"):
        body = {"messages": value, "input": value, "tools": value, "system": value}
        chain_of(body, kind)  # type: ignore[arg-type]


def test_a_4k_token_chat_costs_little() -> None:
    """Below 0.2 ms on an idle machine; the bound leaves room for a busy one."""
    body = chat(*[DOCUMENT[:400] for _ in range(40)])
    chain = chain_of(body, "chat")
    assert chain is not None and chain.total_tokens > 4000
    spent = []
    for _ in range(50):
        started = time.perf_counter()
        chain_of(body, "chat")
        spent.append(time.perf_counter() - started)
    assert min(spent) < 0.002
