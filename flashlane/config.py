"""The `flashlane:` section of the one LiteLLM config file, checked key by key."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Ratio = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[int, Field(ge=0, le=2**31 - 1)]
Speed = Annotated[float, Field(gt=0)]


_OWN_ARGS = {"--host", "--port", "--api-key", "--api-key-file"}
"""Arguments that would undo a check made here."""
_REACHING_ARGS = {
    "--tools",
    "--tools-runtime",
    "--agent",
    "-ag",
    "--mcp-servers-config",
    "--mcp-servers-json",
    "--ui-mcp-proxy",
    "--webui-mcp-proxy",
    "--media-path",
    "--slot-save-path",
    "--path-prompts-log-dir",
    "--rpc",
}
"""Arguments by which a request could reach files, programs or other hosts (docs/security.md)."""


class ConfigError(ValueError):
    """One sentence: the key, its value, and what would work."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PFlashConfig(_Section):
    """`--pflash-*` flags of the server; None leaves the server's own default."""

    mode: Literal["off", "auto", "always"] | None = None
    keep_ratio: Ratio | None = None
    score: Literal["uniform", "lexical", "external-helper", "model"] | None = None
    model: str | None = None
    drafter: str | None = None
    min_tokens: Tokens | None = None
    min_keep_tokens: Tokens | None = None
    protected_prefix: Tokens | None = None
    protected_suffix: Tokens | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = None
    adaptive: Ratio | None = None
    recall_tokens: Tokens | None = None
    marker: str | None = None
    debug_dir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _yaml_off(cls, values: Any) -> Any:
        """YAML reads a bare `off` as false."""
        if isinstance(values, dict) and values.get("mode") is False:
            return {**values, "mode": "off"}
        return values


class KVFlashConfig(_Section):
    """`--kvflash*` flags of the server; None leaves the server's own default."""

    budget: Tokens | Literal["auto"] | None = None
    policy: Literal["lru", "qk", "drafter"] | None = None
    drafter: str | None = None
    tau: Annotated[int, Field(ge=1, le=65536)] | None = None
    store: str | None = None
    store_mb: Annotated[int, Field(ge=1)] | None = None


class SpeedsConfig(_Section):
    """Seeds of the cost model, in tokens per second."""

    prefill_tokens_per_s: Speed | None = None
    decode_tokens_per_s: Speed | None = None
    scorer_tokens_per_s: Speed | None = None


class BackendConfig(_Section):
    """One llama-server process."""

    model: str
    port: Annotated[int, Field(ge=1, le=65535)]
    host: str = "127.0.0.1"
    api_key_env: str | None = None
    start: Literal["lazy", "eager"] = "lazy"
    context_tokens: Annotated[int, Field(ge=256)] = 8192
    slots: Annotated[int, Field(ge=1, le=256)] = 2
    threads: Annotated[int, Field(ge=1)] | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    server: str | None = None
    pflash: PFlashConfig = PFlashConfig()
    kvflash: KVFlashConfig = KVFlashConfig()
    speeds: SpeedsConfig = SpeedsConfig()
    args: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """Where the supervisor and the proxy reach it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{host}:{self.port}"


class LaneGroups(_Section):
    """LiteLLM model group of each lane; `direct` is the client's own group when absent."""

    direct: str | None = None
    pflash: str | None = None
    verify: str | None = None


class PolicyConfig(_Section):
    """Bounds of the routing decision."""

    min_prompt_tokens: Tokens = 2048
    keep_ratio: Ratio = 0.5
    min_saving_ms: Annotated[float, Field(ge=0)] = 500.0


class AffinityConfig(_Section):
    """What is remembered of which deployment holds which prompt, and when it decides."""

    max_links: Annotated[int, Field(ge=1)] = 20_000
    """Beginnings of prompts remembered for each server, about one for 128 tokens."""
    ttl_s: Annotated[float, Field(ge=1)] = 3600.0
    min_saving_ms: Annotated[float, Field(ge=0)] = 500.0
    """A beginning of less than half the prompt decides only from this saving on."""


class RouteLogConfig(_Section):
    """Where route records go; `store_text` adds the ask's text to them."""

    sqlite: str | None = None
    jsonl: str | None = None
    store_text: bool = False


