"""Long texts in which a needle is hidden: essays, code, logs and JSON.

A haystack is a list of units (a sentence, a function, a log line, an item), each with what
separates it from the next, so that a needle never lands inside one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count as numbers

from bench.data import Split, essays, sentences, words

KINDS = ("essays", "code", "logs", "json")
_SAMPLE_CHARS = 12_000
_SHORTEST_ESSAY_CHARS = 2000

_NOUNS = words("""
account batch branch bucket buffer cache carrier channel client cursor digest event field file
filter frame graph group handle header index invoice job key label ledger limit lock mapping
marker message metric node offset order packet page parcel path plan pool price queue record
region report request retry route row rule schema session shard signal slot snapshot source
stage stream table ticket token topic total trace unit user value vendor volume worker zone
""")
_VERBS = words("""
apply build check clear close collect convert copy count drain drop emit expand fetch flush
format index join load merge move open parse pick prune push read refresh remove render
reserve resolve rotate scan send shift sort split store strip sum swap trim update validate
""")
_STATES = ("accepted", "delayed", "done", "dropped", "expired", "queued", "retried", "started")


def haystack(
    kind: str, tokens: int, split: Split, seed: str, count: Callable[[str], int]
) -> list[str]:
    """Units of about `tokens` tokens (within a unit of it, by the density of their beginning).

    `count` gives a text's tokens. KeyError for an unknown kind.
    """
    draw = random.Random(f"{split}/{kind}/{seed}")
    source = _SOURCES[kind](draw, split)
    units, chars = [], 0
    while chars < _SAMPLE_CHARS:
        units.append(next(source))
        chars += len(units[-1])
    wanted = tokens * chars / count("".join(units))
    while chars < wanted:
        units.append(next(source))
        chars += len(units[-1])
    while len(units) > 1 and chars - len(units[-1]) >= wanted:
        chars -= len(units.pop())
    return units


def names(draw: random.Random, n: int) -> list[str]:
    """`n` different names of two words with a hyphen."""
    found: dict[str, None] = {}
    while len(found) < n:
        found[f"{draw.choice(_VERBS)}-{draw.choice(_NOUNS)}"] = None
    return list(found)


def as_unit(kind: str, sentence: str, draw: random.Random) -> str:
    """`sentence` in the form in which a haystack of `kind` holds such a thing."""
    if kind == "code":
        return f"# {sentence}\n\n"
    if kind == "logs":
        return f"{_stamp(draw, draw.randrange(86_400))} INFO  notes: {sentence}\n"
    if kind == "json":
        return json.dumps({"id": draw.randrange(10**6), "note": sentence}) + ",\n"
    return f"{sentence} "


def place(units: Sequence[str], needles: Sequence[tuple[float, str]]) -> str:
    """The text with each needle unit put between units, at its depth (0 begin, 1 end)."""
    at: dict[int, list[str]] = {}
    total = sum(map(len, units))
    for depth, needle in sorted(needles):
        before = 0
        index = 0
        while index < len(units) and before + len(units[index]) / 2 < depth * total:
            before += len(units[index])
            index += 1
        at.setdefault(index, []).append(needle)
    parts = [part for i, unit in enumerate(units) for part in (*at.get(i, ()), unit)]
    return "".join([*parts, *at.get(len(units), ())])


def _essays(draw: random.Random, split: Split) -> Iterator[str]:
    """Sentences of essays in a drawn order of the essays, paragraphs apart by an empty line."""
    order = [text for text in essays(split) if len(text) > _SHORTEST_ESSAY_CHARS]
    while True:
        draw.shuffle(order)
        for text in order:
            for paragraph in text.split("\n\n"):
                found = [sentence for _, sentence in sentences(" ".join(paragraph.split()))]
                yield from (f"{sentence} " for sentence in found[:-1])
                yield from (f"{sentence}\n\n" for sentence in found[-1:])


def _code(draw: random.Random, split: Split) -> Iterator[str]:
    """Small Python functions."""
    while True:
        verb, noun, other, third = draw.choice(_VERBS), *draw.sample(_NOUNS, 3)
        lines = [f"def {verb}_{noun}({other}, {third}={draw.randrange(100)}):"]
        lines.append(f'    """What {verb} gives for the {noun} of each {other}."""')
        lines.append("    result = []")
        lines.append(f"    for item in {other}:")
        for _ in range(draw.randrange(1, 4)):
            field, limit = draw.choice(_NOUNS), draw.randrange(1000)
            lines.append(f"        if item.{field} > {limit}:")
            lines.append(f"            result.append({draw.choice(_VERBS)}_{field}(item, {third}))")
        lines.append(f"    return result[:{draw.randrange(2, 64)}]")
        yield "\n".join(lines) + "\n\n\n"


def _logs(draw: random.Random, split: Split) -> Iterator[str]:
    for second in numbers(draw.randrange(40_000), 3):
        level = draw.choices(("INFO ", "DEBUG", "WARN ", "ERROR"), (70, 20, 7, 3))[0]
        noun, other = draw.sample(_NOUNS, 2)
        detail = f"{other}={draw.randrange(10**5)} took {draw.randrange(900)} ms"
        yield (
            f"{_stamp(draw, second % 86_400)} {level} {noun}-{draw.randrange(32)}: "
            f"{draw.choice(_VERBS)} {other} {draw.choice(_STATES)} {detail}\n"
        )


def _json(draw: random.Random, split: Split) -> Iterator[str]:
    """Items of a JSON list, one a line."""
    for number in numbers(draw.randrange(1000, 9000)):
        first, second, third = draw.sample(_NOUNS, 3)
        item = {
            "id": number,
            "kind": first,
            "state": draw.choice(_STATES),
            second: draw.randrange(10**4),
            "tags": draw.sample(_NOUNS, 2),
            third: {"value": round(draw.random() * 100, 2), "owner": draw.choice(_NOUNS)},
        }
        yield json.dumps(item) + ",\n"


def _stamp(draw: random.Random, second: int) -> str:
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"2026-04-17T{clock}.{draw.randrange(1000):03}Z"


_SOURCES: dict[str, Callable[[random.Random, Split], Iterator[str]]] = {
    "essays": _essays,
    "code": _code,
    "logs": _logs,
    "json": _json,
}
