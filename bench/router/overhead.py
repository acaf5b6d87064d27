"""What the plugins add to LiteLLM: two proxies before one engine that answers at once, in turn.

One proxy has the three plugins, the other is LiteLLM with the same models and no plugin. The
engine's own time is left out on purpose: beside a real one, what the plugins add would vanish.
"""

from __future__ import annotations

import asyncio
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
import yaml

from bench.process import ServerError
from bench.results import ROOT
from bench.router.context import SMALL, Context, own_state
from bench.router.instant import CHUNKS
from bench.store import Json, Record
from flashlane.serve import Proxy, free_port, running_proxy

WITH, WITHOUT = "plugins", "LiteLLM alone"
KINDS = ("short", "long", "stream")
_LONG_CHARS = 16_000
_ROUNDS = 12
_REQUESTS: Mapping[str, int] = {"short": 40, "long": 40, "stream": 6}
"""Of one kind in one round, one after another."""
_AT_ONCE = 8
_CROWD = 120
"""Requests of one round that are sent `_AT_ONCE` at a time."""
_LIMIT_S = 120.0


@dataclass(frozen=True)
class Round:
    """One proxy's part of one round. `ms`: the median request; `cpu_ms`: the proxy's processor time
    for one request. Both for a chunk where the kind is `stream`. `per_s` of a crowd, else 0."""

    proxy: str
    kind: str
    number: int
    ms: float
    cpu_ms: float
    per_s: float = 0.0


def measure(context: Context) -> list[Round]:
    """One run is measured as a whole: an interrupted one begins again."""
    rounds = min(_ROUNDS, context.options.quick or _ROUNDS)

    def hold() -> Record:
        found: list[Json] = [asdict(row) for row in _run(context, rounds)]
        return {"rows": found}

    rows = context.store.case(context.key("overhead", rounds=rounds), hold)["rows"]
    assert isinstance(rows, list)
    return [Round(**row) for row in rows if isinstance(row, dict)]  # type: ignore[arg-type]


def added(rows: Sequence[Round], kind: str, field: str = "ms") -> float | None:
    """Median over the rounds of (with / without - 1)."""
    pairs: dict[int, dict[str, float]] = {}
    for row in rows:
        if row.kind == kind:
            pairs.setdefault(row.number, {})[row.proxy] = getattr(row, field)
    ratios = [pair[WITH] / pair[WITHOUT] for pair in pairs.values() if pair.get(WITHOUT)]
    return median(ratios) - 1.0 if ratios else None


def summary(rows: Sequence[Round]) -> list[Json]:
    found: list[Json] = []
    for kind in dict.fromkeys(row.kind for row in rows):
        for proxy in (WITHOUT, WITH):
            these = [row for row in rows if (row.kind, row.proxy) == (kind, proxy)]
            found.append(
                {
                    "kind": kind,
                    "proxy": proxy,
                    "rounds": len(these),
                    "ms": round(median(row.ms for row in these), 4),
                    "cpu_ms": round(median(row.cpu_ms for row in these), 4),
                    "requests_per_s": round(median(row.per_s for row in these), 2),
                }
            )
    return found


def _run(context: Context, rounds: int) -> list[Round]:
    rows: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="overhead-") as name, _proxies(context, name) as both:
        bodies = _bodies()
        for proxy in both.values():  # caches, imports, first connections
            for kind in KINDS:
                asyncio.run(_one_by_one(proxy, bodies[kind], 10))
        for number in context.cases("overhead", range(rounds), limit=False):
            order = list(both) if number % 2 else list(both)[::-1]
            for kind in KINDS:
                rows += [_round(name, both[name], kind, number, bodies[kind]) for name in order]
            rows += [_crowd(name, both[name], number, bodies["short"]) for name in order]
    return rows


def _round(name: str, proxy: Proxy, kind: str, number: int, body: Mapping[str, Any]) -> Round:
    count = _REQUESTS[kind]
    parts = CHUNKS if kind == "stream" else 1
    cpu = _cpu_s(proxy)
    times = asyncio.run(_one_by_one(proxy, body, count))
    cpu_ms = 1e3 * (_cpu_s(proxy) - cpu) / (count * parts)
    return Round(name, kind, number, 1e3 * median(times) / parts, cpu_ms)


