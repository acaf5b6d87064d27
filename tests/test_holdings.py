"""The memory of what servers hold: alike in one process and in Redis, bounded, never an error."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
import redis.asyncio

from flashlane.holdings import Holdings, LocalHoldings

LINKS = [bytes([number]) * 24 for number in range(5)]


class Cache:
    """LiteLLM's Redis cache, as far as it is used."""

    def __init__(self, port: int) -> None:
        self._port = port

    def init_async_client(self) -> redis.asyncio.Redis:
        return redis.asyncio.Redis(port=self._port)

    def check_and_fix_namespace(self, key: str) -> str:
        return f"proxy:{key}"


class RedisServer(Protocol):
    port: int
    process: subprocess.Popen[bytes]


@pytest.fixture(params=["local", "redis"])
def holdings(request: pytest.FixtureRequest) -> Holdings:
    if request.param == "local":
        return Holdings(max_links=4, ttl_s=100.0)
    port = request.getfixturevalue("redis_server").port
    asyncio.run(redis.asyncio.Redis(port=port).flushall())
    found = Holdings(max_links=4, ttl_s=100.0, redis=lambda: Cache(port), redis_limit_s=20.0)
    found.local = Forgetful(4, 100.0)
    return found


class Forgetful(LocalHoldings):
    """What Redis is asked for must come from Redis."""

    def look(self, *args: Any) -> Any:
        raise AssertionError("the local memory was asked")


def known(holdings: Holdings, server: str, now: float = 0.0) -> list[int]:
    """Which of `LINKS` the server is thought to hold."""
    (found,) = asyncio.run(holdings.look([server], LINKS, now))
    return [number for number, score in enumerate(found.scores) if score is not None]


def running(holdings: Holdings, server: str, now: float = 0.0) -> int:
    (found,) = asyncio.run(holdings.look([server], [], now))
    return found.in_flight


def run(work: Awaitable[None]) -> None:
    async def wait() -> None:
        await work

    asyncio.run(wait())


def test_each_server_holds_what_it_served(holdings: Holdings) -> None:
    run(holdings.remember("a", LINKS[:3], 1.0))
    run(holdings.remember("b", LINKS[2:4], 2.0))
    found = asyncio.run(holdings.look(["a", "b"], LINKS, 2.0))
    assert [list(one.scores) for one in found] == [
        [1.0, 1.0, 1.0, None, None],
        [None, None, 2.0, 2.0, None],
    ]


def test_the_least_recently_used_go_first(holdings: Holdings) -> None:
    run(holdings.remember("a", LINKS[:2], 1.0))
    run(holdings.remember("a", LINKS[2:4], 2.0))
    run(holdings.remember("a", LINKS[:1], 3.0))
    run(holdings.remember("a", LINKS[4:], 4.0))
    assert known(holdings, "a") == [0, 2, 3, 4]


def test_what_is_old_is_not_known(holdings: Holdings) -> None:
    run(holdings.remember("a", LINKS[:1], 1.0))
    run(holdings.remember("a", LINKS[1:2], 60.0))
    assert known(holdings, "a", now=101.0) == [0, 1]
    assert known(holdings, "a", now=101.5) == [1]
    run(holdings.remember("a", LINKS[2:3], 300.0))
    assert known(holdings, "a", now=100.0) == [2]


def test_forgetting(holdings: Holdings) -> None:
    for number, now in enumerate((1.0, 2.0, 3.0)):
        run(holdings.remember("a", LINKS[number : number + 1], now))
    run(holdings.remember("b", LINKS[:1], 1.0))
    run(holdings.forget_until("a", 2.0))
    assert known(holdings, "a") == [2]
    run(holdings.forget("a"))
    assert known(holdings, "a") == []
    assert known(holdings, "b") == [0]


def test_running_requests_are_counted_and_time_out(holdings: Holdings) -> None:
    for flight in ("x", "y", "y"):
        run(holdings.enter("a", flight, 1000.0))
    assert running(holdings, "a", now=1000.0) == 2
    assert running(holdings, "b", now=1000.0) == 0
    run(holdings.leave("a", "x"))
    run(holdings.leave("a", "never there"))
    assert running(holdings, "a", now=1500.0) == 1
    assert running(holdings, "a", now=1601.0) == 0


def test_redis_keys_carry_the_proxys_namespace_and_expire(redis_server: RedisServer) -> None:
    port = redis_server.port
    holdings = Holdings(max_links=4, ttl_s=100.0, redis=lambda: Cache(port), redis_limit_s=20.0)
    run(holdings.remember("a", LINKS, 1.0))
    run(holdings.enter("a", "x", 1.0))

    async def keys() -> list[tuple[bytes, int]]:
        client = redis.asyncio.Redis(port=port)
        return [(key, await client.ttl(key)) for key in await client.keys("*a")]

    found = dict(asyncio.run(keys()))
    assert set(found) == {b"proxy:flashlane:affinity:held:a", b"proxy:flashlane:affinity:running:a"}
    assert all(0 < ttl <= 601 for ttl in found.values())


def test_two_processes_have_one_memory(redis_server: RedisServer) -> None:
    one, other = (Holdings(9, 100.0, lambda: Cache(redis_server.port), 20.0) for _ in range(2))
    run(one.remember("c", LINKS[:2], 1.0))
    run(one.enter("c", "x", 1.0))
    assert known(other, "c") == [0, 1]
    assert running(other, "c") == 1
    run(other.forget("c"))
    assert known(one, "c") == [] and running(one, "c") == 0


def broken(kind: str) -> Callable[[], Any]:
    def no_cache() -> Any:
        raise RuntimeError("no client")

    return no_cache if kind == "raises" else lambda: Cache(1)


@pytest.mark.parametrize("kind", ["raises", "refuses"])
def test_a_redis_that_fails_is_left_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    holdings = Holdings(max_links=4, ttl_s=100.0, redis=broken(kind))
    run(holdings.remember("a", LINKS[:2], 1.0))
    assert known(holdings, "a") == [0, 1]
    run(holdings.enter("a", "x", 1.0))
    assert running(holdings, "a", now=1.0) == 1
    assert len(caplog.records) == 1  # asked once, then left alone


def test_a_redis_that_stops_answering_costs_a_moment(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    holdings = Holdings(max_links=4, ttl_s=100.0, redis=lambda: Cache(redis_server.port))
    holdings.local.remember("a", LINKS[:2], 1.0)
    redis_server.process.send_signal(signal.SIGSTOP)
    try:
        assert known(holdings, "a") == [0, 1]
        assert "TimeoutError" in caplog.text
    finally:
        redis_server.process.send_signal(signal.SIGCONT)


def test_servers_are_bounded_too() -> None:
    local = LocalHoldings(max_links=4, ttl_s=100.0)
    for number in range(1000):
        local.remember(f"s{number}", LINKS, 1.0)
    assert len(local) <= 4 * 256
