"""The verify lane behind the real proxy: both outcomes, every API, streams, and what goes wrong.

The direct lane is the patched server with the small model. First passes come from it too, or from
an engine of the tests' own where an outcome must be certain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import yaml

from flashlane.backends.control import Client
from flashlane.config import load_config
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import Proxy, free_port, running_proxy
from tests.verify_engine import RIGHT, TOKENS, WRONG, Engine, running_engine

DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(48))
ASK = "On which shelf was item 7 put by the keeper?"
PROMPT = f"{DOCUMENT}\n\n{ASK}"
WHOLE_TOKENS = 600
"""The whole prompt has more tokens, a compressed one fewer."""
APIS = ("chat", "completion", "messages", "responses")
EVERY = [(api, stream) for api in APIS for stream in (False, True)]
IDS = [f"{api}{'-stream' if stream else ''}" for api, stream in EVERY]
PRICE = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}

AUTH = """
import os
from litellm.proxy._types import UserAPIKeyAuth

async def user_api_key_auth(request, api_key):
    if api_key not in ("sk-half", os.environ["LITELLM_MASTER_KEY"]):
        raise Exception("unknown key")
    models = ["wrong", "first-wrong"] if api_key == "sk-half" else []
    return UserAPIKeyAuth(api_key=api_key, models=models)
"""
WITNESS = """
import json
from litellm.integrations.custom_logger import CustomLogger

class Witness(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        logged = kwargs["standard_logging_object"]
        with open("FILE", "a") as out:
            out.write(json.dumps({
                "id": kwargs["litellm_call_id"], "group": logged["model_group"],
                "cost": logged["response_cost"], "key": logged["metadata"]["user_api_key_hash"],
                "spend": logged["metadata"]["spend_logs_metadata"],
            }) + "\\n")

handler = Witness()
"""


@dataclass
class Reply:
    """What a client got: the text, the counts, and flashlane's own note."""

    text: str
    prompt_tokens: int | None
    note: dict[str, str]
    headers: httpx.Headers


@dataclass(frozen=True)
class Served:
    proxy: Proxy
    config: Path
    routes: Path
    witness: Path
    engine: Engine

    def openai(self, key: str = "") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.proxy.base_url}/v1",
            api_key=key or self.proxy.key,
            max_retries=0,
            timeout=300,
        )

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url=self.proxy.base_url, api_key=self.proxy.key, max_retries=0, timeout=300
        )

    def records(self) -> list[RouteRecord]:
        return list(RouteLog(self.routes).records(1000))

    def record(self, before: int) -> RouteRecord:
        """The one record of the request since there were `before` of them."""
        deadline = time.monotonic() + 30
        while len(self.records()) == before and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.3)
        assert len(self.records()) == before + 1
        return self.records()[0]

    def spent(self, call_id: str) -> list[dict[str, Any]]:
        """What LiteLLM has logged of both passes of one request."""
        deadline = time.monotonic() + 10
        while True:
            lines = self.witness.read_text().splitlines() if self.witness.exists() else []
            logged = [json.loads(line) for line in lines]
            first = [entry for entry in logged if entry["id"] == call_id]
            second = [
                entry
                for entry in logged
                if entry["spend"]["flashlane"].get("first_call_id") == call_id
            ]
            if (len(first), len(second)) == (1, 1):
                return first + second
            assert time.monotonic() < deadline, first + second
            time.sleep(0.1)

    def slots_free(self) -> None:
        """Until the backend works on nothing."""
        url = f"{load_config(self.config).backends['local'].base_url}/slots"
        deadline = time.monotonic() + 20
        while any(slot["is_processing"] for slot in httpx.get(url, timeout=60).json()):
            assert time.monotonic() < deadline, "a slot is still at work"
            time.sleep(0.1)


