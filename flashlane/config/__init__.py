"""The `flashlane:` section of the one LiteLLM config file, checked key by key."""

from flashlane.config.load import load_config, load_litellm
from flashlane.config.settings import (
    AffinityConfig,
    BackendConfig,
    ConfigError,
    Deployment,
    FlashlaneConfig,
    GearsConfig,
    KVFlashConfig,
    LaneGroups,
    PFlashConfig,
    PolicyConfig,
    RouteLogConfig,
    SidecarConfig,
    SpeedsConfig,
    VerifyConfig,
    backend_for_api_base,
    is_loopback,
)

__all__ = [
    "AffinityConfig",
    "BackendConfig",
    "ConfigError",
    "Deployment",
    "FlashlaneConfig",
    "GearsConfig",
    "KVFlashConfig",
    "LaneGroups",
    "PFlashConfig",
    "PolicyConfig",
    "RouteLogConfig",
    "SidecarConfig",
    "SpeedsConfig",
    "VerifyConfig",
    "backend_for_api_base",
    "is_loopback",
    "load_config",
    "load_litellm",
]
