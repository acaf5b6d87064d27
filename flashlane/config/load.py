"""Reading the one LiteLLM config file, and checking its `flashlane:` section key by key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from flashlane.config.checks import check
from flashlane.config.settings import ConfigError, Deployment, FlashlaneConfig


def load_config(path: Path) -> FlashlaneConfig:
    """The checked section of the config at `path`. Raises `ConfigError`."""
    document = _read(path)
    section = document.get("flashlane")
    try:
        config = FlashlaneConfig.model_validate({} if section is None else section)
    except ValidationError as error:
        raise ConfigError(f"{path.name}: {_sentence(error)}") from error
    check(path.name, config, {d.model_name for d in _deployments(document)})
    return config


def load_litellm(path: Path) -> list[Deployment]:
    """LiteLLM's deployments in the config at `path`. Raises `ConfigError`."""
    return list(_deployments(_read(path)))


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"config file {path} is not valid YAML{line}") from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"config file {path} must be a YAML mapping with model_list and flashlane"
        )
    return document


def _deployments(document: dict[str, Any]) -> Iterable[Deployment]:
    for entry in document.get("model_list") or []:
        if isinstance(entry, dict) and isinstance(entry.get("model_name"), str):
            params = entry.get("litellm_params")
            base, model = (
                (params.get("api_base"), params.get("model"))
                if isinstance(params, dict)
                else (None, None)
            )
            yield Deployment(
                entry["model_name"], base if isinstance(base, str) else None, str(model or "")
            )


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    # "[key]" says that the name itself is at fault, which the sentence shows anyway.
    key = ".".join(str(part) for part in ("flashlane", *first["loc"]) if part != "[key]")
    if first["type"] == "extra_forbidden":
        known = _known_keys(first["loc"][:-1])
        close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{key} is not a known key; {hint}known keys here: {', '.join(known)}"
    if first["type"] == "missing":
        return f"{key} is missing; every backend needs it"
    return f"{key} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Field names of the section that a validation error's location points into."""
    section: type[BaseModel] = FlashlaneConfig
    for part in location:
        field = section.model_fields.get(str(part))
        if field is None:
            continue
        for candidate in (field.annotation, *get_args(field.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                section = candidate
    return sorted(section.model_fields)
