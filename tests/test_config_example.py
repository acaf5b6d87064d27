"""The commented example and the JSON Schema: they hold every key, and say what the code says."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from flashlane.config import FlashlaneConfig, load_config
from flashlane.config.schema import config_schema

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "config.example.yaml"
SCHEMA = ROOT / "docs" / "config.schema.json"
_KEY = re.compile(r"^( +)([a-z_]+):(.*)$")


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a section; `*` stands for a name that the user chooses."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        types = (field.annotation, *get_args(field.annotation))
        inner = [t for t in types if isinstance(t, type) and issubclass(t, BaseModel)]
        named = getattr(field.annotation, "__origin__", None) is dict
        for section in inner:
            yield from keys(section, (*path, name, "*") if named else (*path, name))


def holds(value: object, path: tuple[str, ...]) -> bool:
    if not path:
        return True
    if not isinstance(value, Mapping):
        return False
    if path[0] == "*":
        return any(holds(inner, path[1:]) for inner in value.values())
    return path[0] in value and holds(value[path[0]], path[1:])


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return document


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_example_holds_every_key(example: dict[str, Any]) -> None:
    missing = [
        ".".join(path) for path in keys(FlashlaneConfig) if not holds(example["flashlane"], path)
    ]
    assert not missing, f"docs/config.example.yaml lacks {', '.join(missing)}"


def test_the_walk_over_the_keys_reaches_the_deepest() -> None:
    found = set(keys(FlashlaneConfig))
    assert ("backends", "*", "pflash", "keep_ratio") in found
    assert ("lanes", "*", "verify") in found
    assert not holds({"backends": {"a": {}}}, ("backends", "*", "port"))


def test_every_key_of_the_example_is_explained() -> None:
    """By a comment on its line, or by one on the lines above where it opens a section."""
    lines = EXAMPLE.read_text().splitlines()
    start = lines.index("flashlane:")
    silent = []
    for number, line in enumerate(lines[start + 1 :], start + 1):
        found = _KEY.match(line)
        if not found:
            continue
        above = lines[number - 1].strip().startswith("#")
        named_by_the_user = lines[number - 1].strip() == "lanes:"
        if "#" not in found[3] and not above and not named_by_the_user:
            silent.append(f"{number + 1}: {found[2]}")
    assert not silent


def test_the_example_loads_and_its_nulls_and_values_are_what_it_says() -> None:
    config = load_config(EXAMPLE)
    fresh = FlashlaneConfig()
    assert config.affinity == fresh.affinity
    assert config.sidecar == fresh.sidecar
    assert config.gears == fresh.gears
    assert config.route_log == fresh.route_log
    assert (config.reload, config.compressor) == (fresh.reload, fresh.compressor)
    assert config.policy.model_copy(update={"min_prompt_tokens": 2048}) == fresh.policy


def test_the_schema_in_the_repository_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text()) == config_schema(), (
        "run: flashlane config-schema > docs/config.schema.json"
    )


def test_the_command_prints_it() -> None:
    command = [sys.executable, "-m", "flashlane.cli", "config-schema"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == SCHEMA.read_text()


@pytest.mark.parametrize("path", [EXAMPLE, ROOT / "litellm_config.yaml"], ids=lambda p: p.name)
def test_real_configs_are_valid(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    assert not list(validator.iter_errors(yaml.safe_load(path.read_text())))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("polcy",), {}),
        (("policy", "keep_ration"), 0.5),
        (("policy", "keep_ratio"), 0),
        (("policy", "keep_ratio"), 1.5),
        (("policy", "keep_ratios"), {"sumary": 0.4}),
        (("policy", "verify_kinds"), ["retreival"]),
        (("policy", "max_kept_tokens"), 0),
        (("gears", "choices"), [0, 99]),
        (("sidecar", "mode"), "on"),
        (("backends", "local", "port"), 70_000),
        (("backends", "local", "prot"), 1),
        (("backends", "local", "pflash", "score"), "guess"),
        (("lanes", "local", "fast"), "local"),
        (("reload",), "sometimes"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_what_the_loader_refuses_the_schema_refuses(
    example: dict[str, Any],
    validator: jsonschema.Draft202012Validator,
    path: tuple[str, ...],
    value: object,
) -> None:
    document = copy.deepcopy(example)
    section = document["flashlane"]
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    assert list(validator.iter_errors(document))
    with pytest.raises(ValueError):
        FlashlaneConfig.model_validate(document["flashlane"])


def test_a_backend_without_a_model_is_refused_by_the_schema_too(
    example: dict[str, Any], validator: jsonschema.Draft202012Validator
) -> None:
    document = copy.deepcopy(example)
    del document["flashlane"]["backends"]["local"]["model"]
    assert [error.validator for error in validator.iter_errors(document)] == ["required"]
