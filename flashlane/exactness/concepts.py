"""What a word of an ask is about, in ten languages: the tables in `words/LANG.txt`.

A line of a table is `concept: entry; entry; …`. An entry is a word, a phrase of up to three words,
or a run of Chinese, Japanese or Korean characters. A word of an ask that only begins like an entry
of at least `_STEM_CHARS` characters is not one: inflected forms are written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType

from flashlane.exactness.wording import MAX_PIECE, fold, is_cjk, tokens

_TABLES = Path(__file__).with_name("words")


@cache
def concepts() -> MappingProxyType[str, tuple[str, ...]]:
    """The concepts of each feature that `wording.features` may give. Read once, about 15 ms."""
    table: dict[str, tuple[str, ...]] = {}
    for path in sorted(_TABLES.glob("*.txt")):
        for concept, entry in entries(path):
            key = feature(entry)
            if concept not in table.get(key, ()):
                table[key] = (*table.get(key, ()), concept)
    return MappingProxyType(table)


def entries(path: Path) -> Iterator[tuple[str, str]]:
    """(concept, entry) of one table, in the table's order."""
    for line in path.read_text("utf-8").splitlines():
        concept, _, rest = line.partition(":")
        for entry in rest.split(";"):
            if entry.strip():
                yield concept, entry.strip()


def feature(entry: str) -> str:
    """The feature that says that an ask holds `entry`."""
    words = tokens(fold(entry))
    if len(words) == 1 and is_cjk(words[0]):
        return "~" + words[0][:MAX_PIECE]
    return " ".join(words)
