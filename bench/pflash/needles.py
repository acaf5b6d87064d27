"""Cases of one question each, whose evidence is hidden in a long text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from bench.data import Split, words
from bench.haystacks import KINDS, as_unit, haystack, place

Count = Callable[[str], int]

_FORMS = Path(__file__).with_name("needles.json")
_TWO_HOP_CASES = 40
_CONTRADICTION_CASES = 36
# Fewer depths where a case costs more; every kind of text sees the same depths.
_DEPTHS = {
    2048: (0.02, 0.14, 0.26, 0.38, 0.5, 0.62, 0.74, 0.86, 0.98),
    4096: (0.02, 0.14, 0.26, 0.38, 0.5, 0.62, 0.74, 0.86, 0.98),
    8192: (0.02, 0.26, 0.5, 0.74, 0.98),
    16384: (0.02, 0.26, 0.5, 0.74, 0.98),
}
_STOP_WORDS = frozenset(
    words("""
a about after against ahead all an and any are as at aboard be because been before by can
could did do does doing for from get gets give given had has have he her hers him his how if
in into is it its keep kept last made make may more must next no not of off on once only one
or our out over own so than that the their them then there these they this those to under up
was were what when where which while who whom whose why will with without would you your
""")
)
_SUFFIXES = words("ations ation ings ing ers er ies ied es ed ly s y e")


class _Forms(BaseModel):
    """Names, and sentences with fields for them. The two splits share neither.

    lexical: (needle, question in the needle's words); paraphrases: (needle, question without one
    of its content words); two_hop: (first fact, second fact, question, which names nothing of the
    second); contradictions: (earlier, later, question), where the later one holds.
    """

    names: list[str]
    people: list[str]
    towns: list[str]
    lexical: list[tuple[str, str]]
    paraphrases: list[tuple[str, str]]
    two_hop: list[tuple[str, str, str]]
    contradictions: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Case:
    """`evidence`: the strings that must all be found, whole, in what is kept.

    `tokens` is the length asked for; `depth` that of the first needle.
    """

    id: str
    part: str
    kind: str
    tokens: int
    depth: float
    text: str
    question: str
    evidence: tuple[str, ...]


def lexical(split: Split, count: Count) -> list[Case]:
    cases: list[Case] = []
    for kind in KINDS:
        for tokens, depths in _DEPTHS.items():
            for depth in depths:
                build = _Builder("needles", split, len(cases), count)
                needle, question = build.filled(build.draw.choice(forms(split).lexical))
                cases.append(build.case(kind, tokens, [(depth, needle)], question, (needle,)))
    return _mixed(cases)


def paraphrased(split: Split, count: Count) -> list[Case]:
    """Each pair in an essay and in another kind of text, at 2k, 4k or 8k tokens."""
    cases: list[Case] = []
    for number, (needle, question) in enumerate(forms(split).paraphrases):
        for kind in ("essays", KINDS[1 + number % 3]):
            build = _Builder("paraphrase", split, len(cases), count)
            tokens = (2048, 4096, 4096, 8192)[(number + (kind != "essays")) % 4]
            placed = [(build.draw.uniform(0.02, 0.98), needle)]
            cases.append(build.case(kind, tokens, placed, question, (needle,)))
    return _mixed(cases)


def two_hop(split: Split, count: Count) -> list[Case]:
    """Two facts, either first, at least an eighth of the text apart."""
    cases: list[Case] = []
    known = forms(split).two_hop
    for seed in range(_TWO_HOP_CASES):
        build = _Builder("two-hop", split, seed, count)
        first, second, question = build.filled(known[seed % len(known)])
        one = build.draw.uniform(0.03, 0.45)
        depths = [one, build.draw.uniform(one + 0.125, 0.97)]
        build.draw.shuffle(depths)
        placed = list(zip(depths, (first, second), strict=True))
        kind, tokens = KINDS[seed // 4 % 4], (4096, 8192)[seed % 2]
        cases.append(build.case(kind, tokens, placed, question, (first, second)))
    return _mixed(cases)


def contradicting(split: Split, count: Count) -> list[Case]:
    """A fact and, further on, what replaces it: the later one must be kept."""
    cases: list[Case] = []
    known = forms(split).contradictions
    for seed in range(_CONTRADICTION_CASES):
        build = _Builder("contradiction", split, seed, count)
        first, later, question = build.filled(known[seed % len(known)])
        one = build.draw.uniform(0.03, 0.6)
        placed = [(one, first), (build.draw.uniform(one + 0.1, 0.97), later)]
        kind, tokens = KINDS[seed // 3 % 4], (4096, 8192)[seed % 2]
        cases.append(build.case(kind, tokens, placed, question, (later,)))
    return _mixed(cases)


@cache
def forms(split: Split) -> _Forms:
    return TypeAdapter(dict[Split, _Forms]).validate_json(_FORMS.read_bytes())[split]


def content_words(text: str) -> set[str]:
    """The stems of the words that carry meaning: stop words and common endings are taken off."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'s", ""))
    return {_stem(word) for word in words if word not in _STOP_WORDS}


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


class _Builder:
    """One case: everything drawn depends on its part, split and number alone."""

    def __init__(self, part: str, split: Split, number: int, count: Count) -> None:
        self.draw = random.Random(f"{part}/{split}/{number}")
        self._part, self._split, self._number, self._count = part, split, number, count

    def filled(self, form: Sequence[str]) -> list[str]:
        """The sentences of `form` with one drawing of names and numbers for all of them."""
        known = forms(self._split)
        day, other = self.draw.sample(range(2, 30), 2)
        fields = {
            "name": self.draw.choice(known.names),
            "person": self.draw.choice(known.people),
            "town": self.draw.choice(known.towns),
            "number": self.draw.randrange(1000, 9999),
            "clock": f"{self.draw.randrange(24):02}:{self.draw.randrange(60):02}",
            "day": day,
            "other": other,
        }
        return [sentence.format(**fields) for sentence in form]

    def case(
        self,
        kind: str,
        tokens: int,
        placed: Sequence[tuple[float, str]],
        question: str,
        evidence: tuple[str, ...],
    ) -> Case:
        units = haystack(kind, tokens, self._split, f"{self._part}/{self._number}", self._count)
        needles = [(depth, as_unit(kind, sentence, self.draw)) for depth, sentence in placed]
        return Case(
            id=f"{self._part}/{self._split}/{self._number}",
            part=self._part,
            kind=kind,
            tokens=tokens,
            depth=placed[0][0],
            text=place(units, needles),
            question=question,
            evidence=evidence,
        )


def _mixed(cases: list[Case]) -> list[Case]:
    """In a fixed order that makes the first few a fair sample: short and long, every kind."""
    random.Random(0).shuffle(cases)
    return cases
