"""An ask as a sparse vector: what the classifier is trained on, and what it weighs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import sqrt

from flashlane.exactness.wording import Sentence, sentences, shape

_GRAMS = 4.0
"""Length of the part of the vector that holds words and shape; a concept alone has 1."""
_PLACED = 0.5
"""A concept at the beginning or the end of a sentence, where most languages put the verb."""
_ORDER = 0.7
"""The first and the last concept of a sentence."""
_NEXT = 0.35
"""One concept after another."""
_HEAD = 2
_TAIL = 5
"""Words or CJK characters that count as the beginning and the end of a sentence."""


def vector(ask: str, concepts: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """The features of `ask` and their values; those of `concepts` begin with `@`.

    `concepts` gives the concepts of a feature of `wording`.
    """
    values: dict[str, float] = {}
    grams: set[str] = set()
    found: set[str] = set()
    length = 0
    parts = sentences(ask)
    last = len(parts) - 1
    for index, sentence in enumerate(parts):
        length += sentence.length
        order = _concepts(sentence, concepts, grams, found, values)
        if not order:
            continue
        values["@first " + order[0]] = values["@last " + order[-1]] = _ORDER
        for one, after in pairwise(order):
            values[f"@{one} {after}"] = _NEXT
        if last:
            for side in [s for s, there in (("0", not index), ("-", index == last)) if there]:
                for concept in order:
                    values[f"@{side}{concept}"] = _PLACED / 2
    for concept in found:
        values["@" + concept] = 1.0
    if not found:
        values["@none"] = 1.0
    grams.update(shape(ask, length))
    share = _GRAMS / sqrt(len(grams))
    values.update(dict.fromkeys(grams, share))
    return values


def _concepts(
    sentence: Sentence,
    concepts: Mapping[str, tuple[str, ...]],
    grams: set[str],
    found: set[str],
    values: dict[str, float],
) -> list[str]:
    """The sentence's concepts in order, those that follow themselves once; fills the others."""
    grams.update(sentence.features)
    tail = sentence.length - _TAIL
    places: list[tuple[int, str]] = []
    for feature, at in zip(sentence.features, sentence.places, strict=True):
        if feature in concepts:
            for concept in concepts[feature]:
                places.append((at, concept))
                if at < _HEAD:
                    values["@^" + concept] = _PLACED
                if at >= tail:
                    values["@$" + concept] = _PLACED
    places.sort()
    order: list[str] = []
    for _, concept in places:
        found.add(concept)
        if not order or order[-1] != concept:
            order.append(concept)
    return order