def _crowd(name: str, proxy: Proxy, number: int, body: Mapping[str, Any]) -> Round:
    cpu, started = _cpu_s(proxy), time.monotonic()
    times = asyncio.run(_at_once(proxy, body, _CROWD))
    per_s = _CROWD / (time.monotonic() - started)
    cpu_ms = 1e3 * (_cpu_s(proxy) - cpu) / _CROWD
    return Round(name, "crowd", number, 1e3 * median(times), cpu_ms, per_s)


async def _one_by_one(proxy: Proxy, body: Mapping[str, Any], count: int) -> list[float]:
    async with _client(proxy) as client:
        return [await _send(client, body) for _ in range(count)]


async def _at_once(proxy: Proxy, body: Mapping[str, Any], count: int) -> list[float]:
    waiting = asyncio.Semaphore(_AT_ONCE)

    async def send(client: httpx.AsyncClient) -> float:
        async with waiting:
            return await _send(client, body)

    async with _client(proxy) as client:
        return await asyncio.gather(*(send(client) for _ in range(count)))


async def _send(client: httpx.AsyncClient, body: Mapping[str, Any]) -> float:
    """Seconds until the whole answer was read."""
    started = time.monotonic()
    answer = await client.post("/v1/chat/completions", json=dict(body))
    if answer.is_error:
        raise ServerError(f"the proxy answered {answer.status_code}: {answer.text[:500]}")
    return time.monotonic() - started


def _client(proxy: Proxy) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {proxy.key}"}
    return httpx.AsyncClient(base_url=proxy.base_url, headers=headers, timeout=_LIMIT_S)


def _cpu_s(proxy: Proxy) -> float:
    times = psutil.Process(proxy.process.pid).cpu_times()
    return float(times.user + times.system)


def _bodies() -> dict[str, dict[str, Any]]:
    text = "The harbour office notes arrivals, cargo and weather of each day. "
    long = (text * (_LONG_CHARS // len(text) + 1))[:_LONG_CHARS]
    return {
        "short": _body("What is the name of the harbour?"),
        "long": _body(f"{long}\n\nWhich ship came first?"),
        "stream": {**_body("What is the name of the harbour?"), "stream": True},
    }


def _body(content: str) -> dict[str, Any]:
    return {"model": "local", "messages": [{"role": "user", "content": content}]}


@contextmanager
def _proxies(context: Context, folder: str) -> Iterator[dict[str, Proxy]]:
    """Both, up at the same time; the one with plugins starts the engine that both ask."""
    port = free_port()
    engine = _engine(Path(folder))
    with ExitStack() as stack:
        both = {}
        for name, plugins in ((WITH, True), (WITHOUT, False)):
            home = Path(folder) / name.replace(" ", "-")
            config = _config(context, home, engine, port, plugins=plugins)
            # Read at the start of a proxy and of its supervisor, not later.
            with own_state(home / "state"):
                both[name] = stack.enter_context(running_proxy(config, free_port()))
        yield both


def _engine(folder: Path) -> Path:
    """A program that takes llama-server's arguments."""
    program = folder / "instant"
    code = ROOT / "bench" / "router" / "instant.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{code}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _config(context: Context, home: Path, engine: Path, port: int, *, plugins: bool) -> Path:
    """The repository's own config before another engine; without plugins, LiteLLM's part of it."""
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    for entry in document["model_list"]:
        entry["litellm_params"]["api_base"] = f"http://127.0.0.1:{port}/v1"
    if plugins:
        backend = document["flashlane"]["backends"]["local"]
        backend |= {"model": str(context.model(SMALL)), "port": port, "server": str(engine)}
        backend["start"] = "eager"
    else:
        del document["litellm_settings"]["callbacks"]
        document["flashlane"] = {}
    home.mkdir(parents=True)
    (home / "plugins").symlink_to(ROOT / "plugins")
    path = home / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
