"""A linear model over the words of an ask: how likely it is that the answer must be exact.

`weights.txt` holds what `python -m bench.router.learn` learned from the labelled asks: for each
feature its weight for "exact" and, for concepts, its weight for each kind. Nothing but a sum is
left to do at run time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flashlane.decision import BROAD_KINDS, EXACT_KINDS
from flashlane.exactness.concepts import concepts
from flashlane.exactness.vector import vector

WEIGHTS = Path(__file__).with_name("weights.txt")
UNIT = 1000
"""Weights are written as whole numbers of 1/UNIT."""
_ALL_KINDS = EXACT_KINDS + BROAD_KINDS
_EXACT_SIDE = slice(0, len(EXACT_KINDS))
_BROAD_SIDE = slice(len(EXACT_KINDS), None)


@dataclass(frozen=True)
class Reading:
    """`probability` is of an exact answer being needed; `concepts` speak for `kind`, most first."""

    probability: float
    exact: bool
    kind: str
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """`bound`: the least log-odds that count as exact. `kinds`: the weights of `_ALL_KINDS`."""

    bias: float
    bound: float
    weights: dict[str, float]
    kind_bias: tuple[float, ...]
    kinds: dict[str, tuple[float, ...]]

    def read(self, ask: str) -> Reading:
        values = vector(ask, concepts())
        weights, kinds = self.weights, self.kinds
        score = self.bias + sum(
            weights[feature] * value for feature, value in values.items() if feature in weights
        )
        exact = score >= self.bound
        side = _EXACT_SIDE if exact else _BROAD_SIDE
        sums = list(self.kind_bias[side])
        matched = values.keys() & kinds.keys()
        for feature in matched:
            value = values[feature]
            sums = [
                total + weight * value
                for total, weight in zip(sums, kinds[feature][side], strict=True)
            ]
        best = sums.index(max(sums))
        telling = sorted(
            (-weight * values[feature], feature[1:])
            for feature in matched
            if (weight := kinds[feature][side][best]) > 0 and feature[1:].isalpha()
        )
        return Reading(
            1.0 / (1.0 + math.exp(-score)),
            exact,
            _ALL_KINDS[side][best],
            tuple(concept for _, concept in telling[:3] if concept != "none"),
        )


@cache
def model() -> Model:
    """The model of `weights.txt`, read once, in about 0.05 s."""
    return parse(WEIGHTS.read_text("utf-8"))


def parse(text: str) -> Model:
    """A model from its text: `weight feature`, or `weight feature<TAB>weight of each kind`."""
    weights: dict[str, float] = {}
    kinds: dict[str, tuple[float, ...]] = {}
    for line in text.splitlines():
        head, _, of_kinds = line.partition("\t")
        weight, _, feature = head.partition(" ")
        weights[feature] = int(weight) / UNIT
        if of_kinds:
            kinds[feature] = tuple(int(number) / UNIT for number in of_kinds.split())
    bias, bound = weights.pop("=bias"), weights.pop("=bound")
    return Model(bias, bound, weights, kinds.pop("=bias"), kinds)


def text_of(found: Model) -> str:
    """What `parse` reads; features in order, so that a new model's difference can be read."""
    lines = [_line("=bias", found.bias, found.kind_bias), _line("=bound", found.bound, ())]
    lines += [
        _line(feature, weight, found.kinds.get(feature, ()))
        for feature, weight in sorted(found.weights.items())
    ]
    return "\n".join(lines) + "\n"


def _line(feature: str, weight: float, of_kinds: tuple[float, ...]) -> str:
    line = f"{round(weight * UNIT)} {feature}"
    if of_kinds:
        line += "\t" + " ".join(str(round(number * UNIT)) for number in of_kinds)
    return line