def _config(path: Path, engine: Engine, folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    own = document["model_list"][0]["litellm_params"]
    for entry in document["model_list"]:
        entry["litellm_params"].update(PRICE)
    section = document["flashlane"]
    section["backends"]["local"]["threads"] = 1
    section["compressor"] = "local"
    section["lanes"]["local"]["verify"] = "local-pflash"
    section["verify"] = {"keepalive_s": 0.2}
    section["route_log"] = {"sqlite": str(folder / "verify.sqlite")}

    def group(name: str, base: str, model: str) -> None:
        params = {"model": f"llamafile/{model}", "api_base": base, "api_key": "none", **PRICE}
        document["model_list"].append({"model_name": name, "litellm_params": params})

    theirs = f"http://127.0.0.1:{engine.port}/v1"
    dead = f"http://127.0.0.1:{free_port()}/v1"
    for name in ("right", "wrong", "tools", "breaks", "slow"):
        group(f"first-{name}", theirs, name)
    group("dead", dead, "dead")
    for name, first, direct in (
        *((name, f"first-{name}", "local") for name in ("right", "wrong", "tools", "breaks")),
        ("slow", "first-slow", "local"),
        ("dead-first", "dead", "local"),
        ("dead-second", "first-wrong", "dead"),
    ):
        document["model_list"].append({"model_name": name, "litellm_params": own})
        section["lanes"][name] = {"direct": direct, "verify": first, "pflash": first}
    document["router_settings"].update(num_retries=0, fallbacks=[{"dead": ["local"]}])
    document["litellm_settings"]["callbacks"].append("witness.handler")
    document["general_settings"]["custom_auth"] = "auth.user_api_key_auth"
    return document


@pytest.fixture(scope="module")
def served(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("verify")
    before = config_path.read_text()
    with running_engine() as engine:
        (config_path.parent / "auth.py").write_text(AUTH)
        witness = folder / "witness.jsonl"
        (config_path.parent / "witness.py").write_text(WITNESS.replace("FILE", str(witness)))
        config_path.write_text(yaml.safe_dump(_config(config_path, engine, folder)))
        try:
            with running_proxy(config_path, free_port()) as running:
                client = Client(config_path)
                try:
                    yield Served(running, config_path, folder / "verify.sqlite", witness, engine)
                finally:
                    client.close()
        finally:
            config_path.write_text(before)
            for name in ("auth.py", "witness.py"):
                (config_path.parent / name).unlink()


def ask(
    served: Served, api: str, stream: bool, model: str, text: str = PROMPT, max_tokens: int = 24
) -> Reply:
    """One request in the verify lane by an SDK client."""
    extra: dict[str, Any] = {"route": "verify", "temperature": 0}
    if api == "completion":
        extra["ignore_eos"] = True  # without a chat template the small model says nothing
    sdk: Any = served.anthropic() if api == "messages" else served.openai()
    call, fields = {
        "chat": (lambda: sdk.chat.completions, {"messages": [{"role": "user", "content": text}]}),
        "completion": (lambda: sdk.completions, {"prompt": text}),
        "messages": (lambda: sdk.messages, {"messages": [{"role": "user", "content": text}]}),
        "responses": (lambda: sdk.responses, {"input": text}),
    }[api]
    limit = {"max_output_tokens" if api == "responses" else "max_tokens": max_tokens}
    if api == "chat" and stream:
        fields["stream_options"] = {"include_usage": True}
    raw = call().with_raw_response.create(
        model=model, stream=stream, **fields, **limit, extra_body=extra
    )
    headers = httpx.Headers(raw.headers)
    got = raw.parse()
    if not stream:
        note = {
            "verdict": headers["x-flashlane-verdict"],
            "reasons": headers["x-flashlane-verdict-reasons"],
            "answered_by": headers["x-flashlane-answered-by"],
        }
        return Reply(*_said(api, got.model_dump()), note, headers)
    chunks = [chunk.model_dump() for chunk in got]
    notes = [chunk["flashlane"] for chunk in chunks if chunk.get("flashlane")]
    assert len(notes) == 1, "one chunk says how the check ended"
    return Reply(*_streamed(api, chunks), notes[0], headers)


def _said(api: str, body: dict[str, Any]) -> tuple[str, int | None]:
    usage = body["usage"]
    if api == "chat":
        return body["choices"][0]["message"]["content"], usage["prompt_tokens"]
    if api == "completion":
        return body["choices"][0]["text"], usage["prompt_tokens"]
    if api == "messages":
        tokens = usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0)
        return body["content"][0]["text"], tokens
    return body["output"][0]["content"][0]["text"], usage["input_tokens"]


def _streamed(api: str, chunks: list[dict[str, Any]]) -> tuple[str, int | None]:
    if api == "responses":
        return _said(api, chunks[-1]["response"])
    if api == "messages":
        deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
        usage = next(chunk["usage"] for chunk in chunks if chunk["type"] == "message_delta")
        tokens = usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0)
        return "".join(delta["text"] for delta in deltas), tokens
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    if api == "completion":
        return "".join(choice["text"] or "" for choice in choices), None  # it streams no usage
    usage = next(chunk["usage"] for chunk in chunks if chunk.get("usage"))
    text = "".join(choice["delta"]["content"] or "" for choice in choices)
    return text, usage["prompt_tokens"]


