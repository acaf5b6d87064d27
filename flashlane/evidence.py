"""What the proxy tells about itself: feedback in, metrics and a status page out.

The routes join LiteLLM's own app and use its authentication. An admin key sees all records, any
other key those that it made itself.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import time
from collections.abc import Callable
from importlib import resources
from typing import Annotated, Any, Literal, TypeVar, get_args

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from litellm.proxy._types import LiteLLMRoutes, ProxyException
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flashlane import __version__
from flashlane.backends.channel import BackendStatus
from flashlane.backends_view import backends_view
from flashlane.keys import Viewer, viewer_of
from flashlane.metrics import exposition, totals
from flashlane.report import Report, Scope, report
from flashlane.routelog import Feedback, RouteRecord
from flashlane.runtime import Runtime, runtime
from flashlane.words import sentences

log = logging.getLogger("flashlane.evidence")

PREFIX = "/flashlane"
_OWN_PATHS = (f"{PREFIX}/feedback", f"{PREFIX}/data", f"{PREFIX}/metrics")
_RECENT = 25
_MAX_HOURS = 24 * 366 * 10
_MAX_BODY_BYTES = 4096
_MAX_SHOWN_CHARS = 300
"""A client names models and ids, at any length; the page gets the beginning."""
_RECORD_WAIT_S = 2.0
"""A record is written after its answer: feedback may come before it."""
_RECORD_POLL_S = 0.1
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _CSP,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_UNSTORED = {"Cache-Control": "no-store"}

T = TypeVar("T")
Key = Annotated[Any, Depends(user_api_key_auth)]
"""LiteLLM's `UserAPIKeyAuth` of whoever asks; without a valid key the answer is its 401."""
_Errors = Literal["invalid_request_error", "permission_error", "not_found_error", "server_error"]


class FeedbackBody(BaseModel):
    """What a client says of an answer; `request_id` is the header `x-flashlane-request-id`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request_id: str = Field(min_length=1, max_length=300)
    verdict: Feedback


router = APIRouter(prefix=PREFIX)


def _file(name: str) -> str:
    return (resources.files("flashlane") / "status" / name).read_text(encoding="utf-8")


async def _feedback_body(request: Request) -> FeedbackBody:
    """Read before the key is looked at: LiteLLM's own reading fails on JSON that is no object.

    Nobody has been asked for a key yet, so a body must say its length, and no more is read.
    """
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:
        raise _error("invalid_request_error", "the body must come with a content-length", None, 411)
    if len(length) > 9 or int(length) > _MAX_BODY_BYTES:
        limit = f"the body may have {_MAX_BODY_BYTES} bytes at most"
        raise _error("invalid_request_error", limit, None, 413)
    fields = ", ".join(FeedbackBody.model_fields)
    expected = f"the body must be a JSON object with {fields}"
    if "form" in request.headers.get("content-type", ""):
        raise _error("invalid_request_error", expected, None, 400)
    try:
        return FeedbackBody.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if not first["loc"]:
        raise _error("invalid_request_error", expected, None, 400)
    name = str(first["loc"][0])[:80]
    given = repr(first["input"])[:80]
    said = {
        "missing": f"{name} is missing; {expected}",
        "extra_forbidden": f"{name} is not known; accepted fields: {fields}",
        "literal_error": f"{name} is {given}; accepted values: {', '.join(get_args(Feedback))}",
    }
    text = said.get(first["type"], f"{name} is {given}; it must be a text of 1 to 300 characters")
    raise _error("invalid_request_error", text, name, 400)


Body = Annotated[FeedbackBody, Depends(_feedback_body)]


@router.post("/feedback")
async def feedback(body: Body, key: Key) -> JSONResponse:
    viewer = viewer_of(key)
    if not viewer.may_write:
        raise _error("permission_error", "this key may look, but not change anything", None, 403)
    state = _runtime()
    deadline = time.monotonic() + _RECORD_WAIT_S
    while not await _in_thread(
        lambda: state.route_log.feedback(body.request_id, body.verdict, viewer.scope)
    ):
        if time.monotonic() > deadline:
            raise _error(
                "not_found_error",
                f"no request {body.request_id[:80]!r} of this key is recorded; send the header "
                "x-flashlane-request-id of an answer that is complete",
                "request_id",
                404,
            )
        await asyncio.sleep(_RECORD_POLL_S)
    return JSONResponse({"request_id": body.request_id, "verdict": body.verdict})


@router.get("/metrics")
async def metrics(key: Key) -> Response:
    if not viewer_of(key).admin:
        raise _error(
            "permission_error",
            "metrics count all keys' requests: an admin key is needed",
            None,
            403,
        )
    state = _runtime()

    def read() -> Any:
        with state.route_log.reading() as connection:
            return totals(connection)

    counted, statuses = await asyncio.gather(_in_thread(read), _statuses(state))
    text = exposition(counted, state.reload_state, tuple(statuses.values()))
    return Response(text, media_type=CONTENT_TYPE_LATEST, headers=_UNSTORED)


@router.get("/data")
async def data(request: Request, key: Key) -> JSONResponse:
    viewer, now = viewer_of(key), time.time()
    hours = _hours(request.query_params.get("hours", "24"))
    state = _runtime()
    since = None if hours is None else now - 3600 * hours
    found, recent = await _in_thread(lambda: _read(state, viewer, since, now))
    shown: dict[str, Any] = {
        "version": __version__,
        "now": now,
        "hours": hours,
        "scope": "all" if viewer.admin else "key",
        "report": found.to_json(),
        "recent": [_recent(record) for record in recent],
        "backends": None,
        "config": None,
    }
    if viewer.admin:
        reload = state.reload_state
        shown["backends"] = await backends_view(state.config.backends, await _statuses(state))
        shown["config"] = {
            "loaded_at": reload.loaded_at,
            "reloads": reload.reloads,
            "error": reload.error,
            "waiting": list(reload.waiting),
            "watched": state.config.reload,
        }
    return JSONResponse(shown, headers=_UNSTORED)


@router.get("", include_in_schema=False)
async def page() -> HTMLResponse:
    """The page without any data, which its script asks for with the key that the user gives."""
    return HTMLResponse(_file("page.html"), headers=_PAGE_HEADERS)


def _serve(name: str, media_type: str) -> None:
    async def part() -> Response:
        return Response(_file(name), media_type=media_type, headers=_PAGE_HEADERS)

    router.add_api_route(f"/{name}", part, include_in_schema=False)


_serve("status.css", "text/css")
_serve("status.js", "text/javascript")
_serve("view.js", "text/javascript")
_serve("chart.js", "text/javascript")


def install() -> APIRouter:
    """Add the routes to the proxy's app, where this process is a proxy. Call it once (`sole`)."""
    app = getattr(sys.modules.get("litellm.proxy.proxy_server"), "app", None)
    if app is not None:
        # LiteLLM opens other routes to its admins alone; these look at the key themselves.
        LiteLLMRoutes.self_managed_routes.value.extend(_OWN_PATHS)
        app.include_router(router)
    return router


