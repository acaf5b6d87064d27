"""The answer's message: whole or streamed, it is what the client will send back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashlane.answer import Answer
from flashlane.payload import payloads
from flashlane.prefix import chain_of
from flashlane.request import Kind

ASK = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def goes_on(kind: Kind, ask: dict[str, Any], parts: list[Any], echo: dict[str, Any]) -> bool:
    """Whether the chain of `ask`, answered by `parts`, is what `echo` begins with."""
    chain, next_turn = chain_of(ask, kind), chain_of(echo, kind)
    assert chain is not None and next_turn is not None
    before = len(chain.links)
    answer = Answer(kind)
    for part in parts:
        for payload in payloads(part):
            answer.see(payload)
    answer.add_to(chain)
    return len(chain.links) > before and chain.links == next_turn.links[: len(chain.links)]


def deltas(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in given] + [{"choices": []}]


@pytest.mark.parametrize(
    ("parts", "echoed"),
    [
        (
            [{"choices": [{"message": {"role": "assistant", "content": "yes", "refusal": None}}]}],
            {"content": "yes"},
        ),
        (deltas({"role": "assistant", "content": "ye"}, {"content": "s"}, {}), {"content": "yes"}),
        (
            deltas({"reasoning_content": "so"}, {"content": "yes"}),
            {"content": "yes", "reasoning_content": "so"},
        ),
        (
            [{"choices": [{"message": {"content": None, "tool_calls": [CALL]}}]}],
            {"tool_calls": [CALL]},
        ),
        (
            deltas(
                {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f"}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
            ),
            {"content": None, "tool_calls": [CALL]},
        ),
    ],
    ids=["whole", "streamed", "reasoning", "call", "streamed call"],
)
def test_chat(parts: list[Any], echoed: dict[str, Any]) -> None:
    more = [*ASK, {"role": "assistant", **echoed}, *ASK]
    assert goes_on("chat", {"messages": ASK}, parts, {"messages": more})


def test_an_answer_whose_reasoning_is_not_sent_back_is_another_prompt() -> None:
    parts = deltas({"reasoning_content": "so"}, {"content": "yes"})
    more = [*ASK, {"role": "assistant", "content": "yes"}]
    assert not goes_on("chat", {"messages": ASK}, parts, {"messages": more})


@pytest.mark.parametrize("stream", [False, True])
def test_text_completion(stream: bool) -> None:
    text = "word " * 300
    parts = [
        {"choices": [{"text": piece}]}
        for piece in ((text[:700], text[700:]) if stream else (text,))
    ]
    chain, longer = (
        chain_of({"prompt": "Say. "}, "completion"),
        chain_of({"prompt": f"Say. {text} More."}, "completion"),
    )
    assert chain is not None and longer is not None
    answer = Answer("completion")
    for part in parts:
        answer.see(part)
    answer.add_to(chain)
    assert len(set(chain.links) & set(longer.links)) == 2  # the pages of 512 characters


def events(*given: dict[str, Any]) -> list[bytes]:
    return [f"event: x\ndata: {json.dumps(event)}\n\n".encode() for event in given]


BLOCKS = [
    {"type": "text", "text": "yes"},
    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
]


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "message", "role": "assistant", "content": BLOCKS}],
        events(
            {"type": "message_start", "message": {"content": []}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "ye"},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "s"},
            },
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {**BLOCKS[1], "input": {}},
            },
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"a"'}},
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": ": 1}"}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        ),
    ],
    ids=["whole", "streamed"],
)
def test_anthropic_messages(parts: list[Any]) -> None:
    more = [*ASK, {"role": "assistant", "content": BLOCKS}, *ASK]
    assert goes_on("messages", {"messages": ASK}, parts, {"messages": more})


OUTPUT = [
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "yes", "annotations": []}],
    },
    {"type": "function_call", "id": "x", "call_id": "c1", "name": "f", "arguments": "{}"},
]


@pytest.mark.parametrize(
    "parts",
    [
        [{"output": OUTPUT}],
        [
            {"type": "response.created", "response": {"output": []}},
            {"type": "response.completed", "response": {"output": OUTPUT}},
        ],
    ],
    ids=["whole", "streamed"],
)
def test_responses(parts: list[Any]) -> None:
    assert goes_on("responses", {"input": "hi"}, parts, {"input": [*ASK, *OUTPUT, *ASK]})
    short = {"role": "assistant", "content": "yes"}
    assert goes_on("responses", {"input": "hi"}, parts, {"input": [*ASK, short, OUTPUT[1]]})


@pytest.mark.parametrize("kind", ["chat", "messages", "responses"])
@pytest.mark.parametrize(
    "part", [None, {}, {"choices": []}, {"choices": [{}]}, b"data: [1]", {"index": 0}]
)
def test_what_carries_no_answer_adds_nothing(kind: Kind, part: Any) -> None:
    chain = chain_of({"messages": ASK, "input": "hi"}, kind)
    assert chain is not None
    before = list(chain.links)
    answer = Answer(kind)
    for payload in payloads(part):
        answer.see(payload)
    answer.add_to(chain)
    assert chain.links == before
