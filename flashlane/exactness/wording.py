"""An ask as the features that the classifier weighs: words, stems, phrases, pieces, shape.

Scripts written with spaces give words, their beginnings (for languages that inflect) and phrases
of two to four words. Chinese, Japanese and Korean text gives pieces of up to `MAX_PIECE`
characters. The shape is what a reader sees without reading: length, digits, code.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_CHARS = 720
"""Of a longer ask, the first and the last half of this many characters are read."""
MAX_PIECE = 4
MAX_STEM = 7
_STEM_CHARS = range(4, MAX_STEM + 1)
"""Lengths of the beginnings of a word that are features."""
_LENGTHS = (1, 2, 4, 8, 14, 24, 40)
"""Bounds of the classes of length, in words; four CJK characters count as two words."""

_TOKEN = re.compile(r"[\u3005-\u3007\u3041-\u30ff\u3400-\u9fff]+|[\uac00-\ud7a3]+|[^\W_]+")
_CJK_START = "\u3005"
_HANGUL = "\uac00"
_HANGUL_END = "\ud7a3"
_MARKS = re.compile("[\u0300-\u036f]+")
_CODE = re.compile(r"`|\w\(|[{}]|\w_\w|[a-z][A-Z]|\w\.\w+\(|\b\w+\.[a-z]{1,4}\b|=\"?\w")
_QUOTES = frozenset('"“„«「『')


def fold(text: str) -> str:
    """Lower case without accents, so that "Cual" and "cuál" are one word; kana keep their marks."""
    text = text.casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))


def tokens(folded: str) -> list[str]:
    """Words, and runs of Chinese or Japanese characters."""
    return _TOKEN.findall(folded)


def is_cjk(token: str) -> bool:
    return token[0] >= _CJK_START


def is_hangul(token: str) -> bool:
    return _HANGUL <= token[0] <= _HANGUL_END


def bounded(ask: str) -> str:
    """The part of `ask` that is read: all of it, or `MAX_CHARS` characters from both ends."""
    if len(ask) <= MAX_CHARS:
        return ask
    return f"{ask[: MAX_CHARS // 2]} {ask[-MAX_CHARS // 2 :]}"


def features(ask: str) -> list[str]:
    """The features of `ask`, some more than once. Linear; reads at most `MAX_CHARS` characters.

    A stem ends in `*`, a phrase holds spaces, the ends of the ask are marked `^` and `$`, a piece
    of CJK text begins with `~`, and the shape with `#`.
    """
    ask = bounded(ask)
    found: list[str] = []
    add = found.append
    words: list[str] = []
    hangul: list[str] = []
    length = 0
    for token in tokens(fold(ask)):
        if token < _CJK_START:
            words.append(token)
            length += 2
            size = len(token)
            for end in _STEM_CHARS:
                if end >= size:
                    break
                add(token[:end] + "*")
        elif is_hangul(token):
            words.append(token)
            hangul.append(token)
            length += 2
        else:
            length += len(token)
            found.extend(_pieces(token))
    if hangul:
        found.extend(_pieces("".join(hangul)))
    found.extend(words)
    if words:
        pairs = [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)]
        triples = [f"{pair} {word}" for pair, word in zip(pairs, words[2:], strict=False)]
        found.extend(pairs)
        found.extend(triples)
        found.extend(f"{triple} {word}" for triple, word in zip(triples, words[3:], strict=False))
        add("^" + words[0])
        add(words[-1] + "$")
        if pairs:
            add("^" + pairs[0])
            add(pairs[-1] + "$")
    found.extend(_shape(ask, length // 2))
    return found


def _pieces(run: str) -> Iterator[str]:
    """Pieces of one to `MAX_PIECE` characters, those at the run's ends marked as well.

    A single Hangul syllable says nothing: those that are words of their own are words.
    """
    size = len(run)
    for length in range(2 if is_hangul(run) else 1, min(MAX_PIECE, size) + 1):
        for at in range(size - length + 1):
            yield "~" + run[at : at + length]
    for length in (2, 3):
        if length <= size:
            yield "~^" + run[:length]
            yield "~" + run[-length:] + "$"


def _shape(text: str, words: int) -> Iterator[str]:
    yield f"#words<={next((bound for bound in _LENGTHS if words <= bound), 'more')}"
    if _CODE.search(text):
        yield "#code"
    if any(c.isdecimal() for c in text):
        yield "#digit"
    if "?" in text or "？" in text:
        yield "#question"
    if not _QUOTES.isdisjoint(text):
        yield "#quoted"
