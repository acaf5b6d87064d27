"""Whether an answer's literals stand where the text speaks of what was asked.

That a literal occurs somewhere proves little: a distractor does too. An answer is supported when
the place of the whole original that matches the ask best holds it, and no other place matches
about as well with something else of the same kind. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flashlane.decision import Reason
from flashlane.verdict.dates import dates
from flashlane.verdict.literals import LiteralKind, Stated, literals, occurs, squeezed
from flashlane.verdict.numerals import numbers
from flashlane.verdict.places import (
    Place,
    Places,
    Term,
    fold,
    has_term,
    is_cjk,
    offsets_in,
    terms_of,
)
from flashlane.verdict.stopwords import STOP_WORDS
from flashlane.verdict.wants import is_negative

_MIN_SCORE = 0.35
"""Share of the ask's weight that the place of the answer must speak of."""
_MARGIN = 1.1
"""By how much that place must match better than any other that says something else."""
_NEARER_MARGIN = 1.6
"""How much farther from the ask's words anything else of the kind in the same place must be."""
_RIVAL_MARGIN = 1.0
_REACH_WORDS = 2.0
_CLAUSE_WORDS = 3
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d$")
_KEPT_SHARE = 0.9


@dataclass(frozen=True)
class Claim:
    """One sentence of an answer: what it says beyond the ask."""

    text: str
    stated: tuple[Stated, ...]
    words: tuple[Term, ...]
    phrase: str
    """The whole claim as one string to be found, "" where it is a sentence of its own."""

    @property
    def kind(self) -> LiteralKind | None:
        """What the claim's literals are; None for common words."""
        kinds = {s.kind for s in self.stated}
        for kind in ("date", "number", "code", "name"):
            if kind in kinds:
                return kind
        return None


_ARTICLES = ("the ", "a ", "an ", "der ", "die ", "das ", "le ", "la ", "les ", "el ", "los ",
             "las ", "o ", "os ", "as ", "il ", "lo ", "i ", "gli ", "l'")  # fmt: skip
_MAX_PHRASE_WORDS = 10


def claim_of(sentence: str, ask: str, ask_terms: Sequence[Term]) -> Claim:
    folded = fold(sentence)
    ask_folded = fold(ask)
    ask_numbers, ask_dates = numbers(ask_folded), dates(ask_folded)
    bare = folded
    new: list[Stated] = []
    for literal in literals(sentence):
        if literal.kind in ("date", "number", "code", "quote"):
            bare = (
                f"{bare[: literal.begin]}{' ' * (literal.end - literal.begin)}{bare[literal.end :]}"
            )
        if literal.number and any(literal.number.agrees(n) for n in ask_numbers):
            continue
        if literal.date and any(literal.date.said_by(d) for d in ask_dates):
            continue
        if not literal.number and not literal.date and occurs(literal.form, ask_folded):
            continue
        new.append(literal)
    known = [term.stem for term in ask_terms] + [term.word for term in ask_terms]
    words = tuple(
        term
        for term in terms_of(bare)
        if not any(term.word.startswith(k) or k.startswith(term.stem) for k in known)
    )
    phrase = squeezed(folded).strip(" .,;:!?\"'`*。、()")
    for article in _ARTICLES:
        if phrase.startswith(article):
            phrase = phrase[len(article) :]
            break
    if len(phrase.split()) > _MAX_PHRASE_WORDS:
        phrase = ""
    return Claim(sentence, tuple(new), words, phrase)


def holds(places: Places, index: int, claim: Claim) -> bool:
    """Whether unit `index` says all that the claim says beyond the ask."""
    unit = places.unit(index)
    if claim.phrase and occurs(claim.phrase, squeezed(unit)):
        return True
    if not claim.stated and not claim.words:
        return False
    there_numbers = numbers(unit) if any(s.number for s in claim.stated) else []
    there_dates = dates(unit) if any(s.date for s in claim.stated) else []
    for literal in claim.stated:
        if literal.date:
            if not any(literal.date.said_by(d) for d in there_dates):
                return False
        elif literal.number:
            if not any(literal.number.agrees(n) for n in there_numbers):
                return False
        elif not occurs(literal.form, squeezed(unit)):
            return False
    return all(has_term(unit, term) for term in claim.words)


