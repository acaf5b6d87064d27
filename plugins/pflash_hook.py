"""LiteLLM hook: turn the lane into PFlash controls for flashlane's own backends.

Runs after the router. The direct lane switches compression off in so many words, since a
server in `auto` mode would otherwise decide for itself. An engine that is not ours gets no
field that it does not know.
"""

from __future__ import annotations

from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from flashlane.router import group_backends
from flashlane.runtime import runtime_or_none, sole


class PFlashHook(CustomLogger):
    """Writes `pflash` and `timings_on_finish` into the request's `extra_body`."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        state = runtime_or_none()
        flight = state.flights.of(data) if state else None
        decision = flight.decision if flight else None
        if state is None or decision is None:
            return data
        backends = group_backends(state.config, state.deployments, decision.group)
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


handler = sole(PFlashHook)
