"""Sends a prompt to the deployment that holds its longest beginning, and learns from the answers.

Nothing here is certain: a cache may have been evicted, a server may have ended. Every answer says
how many tokens it found, and what it says overrules what was remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flashlane.config import AffinityConfig
from flashlane.holdings import Holdings, Knowledge, RedisCache
from flashlane.placement import Candidate, Placement, place
from flashlane.prefix import Chain
from flashlane.request import Kind

_LEARNING_RATE = 0.25
_MUCH_TOKENS = 128
"""A beginning this long is missed when it is not found; less is within an estimate's error."""
_LOST_SHARE = 0.25
_MEASURABLE_TOKENS = 64
"""Prefill of fewer tokens says little of its speed."""
_TAG_BYTES = 8


@dataclass(frozen=True)
class Server:
    """What answers for a deployment. `id` names one run of it: a restarted server is another one.

    `ready`: neither starting nor failed, as far as its supervisor knows.
    """

    id: str
    label: str
    slots: int
    prefill_tokens_per_s: float
    ready: bool = True


@dataclass(frozen=True)
class Belief:
    """Tokens that a server was thought to hold, and when it used them last (Unix seconds)."""

    tokens: int
    last_used: float


@dataclass
class Trip:
    """One request on its way through the deployments of a group."""

    flight_id: str
    kind: Kind
    group: str
    chain: Chain
    hint: bytes = b""
    form: str = ""
    """In what form the prompt is read: two that are shortened differently share no cache."""
    server: Server | None = None
    tried: set[str] = field(default_factory=set)
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    prompt_estimate: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_estimate = self.chain.total_tokens


@dataclass(frozen=True)
class Measured:
    """What an answer told of itself; None where nothing was said. Times in ms."""

    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    processed_tokens: int | None = None
    prefill_ms: float | None = None
    busy_ms: float | None = None


@dataclass
class _Pace:
    """What was learned of one deployment, over all its runs: running means."""

    prefill_tokens_per_s: float | None = None
    busy_ms: float | None = None
    tokens_per_estimate: float | None = None
    trust: float = 1.0


