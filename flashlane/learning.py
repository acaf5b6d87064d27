"""What earlier answers taught, brought to a request before its decision, and what it teaches."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flashlane import conversations, speeds
from flashlane.affinity import Affinity, Belief, tag_of
from flashlane.config import Deployment, FlashlaneConfig
from flashlane.conversations import Conversations, Trace
from flashlane.decision import Drafting, Held, LaneOption, Recollection, Signals
from flashlane.flight import Flight
from flashlane.gears import choices_within
from flashlane.lanes import Engine, LanePlan, backend_engine, engine_of, lane_options, lane_plans
from flashlane.policy import keep_ratio_for
from flashlane.prefix import Chain, chain_of
from flashlane.request import Kind, Lane, RequestView
from flashlane.speeds import Figures, Seeds, Speeds, samples_of
from flashlane.statefile import StateFile

log = logging.getLogger("flashlane.learning")

_MAX_PLANS = 1024
_NO_SEEDS = Seeds()
_LOST_SHARE = 0.25


class Places(Protocol):
    """What a process knows of the servers."""

    def server_id(self, engine: Engine) -> str:
        """The run of `engine` that was seen last; empty where it cannot be named."""

    def gear_limit(self, backend: str) -> int:
        """The highest gear of a backend of ours; 0 for none."""


@dataclass(frozen=True)
class Outlook:
    """What is known before a decision. `memory_name` names the conversation's memory."""

    lanes: dict[Lane, LaneOption]
    memory: Recollection | None
    memory_name: str
    belief: Belief | None
    """What the direct lane is thought to hold, whether or not it is usually found."""
    matters: bool
    """Whether what the prompt begins with is worth remembering for others."""


