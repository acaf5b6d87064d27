"""The real proxy before the target, and requests to it with their route records."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.process import ServerError
from bench.results import ROOT
from bench.router.context import SCORER, TARGET, Context, own_state
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import Proxy, free_port, running_proxy

_CTX_TOKENS = 8192
_LIMIT_S = 1800.0
_RECORD_LIMIT_S = 30.0
_START_LIMIT_S = 300.0


@dataclass(frozen=True)
class Reply:
    """`ms` is the whole request as the client saw it."""

    text: str
    ms: float
    headers: Mapping[str, str]
    record: RouteRecord


class Served:
    def __init__(self, proxy: Proxy, routes: Path) -> None:
        self._proxy = proxy
        self._routes = RouteLog(routes)

    def ask(self, body: Mapping[str, Any]) -> Reply:
        """One chat request. Raises `ServerError` when it fails or leaves no record."""
        started = time.monotonic()
        answer = httpx.post(
            f"{self._proxy.base_url}/v1/chat/completions",
            headers={"Authorization": f"Bearer {self._proxy.key}"},
            json={"model": "local", "temperature": 0, **body},
            timeout=_LIMIT_S,
        )
        ms = 1e3 * (time.monotonic() - started)
        if answer.is_error:
            raise ServerError(f"the proxy answered {answer.status_code}: {answer.text[:500]}")
        message = answer.json()["choices"][0]["message"]
        headers = {name: value for name, value in answer.headers.items() if "flashlane" in name}
        record = self._record(answer.headers.get("x-litellm-call-id", ""))
        return Reply(str(message.get("content") or ""), ms, headers, record)

    def _record(self, request_id: str) -> RouteRecord:
        deadline = time.monotonic() + _RECORD_LIMIT_S
        while time.monotonic() < deadline:
            for record in self._routes.records():
                if record.request_id == request_id:
                    return record
            time.sleep(0.05)
        raise ServerError(f"request {request_id} left no route record")


@contextmanager
def served(
    context: Context, name: str, policy: Mapping[str, Any], *, kvflash: bool = False
) -> Iterator[Served]:
    """The repository's own config with the target behind it, all three lanes and `policy`."""
    with (
        tempfile.TemporaryDirectory(prefix=f"{name}-") as folder,
        own_state(Path(folder) / "state"),
    ):
        routes = Path(folder) / "routes.sqlite"
        config = _config(context, Path(folder), routes, policy, kvflash=kvflash)
        with running_proxy(config, free_port()) as proxy:
            made = Served(proxy, routes)
            made.ask({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})
            yield made


def _config(
    context: Context, folder: Path, routes: Path, policy: Mapping[str, Any], *, kvflash: bool
) -> Path:
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    port = free_port()
    for entry in document["model_list"]:
        entry["litellm_params"]["api_base"] = f"http://127.0.0.1:{port}/v1"
    ours = document["flashlane"]
    backend = ours["backends"]["local"]
    backend |= {
        "model": str(context.model(TARGET)),
        "port": port,
        "server": str(context.options.server),
        "threads": context.options.threads,
        "start": "eager",
        "context_tokens": _CTX_TOKENS,
        "slots": 1,
        "args": list(context.options.server_args),
        # Speeds of two cores; from the first answers on they are learned.
        "speeds": {"prefill_tokens_per_s": 70, "scorer_tokens_per_s": 400},
    }
    backend["pflash"] |= {
        "score": "model",
        "model": str(context.model(SCORER)),
        "min_tokens": 256,
        "timeout_ms": 120_000,
    }
    if kvflash:
        backend["kvflash"] = {"budget": "auto"}
    ours["lanes"] = {"local": {"pflash": "local-pflash", "verify": "local-pflash"}}
    ours["policy"] |= policy
    ours["route_log"] = {"sqlite": str(routes)}
    (folder / "plugins").symlink_to(ROOT / "plugins")
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
