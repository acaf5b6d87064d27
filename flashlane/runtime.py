"""The one object that holds flashlane's state in a proxy process.

LiteLLM may execute a hook file by its location, outside `sys.modules`, and once more by import.
The hooks therefore hold nothing; everything that must exist once lives here, in a module that
is only ever imported.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flashlane.affinity import Affinity, Server
from flashlane.backends.channel import BackendStatus
from flashlane.backends.command import api_key
from flashlane.backends.control import Client, connect_or_start
from flashlane.config import (
    FlashlaneConfig,
    backend_for_api_base,
    is_loopback,
    load_config,
    load_litellm,
)
from flashlane.enginegears import EngineGears
from flashlane.exactness.model import model
from flashlane.flight import Flight, Flights
from flashlane.holdings import RedisCache
from flashlane.lanes import DEFAULT_PREFILL_TOKENS_PER_S, Engine
from flashlane.learning import Learning
from flashlane.paths import config_file, state_dir
from flashlane.reload import Reloader, ReloadState, fingerprint
from flashlane.routelog import RouteLog, Status
from flashlane.sidecar import Sidecar
from flashlane.speeds import FILE_NAME

log = logging.getLogger("flashlane")

_READY_S = 0.5
"""For so long a backend that answered is taken to answer still, if its process is there: less than
the supervisor waits before it stops one that was just asked for."""
_COST_WAIT_S = 5.0
"""How long a finished request waits for LiteLLM's own log event, which carries the cost."""

_STATUS_LIMIT_S = 0.5
_FOREIGN_SLOTS = 8
"""Requests that an engine which is not ours runs at once, where its deployment does not say."""

T = TypeVar("T")
_hooks: dict[str, object] = {}
_lock = threading.Lock()
_runtime: Runtime | None = None