@dataclass(frozen=True)
class Asked:
    """An ask and the ranked places of the original that speak of it."""

    text: str
    folded: str
    terms: tuple[Term, ...]
    ranked: tuple[Place, ...]
    weights: dict[Term, float]


def asked(ask: str, places: Places) -> Asked:
    terms = terms_of(ask)
    ranked, weights = places.rank(terms)
    if not ranked:
        terms = terms_of(ask, frozenset())
        ranked, weights = places.rank(terms)
    return Asked(ask, fold(ask), terms, tuple(ranked), weights)


def doubt(
    sentence: str,
    ask: Asked,
    places: Places,
    kept: Sequence[tuple[int, int]] | None = None,
) -> Reason | None:
    """Why `sentence` is no safe answer to `ask`; None when it is supported.

    `kept`: (begin, end) of the characters of the original that the answer was made from.
    """
    claim = claim_of(sentence, ask.text, ask.terms)
    if not claim.stated and not claim.words:
        return Reason("nothing_new", "the answer states nothing that the ask does not")
    holders = [place for place in ask.ranked if holds(places, place.index, claim)]
    if not holders:
        return _absent(claim, places)
    best = holders[0]
    held = {place.index for place in holders}
    if best.score < _MIN_SCORE:
        return Reason("weak_place", "what the answer states stands where the ask's words do not")
    if is_negative(sentence) and not is_negative(places.unit(best.index)):
        return Reason("negation", "the answer denies what its place in the text does not")
    rival = _rival(best, held, claim, ask, places)
    if rival is not None:
        return rival
    inner = _nearer(best.index, claim, ask, places)
    if inner is not None:
        return inner
    if kept is not None:
        return _unseen(best, ask, places, kept)
    return None


def _absent(claim: Claim, places: Places) -> Reason:
    folded = squeezed(places.folded)
    there = numbers(places.folded) if any(s.number for s in claim.stated) else []
    said = dates(places.folded) if any(s.date for s in claim.stated) else []
    for literal in claim.stated:
        if literal.date:
            present = any(literal.date.said_by(date) for date in said)
        elif literal.number:
            present = any(literal.number.agrees(number) for number in there)
        else:
            present = occurs(literal.form, folded)
        if not present:
            return Reason("literal_absent", f"a {literal.kind} of the answer is not in the text")
    return Reason("not_in_one_place", "no place that matches the ask says what the answer says")


def _rival(best: Place, held: set[int], claim: Claim, ask: Asked, places: Places) -> Reason | None:
    """A place that matches the ask about as well and says something else of the same kind."""
    for place in ask.ranked:
        if place.score * _MARGIN < best.score:
            return None
        if place.index in held:
            continue
        if claim.kind is not None and rivals_in(places, place.index, claim, ask):
            return Reason("rival_place", "another place matches as well and says something else")
        if claim.kind is not None and any(places.near(place.index, index) for index in held):
            continue
        if claim.kind is None or place.score > best.score * _RIVAL_MARGIN:
            return Reason("better_place", "another place of the text matches the ask better")
    return None


def _nearer(index: int, claim: Claim, ask: Asked, places: Places) -> Reason | None:
    """Something of the same kind in the same place that stands nearer to the ask's words."""
    rivals = rivals_in(places, index, claim, ask)
    if not rivals:
        return None
    unit = places.unit(index)
    spots = _spots(unit, claim)
    if not spots:
        return Reason("rival_in_place", "the place holds more of the same kind")
    hits = {term: offsets_in(unit, term) for term in ask.terms}
    mine = min(_nearness(unit, begin, end, hits, ask) for begin, end in spots)
    if any(_nearness(unit, r.begin, r.end, hits, ask) * _NEARER_MARGIN >= mine for r in rivals):
        return Reason("rival_in_place", "something else of the kind stands nearer to what is asked")
    return None


