"""LiteLLM hook: read the request, decide its lane, send it there, and record how it ended.

The hook is a shell around `flashlane.router`. Name `plugins.smart_router.handler` in a config
beside this folder, or `flashlane.plugins.smart_router.handler` where the wheel is installed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import ProxyException

from flashlane.decision import Decision, Reason
from flashlane.evidence import PREFIX, install
from flashlane.flight import FLIGHT_KEY, Flight, flight_id_in, group_in, pass_in, summary_in
from flashlane.keys import key_id_of
from flashlane.policy import decide
from flashlane.request import Kind, RequestError
from flashlane.routelog import Status
from flashlane.router import asked_gear, read, take_private_fields
from flashlane.runtime import Runtime, runtime_or_none, sole
from flashlane.verify.check import NUMBER_KEY, Check
from flashlane.verify.lane import relay, settle
from flashlane.verify.second import fall_back_to_direct

log = logging.getLogger("flashlane.router")

_KINDS: Mapping[str, Kind] = {
    "completion": "chat",
    "acompletion": "chat",
    "text_completion": "completion",
    "atext_completion": "completion",
    "anthropic_messages": "messages",
    "responses": "responses",
    "aresponses": "responses",
}
_PASSED_ON: Mapping[str, str] = {"aembedding": "embeddings", "embedding": "embeddings"}
"""Calls that have no lane: they are recorded, and otherwise left alone."""


class SmartRouter(CustomLogger):
    """LiteLLM looks for `async_pre_call_hook` on the leaf class alone: do not subclass this."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        call = str(getattr(call_type, "value", call_type))
        kind = _KINDS.get(call)
        if kind is None and call not in _PASSED_ON:
            return data
        state = runtime_or_none()
        if state is None:
            with contextlib.suppress(RequestError):
                take_private_fields(data)
            return data
        flight = _flight(data, kind or _PASSED_ON[call], user_api_key_dict)
        _metadata(data, kind)[FLIGHT_KEY] = flight.flight_id
        state.flights.begin(flight)
        if kind is None:
            return data
        try:
            decision = await _decide(state, flight, data, kind, user_api_key_dict)
        except RequestError as error:
            raise _refusal(str(error), error.param, 400) from error
        except ProxyException:
            raise
        except Exception as error:
            # The text of an unexpected error may quote the prompt: log its place alone.
            log.error("router failed open to the direct lane: %s", _where(error))
            decision = _failed_open(flight.model, error)
        data["model"] = decision.group
        metadata = _metadata(data, kind)
        flight.announce(decision, metadata)
        if flight.check is not None:
            metadata[NUMBER_KEY] = 1
            fall_back_to_direct(data, metadata, flight.check)
        return data

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Each attempt waits until its own backend runs: a first use, or a restart under way."""
        state = runtime_or_none()
        if state is None:
            return kwargs
        name = state.backend_of(kwargs.get("api_base"))
        _, flight = _flight_of(kwargs)
        info = kwargs.get("model_info")
        if flight is not None:
            flight.deployment = name or str((info or {}).get("id") or "")
            flight.attempts += 1
            if group := group_in(kwargs):
                flight.attempted(group)
        if name is not None:
            await state.ensure_backend(name, again=flight is None or flight.attempts > 1)
        if flight is not None and (group := group_in(kwargs)):
            base = kwargs.get("api_base")
            server = state.server_of({"litellm_params": kwargs, "model_info": info}).id
            state.learning.reached(flight, state.config, state.deployments, group, base, server)
        return kwargs

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        decision = summary_in(data)
        if not decision:
            return {}
        state = runtime_or_none()
        flight = state.flights.seen(data) if state else None
        return {
            **({"x-flashlane-request-id": flight.request_id} if flight else {}),
            "x-flashlane-lane": str(decision.get("lane")),
            "x-flashlane-reasons": ",".join(r["code"] for r in decision.get("reasons", [])),
            "x-flashlane-keep-ratio": str(decision.get("keep_ratio")),
            **({} if flight is None or flight.gear is None else _gear_header(flight.gear)),
            **({"x-flashlane-sidecar": flight.sidecar} if flight and flight.sidecar else {}),
            **(_verdict_headers(flight, response) if flight else {}),
        }

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        state, flight = _flight_of(data)
        if state and flight:
            if flight.check is None:
                flight.see_payload(response)
            else:
                response = await settle(flight, flight.check, data, response, user_api_key_dict)
            state.answered(flight)
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        state, flight = _flight_of(request_data)
        if state is None or flight is None:
            async for chunk in response:
                yield chunk
            return
        status: Status = "disconnected"
        error = ""
        check, every_s = flight.check, state.config.verify.keepalive_s
        passes = (
            relay(flight, check, request_data, response, user_api_key_dict, every_s)
            if check
            else None
        )
        try:
            async for chunk in passes or response:
                if passes is None:
                    flight.see_chunk(chunk)
                yield chunk
            status = "ok"
        except Exception as failure:
            status, error = "error", _kind(failure)
            raise
        finally:
            if status == "ok":
                state.answered(flight)
            else:
                if status == "disconnected":
                    flight.left_unchecked()
                state.finish(flight, status, error)
            if passes is not None:
                await passes.aclose()

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """The engine's answer, before LiteLLM turns it into another API's and drops timings."""
        _, flight = _flight_of(request_data)
        if flight is not None:
            flight.see_payload(response)

    async def async_post_call_streaming_deployment_hook(
        self, request_data: dict[str, Any], response_chunk: Any, call_type: Any
    ) -> None:
        """The same of a stream: its last chunk carries the timings."""
        _, flight = _flight_of(request_data)
        if flight is not None:
            flight.see_payload(response_chunk)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        state, flight = _flight_of(kwargs)
        if state is None or flight is None:
            return
        logged = kwargs.get("standard_logging_object") or {}
        cost = logged.get("response_cost", kwargs.get("response_cost"))
        flight.logged(pass_in(kwargs), cost, response_obj)
        if flight.check is None or flight.check.complete:
            state.finish(flight, "ok")

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Also called where no hook was before: a key that is refused, a body that is no JSON."""
        state, flight = _flight_of(request_data)
        if state is None:
            return
        if flight is None:
            if flight_id_in(request_data):
                return  # its record is written
            if str(getattr(user_api_key_dict, "request_route", None) or "").startswith(PREFIX):
                return  # somebody looks at the records, and asks no model
            flight = _flight(request_data, "", user_api_key_dict)
        code = _status_code(original_exception)
        refused = code is not None and 400 <= code < 500
        state.finish(flight, "refused" if refused else "error", _kind(original_exception))


