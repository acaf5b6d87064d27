"""Finished cases of a long run, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Record: TypeAlias = "dict[str, Json]"


def key_of(**parts: object) -> str:
    """Names a case by everything that its result depends on; the parts must be JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def number(record: Mapping[str, object], name: str) -> float:
    """A numeric field of a finished case. TypeError when it holds something else."""
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)


class Store:
    """Records by key, kept in a file of one JSON object per line.

    A line that an interrupted run left incomplete is ignored and its case is measured again.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._records: dict[str, Record] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        elif path.exists():
            self._load(path.read_bytes())

    def case(self, key: str, measure: Callable[[], Record]) -> Record:
        """The record of `key`; `measure` is called, and its result kept, only if there is none."""
        if key not in self._records:
            self.put(key, measure())
        return self._records[key]

    def get(self, key: str) -> Record | None:
        return self._records.get(key)

    def put(self, key: str, record: Record) -> None:
        """Keeps `record` in the place of what `key` had before."""
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "record": record}, ensure_ascii=False) + "\n")
        self._records[key] = record

    def _load(self, content: bytes) -> None:
        for line in content.splitlines():
            try:
                entry = json.loads(line)
                self._records[entry["key"]] = entry["record"]
            except (ValueError, KeyError, TypeError):
                continue
        if content and not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")
