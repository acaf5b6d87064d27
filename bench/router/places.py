"""Where an ask stands in pasted text: how often the reader finds all of it, and what comes along.

Each labelled ask is put after, before, in the middle and on both sides of material of each sort,
in each of the ways in which people set the two apart. The material is made here, full of
questions and orders of its own where its sort is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bench.router.context import Context
from bench.store import Json, Record
from flashlane.request import read_request

PLACES = ("after", "before", "both", "middle")
ASKS = Path(__file__).parent / "asks"
_PIECES = 60
"""Paragraphs, entries or lines of material: some thousand characters of each sort."""
_SUBJECTS = ("The harbour", "The second pump", "Mrs Okafor", "The committee", "Our supplier", "It")
_VERBS = ("was opened", "had been repaired", "came back", "was said to be late", "stayed closed")
_ENDS = ("in the spring of 1901", "after the storm", "for 214 euros", "at the north gate", "again")
_ORDERS = (
    "Check that every list is exact",
    "Describe the fault in your own words",
    "Explain each step to the tenant",
    "Write dates in full",
    "Name the person in charge",
    "Summarise no more than you must",
)
_QUESTIONS = (
    "How do I return a parcel?",
    "What happens when the card is lost?",
    "Can I change the address later?",
    "Who signs the second copy?",
    "Why is my invoice higher than last month?",
)


@dataclass(frozen=True)
class Ask:
    id: str
    lang: str
    text: str


@dataclass(frozen=True)
class Row:
    """What was found of the asks of one language, at one place, in one sort of material.

    `found`: asks of which every part is in the reader's ask. `misled`: asks that were missed
    while the reader is sure of some other text. `extra_chars`: what the reader's ask holds
    besides, on average.
    """

    place: str
    material: str
    joint: str
    lang: str
    asks: int
    found: int
    misled: int
    extra_chars: float


class Look(NamedTuple):
    """What the reader makes of one message: all of the ask is found, it is sure of some text."""

    whole: bool
    sure: bool
    extra_chars: int


def measure(context: Context) -> list[Row]:
    """The reported half's asks at each place in each sort of material, set apart by blank lines."""

    def hold() -> Record:
        found: list[Json] = [asdict(row) for row in rows(asks("reported"), joints=("blank line",))]
        return {"rows": found}

    held = context.store.case(context.key("places", half="reported"), hold)["rows"]
    assert isinstance(held, list)
    return [Row(**row) for row in held if isinstance(row, dict)]  # type: ignore[arg-type]


def summary(given: Sequence[Row]) -> list[Json]:
    """Rows for the report: by place, then by language."""
    lines = [{"of": one.pop("place"), **one} for one in totals(given, "place")]
    lines += [{"of": one.pop("lang"), **one} for one in totals(given, "lang")]
    return [
        {k: round(v, 3) if isinstance(v, float) else v for k, v in one.items()} for one in lines
    ]


def asks(half: str = "tuning") -> list[Ask]:
    """The labelled asks of one half, in the order of their files."""
    lines = [
        line
        for path in sorted((ASKS / half).glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    read = map(json.loads, lines)
    return [Ask(one["id"], one["lang"], one["ask"]) for one in read]


def _sentence(rng: random.Random) -> str:
    return f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_ENDS)}."


def _paragraph(rng: random.Random, sentences: int = 5) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(2, 2 * sentences)))


