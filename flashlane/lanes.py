"""The lanes of a client's model: what the config says of them, joined to what was learned. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from flashlane.config import BackendConfig, Deployment, FlashlaneConfig, backend_for_api_base
from flashlane.decision import Drafting, LaneOption
from flashlane.request import LANES, Lane
from flashlane.speeds import Figures, Seeds

DEFAULT_PREFILL_TOKENS_PER_S = 100.0
"""A 1.5B model on two CPU cores; used only where the config seeds no speed and none was learned."""
NOTHING_LEARNED = Figures({})
_NONE_CACHED: Mapping[Lane, int] = {}
_NO_DRAFTING: Mapping[Lane, Drafting] = {}


@dataclass(frozen=True)
class Engine:
    """What answers for a deployment. `name` is that under which its figures are kept.

    `backend` is its name in the config, None where it is not ours; `label` names its server.
    """

    name: str
    seeds: Seeds
    backend: str | None
    label: str


@dataclass(frozen=True)
class LanePlan:
    """One lane as the config has it: its model group, what answers, and what scores."""

    group: str
    engines: tuple[Engine, ...]
    scorers: tuple[Engine, ...]


def group_backends(
    config: FlashlaneConfig, deployments: tuple[Deployment, ...], group: str
) -> list[BackendConfig | None]:
    """The flashlane backend of each deployment in `group`, None for an engine that is not ours."""
    found: list[BackendConfig | None] = []
    for deployment in deployments:
        if deployment.model_name == group:
            name = backend_for_api_base(config, deployment.api_base)
            found.append(config.backends[name] if name else None)
    return found


def compresses(backends: list[BackendConfig | None]) -> bool:
    """Whether every deployment of a group is a flashlane backend with PFlash switched on."""
    return bool(backends) and all(
        backend is not None and backend.pflash.mode not in (None, "off") for backend in backends
    )


def engine_of(config: FlashlaneConfig, deployment: Deployment) -> Engine:
    """The engine of one deployment."""
    name = backend_for_api_base(config, deployment.api_base)
    if name is not None:
        return backend_engine(config, name)
    netloc = urlsplit(deployment.api_base or "").netloc.rpartition("@")[2]
    return Engine(f"{netloc or deployment.model_name}/{deployment.model}", Seeds(), None, netloc)


def backend_engine(config: FlashlaneConfig, name: str) -> Engine:
    """The engine of our backend `name`. Another model, or other arguments, is another engine."""
    backend = config.backends[name]
    shape = repr((backend.args, backend.threads, backend.server)).encode()
    digest = hashlib.blake2b(shape, digest_size=4).hexdigest()
    speeds = backend.speeds
    seeds = Seeds(
        speeds.prefill_tokens_per_s, speeds.decode_tokens_per_s, speeds.scorer_tokens_per_s
    )
    return Engine(f"{name}/{backend.model}/{digest}", seeds, name, name)


def lane_plans(
    config: FlashlaneConfig, deployments: tuple[Deployment, ...], model: str
) -> dict[Lane, LanePlan]:
    """The lanes of client model `model`; a lane whose engines cannot compress is left out."""
    groups = config.lanes.get(model)
    plans: dict[Lane, LanePlan] = {}
    for lane in LANES:
        group = getattr(groups, lane) if groups else None
        if lane == "direct":
            group = group or model
        if group is None:
            continue
        backends = group_backends(config, deployments, group)
        at_proxy = config.compressor is not None and not any(backends)
        if lane != "direct" and not (at_proxy or compresses(backends)):
            continue
        engines = tuple(engine_of(config, d) for d in deployments if d.model_name == group)
        scorers = engines
        if at_proxy and config.compressor is not None:
            scorers = (backend_engine(config, config.compressor),)
        plans[lane] = LanePlan(group, engines, scorers)
    return plans


def lane_options(
    plans: Mapping[Lane, LanePlan],
    allowed: Callable[[str], bool] = lambda group: True,
    figures: Figures = NOTHING_LEARNED,
    cached: Mapping[Lane, int] = _NONE_CACHED,
    drafting: Mapping[Lane, Drafting] = _NO_DRAFTING,
) -> dict[Lane, LaneOption]:
    """What each lane is worth now. Of several engines the slowest counts.

    `cached` are the prompt's estimated tokens that a lane's engines hold whoever asked for them.
    """
    return {
        lane: LaneOption(
            plan.group,
            _least(figures.of(e.name, "prefill") or e.seeds.prefill for e in _readers(lane, plan))
            or DEFAULT_PREFILL_TOKENS_PER_S,
            _least(figures.of(e.name, "scorer") or e.seeds.scorer for e in plan.scorers),
            cached_tokens=cached.get(lane, 0),
            allowed=allowed(plan.group),
            tokens_per_estimate=_mean(figures, plan, "tokens_per_estimate") or 1.0,
            doubts=figures.doubts(plan.group),
            drafting=drafting.get(lane),
            overhead_ms=_mean(figures, plan, "overhead_ms") or 0.0,
            decode_tokens_per_s=_least(
                figures.of(e.name, "decode") or e.seeds.decode for e in plan.engines
            ),
            answer_tokens=_mean(figures, plan, "answer_tokens") or 0.0,
        )
        for lane, plan in plans.items()
    }


def _readers(lane: Lane, plan: LanePlan) -> Iterable[Engine]:
    """Those whose speeds tell that of the prefill: a compressor's seeds stand in for an engine's
    that are not known."""
    if lane == "direct" or any(engine.backend for engine in plan.engines):
        return plan.engines
    return (
        Engine(engine.name, scorer.seeds, None, engine.label)
        for engine in plan.engines
        for scorer in plan.scorers
    )


def _least(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return min(known) if known else None


def _mean(figures: Figures, plan: LanePlan, name: str) -> float | None:
    known = [v for e in plan.engines if (v := figures.of(e.name, name)) is not None]
    return sum(known) / len(known) if known else None