def _spots(unit: str, claim: Claim) -> list[tuple[int, int]]:
    """Where in `unit` the claim's new literals stand."""
    at = unit.find(claim.phrase) if claim.phrase else -1
    if at >= 0:
        return [(at, at + len(claim.phrase))]
    spots = []
    there_numbers, there_dates = numbers(unit), dates(unit)
    for literal in claim.stated:
        if literal.date:
            found = [(d.begin, d.end) for d in there_dates if literal.date.said_by(d)]
        elif literal.number:
            found = [(n.begin, n.end) for n in there_numbers if literal.number.agrees(n)]
        else:
            at = unit.find(literal.form)
            found = [(at, at + len(literal.form))] if at >= 0 else []
        spots += found[:1]
    return spots


def _nearness(unit: str, begin: int, end: int, hits: dict[Term, list[int]], ask: Asked) -> float:
    """The ask's weight around unit[begin:end], each term discounted by the words between."""
    total = 0.0
    for term, offsets in hits.items():
        nearest = 0.0
        for at in offsets:
            if begin <= at < end:
                continue
            gap = unit[at:begin] if at < begin else unit[end:at]
            breaks = sum(gap.count(mark) for mark in (",", ";", "(", " and ", " but ", "，", "、"))
            distance = gap.count(" ") + _CLAUSE_WORDS * breaks
            nearest = max(nearest, 1 / (1 + distance / _REACH_WORDS))
        total += ask.weights.get(term, 0.0) * nearest
    return total


def _unseen(
    best: Place, ask: Asked, places: Places, kept: Sequence[tuple[int, int]]
) -> Reason | None:
    for place in ask.ranked:
        if place.score * _MARGIN < best.score:
            return None
        begin, end = places.starts[place.index], places.ends[place.index]
        seen = sum(max(0, min(end, e) - max(begin, b)) for b, e in kept)
        if seen < _KEPT_SHARE * (end - begin):
            return Reason(
                "unseen_place", "a place that matches the ask was not in the short prompt"
            )
    return None


def rivals_in(places: Places, index: int, claim: Claim, ask: Asked) -> list[Stated]:
    """Literals of the claim's kind in unit `index` that neither the claim nor the ask states."""
    kinds = {_fine_kind(s) for s in claim.stated}
    claimed = fold(claim.text)
    found = []
    for literal in literals(places.raw(index)):
        if _fine_kind(literal) not in kinds:
            continue
        if occurs(literal.form, ask.folded) or occurs(literal.form, claimed):
            continue
        if any(_same(literal, s) or s.form in literal.form for s in claim.stated):
            continue
        if literal.kind == "name" and _is_common(literal, places, index, ask):
            continue
        found.append(literal)
    return found


def _is_common(name: Stated, places: Places, index: int, ask: Asked) -> bool:
    """Whether a capitalised `name` is of the ask's own words, or only begins a sentence."""
    if all(any(t.stem in word for t in ask.terms) for word in name.form.split()):
        return True
    pairs = [name.form[i : i + 2] for i in range(len(name.form) - 1)]
    if is_cjk(name.form[0]) and all(pair in STOP_WORDS for pair in pairs):
        return True
    first = not any(c.isalnum() for c in places.unit(index)[: name.begin])
    return first and " " not in name.form and f" {name.form} " in places.original


def _fine_kind(stated: Stated) -> str:
    """The literal's kind; a number that may be a year counts as a date."""
    return "date" if is_year(stated) else stated.kind


def is_year(stated: Stated) -> bool:
    """Whether a number is written as a year is: 1000 to 2099, nothing beside it."""
    number = stated.number
    return number is not None and not number.mark and bool(_YEAR.match(stated.form))


def _same(a: Stated, b: Stated) -> bool:
    if a.number and b.number:
        return a.number.agrees(b.number)
    if a.date and b.date:
        return a.date.said_by(b.date) or b.date.said_by(a.date)
    return a.form == b.form
