"""The real thing: LiteLLM proxy, supervisor, patched llama-server, small model, SDK clients."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import psutil
import pytest

from flashlane.backends.control import Client
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import Proxy, free_port, running_proxy

DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))
EXACT = f"{DOCUMENT}\n\nWhich shelf holds item 7?"


_NUMBERS = itertools.count()


def broad() -> str:
    """Another text each time: what an engine has read already is not worth compressing."""
    return f"Part {next(_NUMBERS)}. {DOCUMENT}\n\nSummarise the text above."


@pytest.fixture(scope="module")
def proxy(config_path: Path) -> Iterator[Proxy]:
    """One proxy for this file; when it is stopped, no process of ours is left."""
    with running_proxy(config_path, free_port()) as running:
        client = Client(config_path)
        try:
            yield running
            backends = [backend.pid for backend in client.status() if backend.pid]
            supervisor_pid = client.supervisor_pid()
        finally:
            client.close()
    gone = [running.process.pid, supervisor_pid, *backends]
    deadline = time.monotonic() + 10
    while any(map(psutil.pid_exists, gone)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in gone if psutil.pid_exists(pid)]


@pytest.fixture(scope="module")
def client(proxy: Proxy) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{proxy.base_url}/v1", api_key=proxy.key, max_retries=0, timeout=300
    )


def ask(client: openai.OpenAI, text: str, **extra: Any) -> tuple[dict[str, Any], httpx.Headers]:
    reply = client.chat.completions.with_raw_response.create(
        model="local",
        max_tokens=4,
        temperature=0,
        extra_body=extra,
        messages=[{"role": "user", "content": text}],
    )
    return reply.parse().model_dump(), httpx.Headers(reply.headers)


def recorded(state: Path, **wanted: object) -> RouteRecord:
    """The newest route record once it has the `wanted` values: it is written after the answer."""
    deadline = time.monotonic() + 30
    while True:
        records = list(RouteLog(state / "routes.sqlite").records(1))
        found = {name: getattr(records[0], name) for name in wanted} if records else {}
        if found == wanted:
            return records[0]
        if time.monotonic() > deadline:
            raise AssertionError(f"newest route record has {found}, wanted {wanted}")
        time.sleep(0.1)


def test_short_chat_goes_direct(client: openai.OpenAI, state: Path) -> None:
    body, headers = ask(client, "Say hello.")
    assert headers["x-flashlane-lane"] == "direct"
    assert "short_prompt" in headers["x-flashlane-reasons"]
    assert body["choices"][0]["message"]["content"]
    assert body["timings"]["pflash"]["reason"] == "off"
    prompt_tokens = body["usage"]["prompt_tokens"]
    recorded(state, lane="direct", status="ok", stream=False, prompt_tokens=prompt_tokens)


def test_broad_ask_is_compressed(client: openai.OpenAI, state: Path) -> None:
    body, headers = ask(client, broad())
    pflash = body["timings"]["pflash"]
    assert headers["x-flashlane-lane"] == "pflash"
    assert headers["x-flashlane-keep-ratio"] == "0.4"  # of a summary
    assert pflash["kept_tokens"] < pflash["original_tokens"]
    assert body["usage"]["prompt_tokens"] == pflash["kept_tokens"]
    recorded(state, lane="pflash", kept_tokens=pflash["kept_tokens"], ask=None)


def test_a_clients_own_request_id_merges_no_records(client: openai.OpenAI, state: Path) -> None:
    for _ in range(2):
        client.chat.completions.create(
            model="local",
            max_tokens=1,
            messages=[{"role": "user", "content": "Say hello."}],
            extra_headers={"x-litellm-call-id": "mine"},
        )
    deadline = time.monotonic() + 30
    found: set[str] = set()
    while len(found) < 2 and time.monotonic() < deadline:
        records = RouteLog(state / "routes.sqlite").records(10)
        found = {r.request_id for r in records if r.request_id.startswith("mine")}
        time.sleep(0.1)
    assert len(found) == 2


def test_exact_ask_is_not_compressed(client: openai.OpenAI) -> None:
    body, headers = ask(client, EXACT)
    assert headers["x-flashlane-lane"] == "direct"
    assert body["timings"]["pflash"]["kept_tokens"] == body["usage"]["prompt_tokens"]
    assert body["timings"]["pflash"]["original_tokens"] == body["usage"]["prompt_tokens"]


def test_forced_lane_and_ratio(client: openai.OpenAI) -> None:
    body, headers = ask(client, EXACT, route="pflash", pflash_keep_ratio=0.3)
    assert headers["x-flashlane-lane"] == "pflash"
    assert headers["x-flashlane-keep-ratio"] == "0.3"
    assert body["timings"]["pflash"]["reason"] == "compressed"


def test_forced_by_header(proxy: Proxy) -> None:
    reply = httpx.post(
        f"{proxy.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {proxy.key}", "x-flashlane-route": "direct"},
        json={
            "model": "local",
            "max_tokens": 2,
            "messages": [{"role": "user", "content": broad()}],
        },
        timeout=300,
    )
    assert reply.headers["x-flashlane-lane"] == "direct"
    assert "forced_lane" in reply.headers["x-flashlane-reasons"]


def test_unknown_lane_is_refused_and_logged(client: openai.OpenAI, state: Path) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "hi", route="fast")
    assert caught.value.body["param"] == "route"  # type: ignore[index]
    assert "direct, pflash, verify" in caught.value.message
    recorded(state, status="refused")


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer sk-wrong"}], ids=["no key", "wrong key"]
)
def test_strangers_are_refused(proxy: Proxy, headers: dict[str, str]) -> None:
    """LiteLLM's own answer: 401 without a key, 400 for a key that no database knows."""
    reply = httpx.post(
        f"{proxy.base_url}/v1/chat/completions",
        headers=headers,
        json={"model": "local", "messages": [{"role": "user", "content": "hi"}]},
        timeout=60,
    )
    assert reply.status_code == (400 if headers else 401), reply.text
    assert "choices" not in reply.text


