"""Summaries of paired measurements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean, median

_RESAMPLES = 2000


def mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Median of the ratios taken pair by pair; None without pairs.

    ValueError when the lengths differ.
    """
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return median(ratios) if ratios else None


def ratio_of_means(
    ours: Sequence[float], reference: Sequence[float]
) -> tuple[float, float, float] | None:
    """(ratio, low, high) with a 95 % interval by resampling the pairs; None if undefined.

    ValueError when the lengths differ.
    """
    pairs = list(zip(ours, reference, strict=True))
    if not pairs or not sum(reference):
        return None
    draw = random.Random(0)
    ratios = []
    for _ in range(_RESAMPLES):
        sample = draw.choices(pairs, k=len(pairs))
        below = sum(b for _, b in sample)
        if below:
            ratios.append(sum(a for a, _ in sample) / below)
    ratios.sort()
    low, high = ratios[int(0.025 * len(ratios))], ratios[int(0.975 * len(ratios)) - 1]
    return sum(ours) / sum(reference), low, high


def proportion_interval(kept: int, cases: int) -> tuple[float, float]:
    """95 % Wilson score interval of `kept` out of `cases`."""
    if not cases:
        return 0.0, 1.0
    z, share = 1.96, kept / cases
    centre = share + z * z / (2 * cases)
    margin = z * ((share * (1 - share) + z * z / (4 * cases)) / cases) ** 0.5
    below = 1 + z * z / cases
    return (centre - margin) / below, (centre + margin) / below
