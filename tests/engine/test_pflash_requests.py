"""PFlash on every API, and on prompts whose shape is unusual. One layer of the model suffices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, Reply, compress, running

ARGS = ["--pflash-mode", "always", "--pflash-score", "lexical", "--pflash-keep-ratio", "0.2"]
ARGS += ["--pflash-min-keep-tokens", "0", "--ctx-size", "16384", "--parallel", "1"]
ARGS += ["--threads", "1", "--jinja"]
FERRY = "The ferry left the quay late, as entry {n} says, because of fog on the river."
DOCUMENT = "\n".join(FERRY.format(n=n) for n in range(80))
QUESTION = "Where is the silver key?"
FACT = "The silver key is under the third flowerpot."
MATERIAL = DOCUMENT.replace("entry 40 says", f"entry 40 says. {FACT} It is said")
PLAIN_ROLES = (
    "{% for m in messages %}{{ 'USER: ' if m.role == 'user' else 'ASSISTANT: ' }}{{ m.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)


@pytest.fixture(scope="module")
def server(
    engine: Path, one_layer_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    log = tmp_path_factory.mktemp("requests") / "log"
    with running(engine, one_layer_model, log, *ARGS) as started:
        yield started


def chat(server: Engine, *messages: tuple[str, str], **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": role, "content": text} for role, text in messages]}
    body |= {"max_tokens": 1, "temperature": 0, "verbose": True} | fields
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["__verbose"]["prompt"])


def reason_of(body: dict[str, Any]) -> str:
    return str(body["timings"]["pflash"]["reason"])


def records(length: int) -> str:
    fill = ("0123456789abcdef" * (length // 16 + 1))[:length]
    return "\n".join(f"REC-{1000 + n} payload={fill} status=passed" for n in range(10))


# What is kept.


@pytest.mark.parametrize("ratio", [0.05, 0.07, 0.09])
def test_spans_longer_than_the_budget(server: Engine, ratio: float) -> None:
    text = f"{records(520)}\n\nWhat is the status of REC-1004?"
    body = chat(server, ("user", text), pflash={"keep_ratio": ratio})
    assert reason_of(body) == "compressed"
    assert "REC-1004 payload=01234" in prompt_of(body)
    report = body["timings"]["pflash"]
    assert report["kept_tokens"] > 0.8 * ratio * report["original_tokens"]


def test_a_named_span_longer_than_the_budget_beside_short_ones(server: Engine) -> None:
    text = "\n".join(f"next record follows\n{line}" for line in records(2000).split("\n"))
    asked = "What is the status of REC-1004?"
    found = compress(server, text=text, question=asked, keep_ratio=0.05)
    assert "REC-1004 payload=01234" in found["text"]
    assert found["kept_tokens"] > 0.6 * 0.05 * found["original_tokens"]


@pytest.mark.parametrize(
    "rules",
    [
        "You are a lawyer. Use only Latin. Do not mention any number.",
        "Answer in one sentence. Never name a person. Do not guess.",
        "Rules:\n- Never name a person\n- At most ten words",
    ],
)
def test_rules_before_the_document_stay(server: Engine, rules: str) -> None:
    prompt = prompt_of(chat(server, ("user", f"{rules}\n\n{MATERIAL}\n\n{QUESTION}")))
    assert rules in prompt and QUESTION in prompt and FACT in prompt
    assert len(prompt) < 0.5 * len(MATERIAL)


def test_a_question_before_a_message_of_material(server: Engine) -> None:
    turns = [("user", QUESTION), ("assistant", "Show me the text."), ("user", MATERIAL)]
    body = chat(server, *turns, pflash={"keep_ratio": 0.08})
    assert reason_of(body) == "compressed"
    assert FACT in prompt_of(body)


def test_question_and_document_are_parts_of_one_message(server: Engine) -> None:
    parts = [{"type": "text", "text": text} for text in (QUESTION, MATERIAL)]
    messages = [{"role": "user", "content": parts}]
    kept = compress(server, messages=messages, keep_ratio=0.08)["messages"][0]["content"]
    assert kept[0]["text"] == QUESTION
    assert FACT in kept[1]["text"] and len(kept[1]["text"]) < 0.2 * len(MATERIAL)


def test_recalled_text_stands_behind_the_role(server: Engine) -> None:
    first = f"{MATERIAL}\n\nWhat does entry 12 say of fog?"
    turns = [("user", first), ("assistant", "It was late."), ("user", QUESTION)]
    assert FACT not in prompt_of(chat(server, turns[0], pflash={"keep_ratio": 0.08}))
    body = chat(server, *turns, pflash={"keep_ratio": 0.08})
    assert body["timings"]["pflash"]["recalled_tokens"] > 0
    newest = prompt_of(body).split("<|im_start|>user")[-1]
    assert FACT in newest and newest.startswith("\n") and not newest.startswith("\n\n")


# What is left whole.


def test_roles_that_are_words_alone(engine: Path, one_layer_model: Path, tmp_path: Path) -> None:
    template = tmp_path / "plain.jinja"
    template.write_text(PLAIN_ROLES)
    args = [*ARGS, "--chat-template-file", str(template)]
    with running(engine, one_layer_model, tmp_path / "log", *args) as server:
        answer = ("assistant", DOCUMENT)
        body = chat(server, ("user", DOCUMENT), answer, ("user", QUESTION))
        assert reason_of(body) == "no_role_boundaries"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "call_1", "content": DOCUMENT},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
    ],
)
def test_conversations_with_tools(server: Engine, message: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": f"{DOCUMENT}\n\n{QUESTION}"}, message]
    messages.append({"role": "user", "content": QUESTION})
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert reply.status == 200, reply.text
    assert reason_of(reply.json()) == "tools"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"json_schema": {}}, "response_format"), ({"grammar": ""}, "compressed")],
)
def test_forms_that_say_little(server: Engine, fields: dict[str, Any], reason: str) -> None:
    body = {"prompt": f"{DOCUMENT}\n\n{QUESTION}", "n_predict": 1, **fields}
    assert reason_of(server.post("/completion", body).json()) == reason


# Every API.


def anthropic(server: Engine, **fields: Any) -> Reply:
    messages = [{"role": "user", "content": f"{MATERIAL}\n\n{QUESTION}"}]
    body = {"messages": messages, "max_tokens": 1, "model": "any", **fields}
    return server.post("/v1/messages", body)


def responses(server: Engine, **fields: Any) -> Reply:
    body = {"input": f"{MATERIAL}\n\n{QUESTION}", "max_output_tokens": 1, **fields}
    return server.post("/v1/responses", body)


def test_anthropic_requests_are_heard(server: Engine) -> None:
    assert anthropic(server, pflash_mode="off").json()["timings"]["pflash"]["reason"] == "off"
    half = anthropic(server, pflash={"keep_ratio": 0.5}).json()["timings"]["pflash"]
    tenth = anthropic(server, pflash_keep_ratio=0.1).json()["timings"]["pflash"]
    assert tenth["kept_tokens"] < half["kept_tokens"] < half["original_tokens"]
    refused = anthropic(server, pflash_mode="nonsense")
    assert refused.status == 400 and "off, auto or always" in refused.text


def test_anthropic_answers_report(server: Engine) -> None:
    whole = anthropic(server).json()
    original = whole["timings"]["pflash"]["original_tokens"]
    assert whole["usage"]["original_tokens"] == original
    events = [json.loads(event) for event in anthropic(server, stream=True).events()]
    (last,) = [event for event in events if event["type"] == "message_delta"]
    assert last["timings"]["pflash"]["original_tokens"] == original
    assert last["usage"]["original_tokens"] == original


def test_responses_answers_report(server: Engine) -> None:
    whole = responses(server).json()
    original = whole["timings"]["pflash"]["original_tokens"]
    assert whole["usage"]["input_tokens_details"]["original_tokens"] == original
    events = [json.loads(event) for event in responses(server, stream=True).events()]
    (last,) = [event for event in events if event["type"] == "response.completed"]
    assert last["timings"]["pflash"]["original_tokens"] == original
    usage = last["response"]["usage"]
    assert usage["input_tokens_details"]["original_tokens"] == original


def test_a_long_unknown_key_is_not_repeated(server: Engine) -> None:
    key = "pflash_" + "x" * 100_000
    reply = server.post("/completion", {"prompt": "a", key: 1})
    assert reply.status == 400 and len(reply.text) < 1000
    reply = server.post("/pflash/compress", {"text": "a", "question": "b", key: 1})
    assert reply.status == 400 and len(reply.text) < 1000
