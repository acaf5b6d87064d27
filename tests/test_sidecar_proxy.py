"""The real proxy, with the small model as its own sidecar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from flashlane.backends.control import Client
from flashlane.routelog import RouteLog
from flashlane.serve import Proxy, free_port, running_proxy

DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))


@dataclass(frozen=True)
class Served:
    proxy: Proxy
    config: Path
    routes: Path

    def ask(self, text: str) -> httpx.Headers:
        """The headers of one answered request, after its route record was written."""
        before = len(self.records())
        reply = httpx.post(
            f"{self.proxy.base_url}/v1/chat/completions",
            headers={"Authorization": f"Bearer {self.proxy.key}"},
            json={
                "model": "local",
                "max_tokens": 2,
                "messages": [{"role": "user", "content": f"{DOCUMENT}\n\n{text}"}],
            },
            timeout=300,
        )
        assert reply.status_code == 200, reply.text
        deadline = time.monotonic() + 30
        while len(self.records()) == before and time.monotonic() < deadline:
            time.sleep(0.1)
        return reply.headers

    def records(self) -> list[str]:
        return [record.model for record in RouteLog(self.routes).records(1000)]

    def use(self, **sidecar: Any) -> None:
        """Put another `sidecar` section in force, without a restart."""
        document = yaml.safe_load(self.config.read_text())
        if document["flashlane"].get("sidecar") == sidecar:
            return
        document["flashlane"]["sidecar"] = sidecar
        seen = self.proxy.log.read_text().count("was read again")
        self.config.write_text(yaml.safe_dump(document))
        deadline = time.monotonic() + 30
        while self.proxy.log.read_text().count("was read again") == seen:
            assert time.monotonic() < deadline, "the config was not read again"
            time.sleep(0.1)


SCHEMA = {
    "type": "object",
    "properties": {
        "exact": {"const": True},
        "kind": {"const": "retrieval"},
        "confidence": {"const": 0.9},
    },
    "required": ["exact", "kind", "confidence"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def served(config_path: Path) -> Iterator[Served]:
    before = config_path.read_text()
    document = yaml.safe_load(before)
    params = document["model_list"][0]["litellm_params"]
    for name, extra in (
        ("sidecar-free", {}),
        # The model is too small to keep to a form by itself: its engine holds it to one.
        ("sidecar-held", {"json_schema": SCHEMA}),
    ):
        held = {**params, "extra_body": {**params["extra_body"], **extra}}
        document["model_list"].append({"model_name": name, "litellm_params": held})
    dead = {**params, "api_base": f"http://127.0.0.1:{free_port()}/v1"}
    document["model_list"].append({"model_name": "sidecar-dead", "litellm_params": dead})
    # Threads that wait for each other on a busy machine take seconds for one token.
    document["flashlane"]["backends"]["local"]["threads"] = 1
    routes = config_path.parent / "sidecar.sqlite"
    document["flashlane"]["route_log"] = {"sqlite": str(routes)}
    config_path.write_text(yaml.safe_dump(document))
    try:
        with running_proxy(config_path, free_port()) as running:
            client = Client(config_path)
            try:
                served = Served(running, config_path, routes)
                served.ask("Summarise the text above.")  # the first request loads the model
                yield served
            finally:
                client.close()
    finally:
        config_path.write_text(before)


def test_a_small_models_broken_answer_changes_nothing(served: Served) -> None:
    served.use(mode="active", model="sidecar-free", timeout_ms=60_000)
    headers = served.ask("Summarise the text above.")
    assert headers["x-flashlane-sidecar"] == "broken"
    assert headers["x-flashlane-lane"] == "pflash"
    assert "sidecar" not in headers["x-flashlane-reasons"]


def test_an_opinion_makes_a_decision_safer_and_shadow_does_not(served: Served) -> None:
    served.use(mode="shadow", model="sidecar-held", timeout_ms=60_000)
    headers = served.ask("Summarise the text above.")
    assert headers["x-flashlane-lane"] == "pflash"
    assert headers["x-flashlane-sidecar"].startswith("shadow: ")
    served.use(mode="active", model="sidecar-held", timeout_ms=60_000)
    headers = served.ask("Summarise the text above.")
    assert headers["x-flashlane-sidecar"] == "exact 0.90 safer"
    assert headers["x-flashlane-lane"] == "direct"
    assert "sidecar_safer" in headers["x-flashlane-reasons"]


def test_its_own_requests_are_no_clients_requests(served: Served) -> None:
    served.use(mode="active", model="sidecar-held", timeout_ms=60_000)
    before = len(served.records())
    assert served.ask("Summarise the text above.")["x-flashlane-sidecar"].startswith("exact")
    time.sleep(1.0)
    assert len(served.records()) == before + 1
    assert set(served.records()) == {"local"}


@pytest.mark.parametrize(
    ("model", "timeout_ms", "note"),
    [("sidecar-dead", 60_000, "error"), ("sidecar-held", 1, "timeout")],
    ids=["dead", "slow"],
)
def test_a_failing_sidecar_costs_no_request(
    served: Served, model: str, timeout_ms: int, note: str
) -> None:
    served.use(mode="active", model=model, timeout_ms=timeout_ms)
    headers = served.ask("Summarise the text above.")
    assert headers["x-flashlane-sidecar"] == note
    assert headers["x-flashlane-lane"] == "pflash"
    assert "sidecar" not in headers["x-flashlane-reasons"]
    assert "the sidecar gave no opinion" in served.proxy.log.read_text()
    assert "shelf" not in served.proxy.log.read_text()