class FlashlaneConfig(_Section):
    """The whole section."""

    backends: dict[str, BackendConfig] = Field(default_factory=dict)
    memory_budget_mb: Annotated[int, Field(ge=1)] | None = None
    lanes: dict[str, LaneGroups] = Field(default_factory=dict)
    compressor: str | None = None
    """The backend that compresses for lanes whose engines are not flashlane's."""
    policy: PolicyConfig = PolicyConfig()
    affinity: AffinityConfig = AffinityConfig()
    route_log: RouteLogConfig = RouteLogConfig()


@dataclass(frozen=True)
class Deployment:
    """One entry of LiteLLM's `model_list`."""

    model_name: str
    api_base: str | None


def load_config(path: Path) -> FlashlaneConfig:
    """The checked section of the config at `path`. Raises `ConfigError`."""
    document = _read(path)
    section = document.get("flashlane")
    try:
        config = FlashlaneConfig.model_validate({} if section is None else section)
    except ValidationError as error:
        raise ConfigError(f"{path.name}: {_sentence(error)}") from error
    _check_backends(path, config)
    _check_compressor(path, config)
    _check_lanes(path, config, {d.model_name for d in _deployments(document)})
    return config


def load_litellm(path: Path) -> list[Deployment]:
    """LiteLLM's deployments in the config at `path`. Raises `ConfigError`."""
    return list(_deployments(_read(path)))


def backend_for_api_base(config: FlashlaneConfig, api_base: str | None) -> str | None:
    """Name of the backend that listens at `api_base`, by host and port; None if none does."""
    if not api_base:
        return None
    parts = urlsplit(api_base)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    for name, backend in config.backends.items():
        if port == backend.port and _same_host(parts.hostname or "", backend.host):
            return name
    return None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _same_host(one: str, other: str) -> bool:
    return one == other or (is_loopback(one) and (is_loopback(other) or other in ("0.0.0.0", "::")))


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
            base = params.get("api_base") if isinstance(params, dict) else None
            yield Deployment(entry["model_name"], base if isinstance(base, str) else None)


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in ("flashlane", *first["loc"]))
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


def _check_backends(path: Path, config: FlashlaneConfig) -> None:
    ports: dict[int, str] = {}
    for name, backend in config.backends.items():
        key = f"{path.name}: flashlane.backends.{name}"
        if not is_loopback(backend.host) and not backend.api_key_env:
            raise ConfigError(
                f"{key}.host is {backend.host!r}, which other machines can reach; set "
                "api_key_env to the name of a variable that holds a key, or use 127.0.0.1"
            )
        for argument in backend.args:
            flag = argument.split("=")[0]
            if flag in _REACHING_ARGS:
                raise ConfigError(
                    f"{key}.args holds {argument!r}, by which a request could reach files, "
                    "programs or other hosts of this machine; leave it out"
                )
            if flag in _OWN_ARGS:
                raise ConfigError(
                    f"{key}.args holds {argument!r}, which flashlane decides; "
                    "use the backend's own keys (host, port, api_key_env) and leave it out"
                )
        if backend.port in ports:
            raise ConfigError(
                f"{key}.port is {backend.port}, which backend {ports[backend.port]!r} has "
                "already; give each backend a port of its own"
            )
        ports[backend.port] = name


def _check_compressor(path: Path, config: FlashlaneConfig) -> None:
    if config.compressor is None:
        return
    backend = config.backends.get(config.compressor)
    if backend is None or backend.pflash.mode in (None, "off"):
        able = [name for name, b in config.backends.items() if b.pflash.mode not in (None, "off")]
        raise ConfigError(
            f"{path.name}: flashlane.compressor is {config.compressor!r}; it must name a backend "
            f"whose pflash.mode is auto or always: {', '.join(able) or 'there is none'}"
        )


def _check_lanes(path: Path, config: FlashlaneConfig, groups: set[str]) -> None:
    for model, lanes in config.lanes.items():
        named = {"": model, **{f".{k}": v for k, v in lanes.model_dump().items() if v}}
        for suffix, group in named.items():
            if group not in groups:
                raise ConfigError(
                    f"{path.name}: flashlane.lanes.{model}{suffix} names model group {group!r}, "
                    f"which model_list does not have; it has: {', '.join(sorted(groups)) or 'none'}"
                )
