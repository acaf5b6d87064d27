"""What `flashlane doctor` looks at. Every check says what it found and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashlane.backends.channel import ControlError, place_of
from flashlane.backends.llama_server_patch.build import BuildError, engine_path
from flashlane.config import BackendConfig, ConfigError, FlashlaneConfig, load_config, load_litellm
from flashlane.models import CATALOGUE, ModelError, find_model
from flashlane.paths import state_dir
from flashlane.scorer import SCORER_MODEL, scorer_path

PROXY_PORT = 4000
_POISONED = re.compile(r"(1\.82\.[78]|1\.107\..*)")
"""LiteLLM releases on PyPI that carried malware."""


@dataclass(frozen=True)
class Check:
    """One finding; `fix` is what to do, None when nothing is to be done."""

    name: str
    ok: bool
    message: str
    fix: str | None = None


def run_checks(config_path: Path) -> list[Check]:
    """All checks, in the order in which their fixes make sense. Changes and starts nothing."""
    checks = [_compiler(), _tool("cmake", "cmake"), _tool("patch", "patch"), _engine()]
    checks += [_litellm(), _cost_map(), _master_key()]
    try:
        config = load_config(config_path)
        groups = len(load_litellm(config_path))
    except ConfigError as error:
        return [*checks, Check("config", False, str(error), "correct it and run doctor again")]
    found = f"{config_path}: {len(config.backends)} backends, {groups} deployments"
    checks.append(Check("config", True, found))
    for name, backend in config.backends.items():
        checks.append(_model(f"model of {name}", "model", backend.model))
        checks += _scorer(name, backend)
        if backend.server is not None:
            checks.append(_own_server(name, backend.server))
    return [*checks, *_ports(config, config_path)]


def _compiler() -> Check:
    name = os.environ.get("CXX", "c++")
    found = shutil.which(name)
    if found:
        return Check("C++ compiler", True, found)
    return Check(
        "C++ compiler",
        False,
        f"{name} is not in PATH",
        "apt-get install g++ (Debian), xcode-select --install (macOS)",
    )


def _tool(name: str, package: str) -> Check:
    found = shutil.which(name)
    fix = None if found else f"apt-get install {package} (Debian), brew install {package} (macOS)"
    return Check(name, found is not None, found or "not in PATH", fix)


def _engine() -> Check:
    try:
        server = engine_path()
    except BuildError as error:
        return Check("engine", False, str(error), "correct CMAKE_ARGS")
    if server is None:
        return Check(
            "engine",
            False,
            "no build of this source, these flags and this compiler",
            "flashlane build (6 to 9 minutes on 2 cores)",
        )
    return Check("engine", True, str(server))


def _model(title: str, key: str, named: str) -> Check:
    try:
        path = find_model(named)
    except ModelError as error:
        return Check(title, False, str(error), f"correct `{key}`")
    if path is not None:
        return Check(title, True, str(path))
    if named in CATALOGUE:
        return Check(
            title,
            False,
            f"{named} is not fetched yet",
            f"python -m flashlane.models {named}",
        )
    return Check(
        title,
        False,
        f"{named} is no file and no known name",
        f"give the path of a GGUF file or one of: {', '.join(CATALOGUE)}",
    )


def _scorer(name: str, backend: BackendConfig) -> list[Check]:
    """What PFlash needs beside the server, where the config asks for it."""
    pflash, checks = backend.pflash, []
    if pflash.model == SCORER_MODEL:
        path = scorer_path()
        made = path is not None and path.is_file()
        found = str(path) if made else f"{SCORER_MODEL} is not converted yet"
        checks.append(Check(f"scorer of {name}", made, found, None if made else "flashlane setup"))
    elif pflash.model is not None:
        checks.append(_model(f"scorer of {name}", "pflash.model", pflash.model))
    if pflash.drafter is not None:
        checks.append(_program(f"helper of {name}", pflash.drafter, "correct `pflash.drafter`"))
    return checks


def _own_server(name: str, server: str) -> Check:
    fix = "correct `server`, or leave it out for the cached build"
    return _program(f"server of {name}", server, fix)


def _program(title: str, named: str, fix: str) -> Check:
    """An executable file by its path; PATH is not searched."""
    path = Path(named).expanduser()
    usable = path.is_file() and os.access(path, os.X_OK)
    return Check(
        title, usable, str(path) if usable else f"{path} is no program", None if usable else fix
    )


def _ports(config: FlashlaneConfig, config_path: Path) -> list[Check]:
    ours = _answers(config_path)
    checks = [_port("proxy", "127.0.0.1", PROXY_PORT, ours, "pass --port to flashlane serve")]
    for name, backend in config.backends.items():
        checks.append(_port(name, backend.host, backend.port, ours, "give it another `port`"))
    return checks


def _port(name: str, host: str, port: int, supervised: bool, fix: str) -> Check:
    """`supervised`: this config's supervisor runs, so what listens there is taken for its own."""
    title, family = f"port of {name}", socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            if supervised:
                return Check(title, True, f"{port} is in use, and flashlane runs")
            return Check(title, False, f"{port} on {host}: {error.strerror}", f"stop it, or {fix}")
    return Check(title, True, f"{port} is free")


def _answers(config_path: Path) -> bool:
    """Whether the supervisor of this config runs."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(place_of(config_path).socket))
        except (ControlError, OSError):
            return False
    return True


def poisoned(version: str) -> bool:
    """Whether this LiteLLM release is one of those that carried malware."""
    return _POISONED.fullmatch(version) is not None


def _litellm(installed: Callable[[str], str] = importlib.metadata.version) -> Check:
    try:
        version = installed("litellm")
    except importlib.metadata.PackageNotFoundError:
        return Check("litellm", False, "not installed", "pip install flashlane")
    if poisoned(version):
        return Check(
            "litellm",
            False,
            f"{version} is a release that carried malware",
            "remove this environment, change every secret this machine held, install afresh",
        )
    return Check("litellm", True, version)


def _cost_map() -> Check:
    """`flashlane serve` sets it; without it a proxy fetches a price list at its start."""
    name = "LITELLM_LOCAL_MODEL_COST_MAP"
    if os.environ.get(name, "").lower() == "true":
        return Check("price list", True, f"{name} is set: nothing is fetched at start")
    return Check(
        "price list",
        True,
        "litellm started by hand fetches its price list from the network",
        f"export {name}=True (flashlane serve does)",
    )


def _master_key() -> Check:
    path = state_dir() / "master_key"
    if os.environ.get("LITELLM_MASTER_KEY"):
        return Check("master key", True, "from LITELLM_MASTER_KEY")
    try:
        about = path.lstat()
    except FileNotFoundError:
        return Check("master key", False, "not made yet", "python -m flashlane.setup")
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        return Check("master key", False, f"{path} is not a file of yours", f"remove {path}")
    if about.st_mode & 0o077:
        return Check("master key", False, f"{path} can be read by others", f"chmod 600 {path}")
    return Check("master key", True, str(path))
