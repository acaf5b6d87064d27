"""What each server is thought to hold in its cache: links of prompts, by when they were last used.

Kept in this process, and shared with other proxies through Redis where LiteLLM has one. Both are
bounded by count and by age, least recently used first, as the caches of the servers are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

log = logging.getLogger("flashlane.affinity")

_MAX_SERVERS = 256
_MAX_FLIGHT_S = 600.0
"""A request that has not ended by then is not counted: its end may have been lost."""
_REDIS_LIMIT_S = 1.0
_REDIS_PAUSE_S = 5.0
_KEY = "flashlane:affinity"

T = TypeVar("T")
Scores = Sequence[float | None]
"""For each link when a server used it last, in Unix seconds; None where it does not hold it."""


@dataclass(frozen=True)
class Knowledge:
    """What is known of one server: `scores` of the links asked for, and its running requests."""

    scores: Scores
    in_flight: int


class RedisCache(Protocol):
    """The part of LiteLLM's Redis cache that is used here."""

    def init_async_client(self) -> Any: ...
    def check_and_fix_namespace(self, key: str) -> str: ...


@dataclass
class LocalHoldings:
    """The memory of one process. Times are passed in, in Unix seconds."""

    max_links: int
    ttl_s: float
    _held: OrderedDict[str, OrderedDict[bytes, float]] = field(default_factory=OrderedDict)
    _running: dict[str, dict[str, float]] = field(default_factory=dict)

    def look(self, server: str, links: Sequence[bytes], now: float) -> Knowledge:
        oldest = now - self.ttl_s
        held: Mapping[bytes, float] = self._held.get(server) or {}
        scores = [held.get(link) for link in links]
        running = self._running.get(server)
        if running:
            for flight in [f for f, since in running.items() if since < now - _MAX_FLIGHT_S]:
                del running[flight]
        return Knowledge(
            [None if score is None or score < oldest else score for score in scores],
            len(running or ()),
        )

    def last_use(self, server: str, link: bytes, now: float) -> float | None:
        """When `server` used `link` last; None where it does not hold it."""
        held = self._held.get(server)
        score = held.get(link) if held else None
        return None if score is None or score < now - self.ttl_s else score

    def remember(self, server: str, links: Sequence[bytes], now: float) -> None:
        held = self._held.setdefault(server, OrderedDict())
        self._held.move_to_end(server)
        for link in links:
            held[link] = now
            held.move_to_end(link)
        while len(held) > self.max_links or next(iter(held.values()), now) < now - self.ttl_s:
            held.popitem(last=False)
        while len(self._held) > _MAX_SERVERS:
            self._held.popitem(last=False)

    def forget_until(self, server: str, last: float) -> None:
        """Drop what `server` has not used since `last`, that moment included."""
        held = self._held.get(server)
        while held and next(iter(held.values())) <= last:
            held.popitem(last=False)

    def forget(self, server: str) -> None:
        self._held.pop(server, None)
        self._running.pop(server, None)

    def enter(self, server: str, flight: str, now: float) -> None:
        self._running.setdefault(server, {})[flight] = now

    def leave(self, server: str, flight: str) -> None:
        running = self._running.get(server)
        if running is not None:
            running.pop(flight, None)
            if not running:
                del self._running[server]

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))


