"""LiteLLM hook: send a prompt to the deployment that holds its beginning, unless its queue is long.

A shell around `flashlane.affinity`, for the deployments of one model group. It needs the router's
hook before it, which notes each request. A group with a single deployment is left alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from flashlane.affinity import Measured, Trip, hint_of
from flashlane.answer import Answer
from flashlane.flight import Flight, summary_in
from flashlane.learning import form_of
from flashlane.payload import payloads
from flashlane.prefix import Chain, chain_of
from flashlane.request import Kind
from flashlane.runtime import Runtime, runtime_or_none, sole

log = logging.getLogger("flashlane.affinity")

_ENDED_STATUSES = (500, 502, 503)
"""How LiteLLM reports a server that refused or dropped the connection, and one that starts anew."""


class KVFlashHook(CustomLogger):
    """Narrows a group's healthy deployments, and remembers which of them served what."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        state = runtime_or_none()
        flight = state.flights.of(data) if state else None
        if state is None or flight is None or flight.decision is None:
            return data
        if state.may_choose(flight.decision.group):
            flight.trip = _trip(flight, flight.decision.group, data, user_api_key_dict)
        return data

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        state, flight, trip = _trip_of(request_kwargs or {})
        if state is None or flight is None or trip is None:
            return healthy_deployments
        trip.group, trip.form = model, _form(flight, model)
        if len(healthy_deployments) < 2:
            return healthy_deployments
        try:
            servers = await state.servers(healthy_deployments)
            different = list({server.label: server for server in servers}.values())
            placement = await state.affinity.choose(trip, different, time.time())
        except Exception as error:
            log.error("affinity leaves the choice to LiteLLM: %s", type(error).__name__)
            return healthy_deployments
        flight.placed(placement.reason)
        return [
            deployment
            for deployment, server in zip(healthy_deployments, servers, strict=True)
            if server.label in placement.labels
        ]

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """After the router's hook has waited for the backend: this run of it gets the request."""
        state, _, trip = _trip_of(kwargs)
        if state is not None and trip is not None:
            server = state.server_of(
                {"litellm_params": kwargs, "model_info": kwargs.get("model_info")}
            )
            await state.affinity.sent(trip, server, time.time())
        return kwargs

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        state, flight, trip = _trip_of(data)
        if state and flight and trip:
            flight.see_payload(response)
            answer = Answer(trip.kind)
            _see(answer, response)
            await _answered(state, flight, trip, answer)
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        state, flight, trip = _trip_of(request_data)
        if state is None or flight is None or trip is None:
            async for chunk in response:
                yield chunk
            return
        answer = Answer(trip.kind)
        try:
            async for chunk in response:
                _see(answer, chunk)
                yield chunk
        except Exception:
            await state.affinity.left(trip)
            raise
        except BaseException:
            # The client left, and whoever would wait here with it.
            processed = flight.first_chunk is not None
            affinity = state.affinity
            state.soon(
                affinity.answered(trip, Measured(), time.time())
                if processed
                else affinity.left(trip)
            )
            raise
        await _answered(state, flight, trip, answer)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any
    ) -> None:
        state, _, trip = _trip_of(request_data)
        if state is None or trip is None:
            return
        server = trip.server
        await state.affinity.left(trip)
        ended = getattr(exception, "status_code", None) in _ENDED_STATUSES
        # Of its own backends the supervisor knows better.
        if server and ended and state.backend_of(request_data.get("api_base")) is None:
            await state.affinity.gone(server.id)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        state, _, trip = _trip_of(request_data)
        if state is not None and trip is not None:
            await state.affinity.left(trip)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        placement = summary_in(data).get("placement")
        if not placement:
            return {}
        return {"x-flashlane-placement": placement.encode("ascii", "replace").decode()}


def _see(answer: Answer, chunk: object) -> None:
    try:
        for payload in payloads(chunk):
            answer.see(payload)
    except Exception as error:
        log.error("affinity cannot read an answer: %s", type(error).__name__)


async def _answered(state: Runtime, flight: Flight, trip: Trip, answer: Answer) -> None:
    """Learn from a whole answer. An error here must not cost the client what is ready for it."""
    try:
        answer.add_to(trip.chain)
        await state.affinity.answered(trip, flight.measured(), time.time())
    except Exception as error:
        log.error("affinity learns nothing from an answer: %s", type(error).__name__)


def _trip(flight: Flight, group: str, data: Mapping[str, Any], key: Any) -> Trip:
    """The request as affinity sees it; with an empty chain it is counted, and no more."""
    extra = data.get("extra_body")
    body = {**data, **(extra if isinstance(extra, Mapping) else {})}
    kind: Kind = flight.endpoint  # type: ignore[assignment]
    try:
        chain = chain_of(body, kind)
    except Exception as error:
        log.error("affinity cannot read a request: %s", type(error).__name__)
        chain = None
    owner = str(getattr(key, "api_key", None) or "")
    hint = hint_of(owner, body.get("prompt_cache_key"))
    return Trip(flight.flight_id, kind, group, chain or Chain(), hint, _form(flight, group))


def _form(flight: Flight, group: str) -> str:
    decision = flight.decision
    shortened = decision is not None and decision.group == group
    return form_of(decision.keep_ratio) if decision and shortened else ""


def _trip_of(data: Mapping[str, Any]) -> tuple[Runtime | None, Flight | None, Trip | None]:
    state = runtime_or_none()
    flight = state.flights.seen(data) if state else None
    return state, flight, flight.trip if flight else None


handler = sole(KVFlashHook)