@pytest.mark.parametrize(
    "extra",
    [
        {"success_callback": ["s3"]},
        {"extra_headers": {"Authorization": "Bearer x"}},
        {"api_key": "x"},
        {"custom_llm_provider": "openai"},
        {"chat_parser": "{}"},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_what_is_the_operators_is_refused(client: openai.OpenAI, extra: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "hi", **extra)
    assert caught.value.body["param"] == next(iter(extra))  # type: ignore[index]


def test_lane_that_is_not_configured_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="its lanes: direct, pflash"):
        ask(client, "hi", route="verify")


def test_stream_carries_usage_and_timings(client: openai.OpenAI, state: Path) -> None:
    stream = client.chat.completions.create(
        model="local",
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": broad()}],
    )
    chunks = [chunk.model_dump() for chunk in stream]
    usage = next(c["usage"] for c in chunks if c.get("usage"))
    timings = next(c["timings"] for c in chunks if c.get("timings"))
    assert usage["prompt_tokens"] == timings["pflash"]["kept_tokens"]
    assert timings["pflash"]["kept_tokens"] < timings["pflash"]["original_tokens"]
    record = recorded(state, stream=True, status="ok", lane="pflash")
    assert record.ttft_ms is not None


def test_a_client_that_leaves_is_recorded(client: openai.OpenAI, state: Path) -> None:
    stream = client.chat.completions.create(
        model="local",
        max_tokens=400,
        stream=True,
        messages=[{"role": "user", "content": "Count on."}],
    )
    next(iter(stream))
    stream.close()
    recorded(state, status="disconnected", stream=True)


def test_text_completion(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="local", prompt=broad(), max_tokens=3)
    assert reply.model_dump()["timings"]["pflash"]["reason"] == "compressed"


def test_responses(client: openai.OpenAI, state: Path) -> None:
    reply = client.responses.create(model="local", input=broad(), max_output_tokens=8)
    assert reply.output_text
    recorded(state, endpoint="responses", lane="pflash", status="ok")


def test_anthropic_messages(proxy: Proxy, state: Path) -> None:
    client = anthropic.Anthropic(base_url=proxy.base_url, api_key=proxy.key, max_retries=0)
    reply = client.messages.create(
        model="local", max_tokens=4, messages=[{"role": "user", "content": broad()}]
    )
    assert reply.content
    recorded(state, endpoint="messages", lane="pflash", status="ok")
    with client.messages.stream(
        model="local", max_tokens=4, messages=[{"role": "user", "content": "Say hello."}]
    ) as stream:
        assert stream.get_final_text()


@pytest.mark.parametrize("api", ["chat", "completion", "messages", "responses"])
def test_every_stream_records_what_the_engine_measured(
    proxy: Proxy, client: openai.OpenAI, state: Path, api: str
) -> None:
    """LiteLLM turns the engine's chunks into another API's; the record keeps their timings."""
    if api == "chat":
        list(
            client.chat.completions.create(
                model="local",
                max_tokens=3,
                stream=True,
                messages=[{"role": "user", "content": broad()}],
            )
        )
    elif api == "completion":
        list(client.completions.create(model="local", prompt=broad(), max_tokens=3, stream=True))
    elif api == "responses":
        list(
            client.responses.create(model="local", input=broad(), max_output_tokens=8, stream=True)
        )
    else:
        sdk = anthropic.Anthropic(base_url=proxy.base_url, api_key=proxy.key, max_retries=0)
        with sdk.messages.stream(
            model="local", max_tokens=3, messages=[{"role": "user", "content": broad()}]
        ) as stream:
            stream.get_final_message()
    record = recorded(state, endpoint=api, lane="pflash", status="ok", stream=True)
    assert record.kept_tokens and record.ttft_ms
    if api == "completion":  # LiteLLM hands on no more than usage: the rest is not made up
        assert record.original_tokens is None and not record.pflash_reason
    else:
        assert record.decode_tokens_per_s
        assert record.original_tokens is not None and record.kept_tokens < record.original_tokens
        assert record.pflash_reason == "compressed"


def test_requests_that_share_a_client_chosen_id_keep_their_own_figures(
    client: openai.OpenAI, state: Path
) -> None:
    def one(text: str) -> None:
        client.chat.completions.create(
            model="local",
            max_tokens=2,
            messages=[{"role": "user", "content": text}],
            extra_headers={"x-litellm-call-id": "shared"},
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, [broad(), "Say hello."]))
    deadline = time.monotonic() + 30
    found: list[RouteRecord] = []
    while len(found) < 2 and time.monotonic() < deadline:
        records = RouteLog(state / "routes.sqlite").records(20)
        found = [r for r in records if r.request_id.startswith("shared")]
        time.sleep(0.1)
    assert {r.lane for r in found} == {"direct", "pflash"}
    for record in found:
        assert record.prompt_tokens and (record.prompt_tokens > 500) == (record.lane == "pflash")


