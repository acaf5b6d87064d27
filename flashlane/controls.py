"""flashlane's own fields in a request: the lane a client forces, the keep ratio it wants.

Pure. A field that is wrong is refused with its name and the accepted values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Lane = Literal["direct", "pflash", "verify"]
LANES: tuple[Lane, ...] = ("direct", "pflash", "verify")
LANE_ALIASES: Mapping[str, Lane] = {
    "direct": "direct",
    "pflash": "pflash",
    "verify": "verify",
    "direct_exact": "direct",
    "pflash_broad": "pflash",
    "pflash_then_direct_verify": "verify",
}
ROUTE_FIELDS = ("route", "x_route", "smart_route")
ROUTE_HEADER = "x-flashlane-route"
PFLASH_MODES = ("off", "auto", "always")
MAX_MIN_KEEP_TOKENS = 2**31 - 1
"""The server reads `min_keep_tokens` into a signed 32-bit integer."""
_PFLASH_KEYS = ("mode", "keep_ratio", "min_keep_tokens")
_PFLASH_FLAT = {f"pflash_{key}": key for key in _PFLASH_KEYS}
PRIVATE_FIELDS = (*ROUTE_FIELDS, "pflash", *_PFLASH_FLAT)
"""Body fields that are ours: read here, and removed before the request leaves the proxy."""

_SHOWN_MAX_CHARS = 80
_BIG = 10**_SHOWN_MAX_CHARS
"""Python refuses to write out an integer of some thousand digits."""


class RequestError(ValueError):
    """A request that is refused with 400. `param` names the field at fault."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class Controls:
    """What the client asked of flashlane itself, validated."""

    lane: Lane | None = None
    lane_field: str = ""
    keep_ratio: float | None = None
    min_keep_tokens: int | None = None


def shown(value: object) -> str:
    """`value` as an error names it: a client's value may be as long as a prompt."""
    if isinstance(value, str):
        text = repr(value[: _SHOWN_MAX_CHARS + 1])
    elif isinstance(value, (bool, float)) or (isinstance(value, int) and -_BIG < value < _BIG):
        text = repr(value)
    else:
        text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX_CHARS else f"{text[:_SHOWN_MAX_CHARS]}…"


def _key(key: object) -> str:
    """A client's own key as an error and its `param` name it: short, and text that encodes."""
    return ascii(key)[1:-1][:_SHOWN_MAX_CHARS] if isinstance(key, str) else type(key).__name__


def read_controls(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Controls:
    """The client's own choice of lane and keep ratio.

    Raises `RequestError` for an unknown value, and for two fields that contradict each other.
    """
    named: list[tuple[str, str, Lane]] = []
    for field in ROUTE_FIELDS:
        if body.get(field) is not None:
            lane = _lane_of(field, body[field])
            named.append((field, body[field], lane))
    for name, value in (headers or {}).items():
        if name.lower() == ROUTE_HEADER:
            named.append((ROUTE_HEADER, value, _lane_of(ROUTE_HEADER, value)))
    pflash = _pflash_fields(body)
    mode = pflash.get("mode")
    if mode == "off":
        named.append(("pflash.mode", "off", "direct"))
    elif mode == "always":
        named.append(("pflash.mode", "always", "pflash"))
    for field, value, lane in named[1:]:
        if lane != named[0][2]:
            raise RequestError(
                f"{named[0][0]} is {shown(named[0][1])} and {field} is {shown(value)}: "
                "they ask for different lanes; send one of them",
                field,
            )
    return Controls(
        lane=named[0][2] if named else None,
        lane_field=named[0][0] if named else "",
        keep_ratio=pflash.get("keep_ratio"),
        min_keep_tokens=pflash.get("min_keep_tokens"),
    )


def _lane_of(field: str, value: object) -> Lane:
    lane = LANE_ALIASES.get(value.strip()) if isinstance(value, str) else None
    if lane is None:
        accepted = ", ".join(LANE_ALIASES)
        raise RequestError(f"{field} is {shown(value)}; accepted values: {accepted}", field)
    return lane


def _pflash_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    nested = body.get("pflash")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise RequestError(
                f"pflash is {shown(nested)}; it must be an object with {', '.join(_PFLASH_KEYS)}",
                "pflash",
            )
        for key, value in nested.items():
            if key not in _PFLASH_KEYS:
                raise RequestError(
                    f"pflash.{_key(key)} is not known; accepted keys: {', '.join(_PFLASH_KEYS)}",
                    f"pflash.{_key(key)}",
                )
            if value is not None:
                fields[key] = _pflash_value(f"pflash.{key}", key, value)
    for field in body:
        ours = isinstance(field, str) and field.startswith(("pflash_", "kvflash"))
        if ours and field not in _PFLASH_FLAT and body[field] is not None:
            raise RequestError(
                f"{_key(field)} is not known; accepted fields: pflash, {', '.join(_PFLASH_FLAT)}",
                _key(field),
            )
    for flat, key in _PFLASH_FLAT.items():
        if body.get(flat) is None:
            continue
        value = _pflash_value(flat, key, body[flat])
        if key in fields and fields[key] != value:
            raise RequestError(
                f"{flat} is {shown(value)} and pflash.{key} is {shown(fields[key])}; "
                "send one of them",
                flat,
            )
        fields[key] = value
    return fields


def _pflash_value(field: str, key: str, value: object) -> object:
    if key == "mode":
        if value in PFLASH_MODES:
            return value
        raise RequestError(
            f"{field} is {shown(value)}; accepted values: {', '.join(PFLASH_MODES)}", field
        )
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "keep_ratio":
        if number and 0 < value <= 1:  # type: ignore[operator]
            return float(value)  # type: ignore[arg-type]
        raise RequestError(f"{field} is {shown(value)}; it must be above 0 and at most 1", field)
    if isinstance(value, int) and number and 0 <= value <= MAX_MIN_KEEP_TOKENS:
        return value
    raise RequestError(
        f"{field} is {shown(value)}; it must be a whole number of tokens, "
        f"0 to {MAX_MIN_KEEP_TOKENS}",
        field,
    )
