"""Requests that end the unpatched server: each is answered, and the server lives on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_process import Engine, running


@pytest.fixture(scope="module")
def server(
    engine: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    log = tmp_path_factory.mktemp("crashes") / "log"
    with running(engine, engine_model, log, "--ctx-size", "2048") as started:
        yield started


def chain(rules: int) -> str:
    body = "\n".join(f"r{i} ::= r{i + 1}" for i in range(rules))
    return f'root ::= r0\n{body}\nr{rules} ::= "a"\n'


@pytest.mark.parametrize(
    "grammar",
    ["root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000, chain(200_000)],
    ids=["nested groups", "chain of rules"],
)
def test_a_grammar_too_deep_is_refused(server: Engine, grammar: str) -> None:
    reply = server.post("/completion", {"prompt": "hi", "n_predict": 1, "grammar": grammar})
    assert reply.status == 400
    assert server.get("/health").status == 200


@pytest.mark.parametrize(
    "grammar",
    ["root ::= " + "(" * 200 + '"a"' + ")" * 200, chain(2_000)],
    ids=["nested groups", "chain of rules"],
)
def test_a_deep_grammar_still_works(server: Engine, grammar: str) -> None:
    reply = server.post("/completion", {"prompt": "hi", "n_predict": 1, "grammar": grammar})
    assert reply.status == 200
    assert reply.json()["content"] == "a"


def nested(depth: int, key: str = "a") -> str:
    return f'{{"type":"object","properties":{{"{key}":' * depth + "{}" + "}}" * depth


MESSAGES = '"messages":[{"role":"user","content":"hi"}]'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", '{"prompt":"hi","json_schema":' + nested(8_000) + "}"),
        (
            "/v1/chat/completions",
            "{"
            + MESSAGES
            + ',"response_format":{"type":"json_schema","json_schema":{"schema":'
            + nested(20_000)
            + "}}}",
        ),
        (
            "/v1/chat/completions",
            "{" + MESSAGES + ',"chat_template_kwargs":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}",
        ),
    ],
    ids=["json_schema", "response_format", "chat_template_kwargs"],
)
def test_a_body_nested_too_deep_is_refused(server: Engine, path: str, body: str) -> None:
    reply = server.send(path, body.encode())
    assert reply.status == 400
    assert "nested" in reply.text
    assert server.get("/health").status == 200


def test_a_deep_body_still_works(server: Engine) -> None:
    text = '{"prompt":"[[[[ {{{{","n_predict":1,"json_schema":' + nested(100) + "}"
    reply = server.send("/completion", text.encode())
    assert reply.status == 200, reply.text


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_a_parser_from_outside_is_refused(server: Engine, path: str) -> None:
    rule = {"type": "ref", "name": "root"}
    parser = json.dumps({"parsers": [rule], "rules": {"root": 0}, "root": 0})
    messages = [{"role": "user", "content": "hi"}]
    reply = server.post(
        path, {"prompt": "hi", "messages": messages, "max_tokens": 1, "chat_parser": parser}
    )
    assert reply.status == 400
    assert "chat_parser" in reply.json()["error"]["message"]


def test_no_sleep_while_a_request_is_read(engine: Path, engine_model: Path, tmp_path: Path) -> None:
    """CVE-2026-43631: tokenising this takes longer than the idle time after which the server
    sleeps and frees the model; the unpatched server ends with a segmentation fault."""
    log = tmp_path / "log"
    text = "All work and no play makes a dull day. " * 1_500_000
    with running(
        engine, engine_model, log, "--ctx-size", "512", "--sleep-idle-seconds", "1"
    ) as one:
        with ThreadPoolExecutor(2) as pool:
            replies = list(
                pool.map(
                    lambda _: one.post("/completion", {"prompt": text, "n_predict": 1}), range(2)
                )
            )
        assert [reply.status for reply in replies] == [400, 400]  # it does not fit the context
        deadline = time.monotonic() + 30
        while not one.get("/props").json()["is_sleeping"] and time.monotonic() < deadline:
            time.sleep(0.2)
        assert one.get("/props").json()["is_sleeping"], "a hold was not given back"
        assert one.post("/completion", {"prompt": "hi", "n_predict": 1}).status == 200
