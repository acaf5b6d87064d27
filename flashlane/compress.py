"""Compression at the proxy: a flashlane backend shortens a prompt that another engine will read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from flashlane.request import Kind

_TIME_LIMIT_S = 120.0
_CONNECT_LIMIT_S = 5.0


class CompressError(RuntimeError):
    """The prompt was not shortened; the message is one word for logs and records."""


@dataclass(frozen=True)
class Material:
    """What of a body may be shortened, as chat messages, and how the shorter ones go back."""

    messages: list[dict[str, Any]]
    put_back: Callable[[list[dict[str, Any]]], Mapping[str, Any]]
    """Takes the shortened messages and returns the body's fields to replace."""


def material(body: Mapping[str, Any], kind: Kind) -> Material | None:
    """The messages in a body of any API; None where its prompt is of another shape."""
    if kind == "completion":
        return _of_text(body.get("prompt"), "prompt")
    if kind == "responses" and isinstance(body.get("input"), str):
        return _of_text(body["input"], "input")
    field = "input" if kind == "responses" else "messages"
    messages = body.get(field)
    if not isinstance(messages, list) or not all(_is_message(item) for item in messages):
        return None
    return Material(messages, lambda shorter: {field: shorter})


def _of_text(text: object, field: str) -> Material | None:
    if not isinstance(text, str):
        return None
    return Material(
        [{"role": "user", "content": text}], lambda shorter: {field: shorter[0]["content"]}
    )


def _is_message(item: object) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("role"), str)
        and isinstance(item.get("content"), (str, list))
    )


async def compress(
    base_url: str,
    key: str | None,
    messages: list[dict[str, Any]],
    keep_ratio: float,
    min_keep_tokens: int | None,
) -> dict[str, Any]:
    """The answer of `POST /pflash/compress` at `base_url`.

    Raises `CompressError`.
    """
    body: dict[str, Any] = {"messages": messages, "keep_ratio": keep_ratio}
    if min_keep_tokens is not None:
        body["min_keep_tokens"] = min_keep_tokens
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Timeout(_TIME_LIMIT_S, connect=_CONNECT_LIMIT_S)
    try:
        async with httpx.AsyncClient(timeout=limits) as client:
            reply = await client.post(f"{base_url}/pflash/compress", json=body, headers=headers)
        if reply.status_code != 200:
            raise CompressError(f"compressor_http_{reply.status_code}")
        found = reply.json()
    except httpx.TimeoutException as error:
        raise CompressError("compressor_timeout") from error
    except httpx.HTTPError as error:
        raise CompressError("compressor_unreachable") from error
    except ValueError as error:
        raise CompressError("compressor_garbage") from error
    answer: dict[str, Any] = found if isinstance(found, dict) else {}
    shorter = answer.get("messages")
    if not isinstance(shorter, list) or len(shorter) != len(messages):
        raise CompressError("compressor_garbage")
    return answer
