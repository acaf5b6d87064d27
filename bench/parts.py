"""The parts that a benchmark consists of, each measured by itself and kept as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bench.store import Json, Record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Context = TypeVar("Context")


@dataclass(frozen=True)
class Part(Generic[Context]):
    """`rows` is the field of what was measured that it fills, `row` what that holds."""

    name: str
    about: str
    rows: str
    row: Callable[..., DataclassInstance]
    find: Callable[[Context], Sequence[DataclassInstance]]

    def measure(self, context: Context) -> Record:
        found: list[Json] = [asdict(row) for row in self.find(context)]
        return {"rows": found}

    def add(self, record: Record, measured: Any) -> None:
        """Puts the rows of a record that `measure` gave into `measured`."""
        rows = record["rows"]
        assert isinstance(rows, list)
        getattr(measured, self.rows).extend(self.row(**r) for r in rows if isinstance(r, dict))
