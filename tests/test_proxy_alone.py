"""`litellm --config` by itself: two workers, two deployments, keys with limits, a hook that breaks.

Nobody starts a supervisor here: the plugins do. Where a redis-server is installed, the workers
share through it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import yaml

from flashlane.backends.control import Client
from flashlane.config import load_config
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import free_port, proxy_command

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))
BREAK = "break-the-router"

# A key that LiteLLM would look up in its database; "limited" may use the client's model alone.
AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

async def user_api_key_auth(request, api_key):
    if api_key not in ("sk-free", "sk-limited"):
        raise Exception("unknown key")
    models = ["local"] if api_key == "sk-limited" else []
    return UserAPIKeyAuth(api_key=api_key, key_alias=api_key[3:], models=models)
"""

# Runs after the router: what LiteLLM's own spend log would be given, and a router that fails.
WITNESS = """
import json, os
from litellm.integrations.custom_logger import CustomLogger
import flashlane.router

class Witness(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        logged = kwargs["standard_logging_object"]
        with open(os.environ["WITNESS_FILE"], "a") as out:
            out.write(json.dumps({
                "id": kwargs["litellm_call_id"], "tags": logged["request_tags"],
                "spend": logged["metadata"]["spend_logs_metadata"],
            }) + "\\n")

handler = Witness()
_exactness = flashlane.router.exactness

def exactness(view):
    if any("BREAK" in span.text for span in view.instructions):
        raise ValueError("secret words of the prompt")
    return _exactness(view)

flashlane.router.exactness = exactness
"""


_NUMBERS = itertools.count()


def broad() -> str:
    """Another text each time: what an engine has read already is not worth compressing."""
    return f"Part {next(_NUMBERS)}. {DOCUMENT}\n\nSummarise the text above."