def _read(
    state: Runtime, viewer: Viewer, since: float | None, now: float
) -> tuple[Report, list[RouteRecord]]:
    with state.route_log.reading() as connection:
        found = report(connection, Scope(now, since, viewer.scope))
    # Whose key has no name sees nothing: "" stands for all whose key was refused.
    nobody = viewer.scope == ""
    records = state.route_log.records(_RECENT, since=since, key_id=viewer.scope)
    return found, [] if nobody else list(records)


def _recent(record: RouteRecord) -> dict[str, Any]:
    """A record as the page shows it: everything but the ask's text."""
    names = (
        "request_id time key_alias endpoint model deployment lane kind exact keep_ratio gear "
        "placement stream original_tokens kept_tokens cached_tokens pflash_reason ttft_ms total_ms "
        "predicted_direct_ms verdict answered_by sidecar feedback status error"
    )
    values = {name: getattr(record, name) for name in names.split()}
    return {
        **{n: v[:_MAX_SHOWN_CHARS] if isinstance(v, str) else v for n, v in values.items()},
        "reasons": sentences(record.reasons),
        "verdict_reasons": sentences(record.verdict_reasons),
    }


async def _statuses(state: Runtime) -> dict[str, BackendStatus]:
    return await state.statuses() if state.config.backends else {}


async def _in_thread(work: Callable[[], T]) -> T:
    """`work` on the route log; a log that cannot be used is a 503 which says so."""
    try:
        return await asyncio.to_thread(work)
    except (sqlite3.Error, OSError) as error:
        log.error("the route log cannot be used: %s", error)
        raise _error("server_error", "the route log cannot be used", None, 503) from error


def _runtime() -> Runtime:
    try:
        return runtime()
    except Exception as error:
        log.error("flashlane has no state to show: %s", error)
        raise _error("server_error", "flashlane could not start", None, 503) from error


def _hours(text: str) -> float | None:
    """A span in hours, None for all of it."""
    if text == "all":
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= _MAX_HOURS:
        raise _error(
            "invalid_request_error",
            f"hours is {text[:80]!r}; it must be 'all' or a number above 0, {_MAX_HOURS} at most",
            "hours",
            400,
        )
    return hours


def _error(kind: _Errors, message: str, param: str | None, code: int) -> ProxyException:
    return ProxyException(message=message, type=kind, param=param, code=code)
