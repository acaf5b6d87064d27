"""What a word of an ask is about, in ten languages: the tables in `words/LANG.txt`.

A line of a table is `concept: entry; entry; …`. An entry is a word, a phrase of up to four words,
the beginning of longer words (`explic*`, four to seven characters), or up to four Chinese, Japanese
or Korean characters; of longer ones the first four count.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from flashlane.exactness.wording import MAX_PIECE, MAX_STEM, fold, is_cjk, is_hangul, tokens

_TABLES = Path(__file__).with_name("words")

BROAD_CONCEPTS = frozenset(
    {
        "summary",
        "gist",
        "short",
        "roughly",
        "explain",
        "why",
        "howworks",
        "compare",
        "suggest",
        "judge",
    }
)
"""Concepts that speak for the gist; all others speak for an exact answer."""


@cache
def concepts() -> dict[str, tuple[str, ...]]:
    """The concepts of each feature of `wording.sentences`. Read once, in about 0.1 s."""
    table: dict[str, tuple[str, ...]] = {}
    for path in sorted(_TABLES.glob("*.txt")):
        for concept, entry in entries(path):
            key = feature(entry)
            if concept not in table.get(key, ()):
                table[key] = (*table.get(key, ()), concept)
    return table


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
    if entry.endswith("*"):
        return words[0][:MAX_STEM] + "*"
    if is_cjk(words[0]):
        run = "".join(words)
        alone = len(run) == 1 and is_hangul(run)
        return run if alone else "~" + run[:MAX_PIECE]
    return " ".join(words)