def _prose(rng: random.Random) -> str:
    return "\n\n".join(_paragraph(rng) for _ in range(_PIECES // 2))


def _one_line(rng: random.Random) -> str:
    return " ".join(_paragraph(rng) for _ in range(_PIECES // 2))


def _german(rng: random.Random) -> str:
    words = (
        "der Hafen",
        "lag",
        "am Abend",
        "still",
        "und",
        "das Wasser",
        "stieg",
        "kaum",
        "weiter",
    )
    return "\n\n".join(
        " ".join(rng.choices(words, k=rng.randint(8, 70))).capitalize() + "."
        for _ in range(_PIECES)
    )


def _japanese(rng: random.Random) -> str:
    parts = (
        "港は一九〇一年に開かれた。",
        "船は朝に出た。",
        "委員会は翌日に集まった。",
        "雨が続いた。",
    )
    return "\n".join("".join(rng.choices(parts, k=rng.randint(2, 9))) for _ in range(_PIECES))


def _log(rng: random.Random) -> str:
    levels = ("INFO", "WARN check failed, find cause", "ERROR cannot list /srv", "DEBUG")
    return "\n".join(
        f"2026-03-{rng.randint(1, 28):02} 12:{i % 60:02}:07 {rng.choice(levels)} worker-{i % 7} "
        f"request {rng.randrange(16**8):08x} took {rng.randint(1, 900)} ms"
        for i in range(_PIECES)
    )


def _code(rng: random.Random) -> str:
    return "\n\n".join(
        f'def load_{i}(path, limit={rng.randint(1, 99)}):\n    """Return what {i} holds."""\n'
        f"    # find the header, check it\n    rows = read(path)\n    return rows[:limit]"
        for i in range(_PIECES // 2)
    )


def _table(rng: random.Random) -> str:
    rows = [f"| {i} | part {rng.randint(1, 999)} | {rng.random():.3f} |" for i in range(_PIECES)]
    return "\n".join(["| no | name | price |", "|---|---|---|", *rows])


def _csv(rng: random.Random) -> str:
    return "\n".join(
        ["id,name,price,comment"]
        + [f"{i},part {rng.randint(1, 999)},{rng.random():.3f},check" for i in range(_PIECES)]
    )


def _json(rng: random.Random) -> str:
    return json.dumps(
        [{"id": i, "task": rng.choice(_ORDERS)} for i in range(_PIECES // 2)], indent=2
    )


def _faq(rng: random.Random) -> str:
    return "\n\n".join(
        f"{rng.choice(_QUESTIONS)}\n\n{_paragraph(rng, 3)}" for _ in range(_PIECES // 2)
    )


def _labelled_faq(rng: random.Random) -> str:
    return "\n\n".join(
        f"Q: {rng.choice(_QUESTIONS)}\nA: {_paragraph(rng, 2)}" for _ in range(_PIECES // 2)
    )


def _exam(rng: random.Random) -> str:
    return "\n".join(
        f"{i}. {rng.choice(_ORDERS)}. ({rng.randint(1, 9)} points)" for i in range(1, _PIECES)
    )


def _style_guide(rng: random.Random) -> str:
    return "\n\n".join(
        f"## {rng.choice(_ORDERS)}\n\n{rng.choice(_ORDERS)}. {_paragraph(rng, 2)}"
        for _ in range(_PIECES // 2)
    )


def _mails(rng: random.Random) -> str:
    return "\n\n".join(
        f"From: clerk{i}@example.org\nSubject: Re: the delivery\n\nDear all,\n\n"
        f"{_paragraph(rng, 2)}\nCould you let me know by Friday?\n\nThanks,\nA. Clerk"
        for i in range(_PIECES // 4)
    )


def _chat(rng: random.Random) -> str:
    names = ("dave", "mia", "rodri")
    said = (*_QUESTIONS, "ok", "no idea, ask him", "please send it again", "haha yes")
    return "\n".join(
        f"[12:{i % 60:02}] {rng.choice(names)}: {rng.choice(said)}" for i in range(_PIECES)
    )


MATERIALS: Mapping[str, Callable[[random.Random], str]] = {
    "prose": _prose,
    "one line": _one_line,
    "german": _german,
    "japanese": _japanese,
    "log": _log,
    "code": _code,
    "table": _table,
    "csv": _csv,
    "json": _json,
    "faq": _faq,
    "labelled faq": _labelled_faq,
    "exam": _exam,
    "style guide": _style_guide,
    "mails": _mails,
    "chat": _chat,
}
JOINTS: Mapping[str, tuple[str, str]] = {
    "blank line": ("\n\n", "\n\n"),
    "line": ("\n", "\n"),
    "rule": ("\n\n---\n\n", "\n\n---\n\n"),
    "fence": ("\n\n```\n", "\n```\n\n"),
    "tag": ("\n\n<document>\n", "\n</document>\n\n"),
}
"""What stands before and after the material."""


def placed(ask: str, material: str, place: str, joint: str) -> tuple[str, tuple[str, ...]]:
    """A user's message, and the parts of the ask in it.

    On both sides, an ask of several sentences is split after its first; a single one is there
    twice. In the middle, half of the material's lines come before the ask.
    """
    opening, closing = JOINTS[joint]
    if place == "after":
        return opening.lstrip("\n") + material + closing + ask, (ask,)
    if place == "before":
        return ask + opening + material + closing.rstrip("\n"), (ask,)
    if place == "both":
        first, stop, rest = ask.partition(". ")
        parts = (first + stop.strip(), rest) if rest else (ask, ask)
        return parts[0] + opening + material + closing + parts[1], parts
    at = material.find("\n", len(material) // 2)
    at = at if at >= 0 else material.find(" ", len(material) // 2)
    above, below = material[:at], material[at + 1 :]
    return opening.lstrip("\n") + above + closing + ask + opening + below + closing.rstrip("\n"), (
        ask,
    )


def rows(
    given: Sequence[Ask],
    places: Sequence[str] = PLACES,
    materials: Sequence[str] = tuple(MATERIALS),
    joints: Sequence[str] = tuple(JOINTS),
) -> Iterator[Row]:
    """What the reader finds, by place, material, joint and language."""
    texts = {name: MATERIALS[name](random.Random(name)) for name in materials}
    langs: dict[str, list[Ask]] = {}
    for ask in given:
        langs.setdefault(ask.lang, []).append(ask)
    for place in places:
        for name, text in texts.items():
            for joint in joints:
                for lang, several in langs.items():
                    looked = [look(ask, text, place, joint) for ask in several]
                    yield Row(
                        *(place, name, joint, lang, len(looked)),
                        found=sum(one.whole for one in looked),
                        misled=sum(one.sure and not one.whole for one in looked),
                        extra_chars=mean(one.extra_chars for one in looked),
                    )


def look(ask: Ask, material: str, place: str, joint: str) -> Look:
    content, parts = placed(ask.text, material, place, joint)
    view = read_request({"messages": [{"role": "user", "content": content}]})
    whole = all(part in view.ask for part in parts)
    asked = sum(map(len, parts)) if whole else 0
    sure = any(span.sure for span in view.instructions)
    return Look(whole, sure, max(0, len(view.ask) - asked))


def totals(given: Sequence[Row], *keys: str) -> list[dict[str, Any]]:
    """The rows summed up by some of their fields: shares found and misled, characters besides."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in given:
        groups.setdefault(tuple(getattr(row, key) for key in keys), []).append(row)
    return [
        {
            **dict(zip(keys, names, strict=True)),
            "asks": sum(row.asks for row in group),
            "found": sum(row.found for row in group) / sum(row.asks for row in group),
            "misled": sum(row.misled for row in group) / sum(row.asks for row in group),
            "extra_chars": mean(row.extra_chars for row in group),
        }
        for names, group in groups.items()
    ]
