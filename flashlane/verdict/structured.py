"""Structured answers: JSON, YAML and CSV that parse, fit a schema, and what they state. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
import jsonschema.exceptions
import referencing.exceptions
import referencing.jsonschema
import yaml

from flashlane.decision import Reason

_FENCE = re.compile(r"\A\s*```[\w+-]{0,20}[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_MAX_CHARS = 200_000
_MAX_DEPTH = 60
_MAX_LEAVES = 400
_MAX_STRING = 2000


@dataclass(frozen=True)
class Leaf:
    """A value of a structured answer under the keys that lead to it."""

    keys: str
    value: object


def unfenced(answer: str) -> str:
    """What stands inside the answer's only code fence; the answer where there is none."""
    match = _FENCE.match(answer)
    return match[1] if match else answer.strip()


def looks_like_json(answer: str) -> bool:
    return unfenced(answer)[:1] in ("{", "[")


def parsed(answer: str, form: str) -> tuple[Any, Reason | None]:
    """(value, None), or (None, why it does not parse). `form` is json, yaml or csv."""
    text = unfenced(answer)
    if len(text) > _MAX_CHARS or _depth(text) > _MAX_DEPTH:
        return None, Reason("too_large", f"the {form} is too large or too deep to check")
    if form == "json":
        return _json(text)
    if form == "yaml":
        return _yaml(text)
    return _csv(text)


def _json(text: str) -> tuple[Any, Reason | None]:
    try:
        return json.loads(text), None
    except (ValueError, RecursionError):
        return None, Reason("json_broken", "the answer is not valid JSON")


def _yaml(text: str) -> tuple[Any, Reason | None]:
    if re.search(r"(?m)(?:^|[\s\[,:])[&*]\w", text):
        return None, Reason("yaml_broken", "the answer's YAML has anchors")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return None, Reason("yaml_broken", "the answer is not valid YAML")
    if not isinstance(value, (dict, list)):
        return None, Reason("yaml_broken", "the answer's YAML holds no list and no mapping")
    return value, None


def _csv(text: str) -> tuple[Any, Reason | None]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except (csv.Error, ValueError):
        return None, Reason("csv_broken", "the answer is not valid CSV")
    if len(rows) < 2 or len({len(row) for row in rows}) != 1:
        return None, Reason("csv_broken", "the answer's CSV has rows of different lengths")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]], None


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in re.findall(r"[\[{}\]]", text):
        depth += 1 if char in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def schema_problem(value: Any, schema: Mapping[str, Any]) -> Reason | None:
    """Why `value` does not fit `schema`; a schema that is none fits nothing.

    References to other documents are never fetched: such a schema counts as not fitting.
    """
    if not all(_is_tame(pattern) for pattern in _patterns(schema)):
        return Reason("schema_pattern", "the request's schema has a pattern too costly to try")
    if any(isinstance(leaf.value, str) and len(leaf.value) > _MAX_STRING for leaf in leaves(value)):
        return Reason("too_large", "the answer holds a string too long to check")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    rules = dict(schema)
    try:
        kind.check_schema(rules)
        error = next(
            iter(kind(rules, registry=referencing.jsonschema.EMPTY_REGISTRY).iter_errors(value)),
            None,
        )
    except jsonschema.exceptions.SchemaError:
        return Reason("schema_broken", "the request's schema is not valid")
    except (RecursionError, re.error, TypeError, referencing.exceptions.Unresolvable):
        return Reason("schema_broken", "the request's schema cannot be applied")
    if error is None:
        return None
    where = "/".join(str(part)[:40] for part in list(error.absolute_path)[:6]) or "the top"
    return Reason("schema_violated", f"the answer breaks the schema at {where} ({error.validator})")


def _patterns(schema: object, depth: int = 0) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        yield "(x*)*"
    elif isinstance(schema, Mapping):
        for key, inner in schema.items():
            if key == "pattern" and isinstance(inner, str):
                yield inner
            elif key == "patternProperties" and isinstance(inner, Mapping):
                yield from (str(pattern) for pattern in inner)
            yield from _patterns(inner, depth + 1)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _patterns(inner, depth + 1)


def _is_tame(pattern: str) -> bool:
    """Whether `pattern` cannot backtrack for long: no repeated group, few open repetitions."""
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", pattern)
    if re.search(r"\)[*+{]|\(\?P?[=<]", bare) or re.search(r"\\[1-9]", pattern):
        return False
    return len(re.findall(r"[*+]|\{\d*,\}", bare)) <= 2


def leaves(value: object) -> list[Leaf]:
    """The scalars of `value`, at most `_MAX_LEAVES` + 1 of them."""
    found: list[Leaf] = []
    for leaf in _leaves(value, ""):
        found.append(leaf)
        if len(found) > _MAX_LEAVES:
            break
    return found


def too_many(found: list[Leaf]) -> bool:
    return len(found) > _MAX_LEAVES


def _leaves(value: object, keys: str) -> Iterator[Leaf]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{keys} {key}".strip())
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, keys)
    else:
        yield Leaf(keys, value)