def _flight(data: Mapping[str, Any], endpoint: str, key: Any) -> Flight:
    flight_id = uuid4().hex
    call_id = data.get("litellm_call_id")
    chosen = any(name.lower() == "x-litellm-call-id" for name in _client_headers(data))
    request_id = f"{call_id}#{flight_id[:8]}" if chosen and call_id else str(call_id or flight_id)
    return Flight(
        flight_id=flight_id,
        request_id=request_id,
        key_alias=str(getattr(key, "key_alias", None) or ""),
        endpoint=endpoint,
        model=str(data.get("model") or ""),
        stream=bool(data.get("stream")),
        key_id=key_id_of(key),
    )


def _flight_of(data: Mapping[str, Any]) -> tuple[Runtime | None, Flight | None]:
    state = runtime_or_none()
    return state, state.flights.of(data) if state else None


def _metadata(data: dict[str, Any], kind: Kind | None) -> dict[str, Any]:
    """The metadata of a request that LiteLLM hands on to its hooks and logs."""
    field = "litellm_metadata" if kind in ("messages", "responses") else "metadata"
    if not isinstance(data.get(field), dict):
        data[field] = {}
    metadata: dict[str, Any] = data[field]
    return metadata


async def _decide(
    state: Runtime, flight: Flight, data: dict[str, Any], kind: Kind, key: Any
) -> Decision:
    config, deployments = state.config, state.deployments  # another config may come meanwhile
    model = data.get("model")
    view, signals = read(
        data, _client_headers(data), kind, config, deployments, sent=_client_body(data)
    )
    flight.asked_gear, asked = asked_gear(data)
    found = state.learning.outlook(
        config,
        deployments,
        view,
        signals,
        data,
        str(getattr(key, "api_key", None) or ""),
        state,
        lambda group: group == model or _may_use(key, group),
        asked,
    )
    lanes = found.lanes
    if "verify" in lanes and not lanes["direct"].allowed:
        lanes["verify"] = replace(lanes["verify"], allowed=False)  # it may need both
    signals = await state.sidecar.advise(view, signals, lanes, config, flight)
    decision = decide(view, signals, config.policy, lanes, found.memory)
    flight.memory, flight.belief = found.memory_name, found.belief
    if found.matters and not state.may_choose(decision.group):
        # Later: nobody needs to wait for it, and where there is a choice affinity does it.
        extra = data.get("extra_body")
        body = {**data, **(extra if isinstance(extra, Mapping) else {})}
        state.soon(state.learning.name_beginnings(flight, body, kind))
    if decision.gear is not None:
        state.learning.speeds.took(decision)
    if decision.group != model and not _may_use(key, decision.group):
        raise _refusal(
            f"this key may not use model group {decision.group!r}, which the "
            f"{decision.lane} lane of {model!r} needs",
            "model",
            403,
        )
    if decision.lane == "verify":
        direct = lanes["direct"]
        if not direct.allowed:
            raise _refusal(
                f"this key may not use model group {direct.group!r}, which answers in the verify "
                f"lane of {model!r} where a check fails",
                "model",
                403,
            )
        flight.check = Check(view, decision.group, direct.group)
    return decision