class SharedHoldings:
    """The same in Redis: a sorted set of links for each server, and one of its running requests.

    Methods raise whatever the Redis client raises.
    """

    def __init__(self, cache: RedisCache, max_links: int, ttl_s: float) -> None:
        self._cache = cache
        self._max_links = max_links
        self._ttl_s = ttl_s

    async def look(
        self, servers: Sequence[str], links: Sequence[bytes], now: float
    ) -> list[Knowledge]:
        async with self._pipeline() as pipe:
            for server in servers:
                pipe.zcount(self._running(server), now, "+inf")
            for server in servers if links else ():
                pipe.zmscore(self._links(server), list(links))
            replies = await pipe.execute()
        oldest = now - self._ttl_s
        running, scores = replies[: len(servers)], replies[len(servers) :]
        return [
            Knowledge([None if s is None or s < oldest else s for s in found], count)
            for count, found in zip(running, scores or [[]] * len(servers), strict=True)
        ]

    async def remember(self, server: str, links: Sequence[bytes], now: float) -> None:
        key = self._links(server)
        async with self._pipeline() as pipe:
            pipe.zadd(key, dict.fromkeys(links, now))
            pipe.zremrangebyscore(key, "-inf", now - self._ttl_s)
            pipe.zremrangebyrank(key, 0, -self._max_links - 1)
            pipe.expire(key, int(self._ttl_s) + 1)
            await pipe.execute()

    async def forget_until(self, server: str, last: float) -> None:
        await self._cache.init_async_client().zremrangebyscore(self._links(server), "-inf", last)

    async def forget(self, server: str) -> None:
        client = self._cache.init_async_client()
        await client.delete(self._links(server), self._running(server))

    async def enter(self, server: str, flight: str, now: float) -> None:
        key = self._running(server)
        async with self._pipeline() as pipe:
            pipe.zadd(key, {flight: now + _MAX_FLIGHT_S})
            pipe.zremrangebyscore(key, "-inf", now)
            pipe.expire(key, int(_MAX_FLIGHT_S) + 1)
            await pipe.execute()

    async def leave(self, server: str, flight: str) -> None:
        await self._cache.init_async_client().zrem(self._running(server), flight)

    def _pipeline(self) -> Any:
        return self._cache.init_async_client().pipeline(transaction=False)

    def _links(self, server: str) -> str:
        return self._cache.check_and_fix_namespace(f"{_KEY}:held:{server}")

    def _running(self, server: str) -> str:
        return self._cache.check_and_fix_namespace(f"{_KEY}:running:{server}")


class Holdings:
    """One memory for all proxies while Redis answers, this process's own while it does not.

    What this process learns goes to both. A Redis that failed is left alone for some seconds.
    """

    def __init__(
        self,
        max_links: int,
        ttl_s: float,
        redis: Callable[[], RedisCache | None] = lambda: None,
        redis_limit_s: float = _REDIS_LIMIT_S,
    ) -> None:
        self.local = LocalHoldings(max_links, ttl_s)
        self._redis = redis
        self._redis_limit_s = redis_limit_s
        self._paused_until = 0.0

    async def look(
        self, servers: Sequence[str], links: Sequence[bytes], now: float
    ) -> list[Knowledge]:
        async def ask(shared: SharedHoldings) -> list[Knowledge]:
            return await shared.look(servers, links, now)

        return await self._shared(ask) or [
            self.local.look(server, links, now) for server in servers
        ]

    async def remember(self, server: str, links: Sequence[bytes], now: float) -> None:
        if links:
            self.local.remember(server, links, now)
            await self._shared(lambda shared: shared.remember(server, links, now))

    async def forget_until(self, server: str, last: float) -> None:
        self.local.forget_until(server, last)
        await self._shared(lambda shared: shared.forget_until(server, last))

    async def forget(self, server: str) -> None:
        self.local.forget(server)
        await self._shared(lambda shared: shared.forget(server))

    async def enter(self, server: str, flight: str, now: float) -> None:
        self.local.enter(server, flight, now)
        await self._shared(lambda shared: shared.enter(server, flight, now))

    async def leave(self, server: str, flight: str) -> None:
        self.local.leave(server, flight)
        await self._shared(lambda shared: shared.leave(server, flight))

    async def _shared(self, ask: Callable[[SharedHoldings], Awaitable[T]]) -> T | None:
        """The answer of Redis; None where there is none, or where it fails: never an error."""
        if time.monotonic() < self._paused_until:
            return None
        try:
            cache = self._redis()
            if cache is None:
                return None
            shared = SharedHoldings(cache, self.local.max_links, self.local.ttl_s)
            return await asyncio.wait_for(ask(shared), self._redis_limit_s)
        except Exception as error:
            # The client's errors share no class, and one that is new must not cost a request.
            self._paused_until = time.monotonic() + _REDIS_PAUSE_S
            log.warning(
                "affinity goes on without Redis for %.0f s: %s",
                _REDIS_PAUSE_S,
                type(error).__name__,
            )
            return None
