"""What the backends are doing now, asked of the supervisor and of the servers themselves."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import httpx

from flashlane.backends.channel import BackendStatus
from flashlane.config import BackendConfig
from flashlane.payload import as_mapping

_PROPS_LIMIT_S = 1.0
_POOL = (
    "budget_tokens",
    "resident_tokens",
    "active_tokens",
    "prefixes",
    "misses",
    "evicted",
    "restored_tokens",
    "ram_bytes",
    "disk_bytes",
)
"""Counters of a server's pool that are passed on; its answer may hold anything."""
_TIERS = ("slot", "sibling", "ram", "disk")


async def backends_view(
    backends: Mapping[str, BackendConfig], statuses: Mapping[str, BackendStatus]
) -> list[dict[str, Any]]:
    """Each backend with its state and, where it runs and keeps prefixes, its pool.

    Takes a second at most: a server that does not answer in time is shown without a pool.
    """
    ready = [name for name, status in statuses.items() if status.state == "ready"]
    known = [name for name in ready if name in backends]
    # They are reached by plain HTTP: a context without certificates costs nothing to make.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx.AsyncClient(trust_env=False, verify=context) as client:
        found = await asyncio.gather(*(_pool(client, backends[name]) for name in known))
    pools = dict(zip(known, found, strict=True))
    return [
        _view(name, backend, statuses.get(name), pools.get(name))
        for name, backend in backends.items()
    ]


def _view(
    name: str, backend: BackendConfig, status: BackendStatus | None, pool: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "name": name,
        "state": status.state if status else "unknown",
        "model": PurePath(backend.model).name,
        "slots": backend.slots,
        "context_tokens": backend.context_tokens,
        "starts": status.starts if status else None,
        "error": status.error if status else None,
        "pool": pool,
    }


async def _pool(client: httpx.AsyncClient, backend: BackendConfig) -> dict[str, Any] | None:
    """The counters of a server's KVFlash pool; None where it has none or does not answer."""
    key = os.environ.get(backend.api_key_env) if backend.api_key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = await asyncio.wait_for(
            client.get(f"{backend.base_url}/props", headers=headers), _PROPS_LIMIT_S
        )
        kvflash = as_mapping(as_mapping(reply.json()).get("kvflash"))
    except (httpx.HTTPError, asyncio.TimeoutError, ValueError):
        return None
    pool = as_mapping(kvflash.get("resident_pool"))
    if not pool:
        return None
    hits = as_mapping(pool.get("hits"))
    return {
        "policy": str(kvflash.get("policy"))[:20],
        **{name: _count(pool.get(name)) for name in _POOL},
        "hits": {tier: _count(hits.get(tier)) for tier in _TIERS},
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