class Affinity:
    """The shell around `place`: asks the memory and tells it what happened. `now` is Unix time."""

    def __init__(
        self, config: AffinityConfig, redis: Callable[[], RedisCache | None] = lambda: None
    ) -> None:
        self._config = config
        self._paces: dict[str, _Pace] = {}
        self.holdings = Holdings(config.max_links, config.ttl_s, redis)

    def limit(self, config: AffinityConfig) -> None:
        """Keep to the bounds of `config` from now on; what is held beyond them goes with use."""
        self._config = config
        self.holdings.local.max_links = config.max_links
        self.holdings.local.ttl_s = config.ttl_s

    async def choose(self, trip: Trip, servers: Sequence[Server], now: float) -> Placement:
        """Where the request goes among the servers of `trip.group`, at least one.

        A server that was tried before goes to the end of the line, and so does one that is not
        ready, while there is another.
        """
        if trip.server is not None:
            await self.left(trip)
        servers = [s for s in servers if s.label not in trip.tried] or servers
        servers = [s for s in servers if s.ready] or servers
        keys = _keys(trip)
        known = await self.holdings.look([server.id for server in servers], keys, now)
        paces = [self._pace(server) for server in servers]
        scale = _average(pace.tokens_per_estimate for pace in paces) or 1.0
        # Who has answered nothing yet is thought to be like the others.
        usual_speed = _average(pace.prefill_tokens_per_s for pace in paces)
        usual_ms = _average(pace.busy_ms for pace in paces)
        speeds = [
            pace.prefill_tokens_per_s or usual_speed or server.prefill_tokens_per_s
            for pace, server in zip(paces, servers, strict=True)
        ]
        beliefs = [_belief(trip, found, scale) for found in known]
        hinted = _last_hinted(trip, known)
        prompt_tokens = max(1, round(scale * trip.prompt_estimate))
        candidates = [
            Candidate(
                label=server.label,
                held_tokens=belief.tokens if belief else 0,
                in_flight=found.in_flight,
                slots=server.slots,
                expected_ms=pace.busy_ms or usual_ms or 1000.0 * prompt_tokens / speed,
                prefill_tokens_per_s=speed,
                trust=pace.trust,
                hinted=number == hinted,
            )
            for number, (server, found, pace, belief, speed) in enumerate(
                zip(servers, known, paces, beliefs, speeds, strict=True)
            )
        ]
        trip.beliefs = {
            server.id: belief for server, belief in zip(servers, beliefs, strict=True) if belief
        }
        placement = place(prompt_tokens, candidates, self._config.min_saving_ms)
        if len(placement.labels) == 1:
            await self.sent(trip, next(s for s in servers if s.label in placement.labels), now)
        return placement

    async def sent(self, trip: Trip, server: Server, now: float) -> None:
        """The request goes to `server` now, whoever chose it."""
        trip.tried.add(server.label)
        if trip.server is not None and trip.server.id == server.id:
            return
        await self.left(trip)
        trip.server = server
        await self.holdings.enter(server.id, trip.flight_id, now)

    async def answered(self, trip: Trip, measured: Measured, now: float) -> None:
        """The server has the chain in its cache now, and perhaps had less than was thought."""
        server = trip.server
        if server is None:
            return
        self._learn(self._pace(server), trip, measured)
        belief = trip.beliefs.get(server.id)
        if belief and self.found(server.label, belief, measured.reused_tokens) < _LOST_SHARE:
            # What it has not used for longer went before.
            await self.holdings.forget_until(server.id, belief.last_used)
        await self.holdings.remember(server.id, _keys(trip), now)
        await self.left(trip)

    def found(self, label: str, belief: Belief, reused_tokens: int | None) -> float:
        """Learn how much of `belief` the server was found to hold: the share, 1.0 if not told."""
        if reused_tokens is None or belief.tokens < _MUCH_TOKENS:
            return 1.0
        found = min(1.0, reused_tokens / belief.tokens)
        pace = self._paces.setdefault(label, _Pace())
        pace.trust = _mean(pace.trust, found)
        return found

    def trust(self, label: str) -> float:
        """How much of what a server is thought to hold is usually found there, from 0 to 1."""
        pace = self._paces.get(label)
        return pace.trust if pace else 1.0

    async def left(self, trip: Trip) -> None:
        """The request is no longer with its server."""
        server, trip.server = trip.server, None
        if server is not None:
            await self.holdings.leave(server.id, trip.flight_id)

    async def gone(self, server_id: str) -> None:
        """The server has ended, and its cache with it."""
        await self.holdings.forget(server_id)

    def _pace(self, server: Server) -> _Pace:
        return self._paces.setdefault(server.label, _Pace())

    def _learn(self, pace: _Pace, trip: Trip, measured: Measured) -> None:
        tokens, ms = measured.processed_tokens, measured.prefill_ms
        if tokens and ms and tokens >= _MEASURABLE_TOKENS:
            pace.prefill_tokens_per_s = _mean(pace.prefill_tokens_per_s, 1000.0 * tokens / ms)
        if measured.busy_ms is not None:
            pace.busy_ms = _mean(pace.busy_ms, measured.busy_ms)
        if measured.prompt_tokens and trip.prompt_estimate >= _MEASURABLE_TOKENS:
            scale = measured.prompt_tokens / trip.prompt_estimate
            pace.tokens_per_estimate = _mean(pace.tokens_per_estimate, scale)


def _average(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + _LEARNING_RATE * (value - before)


def hint_of(owner: str, cache_key: object) -> bytes:
    """The name of a client's `prompt_cache_key`, which is its owner's alone; empty for none."""
    if not isinstance(cache_key, str) or not cache_key:
        return b""
    fields = b"\xff".join(text.encode("utf-8", "surrogatepass") for text in (owner, cache_key))
    return hashlib.blake2b(fields, digest_size=16, person=b"cache_key").digest()


def tag_of(group: str, form: str = "") -> bytes:
    """What a link is remembered with: a group is a model, and each has caches of its own."""
    name = f"{group}\0{form}" if form else group
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_TAG_BYTES).digest()


def _keys(trip: Trip) -> list[bytes]:
    """The links as they are remembered."""
    tag = tag_of(trip.group, trip.form)
    names = [*trip.chain.links, trip.hint] if trip.hint else trip.chain.links
    return [name + tag for name in names]


def _belief(trip: Trip, known: Knowledge, scale: float) -> Belief | None:
    """The longest beginning with a score."""
    for number in range(len(trip.chain.links) - 1, -1, -1):
        score = known.scores[number]
        if score is not None:
            return Belief(round(scale * trip.chain.tokens[number]), score)
    return None


def _last_hinted(trip: Trip, known: Sequence[Knowledge]) -> int | None:
    """Which of the servers served the client's cache key last."""
    if not trip.hint:
        return None
    scores = [(found.scores[-1] or 0.0, number) for number, found in enumerate(known)]
    score, number = max(scores)
    return number if score else None
