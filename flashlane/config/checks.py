"""What one key of the config asks of another, or of the rest of the file."""

from __future__ import annotations

from flashlane.config.settings import ConfigError, FlashlaneConfig, is_loopback

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


def check(file: str, config: FlashlaneConfig, groups: set[str]) -> None:
    """Raises `ConfigError`, whose sentence begins with the name of the file.

    `groups` are the model groups of LiteLLM's `model_list`.
    """
    _check_backends(file, config)
    _check_compressor(file, config)
    _check_lanes(file, config, groups)
    _check_sidecar(file, config, groups)


def _check_backends(file: str, config: FlashlaneConfig) -> None:
    ports: dict[int, str] = {}
    for name, backend in config.backends.items():
        key = f"{file}: flashlane.backends.{name}"
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


def _check_compressor(file: str, config: FlashlaneConfig) -> None:
    if config.compressor is None:
        return
    backend = config.backends.get(config.compressor)
    if backend is None or backend.pflash.mode in (None, "off"):
        able = [name for name, b in config.backends.items() if b.pflash.mode not in (None, "off")]
        raise ConfigError(
            f"{file}: flashlane.compressor is {config.compressor!r}; it must name a backend "
            f"whose pflash.mode is auto or always: {', '.join(able) or 'there is none'}"
        )


def _check_lanes(file: str, config: FlashlaneConfig, groups: set[str]) -> None:
    for model, lanes in config.lanes.items():
        named = {"": model, **{f".{k}": v for k, v in lanes.model_dump().items() if v}}
        for suffix, group in named.items():
            if group not in groups:
                raise ConfigError(
                    f"{file}: flashlane.lanes.{model}{suffix} names model group {group!r}, "
                    f"which model_list does not have; it has: {', '.join(sorted(groups)) or 'none'}"
                )


def _check_sidecar(file: str, config: FlashlaneConfig, groups: set[str]) -> None:
    sidecar = config.sidecar
    has = ", ".join(sorted(groups)) or "none"
    if sidecar.mode != "off" and sidecar.model is None:
        raise ConfigError(
            f"{file}: flashlane.sidecar.mode is {sidecar.mode!r}, which needs sidecar.model: "
            f"a model group of model_list; it has: {has}"
        )
    if sidecar.model is not None and sidecar.model not in groups:
        raise ConfigError(
            f"{file}: flashlane.sidecar.model names model group {sidecar.model!r}, "
            f"which model_list does not have; it has: {has}"
        )
