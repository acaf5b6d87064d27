"""From a request body to a decision: the config's lanes joined to the pure core.

Shared by the proxy's hook and by `flashlane explain`, so that both decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flashlane.config import Deployment, FlashlaneConfig
from flashlane.decision import Decision, LaneOption, Signals
from flashlane.exactness import exactness
from flashlane.gears import GEAR_FIELD
from flashlane.lanes import group_backends, lane_options, lane_plans
from flashlane.policy import decide
from flashlane.request import (
    PRIVATE_FIELDS,
    Kind,
    Lane,
    RequestError,
    RequestView,
    read_request,
)


def route(
    data: dict[str, Any],
    headers: Mapping[str, str] | None,
    kind: Kind | None,
    config: FlashlaneConfig,
    deployments: tuple[Deployment, ...],
    allowed: Callable[[str], bool] = lambda group: True,
    *,
    sent: Mapping[str, Any] | None = None,
    lanes: dict[Lane, LaneOption] | None = None,
) -> Decision:
    """The decision for one body: what `read` finds in it, and what `decide` makes of that.

    `lanes` are taken from the config unless they are given. Raises `RequestError` where the
    client is refused.
    """
    model = str(data.get("model") or "")
    view, signals = read(data, headers, kind, config, deployments, sent=sent)
    if lanes is None:
        lanes = lane_options(lane_plans(config, deployments, model), allowed)
    return decide(view, signals, config.policy, lanes)


def read(
    data: dict[str, Any],
    headers: Mapping[str, str] | None,
    kind: Kind | None,
    config: FlashlaneConfig,
    deployments: tuple[Deployment, ...],
    *,
    sent: Mapping[str, Any] | None = None,
) -> tuple[RequestView, Signals]:
    """What one body says, and how exact its ask is. flashlane's own fields are taken out of it.

    `sent` is what the client sent, where others have added to `data` since. Raises
    `RequestError` where the client is refused.
    """
    model = str(data.get("model") or "")
    taken = take_private_fields(data)
    refuse_foreign_controls(
        data if sent is None else sent,
        own_engine=reaches_own_engine(config, deployments, model),
    )
    extra = data.get("extra_body")
    # LiteLLM lays extra_body over the body on its way to the engine.
    body = {**data, **(extra if isinstance(extra, Mapping) else {}), "model": model, **taken}
    view = read_request(body, headers, kind)
    return view, exactness(view)


def asked_gear(data: Mapping[str, Any]) -> tuple[bool, int | None]:
    """Whether a client names a gear, and which; None for what the engine will refuse."""
    extra = data.get("extra_body")
    for fields in (extra if isinstance(extra, Mapping) else {}, data):
        value = fields.get(GEAR_FIELD)
        if value is not None:
            return True, value if type(value) is int and value >= 0 else None
    return False, None


_CALLBACK_FIELDS = ("success_callback", "failure_callback", "callbacks", "service_callback")
_TRANSPORT_FIELDS = ("api_key", "custom_llm_provider", "headers", "extra_headers", "extra_query")
"""LiteLLM lets these replace what the operator set for the deployment."""
_ENGINE_INTERNALS = (
    "chat_parser",
    "chat_format",
    "generation_prompt",
    "grammar_lazy",
    "grammar_triggers",
    "preserved_tokens",
    "parse_tool_calls",
    "message_delimiters",
)
"""llama-server makes these itself from the chat template."""
_MAX_GRAMMAR_CHARS = 65_536
_MAX_GRAMMAR_DEPTH = 256


def reaches_own_engine(
    config: FlashlaneConfig, deployments: tuple[Deployment, ...], model: str
) -> bool:
    """Whether a request for client model `model` may arrive at a flashlane backend."""
    groups = config.lanes.get(model)
    names = {model, *(g for g in groups.model_dump().values() if g)} if groups else {model}
    return any(
        backend is not None
        for name in names
        for backend in group_backends(config, deployments, name)
    )


def refuse_foreign_controls(body: Mapping[str, Any], *, own_engine: bool) -> None:
    """Raises `RequestError` for a field by which a client would do the operator's work.

    `body` is what the client sent. A callback is never the client's to choose. What belongs to
    the transport or to the engine itself is refused where the engine is ours (`own_engine`);
    other deployments keep LiteLLM's own rules.
    """
    extra = body.get("extra_body")
    for fields in (body, extra if isinstance(extra, Mapping) else {}):
        for field in _CALLBACK_FIELDS:
            if field in fields:
                raise RequestError(f"{field} is set by the operator; leave it out", field)
        if not own_engine:
            continue
        for field in _TRANSPORT_FIELDS:
            if field in fields:
                raise RequestError(
                    f"{field} is set for this model by the operator; leave it out of the body",
                    field,
                )
        for field in _ENGINE_INTERNALS:
            if field in fields:
                raise RequestError(f"{field} is made by the server; leave it out", field)
        grammar = fields.get("grammar")
        if isinstance(grammar, str) and (
            len(grammar) > _MAX_GRAMMAR_CHARS or grammar.count("(") > _MAX_GRAMMAR_DEPTH
        ):
            raise RequestError(
                f"grammar has {len(grammar)} characters and {grammar.count('(')} parentheses; at "
                f"most {_MAX_GRAMMAR_CHARS} and {_MAX_GRAMMAR_DEPTH} are accepted",
                "grammar",
            )


def _differs(one: object, other: object) -> bool:
    """Whether two values of a field differ; those nested too deep to be compared do."""
    try:
        return one != other
    except RecursionError:
        return True


def take_private_fields(data: dict[str, Any]) -> dict[str, Any]:
    """Remove flashlane's own fields from `data` and return them.

    They are looked for at the top of the body and in `extra_body`, which LiteLLM would merge
    into the body later. Raises `RequestError` when the two places contradict each other.
    """
    extra = data.get("extra_body")
    nested = extra if isinstance(extra, dict) else {}
    taken: dict[str, Any] = {}
    clash = ""
    for field in PRIVATE_FIELDS:
        outer, inner = data.pop(field, None), nested.pop(field, None)
        if outer is not None and inner is not None and _differs(outer, inner):
            clash = clash or field
        value = outer if outer is not None else inner
        if value is not None:
            taken[field] = value
    if clash:
        raise RequestError(
            f"{clash} differs between the body and its extra_body; send one of them", clash
        )
    return taken