@pytest.mark.parametrize(("api", "stream"), EVERY, ids=IDS)
def test_an_accepted_answer_is_the_first_passs(served: Served, api: str, stream: bool) -> None:
    before, asked = len(served.records()), len(served.engine.asked)
    reply = ask(served, api, stream, "right")
    assert reply.text == RIGHT
    assert reply.note == {"verdict": "accepted", "reasons": "supported", "answered_by": "verify"}
    assert reply.headers["x-flashlane-lane"] == "verify"
    assert reply.prompt_tokens in (TOKENS, None)
    assert len(served.engine.asked) == asked + 1
    record = served.record(before)
    assert (record.lane, record.verdict, record.answered_by) == ("verify", "accepted", "verify")
    assert record.status == "ok" and record.stream == stream and record.endpoint == api
    assert record.first_pass_tokens is None and record.first_pass_ms is None
    assert record.pflash_reason == "compressed" and record.kept_tokens
    assert record.original_tokens and record.kept_tokens < record.original_tokens


@pytest.mark.parametrize(("api", "stream"), EVERY, ids=IDS)
def test_a_doubted_answer_never_reaches_the_client(served: Served, api: str, stream: bool) -> None:
    before = len(served.records())
    reply = ask(served, api, stream, "wrong", max_tokens=5)
    assert reply.text and "99" not in reply.text
    assert reply.note["verdict"] == "doubted" and reply.note["answered_by"] == "direct"
    if reply.prompt_tokens is not None:
        assert reply.prompt_tokens > WHOLE_TOKENS
    record = served.record(before)
    assert (record.lane, record.verdict, record.answered_by) == ("verify", "doubted", "direct")
    assert record.verdict_reasons == reply.note["reasons"] != ""
    assert record.deployment == "local"
    assert record.first_pass_tokens == TOKENS and record.first_pass_ms
    assert record.first_pass_cost is not None and record.cost is not None
    assert record.cost > record.first_pass_cost > 0.001 * TOKENS
    assert record.prompt_tokens and record.prompt_tokens > WHOLE_TOKENS
    assert record.completion_tokens == 5  # the client's own limit
    assert record.ttft_ms is not None and record.ttft_ms > record.first_pass_ms
    assert record.total_ms is not None and record.total_ms >= record.ttft_ms - 1


@pytest.mark.parametrize(("api", "stream"), EVERY, ids=IDS)
@pytest.mark.parametrize("text", [PROMPT, f"{DOCUMENT}\n\nWhich shelf holds item 7?"])
def test_note_and_record_agree_with_the_small_models_answer(
    served: Served, api: str, stream: bool, text: str
) -> None:
    """Both passes by the patched server; what the model says is its own affair."""
    before = len(served.records())
    reply = ask(served, api, stream, "local", text)
    record = served.record(before)
    assert (record.verdict, record.answered_by) in {("accepted", "verify"), ("doubted", "direct")}
    assert reply.note["verdict"] == record.verdict
    assert reply.note["answered_by"] == record.answered_by
    assert reply.note["reasons"] == record.verdict_reasons
    assert record.prompt_tokens is not None
    assert (record.prompt_tokens > WHOLE_TOKENS) == (record.answered_by == "direct")
    assert (record.first_pass_tokens is not None) == (record.answered_by == "direct")
    if record.answered_by == "direct" and not (api == "completion" and stream):
        assert record.pflash_reason == "off"
    if record.answered_by == "verify" and not stream:
        assert reply.text.strip() and record.pflash_reason == "compressed"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_stayed_whole_needs_no_second_pass(served: Served, stream: bool) -> None:
    before = len(served.records())
    reply = ask(served, "chat", stream, "local", "Say hello.", max_tokens=3)
    assert reply.note["verdict"] == "accepted" and reply.note["reasons"] == "whole_prompt"
    record = served.record(before)
    assert record.answered_by == "verify" and record.first_pass_ms is None
    assert record.kept_tokens == record.original_tokens


