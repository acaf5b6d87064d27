"""Reading what LiteLLM hands to hooks: mappings, models of several kinds, server-sent events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def get(payload: object, key: str) -> object:
    """A field of a mapping or of a model; None where there is none.

    Every streamed chunk is asked for some that it lacks: pydantic takes ten times as long to say no
    by `getattr` as a look at what the model holds.
    """
    if isinstance(payload, BaseModel):
        if key in payload.__dict__:
            return payload.__dict__[key]
        extra = payload.__pydantic_extra__
        return extra.get(key) if extra else None
    return payload.get(key) if isinstance(payload, Mapping) else getattr(payload, key, None)


def as_mapping(value: object) -> dict[str, Any]:
    """A mapping or a model as a dict; empty for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, dict) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def payloads(chunk: object) -> list[object]:
    """A streamed chunk as objects: LiteLLM hands on models, or raw events of other APIs."""
    if not isinstance(chunk, (bytes, str)):
        return [chunk]
    text = chunk.decode("utf-8", "replace") if isinstance(chunk, bytes) else chunk
    found: list[object] = []
    for line in text.splitlines():
        if line.startswith("data:") and '"' in line:
            try:
                found.append(json.loads(line[5:]))
            except ValueError:
                continue
    return found
