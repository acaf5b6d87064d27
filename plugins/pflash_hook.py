"""LiteLLM hook: turn the lane into PFlash controls for flashlane's own backends.

Runs after the router. The direct lane switches compression off in so many words, since a
server in `auto` mode would otherwise decide for itself. An engine that is not ours gets no
field that it does not know.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from flashlane.backends.command import api_key
from flashlane.compress import CompressError, compress, material
from flashlane.flight import Flight, group_in, pass_in
from flashlane.gears import GEAR_FIELD
from flashlane.lanes import group_backends
from flashlane.runtime import Runtime, runtime_or_none, sole

log = logging.getLogger("flashlane.pflash")


class PFlashHook(CustomLogger):
    """Writes `pflash` and `timings_on_finish` into the request's `extra_body`.

    Where the lane's engine is not ours, the prompt itself is shortened by the backend that the
    config names as compressor.
    """

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        state = runtime_or_none()
        flight = state.flights.of(data) if state else None
        decision = flight.decision if flight else None
        if state is None or flight is None or decision is None:
            return data
        backends = group_backends(state.config, state.deployments, decision.group)
        if not any(backends) and decision.lane != "direct":
            await _compress_here(state, flight, data)
            return data
        if not backends or any(backend is None for backend in backends):
            return data
        extra = data.get("extra_body")
        extra = data["extra_body"] = dict(extra) if isinstance(extra, dict) else {}
        prompt = data.get("prompt")
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], str):
            # LiteLLM knows text alone; what is in extra_body reaches the engine as it is.
            extra["prompt"], data["prompt"] = prompt, ""
        if data.get("stream"):
            extra["timings_on_finish"] = True
        if decision.lane == "direct":
            extra["pflash"] = {"mode": "off"}
        else:
            extra["pflash"] = {"mode": "always", "keep_ratio": decision.keep_ratio}
            if decision.min_keep_tokens is not None:
                extra["pflash"]["min_keep_tokens"] = decision.min_keep_tokens
        return data

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Each attempt gets its gear, and one outside the lane's group the whole prompt.

        That is a fallback or a second pass, for which LiteLLM does not run the hook above.
        """
        state = runtime_or_none()
        flight = state.flights.of(kwargs) if state else None
        decision = flight.decision if flight else None
        if state is None or flight is None or decision is None:
            return kwargs
        _set_gear(state, flight, kwargs)
        if decision.lane == "direct":
            return kwargs
        group = group_in(kwargs)
        second = flight.check is not None and pass_in(kwargs) == 2
        if not second and group in ("", decision.group):
            return kwargs
        kwargs.update({k: v for k, v in flight.whole.items() if _own_shape(call_type, flight)})
        extra = dict(kwargs.get("extra_body") or {})
        extra.pop("pflash", None)
        if state.backend_of(kwargs.get("api_base")) is None:
            extra.pop("timings_on_finish", None)
        else:
            extra["pflash"] = {"mode": "off"}
            if kwargs.get("stream"):
                extra["timings_on_finish"] = True
        kwargs["extra_body"] = extra
        return kwargs


def _set_gear(state: Runtime, flight: Flight, kwargs: dict[str, Any]) -> None:
    """Tell a backend that drafts how far; others are told nothing, and a client's word stands."""
    decision = flight.decision
    name = state.backend_of(kwargs.get("api_base"))
    limit = state.gear_limit(name) if name else 0
    gear = decision.gear if decision else None
    flight.gear = None if gear is None or not limit else min(gear, limit)
    extra = kwargs.get("extra_body")
    extra = dict(extra) if isinstance(extra, dict) else {}
    if flight.asked_gear or state.config.gears.mode == "off":
        return
    before = extra.pop(GEAR_FIELD, None)
    if flight.gear is not None:
        extra[GEAR_FIELD] = flight.gear
    if before is not None or flight.gear is not None:
        kwargs["extra_body"] = extra


_CALLS = {
    "chat": "acompletion",
    "completion": "atext_completion",
    "messages": "anthropic_messages",
    "responses": "aresponses",
}


def _own_shape(call_type: Any, flight: Flight) -> bool:
    """Whether a call still has the client's API, before LiteLLM makes another one's of it."""
    return str(getattr(call_type, "value", call_type)) == _CALLS.get(flight.endpoint)


async def _compress_here(state: Runtime, flight: Flight, data: dict[str, Any]) -> None:
    """Shorten the prompt in `data`. A failure leaves it whole, and its record says why."""
    name, decision = state.config.compressor, flight.decision
    if name is None or decision is None:
        return
    found = material(data, flight.endpoint)  # type: ignore[arg-type]
    if found is None:
        flight.timings["pflash"] = {"reason": "prompt_shape"}
        return
    backend = state.config.backends[name]
    try:
        await state.ensure_backend(name)
        answer = await compress(
            backend.base_url,
            api_key(backend, os.environ),
            found.messages,
            decision.keep_ratio,
            decision.min_keep_tokens,
        )
    except (CompressError, LookupError, RuntimeError) as error:
        reason = str(error) if isinstance(error, CompressError) else "compressor_down"
        log.warning("pflash at the proxy left a prompt whole: %s", reason)
        flight.timings["pflash"] = {"reason": reason}
        return
    shorter = found.put_back(answer["messages"])
    flight.whole = {field: data[field] for field in shorter}
    data.update(shorter)
    flight.timings["pflash"] = {
        key: answer.get(key)
        for key in ("scorer", "original_tokens", "kept_tokens", "score_ms", "reason")
    }


handler = sole(PFlashHook)
