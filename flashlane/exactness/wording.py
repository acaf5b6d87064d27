"""An ask as what a classifier can weigh: words, stems, phrases, pieces of CJK text, shape.

Scripts written with spaces give words, their beginnings (for languages that inflect) and phrases of
up to four words. Chinese, Japanese and Korean text gives pieces of up to four characters. The shape
is what a reader sees without reading: length, digits, code, quotation marks.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

MAX_CHARS = 480
"""Of a longer ask, the first and the last half of this many characters are read."""
MAX_PIECE = 4
MAX_PHRASE = 4
MIN_STEM, MAX_STEM = 4, 7
_LENGTHS = (1, 2, 4, 8, 14, 24, 40)
"""Bounds of the classes of length, in words; two CJK characters count as one word."""

_TOKEN = re.compile(r"[\u3005-\u3007\u3041-\u30ff\u3400-\u9fff]+|[\uac00-\ud7a3]+|[^\W_]+")
_CJK_START = "\u3005"
_HANGUL = "\uac00"
_HANGUL_END = "\ud7a3"
_MARKS = re.compile("[\u0300-\u036f]+")
_CODE = re.compile(r"`|\w\(|[{}]|\w_\w|[a-z][A-Z]|\w\.\w+\(|\b\w+\.[a-z]{1,4}\b|=\"?\w")
_SENTENCE_END = re.compile(r"[.!?;。！？；\n…]+")
_QUOTED = re.compile(
    '"[^"]{1,80}"|“[^”]{1,80}”|„[^“”]{1,80}[“”]|«[^»]{1,80}»|「[^」]{1,80}」|『[^』]{1,80}』'
)


class Sentence(NamedTuple):
    """`features`, and of each the word or CJK character that it begins at; `length` counts them."""

    features: list[str]
    places: list[int]
    length: int


def fold(text: str) -> str:
    """Lower case without accents, so that "Cual" and "cuál" are one word; kana keep their marks."""
    text = text.casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))


def tokens(folded: str) -> list[str]:
    """Words, and runs of Chinese, Japanese or Korean characters."""
    return _TOKEN.findall(folded)


def is_cjk(token: str) -> bool:
    return token[0] >= _CJK_START


def is_hangul(token: str) -> bool:
    return _HANGUL <= token[0] <= _HANGUL_END


def bounded(ask: str) -> str:
    """The part of `ask` that is read: all of it, or `MAX_CHARS` characters from its two ends."""
    if len(ask) <= MAX_CHARS:
        return ask
    return f"{ask[: MAX_CHARS // 2]} {ask[-MAX_CHARS // 2 :]}"


def sentences(ask: str) -> list[Sentence]:
    """The sentences of `ask` that hold words, in order. Linear; reads at most `MAX_CHARS`.

    What stands in quotation marks is named and not asked: it is left out. A stem ends in `*`, a
    phrase holds spaces, the ends of a sentence are marked `^` and `$`, and a piece of CJK text
    begins with `~`.
    """
    found = []
    for text in _SENTENCE_END.split(fold(_QUOTED.sub(" ", bounded(ask)))):
        words = _TOKEN.findall(text)
        if words:
            found.append(_sentence(words))
    return found


def _sentence(words: list[str]) -> Sentence:
    features: list[str] = []
    places: list[int] = []
    at = 0
    count = len(words)
    for index, word in enumerate(words):
        if word >= _CJK_START:
            hangul = _HANGUL <= word <= _HANGUL_END
            size = len(word)
            run = _joined(words, index) if hangul else word
            for length in range(2 if hangul else 1, MAX_PIECE + 1):
                begins = range(min(size, len(run) - length + 1))
                features += [f"~{run[begin : begin + length]}" for begin in begins]
                places += [at] * len(begins) if hangul else [at + begin for begin in begins]
            if not hangul:
                at += size
                continue
        else:
            features += [f"{word[:end]}*" for end in range(MIN_STEM, min(MAX_STEM + 1, len(word)))]
        features.append(word)
        phrase = word
        for after in words[index + 1 : index + MAX_PHRASE]:
            phrase = f"{phrase} {after}"
            features.append(phrase)
        places += [at] * (len(features) - len(places))
        at += 1
    first, last = words[0], words[-1]
    features += [
        "^" + (first[:3] if is_cjk(first) else first),
        (last[-3:] if is_cjk(last) else last) + "$",
    ]
    places += [0, max(at - 1, 0)]
    if count > 1:
        features += [f"^{first} {words[1]}", f"{words[-2]} {last}$"]
        places += [0, max(at - 2, 0)]
    return Sentence(features, places, at)


def _joined(words: list[str], index: int) -> str:
    """A Korean word and the beginning of what follows: whether they are written apart is taste."""
    run = words[index]
    wanted = len(run) + MAX_PIECE - 1
    for after in words[index + 1 :]:
        if len(run) >= wanted or not is_hangul(after):
            break
        run += after
    return run[:wanted]


def shape(ask: str, words: int) -> list[str]:
    """What the ask looks like, as features that begin with `#`."""
    text = bounded(ask)
    found = [f"#words<={next((bound for bound in _LENGTHS if words <= bound), 'more')}"]
    if _CODE.search(text):
        found.append("#code")
    if any(c.isdecimal() for c in text):
        found.append("#digit")
    if "?" in text or "？" in text:
        found.append("#question")
    if any(mark in text for mark in '"“„«「『'):
        found.append("#quoted")
    return found