@pytest.mark.parametrize(("api", "stream"), [("chat", False), ("chat", True), ("responses", True)])
def test_an_answer_that_calls_a_tool_is_doubted(served: Served, api: str, stream: bool) -> None:
    reply = ask(served, api, stream, "tools", max_tokens=3)
    assert reply.note == {"verdict": "doubted", "reasons": "tool_calls", "answered_by": "direct"}


def test_tools_never_enter_the_lane(served: Served) -> None:
    asked = len(served.engine.asked)
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="tools"):
        served.openai().chat.completions.create(
            model="right",
            messages=[{"role": "user", "content": PROMPT}],
            tools=[tool],
            extra_body={"route": "pflash_then_direct_verify"},
        )
    assert len(served.engine.asked) == asked


@pytest.mark.parametrize(("api", "stream"), EVERY, ids=IDS)
def test_where_no_first_pass_begins_the_direct_lane_answers(
    served: Served, api: str, stream: bool
) -> None:
    """LiteLLM falls back to it, and the prompt that was shortened at the proxy is whole again."""
    before = len(served.records())
    reply = ask(served, api, stream, "dead-first", max_tokens=3)
    assert reply.text
    assert reply.note["verdict"] == "doubted" and reply.note["reasons"] == "first_pass_failed"
    if reply.prompt_tokens is not None:
        assert reply.prompt_tokens > WHOLE_TOKENS
    assert reply.headers["x-flashlane-lane"] == "verify"
    record = served.record(before)
    assert record.answered_by == "direct" and record.verdict_reasons == "first_pass_failed"
    assert record.status == "ok" and record.deployment == "local"
    assert record.prompt_tokens and record.prompt_tokens > WHOLE_TOKENS
    assert record.first_pass_tokens is None and record.first_pass_ms is not None


@pytest.mark.parametrize("api", APIS)
def test_a_first_pass_that_breaks_off(served: Served, api: str) -> None:
    before = len(served.records())
    reply = ask(served, api, True, "breaks", max_tokens=3)
    assert reply.text and "Item 7 was" not in reply.text
    assert reply.note["verdict"] == "doubted" and reply.note["answered_by"] == "direct"
    record = served.record(before)
    assert record.status == "ok" and record.prompt_tokens
    assert record.prompt_tokens > WHOLE_TOKENS


def test_a_fallback_of_the_pflash_lane_gets_the_whole_prompt(served: Served) -> None:
    raw = served.openai().chat.completions.with_raw_response.create(
        model="dead-first",
        max_tokens=3,
        messages=[{"role": "user", "content": PROMPT}],
        extra_body={"route": "pflash"},
    )
    body = raw.parse().model_dump()
    assert raw.headers["x-flashlane-lane"] == "pflash"
    assert body["timings"]["pflash"]["reason"] == "off"
    assert body["usage"]["prompt_tokens"] > WHOLE_TOKENS


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_second_pass_is_the_clients(served: Served, stream: bool) -> None:
    """`dead` falls back to `local` by the operator's own settings, unless the client forbids it."""
    before = len(served.records())
    with pytest.raises(openai.APIError):
        reply = served.openai().chat.completions.create(
            model="dead-second",
            max_tokens=3,
            stream=stream,
            messages=[{"role": "user", "content": PROMPT}],
            extra_body={"route": "verify", "fallbacks": []},
        )
        list(reply)
    record = served.record(before)
    assert (record.status, record.verdict, record.answered_by) == ("error", "doubted", "")
    assert record.first_pass_tokens == TOKENS


def test_the_second_pass_keeps_the_operators_fallbacks(served: Served) -> None:
    reply = ask(served, "chat", False, "dead-second", max_tokens=3)
    assert reply.note["answered_by"] == "direct" and reply.prompt_tokens
    assert reply.prompt_tokens > WHOLE_TOKENS