@dataclass(frozen=True)
class Alone:
    url: str
    process: subprocess.Popen[bytes]
    config: Path
    log: Path
    routes: Path
    jsonl: Path
    witness: Path

    def client(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=300)

    def ask(
        self, text: str | list[dict[str, str]], key: str = "sk-free", **extra: Any
    ) -> httpx.Headers:
        messages: Any = [{"role": "user", "content": text}] if isinstance(text, str) else text
        reply = self.client(key).chat.completions.with_raw_response.create(
            model="local", max_tokens=4, temperature=0, extra_body=extra, messages=messages
        )
        assert reply.parse().choices
        return httpx.Headers(reply.headers)

    def record(self, request_id: str) -> RouteRecord:
        """The record of one request: it is written after the answer."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for record in RouteLog(self.routes).records(50):
                if record.request_id == request_id:
                    return record
            time.sleep(0.1)
        raise AssertionError(f"no route record of request {request_id}")


def _config(folder: Path, routes: Path, jsonl: Path, redis_port: int | None) -> Path:
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    backend = document["flashlane"]["backends"].pop("local")
    if os.environ.get("FLASHLANE_TEST_SERVER"):
        backend["server"] = os.environ["FLASHLANE_TEST_SERVER"]
    document["flashlane"]["policy"]["min_saving_ms"] = 0  # also where a machine turns out fast
    backend["threads"] = 1  # two servers on a small machine: threads that wait for each other crawl
    if redis_port is not None:
        document["router_settings"].update(redis_host="127.0.0.1", redis_port=redis_port)
    entries = document.pop("model_list")
    document["model_list"] = []
    for name in ("left", "right"):
        port = free_port()
        document["flashlane"]["backends"][name] = {**backend, "port": port}
        for entry in entries:
            params = {**entry["litellm_params"], "api_base": f"http://127.0.0.1:{port}/v1"}
            document["model_list"].append({**entry, "litellm_params": params})
    document["flashlane"]["route_log"] = {"sqlite": str(routes), "jsonl": str(jsonl)}
    document["litellm_settings"]["callbacks"].append("witness.handler")
    document["general_settings"]["custom_auth"] = "auth.user_api_key_auth"
    (folder / "plugins").symlink_to(ROOT / "plugins")
    (folder / "auth.py").write_text(AUTH)
    (folder / "witness.py").write_text(WITNESS.replace("BREAK", BREAK))
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def alone(
    state: Path, tmp_path_factory: pytest.TempPathFactory, redis_or_none: Any
) -> Iterator[Alone]:
    folder = tmp_path_factory.mktemp("alone")
    routes, jsonl, log = folder / "routes.sqlite", folder / "routes.jsonl", folder / "proxy.log"
    config = _config(folder, routes, jsonl, redis_or_none.port if redis_or_none else None)
    port = free_port()
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": "sk-unused-master-key",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # uvicorn ends a worker that imports for longer than this; a busy machine needs minutes.
        "TIMEOUT_WORKER_HEALTHCHECK": "120",
        "WITNESS_FILE": str(folder / "witness.jsonl"),
        "PYTHONUNBUFFERED": "1",
    }
    command = [*proxy_command(config, "127.0.0.1", port), "--num_workers", "2"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started = Alone(
        f"http://127.0.0.1:{port}", process, config, log, routes, jsonl, folder / "witness.jsonl"
    )
    try:
        _wait_ready(started)
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _wait_ready(alone: Alone) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and alone.process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{alone.url}/health/liveliness", timeout=2).status_code == 200:
                return
        time.sleep(0.3)
    raise RuntimeError(alone.log.read_text(errors="replace")[-2000:])


def supervisors(config: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(config) in words and any("supervisor" in word for word in words):
            found.append(process.pid)
    return found


def test_two_workers_start_one_supervisor(alone: Alone) -> None:
    clients = [alone.client("sk-free") for _ in range(6)]
    for client in clients:  # a connection each: the kernel spreads them over the workers
        assert client.chat.completions.create(
            model="local", max_tokens=2, messages=[{"role": "user", "content": "Say hello."}]
        ).choices
    assert len(supervisors(alone.config)) == 1


def test_a_limited_key_keeps_to_the_direct_lane(alone: Alone) -> None:
    free = alone.ask(broad())
    assert free["x-flashlane-lane"] == "pflash"
    limited = alone.ask(broad(), key="sk-limited")
    assert limited["x-flashlane-lane"] == "direct"
    assert "lane_not_allowed" in limited["x-flashlane-reasons"]
    assert alone.record(limited["x-litellm-call-id"]).key_alias == "limited"


def test_a_limited_key_cannot_force_the_lane(alone: Alone) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="local-pflash"):
        alone.ask(broad(), key="sk-limited", route="pflash")


def test_a_broken_router_loses_no_request(alone: Alone) -> None:
    headers = alone.ask(f"{DOCUMENT}\n\nSummarise it, {BREAK}.")
    assert headers["x-flashlane-lane"] == "direct"
    assert headers["x-flashlane-reasons"].split(",")[0] == "router_error"
    log = alone.log.read_text()
    assert "failed open to the direct lane: ValueError" in log
    assert "secret words of the prompt" not in log
    assert alone.record(headers["x-litellm-call-id"]).status == "ok"


def test_spend_metadata_and_jsonl_carry_the_lane(alone: Alone) -> None:
    request_id = alone.ask(broad())["x-litellm-call-id"]
    record = alone.record(request_id)
    assert record.lane == "pflash" and record.ask is None
    lines = [json.loads(line) for line in alone.jsonl.read_text().splitlines()]
    (line,) = [line for line in lines if line["request_id"] == request_id]
    assert line["lane"] == "pflash"
    assert line["kept_tokens"] == record.kept_tokens
    assert "shelf" not in alone.jsonl.read_text()
    seen = [json.loads(line) for line in alone.witness.read_text().splitlines()]
    (logged,) = [line for line in seen if line["id"] == request_id]
    assert logged["spend"]["flashlane"]["lane"] == "pflash"
    assert logged["spend"]["flashlane"]["reasons"] == record.reasons
    assert "lane:pflash" in logged["tags"]


def test_a_conversation_stays_on_its_deployment(alone: Alone) -> None:
    """Random choice alone would pass one run in 32. Without Redis the workers do not share what
    they know, so one connection, which stays with one worker, carries the conversation."""
    client = alone.client("sk-free")
    messages: list[Any] = [{"role": "user", "content": "Tell me of the sea."}]
    served = set()
    for turn in range(6):
        raw = client.chat.completions.with_raw_response.create(
            model="local", max_tokens=4, messages=messages
        )
        served.add(alone.record(raw.headers["x-litellm-call-id"]).deployment)
        answer = raw.parse().choices[0].message.content
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": f"And then, {turn}?"},
        ]
    assert len(served) == 1
    assert served < {"left", "right"}


class Conversation:
    """A chat that grows by a question and an answer each turn, each on a connection of its own."""

    def __init__(self, alone: Alone, opening: str) -> None:
        self._alone = alone
        self._messages: list[Any] = [{"role": "system", "content": opening}]
        self.records: list[RouteRecord] = []

    def turn(self, ask: str, *, stream: bool = False, **extra: Any) -> RouteRecord:
        self._messages.append({"role": "user", "content": ask})
        answers = self._alone.client("sk-free").chat.completions.with_raw_response
        raw = answers.create(
            model="local",
            max_tokens=4,
            messages=self._messages,
            stream=stream,
            extra_body={"route": "direct", **extra},
        )
        if stream:
            chunks = [chunk for chunk in raw.parse() if chunk.choices]
            answer = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            answer = raw.parse().choices[0].message.content
        self._messages.append({"role": "assistant", "content": answer})
        self.records.append(self._alone.record(raw.headers["x-litellm-call-id"]))
        return self.records[-1]


def test_conversations_land_where_their_beginning_is(alone: Alone, redis_server: Any) -> None:
    """Every turn may reach either worker: they know of each other's conversations by Redis."""
    chats = [Conversation(alone, f"Story {number}. {DOCUMENT[:900]}") for number in range(8)]
    for turn in range(3):
        for number, chat in enumerate(chats):
            chat.turn(f"And then, {turn}?", stream=bool(number % 2))
    later = [(chat.records[0], record) for chat in chats for record in chat.records[1:]]
    landed = [record for first, record in later if record.deployment == first.deployment]
    assert len(landed) == len(later) == 16
    for record in landed:
        assert "prefix_held" in record.reasons and record.deployment in record.placement
        assert record.cached_tokens and record.prompt_tokens
        assert record.cached_tokens > record.prompt_tokens / 2
    assert {record.deployment for _, record in later} == {"left", "right"}


