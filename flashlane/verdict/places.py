"""Where in a text an ask is spoken of: sentences and lines, ranked by the ask's own terms.

Pure. Linear in the text's length for each term of the ask, of which at most `_MAX_TERMS` count.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flashlane.verdict.stopwords import STOP_WORDS, stop_words_for

_MAX_TERMS = 48
_MAX_HITS_PER_TERM = 20_000
"""A term that occurs more often than this tells no place from another."""
_MAX_RANKED = 400
_NEAR_UNITS = 3
_NEAR_WEIGHT = 0.5
_PARAGRAPH_WEIGHT = 0.3
_LENGTH_WEIGHT = 0.15
_PAIR_GAP_CHARS = 4
_ABSENT_WEIGHT = 0.4
"""A word of the ask that the text never uses tells no place from another, but makes a doubt."""

_FOLDS: dict[int, str | int | None] = {
    **{0xFF01 + i: 0x21 + i for i in range(94)},  # full-width ASCII
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x201B, 0x2032, 0x00B4, 0x02BC), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x201F, 0x2033, 0x00AB, 0x00BB), '"'),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), "-"),
    **dict.fromkeys((0x00A0, 0x2007, 0x202F, 0x2009, 0x3000), " "),
}
_UNIT_END = re.compile(
    r"\n+|(?<=[.!?])[\"')\]]{0,3}[ \t]+(?=[^a-zß-öø-ÿа-я\s])|(?<=[。！？])[」』）]?(?=.)"
)
_NO_END = re.compile(
    r"(?:\b(?:st|mr|mrs|ms|dr|prof|rev|gen|lt|sgt|jr|no|nr|vol|ca|vs|art|sr|sra|bzw|[a-z])|\b\d{1,2})\.$"
)
_WORD = re.compile(r"[^\W_]+(?:['_.\-/@:][^\W_]+)*")
_CJK_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_CJK_START = "\u3040"
_CJK_END = "\ud7af"


def fold(text: str) -> str:
    """`text` in lower case with plain quotes, dashes, blanks and digits, as long as before."""
    folded = text.translate(_FOLDS)
    lower = folded.lower()
    if len(lower) == len(folded):
        return lower
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in folded)


@dataclass(frozen=True)
class Term:
    """What is looked for: words that begin with `stem` and go on for at most `extra` letters."""

    stem: str
    extra: int
    word: str

    def fits(self, text: str, at: int) -> bool:
        """Whether the stem at text[at] begins such a word."""
        if is_cjk(self.stem[0]):
            return True
        if at and text[at - 1].isalnum():
            return False
        after = text[at + len(self.stem) : at + len(self.stem) + self.extra + 1]
        return len(after) <= self.extra or not after.isalnum()


def is_cjk(char: str) -> bool:
    return _CJK_START <= char <= _CJK_END


def words_of(folded: str) -> list[str]:
    return _WORD.findall(folded)


def terms_of(text: str, stop_words: frozenset[str] | None = None) -> tuple[Term, ...]:
    """The content words of `text` as prefixes that inflection leaves alone; CJK as pairs."""
    found: dict[str, Term] = {}
    words = words_of(fold(text))
    if stop_words is None:
        stop_words = stop_words_for(words)
    for word in words:
        if _CJK_RUN.search(word):
            for run in _CJK_RUN.findall(word):
                for pair in _pairs(run):
                    found.setdefault(pair, Term(pair, 0, pair))
            continue
        for part in (word, *re.split(r"[_\-/]", word)) if len(word) < 80 else (word[:80],):
            if part in stop_words or (len(part) < 2 and not part.isdigit()) or part.endswith("'"):
                continue
            part = part.removesuffix("'s")
            for prefix in ("l'", "d'", "qu'", "dell'", "all'", "nell'", "un'"):
                part = part.removeprefix(prefix)
            if part and part not in stop_words:
                found.setdefault(part, term_of(part))
    return tuple(found.values())[:_MAX_TERMS]


def term_of(word: str) -> Term:
    if not word.isalpha() or len(word) < 3:
        return Term(word, 0, word)
    if len(word) <= 5:
        cut = len(word) - (len(word) > 3 and word[-1] in "seany")
        return Term(word[:cut], 3, word)
    return Term(word[: max(4, len(word) - (2 if len(word) < 9 else 3))], 6, word)


def _pairs(run: str) -> Iterable[str]:
    if len(run) == 1:
        return [run]
    return [run[i : i + 2] for i in range(len(run) - 1) if run[i : i + 2] not in STOP_WORDS]


@dataclass(frozen=True)
class Place:
    """Unit `index` of the text with its score for an ask: 1.0 would be every term of it."""

    index: int
    score: float
    own: float


class Places:
    """The units (sentences, lines) of `original`; `hidden` are (begin, end) that do not count."""

    def __init__(self, original: str, hidden: Sequence[tuple[int, int]] = ()) -> None:
        self.original = original
        folded = fold(original)
        for begin, end in hidden:
            folded = f"{folded[:begin]}{' ' * (end - begin)}{folded[end:]}"
        self.folded = folded
        self.starts, self.ends, self.paragraphs = _cut(original.translate(_FOLDS), folded)

    def __len__(self) -> int:
        return len(self.starts)

    def unit(self, index: int) -> str:
        return self.folded[self.starts[index] : self.ends[index]]

    def raw(self, index: int) -> str:
        return self.original[self.starts[index] : self.ends[index]]

    def at(self, offset: int) -> int:
        """The unit that the character `offset` lies in."""
        return max(0, bisect_right(self.starts, offset) - 1)

    def near(self, index: int, other: int) -> bool:
        """Whether two units are neighbours in one paragraph."""
        close = abs(index - other) <= _NEAR_UNITS
        return close and self.paragraphs[index] == self.paragraphs[other]

    def hits(self, term: Term) -> list[int]:
        """Offsets of `term`, in order."""
        text, stem = self.folded, term.stem
        found: list[int] = []
        at = text.find(stem)
        while at >= 0:
            if term.fits(text, at):
                found.append(at)
                if len(found) > _MAX_HITS_PER_TERM:
                    return []
            at = text.find(stem, at + len(stem))
        return found

    def postings(self, terms: Sequence[Term]) -> dict[Term, list[int]]:
        """For each term the units that hold it, in order, each once."""
        return {
            term: list(dict.fromkeys(self.at(offset) for offset in self.hits(term)))
            for term in terms
        }

    def _pairs_of(self, terms: Sequence[Term]) -> dict[Term, list[int]]:
        """Units in which two neighbours of the ask stand together: `order 17` in `order=17`.

        Only where the second is a number or an id: by itself it would match anywhere.
        """
        found: dict[Term, list[int]] = {}
        for before, term in pairwise(terms):
            if not any(char.isdigit() for char in term.word) or before.word in term.word:
                continue
            reach = len(before.word) + _PAIR_GAP_CHARS
            units = [
                self.at(at)
                for at in self.hits(term)
                if before.stem in self.folded[max(0, at - reach) : at]
            ]
            if units:
                pair = Term(f"{before.stem} {term.stem}", 0, f"{before.word} {term.word}")
                found[pair] = list(dict.fromkeys(units))
        return found

    def rank(self, terms: Sequence[Term]) -> tuple[list[Place], dict[Term, float]]:
        """The places of `terms`, best first, and what each term weighs.

        A term weighs what BM25 would give it (Robertson's idf over units); it counts whole in a
        unit of its own, less where it stands nearby or elsewhere in the paragraph.
        """
        postings = {**self.postings(terms), **self._pairs_of(terms)}
        total = len(self)
        weight = {
            term: math.log(1 + (total - len(units) + 0.5) / (len(units) + 0.5))
            * (1.0 if units else _ABSENT_WEIGHT)
            for term, units in postings.items()
        }
        mass = sum(weight.values()) or 1.0
        own: dict[int, float] = {}
        near: dict[int, float] = {}
        paragraph: dict[int, set[Term]] = {}
        holders = {term: set(units) for term, units in postings.items()}
        for term, units in postings.items():
            for unit in units:
                own[unit] = own.get(unit, 0.0) + weight[term]
                paragraph.setdefault(self.paragraphs[unit], set()).add(term)
        candidates: set[int] = set()
        for unit in sorted(own, key=lambda u: -own[u])[:_MAX_RANKED]:
            candidates.update(
                u
                for u in range(unit - _NEAR_UNITS, unit + _NEAR_UNITS + 1)
                if 0 <= u < total and self.paragraphs[u] == self.paragraphs[unit]
            )
        for unit in candidates:
            extra = 0.0
            for term in paragraph.get(self.paragraphs[unit], ()):
                if unit in holders[term]:
                    continue
                close = any(
                    unit + step in holders[term]
                    and self.paragraphs[unit + step] == self.paragraphs[unit]
                    for step in (-1, 1, -2, -3)
                    if 0 <= unit + step < total
                )
                extra += weight[term] * (_NEAR_WEIGHT if close else _PARAGRAPH_WEIGHT)
            near[unit] = extra
        ranked = []
        for unit in candidates:
            length = self.ends[unit] - self.starts[unit]
            damp = 1.0 / (1.0 + _LENGTH_WEIGHT * max(0.0, math.log2(max(length, 1) / 160)))
            mine = own.get(unit, 0.0) / mass
            ranked.append(Place(unit, (mine + near[unit] / mass) * damp, mine))
        ranked.sort(key=lambda place: (-place.score, place.index))
        return ranked[:_MAX_RANKED], weight


def _cut(cased: str, folded: str) -> tuple[list[int], list[int], list[int]]:
    """(starts, ends, paragraph numbers) of the units; a blank line begins a paragraph."""
    starts: list[int] = []
    ends: list[int] = []
    paragraphs: list[int] = []
    begin, paragraph = 0, 0
    for match in _UNIT_END.finditer(cased):
        at, end = match.span()
        if folded[at : at + 1] != "\n" and _NO_END.search(folded, max(begin, at - 8), at):
            continue
        if folded[begin:at].strip():
            starts.append(begin)
            ends.append(at)
            paragraphs.append(paragraph)
        begin = end
        if "\n\n" in match.group():
            paragraph += 1
    if folded[begin:].strip():
        starts.append(begin)
        ends.append(len(folded))
        paragraphs.append(paragraph)
    return starts, ends, paragraphs


def has_term(unit: str, term: Term) -> bool:
    return bool(offsets_in(unit, term, limit=1))


def offsets_in(unit: str, term: Term, limit: int = 16) -> list[int]:
    """The first `limit` offsets of `term` in `unit`."""
    found: list[int] = []
    at = unit.find(term.stem)
    while at >= 0 and len(found) < limit:
        if term.fits(unit, at):
            found.append(at)
        at = unit.find(term.stem, at + 1)
    return found
