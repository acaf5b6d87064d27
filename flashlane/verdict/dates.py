"""Dates as people write them, each as the days it can mean. Pure; bounded patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MONTHS = (
    "january jan januar janvier enero janeiro gennaio января январь",
    "february feb februar février febrero fevereiro febbraio февраля февраль",
    "march mar märz mars marzo março марта март",
    "april apr avril abril aprile апреля апрель",
    "may mai mayo maio maggio мая май",
    "june jun juni juin junio junho giugno июня июнь",
    "july jul juli juillet julio julho luglio июля июль",
    "august aug août agosto августа август",
    "september sep sept septembre septiembre setembro settembre сентября сентябрь",
    "october oct oktober okt octobre octubre outubro ottobre октября октябрь",
    "november nov novembre noviembre novembro ноября ноябрь",
    "december dec dezember dez décembre diciembre dezembro dicembre декабря декабрь",
)
MONTHS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH = "(" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\b\.?"
_ISO = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_NUMERIC = re.compile(r"(?<![\d.])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\d/])")
_CJK = re.compile(r"(?:(\d{4}) ?[年년] ?)?(\d{1,2}) ?[月월](?: ?(\d{1,2}) ?[日일号])?")
_DAY_FIRST = re.compile(
    r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|º|°|\.)?(?: of| de| d')? "
    + _MONTH
    + r"(?:,? (?:de |of )?(\d{4})(?!\d))?"
)
_MONTH_FIRST = re.compile(
    r"(?<!\w)" + _MONTH + r" (\d{1,2})(?:st|nd|rd|th)?(?!\d)(?:,? (\d{4})(?!\d))?"
)
_MONTH_YEAR = re.compile(r"(?<!\w)" + _MONTH + r",? (?:de |of )?(\d{4})(?!\d)")

Day = tuple[int, int, int]
"""(year, month, day), 0 for what is not said."""


@dataclass(frozen=True)
class Date:
    begin: int
    end: int
    days: frozenset[Day]

    def said_by(self, other: Date) -> bool:
        """Whether `other` can be this date and says no less of it."""
        return any(
            all(not mine or mine == theirs for mine, theirs in zip(a, b, strict=True))
            for a in self.days
            for b in other.days
        )


def dates(folded: str) -> list[Date]:
    """The dates of `folded`, in order; of overlapping ones the first and longest."""
    found = sorted(_all(folded), key=lambda date: (date.begin, -date.end))
    kept: list[Date] = []
    for date in found:
        if not kept or date.begin >= kept[-1].end:
            kept.append(date)
    return kept


def _all(text: str) -> Iterator[Date]:
    for match in _ISO.finditer(text):
        yield from _made(match, [tuple(int(part) for part in match.groups())])
    for match in _NUMERIC.finditer(text):
        first, second = int(match[1]), int(match[3])
        years = [int(match[4])]
        if years[0] < 100:
            years = [1900 + years[0], 2000 + years[0]]
        yield from _made(
            match, [day for y in years for day in ((y, second, first), (y, first, second))]
        )
    for match in _CJK.finditer(text):
        yield from _made(match, [tuple(int(part or 0) for part in match.groups())])
    for match in _DAY_FIRST.finditer(text):
        yield from _made(match, [(int(match[3] or 0), MONTHS[match[2]], int(match[1]))])
    for match in _MONTH_FIRST.finditer(text):
        yield from _made(match, [(int(match[3] or 0), MONTHS[match[1]], int(match[2]))])
    for match in _MONTH_YEAR.finditer(text):
        yield from _made(match, [(int(match[2]), MONTHS[match[1]], 0)])


def _made(match: re.Match[str], days: list[tuple[int, ...]]) -> Iterator[Date]:
    possible = frozenset((y, m, d) for y, m, d in days if 1 <= m <= 12 and 0 <= d <= 31)
    if possible:
        yield Date(match.start(), match.end(), possible)
