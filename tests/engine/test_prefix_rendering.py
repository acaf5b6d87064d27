"""Affinity's names against the engine's own rendering: one name where it renders alike, and only
there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running

from flashlane.prefix import chain_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
TURNED = {"properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "type": "object"}
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


def tool(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    function = {"name": "f", "description": "d", "parameters": schema, **fields}
    return {"type": "function", "function": function}


def parts(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


ALIKE = {
    "plain": [
        chat(USER),
        chat({"content": "hi", "role": "user"}),
        chat(parts("hi")),
        chat(USER, response_format={"type": "json_object"}, temperature=1.0, tools=[]),
    ],
    "nothing": [chat({"role": "user", "content": ""}), chat(parts()), chat(parts(""))],
    "two parts": [chat(parts("a", "b"))],
    "one text": [chat({"role": "user", "content": "ab"})],
    "no thinking": [chat(USER, chat_template_kwargs={"enable_thinking": False})],
    "tool": [
        chat(USER, tools=[tool(SCHEMA)]),
        chat(USER, tools=[dict(reversed(tool(SCHEMA, strict=True).items()))]),
        chat(USER, tools=[tool(SCHEMA)], tool_choice="none", parallel_tool_calls=False),
    ],
    "tool with its keys turned": [chat(USER, tools=[tool(TURNED)])],
    "two tools": [chat(USER, tools=[tool(SCHEMA), tool(SCHEMA, name="g")])],
    "two tools turned": [chat(USER, tools=[tool(SCHEMA, name="g"), tool(SCHEMA)])],
    "call": [
        chat(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER),
        chat(USER, {"tool_calls": [CALL], "content": "", "role": "assistant"}, USER),
    ],
    "answer": [
        chat(USER, {"role": "assistant", "content": "x"}, USER),
        chat(USER, {"role": "assistant", "content": "x", "refusal": None, "tool_calls": []}, USER),
    ],
}


@pytest.fixture(scope="module")
def server(
    engine: Path, engine_model: Path, engine_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    template = engine_source / "models" / "templates" / "Qwen-Qwen3-0.6B.jinja"
    log = tmp_path_factory.mktemp("rendering") / "server.log"
    options = ["-c", "256", "-np", "1", "--chat-template-file", str(template)]
    with running(engine, engine_model, log, *options) as started:
        yield started


def rendered(server: Engine, body: dict[str, Any]) -> str:
    reply = server.post("/apply-template", body)
    assert reply.status == 200, reply.text
    return str(reply.json()["prompt"])


def name(body: dict[str, Any]) -> bytes:
    chain = chain_of(body, "chat")
    assert chain is not None
    return chain.links[-1]


@pytest.mark.parametrize("what", ALIKE)
def test_what_the_engine_renders_alike_has_one_name(server: Engine, what: str) -> None:
    bodies = ALIKE[what]
    assert len({rendered(server, body) for body in bodies}) == 1
    assert len({name(body) for body in bodies}) == 1


def test_what_it_renders_differently_has_another(server: Engine) -> None:
    for one, other in combinations([bodies[0] for bodies in ALIKE.values()], 2):
        assert rendered(server, one) != rendered(server, other)
        assert name(one) != name(other)