@pytest.mark.parametrize("api", APIS)
def test_signs_of_life_until_there_is_an_answer(served: Served, api: str) -> None:
    path, body = {
        "chat": ("chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
        "completion": ("completions", {"prompt": PROMPT}),
        "messages": ("messages", {"messages": [{"role": "user", "content": PROMPT}]}),
        "responses": ("responses", {"input": PROMPT}),
    }[api]
    limit = {"max_output_tokens" if api == "responses" else "max_tokens": 24}
    request = {"model": "slow", "stream": True, "route": "verify", **body, **limit}
    headers = {"Authorization": f"Bearer {served.proxy.key}"}
    url = f"{served.proxy.base_url}/v1/{path}"
    first: float | None = None
    started = time.monotonic()
    lines = []
    with httpx.stream("POST", url, headers=headers, json=request, timeout=300) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            if line and first is None:
                first = time.monotonic() - started
            lines.append(line)
    sign = "event: ping" if api == "messages" else ": keep-alive"
    assert lines[0] == sign and lines.count(sign) >= 3
    assert first is not None and first < time.monotonic() - started - 0.7
    if api == "messages":
        lines = [line for line in lines if line not in ('data: {"type": "ping"}', sign)]
    begin = next(i for i, line in enumerate(lines) if line.startswith(("data:", "event:")))
    assert sign not in lines[begin:], "no sign of life once the answer flows"
    assert "shelf" in "".join(lines)
    assert ask(served, api, True, "slow").text == RIGHT  # the SDKs pass over them


@pytest.mark.parametrize("model", ["slow", "local"])
def test_a_client_that_leaves_during_the_first_pass(served: Served, model: str) -> None:
    before, left = len(served.records()), served.engine.left
    prompt = f"Another keeper. {time.time()}. {PROMPT} {DOCUMENT}"  # held in no cache
    request = {
        "model": model,
        "stream": True,
        "route": "verify",
        "messages": [{"role": "user", "content": prompt}],
    }
    url = f"{served.proxy.base_url}/v1/chat/completions"
    headers = {"Authorization": f"Bearer {served.proxy.key}"}
    with httpx.stream("POST", url, headers=headers, json=request, timeout=300) as reply:
        assert next(reply.iter_lines()) == ": keep-alive"
    record = served.record(before)
    assert (record.status, record.verdict) == ("disconnected", "unchecked"), record.verdict_reasons
    assert record.answered_by == "" and record.ttft_ms is None
    served.slots_free()
    deadline = time.monotonic() + 10
    while model == "slow" and served.engine.left == left:
        assert time.monotonic() < deadline, "the first pass was not given up"
        time.sleep(0.1)


def test_a_client_that_leaves_during_the_second_pass(served: Served) -> None:
    before = len(served.records())
    stream = served.openai().chat.completions.create(
        model="wrong",
        max_tokens=2000,
        stream=True,
        messages=[{"role": "user", "content": f"{DOCUMENT}\n\nRepeat the text above."}],
        extra_body={"route": "verify", "ignore_eos": True},
    )
    chunks = iter(stream)
    assert all(next(chunks).choices for _ in range(3))
    stream.close()
    record = served.record(before)
    assert (record.status, record.verdict, record.answered_by) == (
        "disconnected",
        "doubted",
        "direct",
    )
    served.slots_free()
    first, second = served.spent(stream.response.headers["x-litellm-call-id"])
    assert [first["group"], second["group"]] == ["first-wrong", "local"]
    assert second["cost"] > 0.001 * WHOLE_TOKENS, "what it got is not free"


def test_a_key_needs_both_groups(served: Served) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="'local'"):
        served.openai("sk-half").chat.completions.create(
            model="wrong",
            messages=[{"role": "user", "content": PROMPT}],
            extra_body={"route": "verify"},
        )


@pytest.mark.parametrize("stream", [False, True])
def test_the_spend_of_both_passes_is_logged(served: Served, stream: bool) -> None:
    before = len(served.records())
    reply = ask(served, "chat", stream, "wrong", max_tokens=3)
    record = served.record(before)
    first, second = served.spent(reply.headers["x-litellm-call-id"])
    assert [first["group"], second["group"]] == ["first-wrong", "local"]
    assert first["key"] == second["key"] and first["key"]
    assert record.cost == pytest.approx(first["cost"] + second["cost"])
    assert record.first_pass_cost == pytest.approx(first["cost"])
    assert second["spend"]["flashlane"]["pass"] == 2
    assert first["id"] != second["id"]


def test_the_header_of_the_cost_counts_both_passes(served: Served) -> None:
    before = len(served.records())
    reply = ask(served, "chat", False, "wrong", max_tokens=3)
    cost = served.record(before).cost
    assert float(reply.headers["x-litellm-response-cost"]) == pytest.approx(cost)
    assert WRONG not in reply.text