class Learning:
    """One process's share of what all workers know. Nothing here waits for a file or a server."""

    def __init__(self, path: Path, affinity: Affinity) -> None:
        self.file = StateFile(path, speeds.SCRIPT + conversations.SCRIPT)
        self.speeds = Speeds(self.file)
        self.conversations = Conversations(self.file)
        self._affinity = affinity
        self._plans: dict[str, dict[Lane, LanePlan]] = {}
        self._planned_for: FlashlaneConfig | None = None
        self._seeds: dict[str, Seeds] = {}

    def outlook(
        self,
        config: FlashlaneConfig,
        deployments: tuple[Deployment, ...],
        view: RequestView,
        signals: Signals,
        body: Mapping[str, Any],
        owner: str,
        places: Places,
        allowed: Callable[[str], bool],
        asked_gear: int | None = None,
    ) -> Outlook:
        """What each lane of `view` is worth now, and what is known of its conversation.

        `body` is what the client's prompt is read from, and `owner` names who sent it.
        """
        plans = self._plans_of(config, deployments, view.model)
        figures = self.speeds.figures()
        memory, name, belief = None, "", None
        cached: dict[Lane, int] = {}
        if len(plans) > 1:
            now = time.time()
            name = memory_name(owner, view)
            if name:
                memory = self.conversations.recall(
                    name, now, config.affinity.ttl_s, _living(plans, places, config)
                )
            held = _held_in(memory)
            if memory is None and _matters(view, config):
                forms = {
                    lane: form_of(keep_ratio_for(lane, view, signals, config.policy))
                    for lane in plans
                }
                held = self._walk(plans, forms, body, view.kind, places, now)
            belief = held.get("direct")
            trust = {lane: self._trust(plans[lane]) for lane in held if lane in plans}
            if memory is None:
                cached = {lane: round(of.tokens * trust[lane]) for lane, of in held.items()}
            memory = _trusted(memory, trust)
        return Outlook(
            lane_options(
                plans,
                allowed,
                figures,
                cached,
                self._drafting(config, plans, figures, places, asked_gear),
            ),
            memory,
            name,
            belief,
            len(plans) > 1 and _matters(view, config),
        )

    def reached(
        self,
        flight: Flight,
        config: FlashlaneConfig,
        deployments: tuple[Deployment, ...],
        group: str,
        api_base: str | None,
        server: str,
    ) -> None:
        """The flight goes to the deployment of `group` at `api_base` now, whose run is `server`."""
        engine = _engine_at(config, deployments, group, api_base)
        if engine is not None:
            self._seeds[engine.name] = engine.seeds
        flight.reached(group, engine.name if engine else "", server)

    async def name_beginnings(self, flight: Flight, body: Mapping[str, Any], kind: Kind) -> None:
        """What the flight's prompt begins with, so that its server is known to hold it later."""
        try:
            flight.chain = chain_of(body, kind)
        except Exception as error:
            log.error("a prompt's beginnings cannot be named: %s", type(error).__name__)

    def answered(self, flight: Flight, config: FlashlaneConfig, *, whole: bool = True) -> None:
        """Take in, once, what the flight's answer tells; not `whole` if its client has left."""
        if flight.learned or flight.decision is None:
            return
        flight.learned = True
        try:
            if whole and flight.engine:
                self.speeds.learn(self._samples(flight, config))
            if whole or (flight.first_chunk is not None and flight.check is None):
                self._remember(flight, time.time())
        except Exception as error:
            # Nothing that is learned is worth a request.
            log.error("nothing is learned from an answer: %s", type(error).__name__)

    def _samples(self, flight: Flight, config: FlashlaneConfig) -> list[speeds.Sample]:
        seeds = self._seeds.get(flight.engine, _NO_SEEDS)
        if flight.whole and config.compressor is not None:
            scorer = backend_engine(config, config.compressor)
            return samples_of(flight, flight.engine, seeds, scorer.name, scorer.seeds)
        return samples_of(flight, flight.engine, seeds)

    def _remember(self, flight: Flight, now: float) -> None:
        decision, server = flight.decision, flight.servers.get(flight.group)
        if decision is None or not server:
            return
        if flight.memory:
            self.conversations.remember(flight.memory, *traces_of(flight, now))
        if flight.trip is not None:
            return  # its affinity learns the rest
        local = self._affinity.holdings.local
        direct = decision.lane == "direct" or flight.group != decision.group
        prompt, reused = flight.prompt_tokens, flight.measured().reused_tokens
        if flight.belief and direct and prompt and reused is not None and flight.check is None:
            scale = max(decision.estimated_tokens, 1) / prompt
            share = self._affinity.found(label_of(server), flight.belief, round(scale * reused))
            if share < _LOST_SHARE:
                local.forget_until(server, flight.belief.last_used)
        if flight.chain is not None:
            form = form_of(1.0 if direct else decision.keep_ratio)
            tag = tag_of(flight.group, form)
            local.remember(server, [link + tag for link in flight.chain.links], now)

    def _plans_of(
        self, config: FlashlaneConfig, deployments: tuple[Deployment, ...], model: str
    ) -> dict[Lane, LanePlan]:
        if config is not self._planned_for or len(self._plans) > _MAX_PLANS:
            self._plans, self._planned_for = {}, config
        found = self._plans.get(model)
        if found is None:
            found = self._plans[model] = lane_plans(config, deployments, model)
        return found

    def _trust(self, plan: LanePlan) -> float:
        return max([self._affinity.trust(engine.label) for engine in plan.engines], default=1.0)

    def _walk(
        self,
        plans: Mapping[Lane, LanePlan],
        forms: Mapping[Lane, str],
        body: Mapping[str, Any],
        kind: Kind,
        places: Places,
        now: float,
    ) -> dict[Lane, Belief]:
        """What each lane holds of the prompt whoever asked, as far as this process has seen."""
        local = self._affinity.holdings.local
        walk = _Walk(
            [
                _Holder(lane, server, tag_of(plan.group, forms[lane]))
                for lane, plan in plans.items()
                for server in {places.server_id(engine) for engine in plan.engines}
                if server
            ],
            lambda server, link: local.last_use(server, link, now),
        )
        try:
            chain_of(body, kind, walk)
        except _NobodyHoldsError:
            pass
        except Exception as error:
            log.error("a prompt's beginnings cannot be named: %s", type(error).__name__)
        return walk.found

    def _drafting(
        self,
        config: FlashlaneConfig,
        plans: Mapping[Lane, LanePlan],
        figures: Figures,
        places: Places,
        asked: int | None,
    ) -> dict[Lane, Drafting]:
        if config.gears.mode == "off":
            return {}
        found: dict[Lane, Drafting] = {}
        for lane, plan in plans.items():
            able = [e for e in plan.engines if e.backend and places.gear_limit(e.backend)]
            if able:
                limit = min(places.gear_limit(e.backend) for e in able if e.backend)
                turns = dict(self.speeds.turns.get(plan.group) or {})
                found[lane] = drafting_of(config, able, limit, figures, turns, asked)
        return found


