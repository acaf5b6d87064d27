"""The keys of the `flashlane:` section: what each may hold, and what it is without an entry."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from flashlane.decision import BROAD_KINDS, EXACT_KINDS

_ASK_KINDS = (*EXACT_KINDS, *BROAD_KINDS)
_KINDS_SHOWN = ", ".join(_ASK_KINDS)


def _known_kind(kind: str) -> str:
    if kind not in _ASK_KINDS:
        raise PydanticCustomError("ask_kind", "A kind of ask is one of {k}", {"k": _KINDS_SHOWN})
    return kind


AskKind = Annotated[
    str,
    AfterValidator(_known_kind),
    WithJsonSchema({"type": "string", "enum": list(_ASK_KINDS)}),
]
Ratio = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[int, Field(ge=0, le=2**31 - 1)]
Speed = Annotated[float, Field(gt=0)]


class ConfigError(ValueError):
    """One sentence: the key, its value, and what would work."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _yaml_off(cls, values: Any) -> Any:
        """YAML reads a bare `off` as false."""
        if isinstance(values, dict) and values.get("mode") is False:
            return {**values, "mode": "off"}
        return values


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
    """Share kept of the material, for kinds of ask that `keep_ratios` does not name."""
    keep_ratios: dict[AskKind, Ratio] = Field(
        default_factory=lambda: {
            "retrieval": 0.2,
            "checking": 0.2,
            "summary": 0.4,
            "explanation": 0.4,
            "brainstorm": 0.4,
            "comparison": 0.5,
            "judgement": 0.5,
        }
    )
    max_kept_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] = 16_384
    """Material that is left of the longest prompts; the ratio falls to meet it."""
    min_saving_ms: Annotated[float, Field(ge=0)] = 500.0
    flip_margin_ms: Annotated[float, Field(ge=0)] = 500.0
    """What another lane must save before a conversation gives up what its lane has cached."""
    verify_kinds: tuple[AskKind, ...] = ("retrieval", "checking")
    """Kinds of ask that take the verify lane, where there is one."""


class GearsConfig(_Section):
    """How far drafters run ahead, by what that was measured to be worth."""

    mode: Literal["off", "auto"] = "off"
    choices: tuple[Annotated[int, Field(ge=0, le=64)], ...] = (0, 4, 8, 16)
    """Tokens of a draft at most; 0 is no drafting."""
    explore_every: Annotated[int, Field(ge=2)] = 20
    """One of so many requests of a kind tries the gear beside the best one."""

    @field_validator("choices")
    @classmethod
    def _rising(cls, choices: tuple[int, ...]) -> tuple[int, ...]:
        if len(choices) < 2 or list(choices) != sorted(set(choices)):
            raise PydanticCustomError(
                "gear_choices", "It must be two or more numbers, each above the one before it"
            )
        return choices


class AffinityConfig(_Section):
    """What is remembered of which deployment holds which prompt, and when it decides."""

    max_links: Annotated[int, Field(ge=1)] = 20_000
    """Beginnings of prompts remembered for each server, about one for 128 tokens."""
    ttl_s: Annotated[float, Field(ge=1)] = 3600.0
    min_saving_ms: Annotated[float, Field(ge=0)] = 500.0
    """A beginning of less than half the prompt decides only from this saving on."""


class SidecarConfig(_Section):
    """A model that is asked how exact an ask is, beside the rules."""

    mode: Literal["off", "shadow", "active"] = "off"
    model: str | None = None
    """The model group that is asked."""
    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 300
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Above it the sidecar may call an ask broad; at 1 it can make a decision safer, no more."""


class VerifyConfig(_Section):
    """The lane whose answers are checked."""

    keepalive_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """How long a stream is silent at most while its answer is made and checked."""


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
    gears: GearsConfig = GearsConfig()
    affinity: AffinityConfig = AffinityConfig()
    sidecar: SidecarConfig = SidecarConfig()
    verify: VerifyConfig = VerifyConfig()
    reload: bool = True
    """Whether a changed file takes effect in running proxies, as far as it can."""
    route_log: RouteLogConfig = RouteLogConfig()


@dataclass(frozen=True)
class Deployment:
    """One entry of LiteLLM's `model_list`."""

    model_name: str
    api_base: str | None
    model: str = ""
    """LiteLLM's name of the model behind it."""


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
