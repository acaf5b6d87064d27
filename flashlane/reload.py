"""A changed config file takes effect in a running proxy, as far as it can without a restart."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watchfiles import watch

from flashlane.config import ConfigError, FlashlaneConfig, load_config, load_litellm
from flashlane.config.settings import Deployment

log = logging.getLogger("flashlane.reload")

LIVE_KEYS = frozenset({"lanes", "policy", "affinity", "sidecar", "reload", "gears", "verify"})
"""Keys of the section that a running proxy reads anew for each request."""
RESTART_KEYS = frozenset({"backends", "memory_budget_mb", "compressor", "route_log", "status_page"})
"""Keys that hold processes, files or routes which exist since the start."""
_LIVE_WITHIN = {"route_log": frozenset({"store_text"})}

_LOOK_S = 2.0
"""How often the file is looked at where no notice of a change arrives."""
_SETTLE_S = 0.1
_DEBOUNCE_MS = 200


@dataclass(frozen=True)
class Merged:
    """`config` is what may be in force now; the other two name keys, as `policy.keep_ratio`."""

    config: FlashlaneConfig
    changed: tuple[str, ...]
    waiting: tuple[str, ...]
    """Keys of the file that differ from what is in force until the proxy restarts."""


@dataclass(frozen=True)
class ReloadState:
    """How the last changes of the file went. `loaded_at` is Unix time in seconds."""

    loaded_at: float
    reloads: int = 0
    error: str = ""
    """Why the file as it is now is not in force; empty where it is."""
    waiting: tuple[str, ...] = ()


def merge(old: FlashlaneConfig, new: FlashlaneConfig, groups: Set[str]) -> Merged:
    """What of `new` can take the place of `old` now. `groups`: the model groups that LiteLLM runs.

    A lane or a sidecar whose model group LiteLLM does not run yet waits for the restart too.
    """
    taken: dict[str, Any] = {}
    waiting: list[str] = []
    for key in FlashlaneConfig.model_fields:
        before, after = getattr(old, key), getattr(new, key)
        if before == after:
            continue
        if key in LIVE_KEYS and _groups_of(key, new) <= groups:
            taken[key] = after
            continue
        within = _LIVE_WITHIN.get(key, frozenset())
        if within:
            taken[key] = before.model_copy(update={name: getattr(after, name) for name in within})
        waiting += [path for path in _differences(key, before, after) if _leaf(path) not in within]
    config = old.model_copy(update=taken)
    changed = [
        path for key in taken for path in _differences(key, getattr(old, key), getattr(config, key))
    ]
    return Merged(config, tuple(changed), tuple(waiting))


def _groups_of(key: str, config: FlashlaneConfig) -> set[str]:
    """The model groups that one key of the section needs."""
    if key == "lanes":
        named = [[model, *lanes.model_dump().values()] for model, lanes in config.lanes.items()]
        return {group for groups in named for group in groups if group}
    if key == "sidecar" and config.sidecar.model is not None:
        return {config.sidecar.model}
    return set()


def _differences(key: str, before: object, after: object) -> list[str]:
    """Dotted paths of the values in which two values of `key` differ."""
    one, other = _tree(before), _tree(after)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [] if one == other else [key]
    return [
        path
        for name in dict.fromkeys((*one, *other))
        for path in _differences(f"{key}.{name}", one.get(name), other.get(name))
    ]


def _tree(value: object) -> object:
    return value.model_dump() if hasattr(value, "model_dump") else value


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


class Reloader:
    """Watches one config file from a thread of its own, and hands on what may change at run time.

    `config` and `deployments` are what was loaded at the start, and `seen` the `fingerprint` of
    the file taken just before. `apply` takes a config into force; it is called in the thread.
    """

    def __init__(
        self,
        path: Path,
        config: FlashlaneConfig,
        deployments: tuple[Deployment, ...],
        seen: str | None,
        apply: Callable[[FlashlaneConfig], None],
    ) -> None:
        self.state = ReloadState(loaded_at=time.time())
        self._path = path
        self._config = config
        self._deployments = deployments
        self._groups = {deployment.model_name for deployment in deployments}
        self._seen = seen
        self._apply = apply
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch from now on, unless the config says `reload: false`."""
        if self._config.reload and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="flashlane-reload", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer; returns when the thread has ended."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def look(self) -> None:
        """Take the file as it is now, where it is another than before."""
        found = self._settled()
        if found == self._seen:
            return
        self._seen = found
        try:
            new = load_config(self._path)
            deployments = tuple(load_litellm(self._path))
        except ConfigError as error:
            self._refuse(str(error))
            return
        except Exception as error:
            self._refuse(f"config file {self._path} cannot be used: {type(error).__name__}")
            return
        self._take(new, deployments)

    def _take(self, new: FlashlaneConfig, deployments: tuple[Deployment, ...]) -> None:
        merged = merge(self._config, new, self._groups)
        waiting = merged.waiting
        if deployments != self._deployments:
            waiting = ("model_list", *waiting)
        self._apply(merged.config)
        self._config = merged.config
        log.warning("%s was read again: %s", self._path, _words(merged.changed, waiting))
        self.state = ReloadState(time.time(), self.state.reloads + 1, "", waiting)

    def _refuse(self, sentence: str) -> None:
        log.error("the config in force stays as it was: %s", sentence)
        self.state = replace(self.state, error=sentence)

    def _run(self) -> None:
        for _ in self._notices():
            try:
                self.look()
            except Exception as error:
                self._refuse(f"config file {self._path} cannot be used: {type(error).__name__}")
            if not self._config.reload:
                log.warning("%s says reload: false; it is watched no longer", self._path)
                return

    def _notices(self) -> Iterator[None]:
        """One item whenever the file may have changed, and one every `_LOOK_S` at least."""
        while not self._stop.is_set():
            yield
            folders = self._folders()
            try:
                for _ in watch(
                    *folders,
                    watch_filter=None,
                    debounce=_DEBOUNCE_MS,
                    stop_event=self._stop,
                    rust_timeout=int(1000 * _LOOK_S),
                    yield_on_timeout=True,
                    raise_interrupt=False,
                    recursive=False,
                ):
                    yield
                    if self._folders() != folders:
                        break  # a link points elsewhere, or a folder is another one now
            except (OSError, RuntimeError):
                # No such folder, or the system lends no more notices: looking must do.
                self._stop.wait(_LOOK_S)

    def _folders(self) -> dict[Path, tuple[int, int]]:
        """The folder of the name and that of the file, by device and inode."""
        found = {}
        for folder in {self._path.parent, self._path.resolve().parent}:
            try:
                status = folder.stat()
            except OSError:
                continue
            found[folder] = (status.st_dev, status.st_ino)
        return found

    def _settled(self) -> str | None:
        """The file's fingerprint once two looks agree: an editor may be at work."""
        before = fingerprint(self._path)
        while before != self._seen and not self._stop.wait(_SETTLE_S):
            now = fingerprint(self._path)
            if now == before:
                break
            before = now
        return before


def fingerprint(path: Path) -> str | None:
    """A hash of what the file holds; None where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _words(changed: tuple[str, ...], waiting: tuple[str, ...]) -> str:
    parts = [f"{', '.join(changed)} changed" if changed else "nothing that can change now differs"]
    if waiting:
        parts.append(f"a restart is needed for {', '.join(waiting)}: the old values stay")
    return "; ".join(parts)
