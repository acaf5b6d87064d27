"""What a text states literally: dates, numbers, code names, quotations, proper names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal as OneOf

from flashlane.verdict.dates import MONTHS, Date, dates
from flashlane.verdict.numerals import Number, numbers
from flashlane.verdict.places import fold
from flashlane.verdict.stopwords import STOP_WORDS

LiteralKind = OneOf["date", "number", "code", "quote", "name"]

_CODE = re.compile(
    r"https?://[^\s<>\"')\]]{1,400}|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}"
    r"|(?<![\w/])(?:~|\.{1,2})?(?:/[\w.+@-]{1,80}){2,12}/?|[\w.-]{1,60}(?:/[\w.-]{1,60}){2,12}"
    r"|\b[A-Za-z]:\\[\w.\\ -]{1,200}"
    r"|(?<!\w)[A-Za-z_$][\w$]{0,60}(?:(?:::|\.|->)[A-Za-z_]\w{0,60}){1,8}(?:\(\))?"
    r"|(?<!\w)[A-Za-z0-9]{1,40}(?:_[A-Za-z0-9]{1,40}){1,10}(?!\w)"
    r"|(?<![\w-])(?=[A-Za-z0-9-]{0,40}\d)[A-Za-z][A-Za-z0-9]{0,40}(?:-[A-Za-z0-9]{1,40}){0,8}(?![\w-])"
    r"|(?<![\w-])\d{1,12}[A-Za-z][A-Za-z0-9]{1,40}(?:-[A-Za-z0-9]{1,40}){0,8}(?![\w-])"
    r"|(?<![\w-])[0-9A-Fa-f]{2,32}(?:-[0-9A-Fa-f]{2,32}){2,8}(?![\w-])"
    r"|(?<!\w)[a-z]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,6}(?!\w)"
    r"|(?<!\w)[A-Z][a-z0-9]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,6}(?!\w)"
    r"|`[^`\n]{1,200}`"
)
_ORDINAL = re.compile(r"\d{1,6}(?:st|nd|rd|th|s|bn|k|m|km|kg|cm|mm|gb|mb|ms)$")
_QUOTE = re.compile(
    r"\"([^\"\n]{1,400})\"|「([^」\n]{1,400})」|『([^』\n]{1,400})』|(?<!\w)'([^'\n]{2,400})'(?!\w)"
)
_NAME_WORD = (
    r"(?:(?:[A-Z]|St|Mr|Mrs|Ms|Dr|Lt|Gen|Prof|Rev)\. ?){0,3}"
    r"[^\W\d_a-z][\w'-]{0,40}(?:\.[\w'-]{1,20}){0,4}"
)
_LINKS = "of|the|de|du|des|da|do|dos|la|le|von|van|der|den|di|del|al|bin|y|e|and|&"
_NAME = re.compile(rf"(?<![\w']){_NAME_WORD}(?: (?:(?:{_LINKS}) ){{0,2}}{_NAME_WORD}){{0,6}}")
_CJK_RUN = re.compile(r"[\u30a0-\u30ff]{2,30}|[\u3400-\u9fff]{2,30}|[\uac00-\ud7af]{2,20}")


@dataclass(frozen=True)
class Stated:
    """A literal at text[begin:end]. `form` is its folded spelling with single blanks."""

    kind: LiteralKind
    begin: int
    end: int
    form: str
    number: Number | None = None
    date: Date | None = None


def literals(text: str) -> list[Stated]:
    """The literals of `text` in order; none lies in another, dates before code before the rest."""
    folded = fold(text)
    found: list[Stated] = []
    taken: list[tuple[int, int]] = []

    def add(kind: LiteralKind, begin: int, end: int, **values: object) -> None:
        if begin < end and not any(b < end and begin < e for b, e in taken):
            taken.append((begin, end))
            form = squeezed(folded[begin:end])
            found.append(Stated(kind, begin, end, form, **values))  # type: ignore[arg-type]

    for date in dates(folded):
        add("date", date.begin, date.end, date=date)
    for match in _CODE.finditer(text):
        spelled = match.group().strip("`").rstrip(".,;:")
        if not _ORDINAL.match(spelled.lower()) and len(spelled) > 1:
            begin = match.start() + (match.group()[0] == "`")
            add("code", begin, begin + len(spelled))
    for number in numbers(folded):
        add("number", number.begin, number.end, number=number)
    for match in _QUOTE.finditer(folded):
        group = next(i for i in range(1, 5) if match[i] is not None)
        add("quote", *match.span(group))
    for begin, end in _names(text, folded):
        add("name", begin, end)
    found.sort(key=lambda stated: stated.begin)
    return found


def squeezed(folded: str) -> str:
    return " ".join(folded.split())


def _names(text: str, folded: str) -> list[tuple[int, int]]:
    """Capitalised sequences. A first word of a sentence that is a stop word begins none."""
    found = []
    for match in _NAME.finditer(text):
        begin, end = match.span()
        if not text[begin].isupper():
            continue
        words = folded[begin:end].split(" ")
        while words and words[0].strip(".'-") in STOP_WORDS:
            begin += len(words.pop(0)) + 1
        end = begin + len(folded[begin:end].removesuffix("'s").rstrip(".'-& "))
        if words and begin < end and folded[begin:end] not in MONTHS and text[begin].isupper():
            found.append((begin, end))
    found += [match.span() for match in _CJK_RUN.finditer(text)]
    return found


def occurs(form: str, folded: str) -> bool:
    """Whether `form` stands in `folded` at word boundaries, blanks being alike."""
    at = folded.find(form)
    while at >= 0:
        end = at + len(form)
        if not (at and _joined(folded[at - 1], form[0])) and not (
            end < len(folded) and _joined(form[-1], folded[end])
        ):
            return True
        at = folded.find(form, at + 1)
    return False


def _joined(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum() and left < "\u3040" and right < "\u3040"
