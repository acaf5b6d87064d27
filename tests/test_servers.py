"""Which server stands behind a deployment, as the proxy and its supervisor know it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from flashlane.affinity import Server
from flashlane.backends.channel import BackendStatus, ControlError, State
from flashlane.backends.control import Endpoint
from flashlane.runtime import Runtime

OWN = {"litellm_params": {"api_base": "http://127.0.0.1:18160/v1"}, "model_info": {"id": "1"}}
LINK = [b"link"]


class Supervisor:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.run, self.asked = "", 0
        self.state: State = "stopped"
        self.silent = False

    async def status_async(self) -> tuple[BackendStatus, ...]:
        self.asked += 1
        if self.silent:
            raise ControlError("gone")
        url = "http://127.0.0.1:18160"
        return (BackendStatus(name="a", state=self.state, base_url=url, model="m", run=self.run),)

    async def ensure(self, name: str) -> Endpoint:
        self.state = "ready"
        return Endpoint("", 1, "m", self.run)


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
def runtime(tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    groups = [{"model_name": name, **OWN} for name in ("two", "two", "one")]
    backend = {"model": "m", "port": 18160, "slots": 3, "speeds": {"prefill_tokens_per_s": 50}}
    path = tmp_path / "c.yaml"
    path.write_text(
        yaml.safe_dump({"model_list": groups, "flashlane": {"backends": {"a": backend}}})
    )
    built = Runtime(path)
    monkeypatch.setattr(built, "supervisor", lambda: supervisor)
    return built


def server(runtime: Runtime, deployment: dict[str, Any] = OWN) -> Server:
    (found,) = asyncio.run(runtime.servers([deployment]))
    return found


def held(runtime: Runtime, server_id: str) -> bool:
    (found,) = asyncio.run(runtime.affinity.holdings.look([server_id], LINK, 1.0))
    return found.scores != [None]


def test_an_own_backend(runtime: Runtime, supervisor: Supervisor) -> None:
    supervisor.run = "r1"
    assert server(runtime) == Server("a@r1", "a", slots=3, prefill_tokens_per_s=50.0)


@pytest.mark.parametrize(
    ("state", "ready"),
    [("ready", True), ("stopped", True), ("starting", False), ("failed", False)],
)
def test_one_that_is_starting_is_not_ready(
    runtime: Runtime, supervisor: Supervisor, state: State, ready: bool
) -> None:
    supervisor.state = state
    assert server(runtime).ready is ready


@pytest.mark.parametrize("how", ["status", "ensure"])
def test_another_run_is_another_server_and_the_first_ones_entries_go(
    runtime: Runtime, supervisor: Supervisor, how: str
) -> None:
    supervisor.run = "r1"
    first = server(runtime)
    asyncio.run(runtime.affinity.holdings.remember(first.id, LINK, 1.0))
    supervisor.run = "r2"
    if how == "ensure":
        asyncio.run(runtime.ensure_backend("a"))
    assert server(runtime).id == "a@r2"
    assert not held(runtime, first.id)


def test_a_silent_supervisor_changes_nothing(runtime: Runtime, supervisor: Supervisor) -> None:
    supervisor.run = "r1"
    first = server(runtime)
    asyncio.run(runtime.affinity.holdings.remember(first.id, LINK, 1.0))
    supervisor.silent = True
    assert server(runtime) == first
    assert held(runtime, first.id)


def test_engines_that_are_not_ours(runtime: Runtime, supervisor: Supervisor) -> None:
    def of(base: str | None, **params: Any) -> Server:
        found = {"litellm_params": {"api_base": base, **params}, "model_info": {"id": "x"}}
        return server(runtime, found)

    assert of("https://user:secret@gpu.example:8000/v1").label == "gpu.example:8000"
    assert of("https://gpu.example:8000/v1").id == "gpu.example:8000"
    assert of("http://127.0.0.1:9999/v1").id.endswith("/127.0.0.1:9999")
    assert of(None).label == "x"
    assert of(None, max_parallel_requests=2).slots == 2
    assert supervisor.asked == 0


def test_a_choice_needs_two_deployments(runtime: Runtime) -> None:
    assert runtime.may_choose("two") and runtime.may_choose("one")  # one's requests count too
    runtime.deployments = runtime.deployments[2:]
    assert not runtime.may_choose("one")
    assert runtime.may_choose("added later")