class Runtime:
    """Config, route log, flights, what was learned and the line to the supervisor, of a process."""

    def __init__(self, config_path: Path) -> None:
        self.config_path = config_path
        model()  # the first request does not wait until it is read
        seen = fingerprint(config_path)
        self.config: FlashlaneConfig = load_config(config_path)
        self.deployments = tuple(load_litellm(config_path))
        self.reloader = Reloader(config_path, self.config, self.deployments, seen, self._use)
        self.sidecar = Sidecar()
        self.flights = Flights()
        self.affinity = Affinity(self.config.affinity, _litellm_redis)
        self.learning = Learning(state_dir() / FILE_NAME, self.affinity)
        self.gears = EngineGears()
        settings = self.config.route_log
        self.route_log = RouteLog(
            Path(settings.sqlite) if settings.sqlite else state_dir() / "routes.sqlite",
            Path(settings.jsonl) if settings.jsonl else None,
        )
        self._client: Client | None = None
        self._client_lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, str] = {}
        self._ready: dict[str, tuple[int, float]] = {}

    @property
    def reload_state(self) -> ReloadState:
        """How the last changes of the config file went."""
        return self.reloader.state

    def _use(self, config: FlashlaneConfig) -> None:
        """Decide by `config` from the next request on; called from the reloader's thread."""
        self.affinity.limit(config.affinity)
        self.config = config

    def backend_of(self, api_base: str | None) -> str | None:
        return backend_for_api_base(self.config, api_base) if api_base else None

    def supervisor(self) -> Client:
        """The supervisor of this config: connected to, or started by the first that asks."""
        with self._client_lock:
            if self._client is None:
                self._client = connect_or_start(self.config_path)
            return self._client

    async def ensure_backend(self, name: str, *, again: bool = False) -> None:
        """Wait until backend `name` answers; raises `RuntimeError` with the supervisor's words.

        `again`: an attempt has failed before, so what was known a moment ago is not relied on.
        """
        known = self._ready.get(name)
        if known and not again:
            pid, until = known
            if time.monotonic() < until and _runs(pid):
                return
        client = self._client
        if client is None:
            client = await asyncio.to_thread(self.supervisor)
        endpoint = await client.ensure(name)
        self._ready[name] = (endpoint.pid, time.monotonic() + _READY_S)
        await self._saw_run(name, endpoint.run)
        self._look_at_gears(name, endpoint.run)

    def _look_at_gears(self, name: str, run: str) -> None:
        if self.config.gears.mode == "off":
            return
        backend = self.config.backends[name]
        try:
            key = api_key(backend, os.environ)
        except LookupError:
            key = None
        if asking := self.gears.asks(name, run, backend.base_url, key):
            self.soon(asking)

    def gear_limit(self, backend: str) -> int:
        """The highest gear of a backend of ours; 0 for none."""
        return self.gears.limit(backend)

    def server_id(self, engine: Engine) -> str:
        """The run of `engine` that was seen last; empty where it cannot be named."""
        if engine.backend is None:
            return _foreign_id(engine.label)
        run = self._runs.get(engine.backend)
        return f"{engine.backend}@{run}" if run else ""

    def may_choose(self, group: str) -> bool:
        """Whether affinity has any use: `group` or another has several deployments, or it is not
        in the config."""
        sizes = Counter(deployment.model_name for deployment in self.deployments)
        return sizes[group] != 1 or max(sizes.values()) > 1

    async def servers(self, deployments: Sequence[Mapping[str, Any]]) -> list[Server]:
        """What stands behind LiteLLM's `deployments` now, in their order."""
        bases = [
            (deployment.get("litellm_params") or {}).get("api_base") for deployment in deployments
        ]
        statuses = await self.statuses() if any(map(self.backend_of, bases)) else {}
        for name, status in statuses.items():
            await self._saw_run(name, status.run)
        return [self.server_of(deployment, statuses) for deployment in deployments]

    def server_of(
        self, deployment: Mapping[str, Any], statuses: Mapping[str, BackendStatus] | None = None
    ) -> Server:
        """The server of one LiteLLM deployment, by its `litellm_params` and `model_info`.

        Of a backend that the supervisor started, each run is a server of its own.
        """
        params, info = deployment.get("litellm_params") or {}, deployment.get("model_info") or {}
        base = params.get("api_base")
        name = self.backend_of(base)
        if name is not None:
            backend = self.config.backends[name]
            status = (statuses or {}).get(name)
            return Server(
                id=f"{name}@{self._runs.get(name, '')}",
                label=name,
                slots=backend.slots,
                prefill_tokens_per_s=backend.speeds.prefill_tokens_per_s
                or DEFAULT_PREFILL_TOKENS_PER_S,
                ready=status is None or status.state in ("ready", "stopped"),
            )
        parts = urlsplit(base or "")
        label = parts.netloc.rpartition("@")[2] or str(info.get("id") or "")
        slots = params.get("max_parallel_requests")
        return Server(
            id=_foreign_id(label),
            label=label,
            slots=slots if isinstance(slots, int) and slots > 0 else _FOREIGN_SLOTS,
            prefill_tokens_per_s=DEFAULT_PREFILL_TOKENS_PER_S,
        )

    async def statuses(self) -> dict[str, BackendStatus]:
        """What the supervisor says of each backend; nothing where it does not answer soon."""

        async def ask() -> tuple[BackendStatus, ...]:
            client = await asyncio.to_thread(self.supervisor)
            return await client.status_async()

        try:
            found = await asyncio.wait_for(ask(), _STATUS_LIMIT_S)
        except (RuntimeError, OSError, asyncio.TimeoutError) as error:
            reason = str(error) or type(error).__name__
            log.warning("the supervisor did not say which backends run: %s", reason)
            return {}
        return {status.name: status for status in found}

    async def _saw_run(self, name: str, run: str) -> None:
        """Another run of a backend than the last one seen: that one's cache is gone."""
        before = self._runs.get(name, "")
        self._runs[name] = run
        if before and before != run:
            await self.affinity.gone(f"{name}@{before}")

    def start_eager(self) -> None:
        """Take the supervisor's lease now where a backend is to start with the proxy."""
        if any(backend.start == "eager" for backend in self.config.backends.values()):
            threading.Thread(target=self._connect_quietly, daemon=True).start()

    def _connect_quietly(self) -> None:
        try:
            self.supervisor()
        except Exception as error:
            log.error("flashlane: the supervisor did not start: %s", error)

    def finish(self, flight: Flight, status: Status, error: str = "") -> None:
        """Write the flight's record, once. A log that cannot be written loses no request."""
        if not self.flights.end(flight):
            return
        if status in ("ok", "disconnected"):
            self.learning.answered(flight, self.config, whole=status == "ok")
        record = flight.record(status, error, store_text=self.config.route_log.store_text)
        try:
            self.route_log.write(record)
        except Exception as failure:
            log.error("flashlane: route log %s: %s", self.route_log.path, failure)

    def answered(self, flight: Flight) -> None:
        """The client has its answer: the record waits for nothing but LiteLLM's log event."""
        self.learning.answered(flight, self.config)
        if flight.check is not None:
            flight.check.settled = True
            if flight.check.complete:
                self.finish(flight, "ok")
                return
        self.finish_soon(flight)

    def finish_soon(self, flight: Flight) -> None:
        """Finish as `ok` when the log event with the cost has not done it within some seconds."""

        async def wait() -> None:
            await asyncio.sleep(_COST_WAIT_S)
            self.finish(flight, "ok")

        self.soon(wait())

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` without anybody waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def runtime() -> Runtime:
    """This process's runtime, built on first use from the config that LiteLLM was given."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime(_config_path())
            atexit.register(_runtime.learning.file.close)
            _runtime.start_eager()
            _runtime.reloader.start()
        return _runtime


def runtime_or_none() -> Runtime | None:
    """`runtime()` for a hook that must not lose its request: None, and a line in the log, where
    the runtime cannot be built."""
    try:
        return runtime()
    except Exception as error:
        log.error("flashlane does nothing for this request: %s", error)
        return None


def sole(hook: Callable[[], T]) -> T:
    """The one instance of a hook class in this process, however often its file is executed."""
    key = getattr(hook, "__qualname__", str(hook))
    with _lock:
        if key not in _hooks:
            _hooks[key] = hook()
        return _hooks[key]  # type: ignore[return-value]


def _foreign_id(label: str) -> str:
    """Another host's loopback is another server."""
    loopback = is_loopback(urlsplit(f"//{label}").hostname or "")
    return f"{socket.gethostname()}/{label}" if loopback else label


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return pid > 0


def _config_path() -> Path:
    named = os.environ.get("FLASHLANE_CONFIG") or _litellm_config_path()
    if not named:
        raise RuntimeError(
            "flashlane: no config file is known; start LiteLLM with --config FILE "
            "or set FLASHLANE_CONFIG"
        )
    return config_file(Path(named))


def _litellm_redis() -> RedisCache | None:
    """The Redis that LiteLLM's router shares its counts through, where its config names one."""
    from litellm.proxy import proxy_server

    cache: Any = getattr(getattr(proxy_server, "llm_router", None), "cache", None)
    found: RedisCache | None = getattr(cache, "redis_cache", None)
    return found


def _litellm_config_path() -> str | None:
    from litellm.proxy import proxy_server

    path: Any = getattr(proxy_server, "user_config_file_path", None)
    return path if isinstance(path, str) else os.environ.get("CONFIG_FILE_PATH")
