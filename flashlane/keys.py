"""Whose request is it: what flashlane keeps of LiteLLM's API keys, and what each may see."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_ADMINS = ("proxy_admin", "proxy_admin_viewer")
_ID_CHARS = 16


@dataclass(frozen=True)
class Viewer:
    """Who asks for evidence. `admin` sees all records, others those of `key_id` alone."""

    key_id: str
    admin: bool
    may_write: bool

    @property
    def scope(self) -> str | None:
        """The key whose records may be seen; None for all of them."""
        return None if self.admin else self.key_id


def key_id_of(key: object) -> str:
    """A name for the key of LiteLLM's `UserAPIKeyAuth` from which it cannot be found.

    A user without a key (JWT) is named by the user id; empty where there is neither.
    """
    for field in ("token", "api_key", "user_id"):
        value = getattr(key, field, None)
        if value:
            return hashlib.sha256(f"flashlane:{value}".encode()).hexdigest()[:_ID_CHARS]
    return ""


def viewer_of(key: object) -> Viewer:
    """The master key and LiteLLM's proxy admins see all; a viewing admin changes nothing."""
    role = getattr(key, "user_role", None)
    role = str(getattr(role, "value", role))
    return Viewer(key_id_of(key), role in _ADMINS, role != "proxy_admin_viewer")
