"""Feedback, metrics and data of a real proxy with two workers, a real engine and several keys."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from litellm_alone import ROOT, Running, running
from prometheus_client.parser import text_string_to_metric_families

from flashlane.routelog import RouteRecord
from flashlane.serve import free_port

# Keys that LiteLLM would look up in its database. It still checks what each of them may call.
AUTH = """
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

async def user_api_key_auth(request, api_key):
    fields = {
        "sk-admin": {"user_role": LitellmUserRoles.PROXY_ADMIN},
        "sk-viewer": {"user_role": LitellmUserRoles.PROXY_ADMIN_VIEW_ONLY},
        "sk-one": {"key_alias": "one"},
        "sk-two": {"key_alias": "two", "user_role": LitellmUserRoles.INTERNAL_USER},
        "sk-models": {"allowed_routes": ["llm_api_routes"]},
    }
    if api_key not in fields:
        raise Exception("unknown key")
    return UserAPIKeyAuth(api_key=api_key, **fields[api_key])
"""
DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))
PATHS = ("/flashlane/data", "/flashlane/metrics")


def config() -> str:
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    port = free_port()
    for entry in document["model_list"]:
        entry["litellm_params"]["api_base"] = f"http://127.0.0.1:{port}/v1"
    plugins = [name.replace("plugins.", "flashlane.plugins.") for name in _callbacks(document)]
    document["litellm_settings"]["callbacks"] = plugins
    document["general_settings"].update(
        custom_auth="auth.user_api_key_auth", custom_auth_run_common_checks=True
    )
    backend = document["flashlane"]["backends"]["local"]
    backend.update(port=port, threads=1, kvflash={"budget": "auto"})
    if os.environ.get("FLASHLANE_TEST_SERVER"):
        backend["server"] = os.environ["FLASHLANE_TEST_SERVER"]
    return yaml.safe_dump(document)


def _callbacks(document: dict[str, Any]) -> list[str]:
    names: list[str] = document["litellm_settings"]["callbacks"]
    return names


def ask(proxy: Running, key: str, text: str = "Say hello.") -> httpx.Response:
    reply = proxy.post(
        "/v1/chat/completions",
        {"model": "local", "max_tokens": 4, "messages": [{"role": "user", "content": text}]},
        key,
    )
    assert reply.status_code == 200, reply.text
    return reply


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    files = {"config.yaml": config(), "auth.py": AUTH}
    with running(tmp_path_factory.mktemp("evidence"), files, workers=2) as started:
        first = ask(started, "sk-one")  # loads the model
        record(started, first.headers["x-flashlane-request-id"])
        yield started


def say(proxy: Running, request_id: str, verdict: str, key: str) -> int:
    body = {"request_id": request_id, "verdict": verdict}
    return proxy.post("/flashlane/feedback", body, key).status_code


def record(proxy: Running, request_id: str) -> RouteRecord:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for found in proxy.routes.records(100):
            if found.request_id == request_id:
                return found
        time.sleep(0.1)
    raise AssertionError(f"no route record of {request_id}")


def samples(proxy: Running) -> dict[tuple[str, ...], float]:
    reply = proxy.get("/flashlane/metrics", "sk-admin")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", [None, "sk-wrong"])
def test_nothing_is_told_without_a_key(proxy: Running, path: str, key: str | None) -> None:
    before = sum(1 for _ in proxy.routes.records(1000))
    reply = proxy.get(path, key)
    assert reply.status_code == 401
    assert "lane" not in reply.text
    body = {"request_id": "x", "verdict": "right"}
    assert proxy.post("/flashlane/feedback", body, key).status_code == 401
    assert sum(1 for _ in proxy.routes.records(1000)) == before


def test_a_key_that_may_only_call_models_is_refused(proxy: Running) -> None:
    assert [proxy.get(path, "sk-models").status_code for path in PATHS] == [403, 403]
    assert say(proxy, "x", "right", "sk-models") == 403


def test_feedback_right_after_the_answer_is_kept(proxy: Running) -> None:
    reply = ask(proxy, "sk-one")
    request_id = reply.headers["x-flashlane-request-id"]
    assert say(proxy, request_id, "wrong", "sk-one") == 200
    assert record(proxy, request_id).feedback == "wrong"
    assert say(proxy, request_id, "slow", "sk-admin") == 200
    assert record(proxy, request_id).feedback == "slow"


def test_feedback_names_a_request_also_where_the_client_chose_its_id(proxy: Running) -> None:
    reply = httpx.post(
        f"{proxy.url}/v1/chat/completions",
        headers={"Authorization": "Bearer sk-one", "x-litellm-call-id": "mine"},
        json={"model": "local", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]},
        timeout=300,
    )
    request_id = reply.headers["x-flashlane-request-id"]
    assert request_id.startswith("mine#")
    assert say(proxy, request_id, "right", "sk-one") == 200


def test_feedback_on_another_keys_request_is_feedback_on_none(proxy: Running) -> None:
    request_id = ask(proxy, "sk-one").headers["x-flashlane-request-id"]
    record(proxy, request_id)
    assert say(proxy, request_id, "wrong", "sk-two") == 404
    assert say(proxy, "no-such-request", "wrong", "sk-one") == 404
    assert say(proxy, request_id, "wrong", "sk-viewer") == 403
    assert record(proxy, request_id).feedback == ""


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"{", None, "request_id, verdict"),
        (b"[]", None, "request_id, verdict"),
        (b"", None, "request_id, verdict"),
        (b'{"verdict": "right"}', "request_id", "request_id is missing"),
        (
            b'{"request_id": "a", "verdict": "bad"}',
            "verdict",
            "accepted values: right, wrong, slow",
        ),
        (b'{"request_id": 7, "verdict": "slow"}', "request_id", "it must be a text"),
        (b'{"request_id": "", "verdict": "slow"}', "request_id", "1 to 300"),
        (b'{"request_id": "a", "verdict": "slow", "x": 1}', "x", "x is not known"),
        (b'{"request_id": "a", "verdict": "\xff"}', None, "request_id, verdict"),
        (b'{"request_id": "\\ud800", "verdict": "slow"}', None, "request_id, verdict"),
    ],
)
def test_wrong_feedback_is_refused_in_openais_form(
    proxy: Running, body: bytes, param: str | None, words: str
) -> None:
    headers = {"Authorization": "Bearer sk-one", "Content-Type": "application/json"}
    reply = httpx.post(f"{proxy.url}/flashlane/feedback", content=body, headers=headers, timeout=30)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert error["param"] in (param, str(param))


def test_a_form_is_no_feedback(proxy: Running) -> None:
    headers = {"Authorization": "Bearer sk-one"}
    fields = {"request_id": "a", "verdict": "slow"}
    url = f"{proxy.url}/flashlane/feedback"
    for sent in ({"data": fields}, {"files": {"file": b"x"}}):
        assert httpx.post(url, headers=headers, timeout=30, **sent).status_code == 400  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["sk-one", "sk-wrong"])
def test_feedback_is_small_and_says_its_length(proxy: Running, key: str) -> None:
    """The limit holds before the key is known."""
    url, headers = f"{proxy.url}/flashlane/feedback", {"Authorization": f"Bearer {key}"}
    large = b'{"request_id": "' + b"a" * 5000 + b'", "verdict": "slow"}'
    reply = httpx.post(url, headers=headers, content=large, timeout=30)
    assert reply.status_code == 413 and "4096 bytes" in reply.json()["error"]["message"]
    reply = httpx.post(url, headers=headers, content=iter([b"{}"]), timeout=30)
    assert reply.status_code == 411


def test_no_text_of_a_prompt_is_told(proxy: Running) -> None:
    word = "Zanzibarine"
    reply = ask(proxy, "sk-one", f"{DOCUMENT} The {word} is last.\n\nSummarise the text on {word}.")
    request_id = reply.headers["x-flashlane-request-id"]
    record(proxy, request_id)
    assert say(proxy, request_id, "right", "sk-one") == 200
    for path in PATHS:
        shown = proxy.get(path, "sk-admin").text
        assert "pflash" in shown and word not in shown


def test_a_model_with_an_endless_name_is_cut_short(proxy: Running) -> None:
    body = {"model": "m" * 5000, "messages": [{"role": "user", "content": "Hi"}]}
    assert proxy.post("/v1/chat/completions", body, "sk-one").status_code >= 400
    deadline = time.monotonic() + 30
    while not (names := [r["model"] for r in _recent(proxy) if r["model"].startswith("mmm")]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert len(names[0]) == 300


def _recent(proxy: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = proxy.get("/flashlane/data", "sk-admin").json()["recent"]
    return found


def test_a_key_sees_its_own_requests_and_an_admin_all(proxy: Running) -> None:
    record(proxy, ask(proxy, "sk-two").headers["x-flashlane-request-id"])
    seen = {}
    for key in ("sk-one", "sk-two", "sk-admin", "sk-viewer"):
        reply = proxy.get("/flashlane/data", key)
        assert reply.status_code == 200, reply.text
        assert reply.headers["cache-control"] == "no-store"
        seen[key] = reply.json()
    aliases = {key: {row["key_alias"] for row in data["recent"]} for key, data in seen.items()}
    assert aliases["sk-one"] == {"one"} and aliases["sk-two"] == {"two"}
    assert aliases["sk-admin"] == aliases["sk-viewer"] >= {"one", "two"}
    counts = {
        key: sum(lane["requests"] for lane in data["report"]["lanes"]) for key, data in seen.items()
    }
    assert counts["sk-one"] + counts["sk-two"] <= counts["sk-admin"] == counts["sk-viewer"]
    assert seen["sk-two"]["backends"] is seen["sk-two"]["config"] is None
    assert seen["sk-admin"]["config"]["error"] == ""


def test_the_data_tells_why_and_what_the_backends_hold(proxy: Running) -> None:
    text = f"{DOCUMENT}\n\nSummarise the text above."
    reply = ask(proxy, "sk-admin", text)
    record(proxy, reply.headers["x-flashlane-request-id"])
    data = proxy.get("/flashlane/data?hours=1", "sk-admin").json()
    newest = data["recent"][0]
    assert newest["lane"] == "pflash"
    assert {"code": "pays", "text": "compression saves time"} in newest["reasons"]
    assert newest["kept_tokens"] < newest["original_tokens"]
    assert "ask" not in newest
    lane = next(lane for lane in data["report"]["lanes"] if lane["lane"] == "pflash")
    assert lane["tokens_saved"] > 0 and lane["ttft_p50_ms"] > 0
    assert sum(b["tokens_saved"] for b in data["report"]["buckets"]) == sum(
        lane["tokens_saved"] for lane in data["report"]["lanes"]
    )
    backend = data["backends"][0]
    assert (backend["name"], backend["state"]) == ("local", "ready")
    assert backend["pool"]["budget_tokens"] > 0
    assert set(backend["pool"]["hits"]) == {"slot", "sibling", "ram", "disk"}


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "soon", "1e99"])
def test_a_wrong_span_is_refused(proxy: Running, hours: str) -> None:
    reply = proxy.get(f"/flashlane/data?hours={hours}", "sk-admin")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "hours"


def test_both_workers_tell_the_same_counts(proxy: Running) -> None:
    """A connection each: the kernel spreads them over the workers."""
    request_id = ask(proxy, "sk-one").headers["x-flashlane-request-id"]
    record(proxy, request_id)
    assert say(proxy, request_id, "right", "sk-one") == 200
    scrapes: list[dict[tuple[str, ...], float]] = []
    workers: set[float] = set()
    while len(workers) < 2 or len(scrapes) < 8:
        assert len(scrapes) < 100
        scrapes.append(samples(proxy))
        workers.add(scrapes[-1].pop(("flashlane_config_loaded_timestamp_seconds",)))
    assert all(scrape == scrapes[0] for scrape in scrapes)
    counted = scrapes[0]
    total = sum(value for name, value in counted.items() if name[0] == "flashlane_requests_total")
    assert total == sum(1 for _ in proxy.routes.records(1000))
    assert counted["flashlane_feedback_total", "direct", "right"] >= 1
    assert counted["flashlane_config_valid",] == 1
    assert counted["flashlane_backend_state", "local", "ready"] == 1
    assert proxy.get("/flashlane/metrics", "sk-one").status_code == 403
    assert proxy.get("/flashlane/metrics", "sk-viewer").status_code == 200