def _may_use(key: Any, group: str) -> bool:
    """LiteLLM's own check of the key and its team, which it does not repeat after a rewrite."""
    from litellm.proxy.auth.auth_checks import can_object_call_model
    from litellm.proxy.proxy_server import llm_router

    owners: list[tuple[Any, list[str]]] = [("key", list(key.models or []))]
    if getattr(key, "team_id", None):
        owners.append(("team", list(key.team_models or [])))
    for owner, models in owners:
        try:
            can_object_call_model(
                model=group, llm_router=llm_router, models=models, object_type=owner
            )
        except ProxyException:
            return False
    return True


def _gear_header(gear: int) -> dict[str, str]:
    return {"x-flashlane-gear": str(gear)}


def _verdict_headers(flight: Flight, response: Any) -> dict[str, str]:
    """Of the verify lane; `x-litellm-*` that LiteLLM took from the first pass are put right."""
    note = flight.verdict_note()
    if not note or not flight.answered_by:
        return {}  # a stream, whose verdict stands in its last chunk
    headers = {
        "x-flashlane-verdict": note["verdict"],
        "x-flashlane-verdict-reasons": note["reasons"],
        "x-flashlane-answered-by": note["answered_by"],
    }
    if flight.check is not None and flight.check.current == 2:
        hidden = getattr(response, "_hidden_params", None) or {}
        if hidden.get("model_id"):
            headers["x-litellm-model-id"] = str(hidden["model_id"])
        first = flight.check.costs.get(1)
        if first is not None and isinstance(hidden.get("response_cost"), (int, float)):
            headers["x-litellm-response-cost"] = str(first + hidden["response_cost"])
    return headers


def _client_body(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the client sent. LiteLLM adds fields of the key and the team to `data` itself."""
    request = data.get("proxy_server_request")
    if not isinstance(request, Mapping) or not isinstance(request.get("body"), Mapping):
        return data
    credentials = request.get("credential_fields") or ()
    return {**request["body"], **dict.fromkeys(credentials, "")}


def _client_headers(data: Mapping[str, Any]) -> Mapping[str, str]:
    request = data.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    return headers if isinstance(headers, Mapping) else {}


def _failed_open(model: str, error: Exception) -> Decision:
    return Decision(
        lane="direct",
        group=model,
        exact=True,
        keep_ratio=1.0,
        gear=None,
        reasons=(Reason("router_error", f"the router failed ({_kind(error)}): direct lane"),),
    )


def _refusal(message: str, param: str, code: int) -> ProxyException:
    kind = "invalid_request_error" if code == 400 else "permission_error"
    return ProxyException(message=message, type=kind, param=param, code=code)


def _status_code(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
            return int(value)
    return None


def _kind(error: BaseException) -> str:
    code = _status_code(error)
    return type(error).__name__ + (f" {code}" if code else "")


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    return type(error).__name__ + place


handler = sole(SmartRouter)
sole(install)
