"""How far each backend's drafter can run, as the server itself says in `/props`."""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine

import httpx

from flashlane.gears import limit_in

log = logging.getLogger("flashlane.gears")

_LIMIT_S = 5.0
_AGAIN_S = 5.0
"""A server that did not answer is asked again after this."""


class EngineGears:
    """What is known of each run of a backend. Nobody waits: until then it drafts as it will."""

    def __init__(self) -> None:
        self._limits: dict[str, tuple[str, int]] = {}
        self._asked: dict[str, tuple[str, float]] = {}

    def limit(self, backend: str) -> int:
        """The highest gear; 0 where nothing drafts, or where that is not known."""
        return self._limits.get(backend, ("", 0))[1]

    def asks(
        self, backend: str, run: str, base_url: str, key: str | None
    ) -> Coroutine[None, None, None] | None:
        """What must be awaited to know of `run`; None where it is known or being asked."""
        known, asked = self._limits.get(backend), self._asked.get(backend)
        now = time.monotonic()
        if known is not None and known[0] == run:
            return None
        if asked is not None and asked[0] == run and now - asked[1] < _AGAIN_S:
            return None
        self._asked[backend] = (run, now)
        return self._ask(backend, run, base_url, key)

    async def _ask(self, backend: str, run: str, base_url: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with httpx.AsyncClient(timeout=_LIMIT_S, trust_env=False) as client:
                reply = await client.get(f"{base_url}/props", headers=headers)
                reply.raise_for_status()
                limit = limit_in(reply.json())
        except (httpx.HTTPError, ValueError) as error:
            log.warning("backend %s does not say what drafts: %s", backend, type(error).__name__)
            return
        self._limits[backend] = (run, limit or 0)