def drafting_of(
    config: FlashlaneConfig,
    engines: list[Engine],
    limit: int,
    figures: Figures,
    turns: Mapping[str, int],
    asked: int | None = None,
) -> Drafting:
    """The gears of `engines`, which draft `limit` tokens at most, and what they were worth."""
    known = [records for e in engines if (records := figures.gears(e.name))]
    return Drafting(
        choices_within(config.gears.choices, limit),
        config.gears.explore_every,
        known[0] if known else {},
        turns,
        limit,
        asked,
    )


def memory_name(owner: str, view: RequestView) -> str:
    """Under which name a conversation is remembered: its owner's alone, and its model's."""
    if not view.conversation:
        return ""
    name = f"{owner}\0{view.model}\0{view.conversation}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=12, person=b"conversation").hexdigest()


def form_of(keep_ratio: float) -> str:
    """In what form a prompt that is shortened to `keep_ratio` stands in a cache."""
    return f"{keep_ratio:.4f}" if keep_ratio < 1.0 else ""


def label_of(server_id: str) -> str:
    """The label of a server of ours or of another's, by its id."""
    return server_id.rpartition("@")[0] or server_id.rpartition("/")[2]


def traces_of(flight: Flight, now: float) -> list[Trace]:
    """What the flight left in the caches of its lanes."""
    decision = flight.decision
    assert decision is not None
    tokens = decision.estimated_tokens
    traces = []
    shortened = decision.lane != "direct" and decision.group in flight.servers
    if shortened and (flight.group == decision.group or flight.first_pass is not None):
        server = flight.servers[decision.group]
        if flight.check is None or not flight.check.fell_back:
            traces.append(Trace(decision.lane, tokens, decision.keep_ratio, server, now))
    if decision.lane == "direct" or flight.group != decision.group:
        server = flight.servers[flight.group]
        traces.append(Trace("direct", tokens, 1.0, server, now, last=not traces))
    return traces


@dataclass(frozen=True)
class _Holder:
    lane: Lane
    server: str
    tag: bytes


class _NobodyHoldsError(Exception):
    pass


class _Walk(Chain):
    """Names a prompt's beginnings for as long as somebody holds them, and raises then."""

    def __init__(
        self, holders: list[_Holder], last_use: Callable[[str, bytes], float | None]
    ) -> None:
        super().__init__()
        self.found: dict[Lane, Belief] = {}
        self._holders = holders
        self._last_use = last_use

    def link(self) -> None:
        super().link()
        link, tokens = self.links[-1], self.tokens[-1]
        left = []
        for holder in self._holders:
            used = self._last_use(holder.server, link + holder.tag)
            if used is not None:
                left.append(holder)
                self.found[holder.lane] = Belief(tokens, used)
        self._holders = left
        if not left:
            raise _NobodyHoldsError


def _matters(view: RequestView, config: FlashlaneConfig) -> bool:
    """Whether more than the direct lane comes into question."""
    return (
        view.estimated_tokens >= config.policy.min_prompt_tokens
        and view.controls.lane is None
        and not (view.structure or view.multimodal or view.token_prompt)
    )


def _held_in(memory: Recollection | None) -> dict[Lane, Belief]:
    held = memory.held if memory else {}
    return {lane: Belief(found.tokens, 0.0) for lane, found in held.items() if found.tokens}


def _trusted(memory: Recollection | None, trust: Mapping[Lane, float]) -> Recollection | None:
    if memory is None:
        return None
    held = {
        lane: Held(round(found.tokens * trust.get(lane, 1.0)), found.keep_ratio)
        for lane, found in memory.held.items()
    }
    return replace(memory, held=held)


def _living(
    plans: Mapping[Lane, LanePlan], places: Places, config: FlashlaneConfig
) -> Callable[[str], bool]:
    """Whether a server's cache is still there: it is the same run, or it keeps a store."""

    def lives(server: str) -> bool:
        for plan in plans.values():
            for engine in plan.engines:
                if places.server_id(engine) == server:
                    return True
                stored = engine.backend and config.backends[engine.backend].kvflash.store
                if stored and label_of(server) == engine.label:
                    return True
        return False

    return lives


def _engine_at(
    config: FlashlaneConfig,
    deployments: tuple[Deployment, ...],
    group: str,
    api_base: str | None,
) -> Engine | None:
    """The engine of the deployment of `group` at `api_base`; None where several could be meant."""
    inside = [d for d in deployments if d.model_name == group]
    there = [d for d in inside if d.api_base == api_base] or (inside if len(inside) == 1 else [])
    found = {engine.name: engine for engine in (engine_of(config, d) for d in there)}
    return next(iter(found.values())) if len(found) == 1 else None
