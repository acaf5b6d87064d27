"""The second pass: the client's own request once more, in the direct lane's group.

It goes through LiteLLM's router like the first, with the key's metadata, so that its spend is
logged beside the first pass's. The hooks before a call are not run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from litellm.proxy._types import ProxyException

from flashlane.flight import METADATA_KEYS, Flight
from flashlane.verify.check import NUMBER_KEY, Check

_ROUTES: Mapping[str, str] = {
    "chat": "acompletion",
    "completion": "atext_completion",
    "messages": "anthropic_messages",
    "responses": "aresponses",
}
_OF_THE_FIRST_CALL = (
    "litellm_logging_obj",
    "litellm_call_id",
    "deployment",
    "fallbacks",
    "guardrail_to_apply",
    "_litellm_client_requested_model",
)
"""What LiteLLM adds to a request for one call alone, and the fallback that we gave the first."""
OWN_FALLBACKS = "flashlane_fallbacks"
"""Key of the metadata that keeps the fallbacks which the client or its key had asked for."""


def fall_back_to_direct(data: dict[str, Any], metadata: dict[str, Any], check: Check) -> None:
    """Let LiteLLM answer by the direct group where the first pass fails before it has begun."""
    own = data.get("fallbacks")
    if isinstance(own, list):
        metadata[OWN_FALLBACKS] = own
    else:
        own = _configured(data, check.direct_group)
    data["fallbacks"] = [check.direct_group, *own]


def _configured(data: Mapping[str, Any], group: str) -> list[Any]:
    """The fallbacks of `group` by the settings of the key, its team or the router."""
    from litellm.proxy.proxy_server import llm_router

    settings = data.get("router_settings_override")
    named = settings.get("fallbacks") if isinstance(settings, Mapping) else None
    for entry in named or getattr(llm_router, "fallbacks", None) or ():
        if isinstance(entry, Mapping) and isinstance(entry.get(group), list):
            return list(entry[group])
    return []


def second_body(data: Mapping[str, Any], flight: Flight, check: Check) -> dict[str, Any]:
    """The request in `data` as the direct lane gets it: whole, and marked as the second pass."""
    body = {key: value for key, value in data.items() if key not in _OF_THE_FIRST_CALL}
    body.update(flight.whole)
    body["model"] = check.direct_group
    body["litellm_call_id"] = str(uuid4())
    for key in METADATA_KEYS:
        metadata = body.get(key)
        if not isinstance(metadata, dict) or NUMBER_KEY not in metadata:
            continue
        if isinstance(metadata.get(OWN_FALLBACKS), list):
            body["fallbacks"] = metadata[OWN_FALLBACKS]
        spend = dict(metadata.get("spend_logs_metadata") or {})
        spend["flashlane"] = {
            **(spend.get("flashlane") or {}),
            "pass": 2,
            "first_call_id": data.get("litellm_call_id"),
        }
        body[key] = {**metadata, NUMBER_KEY: 2, "spend_logs_metadata": spend}
    return body


@dataclass(frozen=True)
class Second:
    """The direct lane's response, or its stream."""

    response: Any
    body: Mapping[str, Any]

    async def bill_partial(self) -> None:
        """Log what was streamed to a client that has left, as LiteLLM does for its own calls."""
        from litellm.proxy import common_request_processing

        bill = getattr(
            common_request_processing, "_bill_partial_streamed_spend_on_disconnect", None
        )
        if bill is not None:
            await bill(dict(self.body), self.response)


async def second_pass(data: Mapping[str, Any], flight: Flight, check: Check, key: Any) -> Second:
    """Ask the direct lane's group. Raises what LiteLLM raises."""
    from litellm.proxy.proxy_server import llm_router
    from litellm.proxy.route_llm_request import route_request
    from litellm.utils import Rules, function_setup

    route = _ROUTES[flight.endpoint]
    body = second_body(data, flight, check)
    within_budget = getattr(llm_router, "fallback_budget_check", None)
    if (
        within_budget is not None
        and check.direct_group != flight.model
        and not await within_budget(
            model=check.direct_group, request_kwargs=body, llm_router=llm_router
        )
    ):
        raise ProxyException(
            message=f"this key is over its budget for model group {check.direct_group!r}, "
            f"which answers for {flight.model!r} where a check fails",
            type="budget_exceeded",
            param=None,
            code=429,
        )
    # As the proxy does it for a client's request: it is to hand when the client leaves.
    logging_obj, body = function_setup(route, Rules(), datetime.now(), **body)
    body["litellm_logging_obj"] = logging_obj
    call = await route_request(
        data=body,
        llm_router=llm_router,
        user_model=None,
        route_type=route,
        user_api_key_dict=key,
    )
    return Second(await call, body)
