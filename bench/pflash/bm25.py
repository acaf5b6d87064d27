"""Plain BM25 over sentences and lines: the baseline that has no part of PFlash in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from bench.data import sentences

_LINE = re.compile(r".+")


def keep(text: str, question: str, ratio: float, count: Callable[[str], int]) -> str:
    """The units of `text` that rank highest for `question`, whole and in the text's order.

    A unit is taken while it fits into `ratio` of the tokens of all units, each counted by `count`.
    Of equal ones the earlier comes first, so units without a word of the question fill what is
    left.
    """
    cut = units(text)
    scores = _scores(cut, question)
    tokens = [count(unit) for unit in cut]
    left = ratio * sum(tokens)
    kept = set()
    for index in sorted(range(len(cut)), key=lambda index: -scores[index]):
        if tokens[index] <= left:
            left -= tokens[index]
            kept.add(index)
    return "".join(cut[index] for index in sorted(kept))


def units(text: str) -> list[str]:
    """The lines of `text`, cut into sentences, each with the blanks behind it: joined, the text."""
    begins = [
        line.start() + begin
        for line in _LINE.finditer(text)
        for begin, _ in sentences(line.group())
    ]
    return [text[begin:end] for begin, end in pairwise([0, *begins[1:], len(text)])]


def _scores(cut: Sequence[str], question: str) -> Sequence[float]:
    """Lucene's BM25 with k1 = 1.5 and b = 0.75, English stop words left out, words not stemmed."""
    import bm25s  # of requirements/bench.txt, which the tests do without

    asked, *terms = bm25s.tokenize([question, *cut], return_ids=False, show_progress=False)
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(terms, show_progress=False)
    scores: list[float] = index.get_scores(asked).tolist()
    return scores
