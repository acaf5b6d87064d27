"""SQuAD's measures of a short answer (Rajpurkar et al. 2016): exact match and token F1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case without articles, punctuation and repeated space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Iterable[str]) -> float:
    return float(normalised(answer) in {normalised(text) for text in accepted})


def f1(answer: str, accepted: Iterable[str]) -> float:
    """Best F1 over the accepted answers, of words after normalisation."""
    return max(
        (_f1(normalised(answer).split(), normalised(t).split()) for t in accepted), default=0
    )


def contains(answer: str, accepted: Iterable[str]) -> float:
    """1 when an accepted answer stands in `answer`."""
    padded = f" {normalised(answer)} "
    return float(any(f" {normalised(text)} " in padded for text in accepted))


def _f1(answer: list[str], accepted: list[str]) -> float:
    if not answer or not accepted:
        return float(answer == accepted)
    shared = sum((Counter(answer) & Counter(accepted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(answer), shared / len(accepted)
    return 2 * precision * recall / (precision + recall)