def test_what_never_reaches_a_lane_is_recorded_too(proxy: Proxy, state: Path) -> None:
    def post(content: bytes, key: str, path: str = "/v1/chat/completions") -> int:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        url = proxy.base_url + path
        return httpx.post(url, headers=headers, content=content, timeout=60).status_code

    hello = b'{"model":"local","messages":[{"role":"user","content":"hi"}]}'
    before = len(list(RouteLog(state / "routes.sqlite").records(1000)))
    assert post(hello, "sk-wrong") == 400
    assert post(b"{no json", proxy.key) == 400
    post(b'{"model":"local","input":"hi"}', proxy.key, "/v1/embeddings")
    deadline = time.monotonic() + 30
    records: list[RouteRecord] = []
    while len(records) < before + 3 and time.monotonic() < deadline:
        records = list(RouteLog(state / "routes.sqlite").records(1000))
        time.sleep(0.1)
    assert len(records) == before + 3
    assert [r.status for r in records[1:3]] == ["refused", "refused"]
    assert records[0].endpoint == "embeddings"


def test_a_prompt_of_token_numbers(client: openai.OpenAI, state: Path) -> None:
    reply = client.completions.create(model="local", prompt=[1, 9690, 198, 2683], max_tokens=2)
    assert reply.choices[0].text
    recorded(state, endpoint="completion", lane="direct", status="ok", prompt_tokens=4)


@pytest.mark.parametrize("prompt", [{"a": "b"}, 7, [{"a": 1}], [1, "two"]], ids=str)
def test_a_prompt_that_is_neither_text_nor_tokens_is_refused(
    client: openai.OpenAI, prompt: Any
) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt is"):
        client.completions.create(model="local", prompt=prompt, max_tokens=2)


def test_killed_server_comes_back(proxy: Proxy, client: openai.OpenAI, config_path: Path) -> None:
    lease = Client(config_path)
    try:
        victim = lease.status()[0].pid
        assert victim is not None
        ends: list[object] = []

        def running_request() -> None:
            try:
                ends.append(ask(client, f"Another text. {EXACT}"))
            except openai.APIError as error:
                ends.append(error)

        thread = threading.Thread(target=running_request)
        thread.start()
        time.sleep(1.0)
        os.kill(victim, signal.SIGKILL)
        started = time.monotonic()
        body, _ = ask(client, "Say hello.")
        assert body["choices"]
        assert (
            time.monotonic() - started < 60
        )  # a hang would be 600 s; the time itself is the benchmark's
        thread.join(timeout=300)
        assert len(ends) == 1
        assert lease.status()[0].pid != victim
    finally:
        lease.close()
