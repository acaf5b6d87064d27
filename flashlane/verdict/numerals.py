"""Numbers as people write them: digits in either convention, words, CJK numerals.

Pure; every pattern is bounded. Texts are expected folded (`flashlane.verdict.places.fold`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

_DIGITS = re.compile(
    r"(?<![\w.,])[-+]?(?:\d{1,3}(?:[.,' ]\d{3}){1,7}(?!\d)(?:[.,]\d{1,9}(?!\d))?"
    r"|\d{1,2}(?:,\d{2}){1,5},\d{3}(?!\d)|\d{1,30}(?:[.,]\d{1,12}(?!\d))?)"
    r"|(?<=[a-z$€£¥#(\[])\d{1,30}(?:[.,]\d{1,12})*|(?<=[.,\u3040-\u9fff\uac00-\ud7af])\d{1,30}"
)
_MARKS = {
    "%": "%", "percent": "%", "per cent": "%", "prozent": "%", "pour cent": "%",
    "por ciento": "%", "por cento": "%", "per cento": "%", "процент": "%", "퍼센트": "%",
    "$": "usd", "usd": "usd", "dollar": "usd", "€": "eur", "eur": "eur", "£": "gbp", "gbp": "gbp",
    "pound sterling": "gbp", "¥": "yen", "yen": "yen", "円": "yen", "元": "cny", "₩": "krw",
    "원": "krw", "₽": "rub", "руб": "rub",
}  # fmt: skip
_SCALES = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "mio": 6, "mrd": 9,
    "tausend": 3, "millionen": 6, "milliarde": 9, "milliarden": 9, "mille": 3, "milliers": 3,
    "millions": 6, "milliard": 9, "milliards": 9, "mil": 3, "millones": 6, "millón": 6,
    "milhão": 6, "milhões": 6, "bilhão": 9, "bilhões": 9, "mila": 3, "milione": 6, "milioni": 6,
    "miliardo": 9, "miliardi": 9, "тысяч": 3, "тысячи": 3, "тыс": 3, "миллион": 6,
    "миллиона": 6, "миллионов": 6, "млн": 6, "млрд": 9, "миллиардов": 9, "thousands": 3,
    "billions": 9, "hundreds": 2,
}  # fmt: skip
_SCALE_SUFFIXES = {"k": 3, "bn": 9, "m": 6}
_AFTER = re.compile(r"[ ]?([^\W\d_]{1,12}|[%$€£¥₩₽])")
_CJK_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "两": 2, "兩": 2, "壱": 1, "弐": 2, "参": 3, "영": 0, "일": 1, "이": 2, "삼": 3,
    "사": 4,    "오": 5, "육": 6, "칠": 7, "팔": 8, "구": 9,
}  # fmt: skip
_CJK_SCALES = {
    "十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "億": 10**8, "亿": 10**8,
    "兆": 10**12, "십": 10, "백": 100, "천": 1000, "만": 10**4, "억": 10**8,
}  # fmt: skip
_CJK_NUMBER = re.compile(r"[零一二三四五六七八九〇两兩壱弐参十百千万萬億亿兆]{1,24}")
_CJK_SCALED = re.compile(r"[十百千万萬億亿兆만억천백십]{1,3}")
_HANGUL_NUMBER = re.compile(
    r"(?<![\uac00-\ud7af])[영일이삼사오육칠팔구십백천만억]{1,16}(?=[ 개명원년월일회건번]|$)"
)
_WORDS = re.compile(r"[^\W\d_]{1,40}")
_EXACT_DIGITS = 28
"""What the default decimal context keeps: longer numbers are compared as they are spelled."""


@dataclass(frozen=True)
class Number:
    """A number at text[begin:end]; `values` are all that its spelling can mean."""

    begin: int
    end: int
    values: frozenset[Decimal]
    mark: str = ""
    """`%` or a currency, where one stands beside it."""

    def agrees(self, other: Number) -> bool:
        """Whether both can be the same amount: of one value, and not of two different units."""
        same = not self.values.isdisjoint(other.values)
        return same and (not self.mark or not other.mark or self.mark == other.mark)


def numbers(folded: str) -> list[Number]:
    """All numbers of `folded`, in order of their beginnings."""
    found = [*_by_digits(folded), *_by_words(folded), *_by_cjk(folded)]
    found.sort(key=lambda number: number.begin)
    return found


def _by_digits(text: str) -> Iterator[Number]:
    for match in _DIGITS.finditer(text):
        spelled = match.group()
        values = _values(spelled)
        begin, end = match.span()
        mark = _MARKS.get(text[begin - 1 : begin].strip(), "")
        scale = 0
        after = _AFTER.match(text, end)
        if after:
            word = after.group(1)
            if word in ("st", "nd", "rd", "th"):
                end = after.end()
            elif word in _SCALES or (word in _SCALE_SUFFIXES and after.group()[0] != " "):
                scale = _SCALES.get(word) or _SCALE_SUFFIXES[word]
                end = after.end()
                after = _AFTER.match(text, end)
            mark = mark or _mark_at(text, after.start() if after else end)
        values = {reading.scaleb(scale) for reading in values} if scale else values
        cjk = _CJK_SCALED.match(text, end)
        if cjk and not scale:
            factor = 1
            for char in cjk.group():
                factor *= _CJK_SCALES[char]
            values = {reading * factor for reading in values}
            end = cjk.end()
            mark = mark or _mark_at(text, end)
        yield Number(begin, end, frozenset(map(_plain, values)), mark)


def _mark_at(text: str, at: int) -> str:
    rest = text[at : at + 16].lstrip()
    return next((mark for name, mark in _MARKS.items() if rest.startswith(name)), "")


def _values(spelled: str) -> set[Decimal]:
    """Both readings of one separator before three digits: thousands, and decimals."""
    sign = -1 if spelled[0] == "-" else 1
    digits = spelled.lstrip("+-").rstrip(".,")
    separators = re.findall(r"[.,' ]", digits)
    readings = set()
    if not separators:
        readings.add(digits)
    else:
        last = separators[-1]
        whole, _, fraction = digits.rpartition(last)
        if last in ".," and separators.count(last) == 1:
            readings.add(re.sub(r"\D", "", whole) + "." + fraction)
        if len(fraction) == 3:
            readings.add(re.sub(r"\D", "", digits))
        if not readings:
            readings.add(digits.replace(last, ""))
    return {sign * Decimal(reading) for reading in readings if _is_number(reading)}


def _is_number(reading: str) -> bool:
    return reading.replace(".", "", 1).isdecimal()


def _plain(value: Decimal) -> Decimal:
    if len(value.as_tuple().digits) > _EXACT_DIGITS:
        return value
    return value.normalize() if value else Decimal(0)


def _by_words(text: str) -> Iterator[Number]:
    """Runs of number words. What is also an article counts only within a longer run."""
    run: list[tuple[int, int, int]] = []
    end = -1
    for match in _WORDS.finditer(text):
        value = _word_value(match.group())
        if run and (
            text[end : match.start()] not in (" ", "-")
            or (value is None and match.group() not in _JOINERS)
            or (value is not None and not _continues(run[-1][2], value))
        ):
            yield from _sum(text, run)
            run = []
        if value is not None and (run or value not in (-3, -6, -9, -12, -2)):
            run.append((*match.span(), value))
        end = match.end()
    if run:
        yield from _sum(text, run)


def _word_value(word: str) -> int | None:
    """The value of a number word, a scale (million, …) as its negative exponent."""
    value = spelled_numbers().get(word)
    if value is None and word in _SCALES:
        return -_SCALES[word]
    return value


def _continues(before: int, value: int) -> bool:
    """Whether number words of these values, one after the other, are one number."""
    if value < 0 or before < 0:
        return True
    if value == 20 and before == 4:  # quatre-vingt
        return True
    if before >= 100:
        return before % 100 == 0 and value < 100
    if before == 10:  # soixante-dix-sept
        return value in (7, 8, 9)
    return before % 10 == 0 and before >= 20 and value < (20 if before in (20, 60, 80) else 10)


def _sum(text: str, run: list[tuple[int, int, int]]) -> Iterator[Number]:
    begin, end = run[0][0], run[-1][1]
    if len(run) == 1 and text[begin:end] in _ARTICLES:
        return
    total = current = 0
    for _, _, value in run:
        if value >= 0:
            current = current * value if (current, value) == (4, 20) else current + value
        elif value == -2:
            current = max(current, 1) * 100
        else:
            total += max(current, 1) * 10**-value
            current = 0
    whole = frozenset({_plain(Decimal(total + current))})
    yield Number(begin, end, whole, _mark_at(text, end))


def _by_cjk(text: str) -> Iterator[Number]:
    for pattern in (_CJK_NUMBER, _HANGUL_NUMBER):
        for match in pattern.finditer(text):
            if match.start() and text[match.start() - 1].isdecimal():
                continue
            value = _cjk_value(match.group())
            if value is not None:
                mark = _mark_at(text, match.end())
                yield Number(*match.span(), frozenset({_plain(Decimal(value))}), mark)


def _cjk_value(spelled: str) -> int | None:
    if all(char in _CJK_DIGITS for char in spelled):
        return int("".join(str(_CJK_DIGITS[char]) for char in spelled))
    total = section = digit = 0
    for char in spelled:
        if char in _CJK_DIGITS:
            digit = _CJK_DIGITS[char]
        elif _CJK_SCALES[char] < 10**4:
            section += (digit or 1) * _CJK_SCALES[char]
            digit = 0
        else:
            total += (section + digit or 1) * _CJK_SCALES[char]
            section = digit = 0
    return total + section + digit


_SMALL = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze "
    "seize",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
    "quince dieciséis diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés "
    "veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve",
    "it": "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici "
    "quattordici quindici sedici diciassette diciotto diciannove",
    "pt": "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze "
    "dezesseis dezessete dezoito dezenove",
    "ru": "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать "
    "тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "fr": "vingt trente quarante cinquante soixante septante",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "it": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "pt": "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    "ru": "двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто",
}
_OTHER = {
    "una": 1, "une": 1, "uma": 1, "duas": 2, "eine": 1, "einen": 1, "zwo": 2, "dozen": 12,
    "первый": 1, "две": 2, "одна": 1,
    "dezasseis": 16, "dezassete": 17, "dezanove": 19, "quatorze": 14,
    "ciento": 100, "cien": 100, "cento": 100, "cem": 100, "cent": 100, "hundert": 100, "сто": 100,
    "doscientos": 200, "trescientos": 300, "cuatrocientos": 400, "quinientos": 500,
    "seiscientos": 600, "setecientos": 700, "ochocientos": 800, "novecientos": 900,
    "duzentos": 200, "trezentos": 300, "quatrocentos": 400, "quinhentos": 500,
    "duecento": 200, "trecento": 300, "quattrocento": 400, "cinquecento": 500,
    "двести": 200, "триста": 300, "четыреста": 400, "пятьсот": 500,
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12, "erste": 1, "ersten": 1,
    "zweite": 2, "zweiten": 2, "dritte": 3, "dritten": 3, "premier": 1, "première": 1,
    "deuxième": 2, "troisième": 3, "primero": 1, "segundo": 2, "tercero": 3, "primeiro": 1,
    "terceiro": 3, "primo": 1, "secondo": 2, "terzo": 3, "once": 1, "twice": 2,
}  # fmt: skip
_ARTICLES = frozenset({"un", "una", "une", "uma", "um", "uno", "eine", "einen", "одна"})
_JOINERS = frozenset({"and", "und", "et", "y", "e"})


@cache
def spelled_numbers() -> dict[str, int]:
    """Number words of en, de, fr, es, it, pt and ru; compounds that are written as one word too."""
    table: dict[str, int] = dict(_OTHER)
    for language, names in _SMALL.items():
        for value, word in enumerate(names.split()):
            table.setdefault(word, value)
        for step, word in enumerate(_TENS[language].split()):
            table.setdefault(word, 20 + 10 * step)
    table["eleven"], table["once"] = 11, 11
    german = _SMALL["de"].split()
    for step, tens in enumerate(_TENS["de"].split()):
        for unit in range(1, 10):
            joined = "ein" if unit == 1 else german[unit]
            table[f"{joined}und{tens}"] = 20 + 10 * step + unit
    under = {word: value for word, value in table.items() if value < 100 and _is_german(word)}
    for unit in range(1, 10):
        hundred = ("ein" if unit == 1 else german[unit]) + "hundert"
        table[hundred] = 100 * unit
        for word, value in under.items():
            if value:
                table[hundred + word] = 100 * unit + value
    for unit in range(1, 20):
        table[("ein" if unit == 1 else german[unit]) + "tausend"] = 1000 * unit
    italian = _SMALL["it"].split()
    for step, tens in enumerate(_TENS["it"].split()):
        for unit in range(1, 10):
            stem = tens[:-1] if italian[unit][0] in "uo" else tens
            table[stem + italian[unit]] = 20 + 10 * step + unit
        table[f"{tens}tré"] = 23 + 10 * step
    table["vingts"] = 20
    return table


def _is_german(word: str) -> bool:
    return word in _SMALL["de"].split() or word.endswith(("zig", "ßig"))