def test_a_cache_key_keeps_unknown_prompts_together(alone: Alone, redis_server: Any) -> None:
    first = Conversation(alone, f"One. {DOCUMENT[:900]}").turn("Hm?", prompt_cache_key="left")
    for number in range(3):
        chat = Conversation(alone, f"Other {number}. {DOCUMENT[:900]}")
        record = chat.turn("Hm?", prompt_cache_key="left")
        assert "cache_key" in record.reasons and record.deployment == first.deployment


def test_a_killed_backend_loses_its_entries_and_no_request(alone: Alone, redis_server: Any) -> None:
    first = Conversation(alone, f"Shared. {DOCUMENT[:2500]}")
    victim = first.turn("Begin.").deployment
    other = ({"left", "right"} - {victim}).pop()
    second, idle = (Conversation(alone, f"Shared. {DOCUMENT[:2500]}") for _ in range(2))
    assert [chat.turn(ask).deployment for chat, ask in ((second, "Go."), (idle, "Tell."))] == [
        victim,
        victim,
    ]
    lease = Client(alone.config)
    try:
        (pid,) = [backend.pid for backend in lease.status() if backend.name == victim]
        with ThreadPoolExecutor(2) as pool:
            ends = [
                pool.submit(first.turn, f"More: {DOCUMENT[:1500]}"),
                pool.submit(second.turn, f"Else: {DOCUMENT[:1500]}"),
            ]
            _wait_busy(alone, victim)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert [end.result().deployment for end in ends] == [other, other]
        assert lease.ensure_sync(victim).pid != pid
        for chat in (idle, first, second):
            record = chat.turn("Go on.")
            assert record.deployment == other and "prefix_held" in record.reasons
    finally:
        lease.close()


def _wait_busy(alone: Alone, name: str) -> None:
    """Until the backend works on two requests."""
    backend = load_config(alone.config).backends[name]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        slots = httpx.get(f"{backend.base_url}/slots", timeout=60).json()
        if sum(slot["is_processing"] for slot in slots) == 2:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} was never busy")


def test_the_supervisor_goes_with_its_owner(alone: Alone) -> None:
    """Last in this file: it ends the proxy without letting it clean up."""
    client = Client(alone.config)
    engines = [backend.pid for backend in client.status() if backend.pid]
    client.close()
    gone = [*supervisors(alone.config), *engines]
    assert len(gone) >= 2
    os.killpg(alone.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 40
    while any(map(psutil.pid_exists, gone)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [pid for pid in gone if psutil.pid_exists(pid)]
