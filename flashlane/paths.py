"""Where flashlane keeps things: what can be made again, and what is private state."""

from __future__ import annotations

import os
from pathlib import Path


def config_file(path: Path) -> Path:
    """`path`, absolute and by its folder's real name.

    A link as the file itself stays one: what it points to may be another file tomorrow.
    """
    return path.parent.resolve() / path.name


def cache_dir() -> Path:
    """Engine builds, downloads and models. `FLASHLANE_CACHE_DIR` or the user's cache folder."""
    return _made(_folder("FLASHLANE_CACHE_DIR", "XDG_CACHE_HOME", ".cache"))


def state_dir() -> Path:
    """Master key, supervisor socket, route log and backend logs: readable by its owner alone."""
    folder = _made(_folder("FLASHLANE_STATE_DIR", "XDG_STATE_HOME", ".local/state"))
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _folder(own: str, xdg: str, default: str) -> Path:
    if os.environ.get(own):
        return Path(os.environ[own]).expanduser().resolve()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / default) / "flashlane"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise FileExistsError(f"{folder} must be a folder, and is a file") from error
    return folder
