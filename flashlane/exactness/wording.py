"""An ask as the features that `exactness` weighs: words, stems, phrases, pieces of CJK text, shape.

Scripts written with spaces give words, their beginnings (for languages that inflect) and phrases
of two and three words. Chinese and Japanese runs give pieces of one to four characters, Korean
ones the pieces of each word. The shape is what a reader sees without reading: length, digits, code.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_CHARS = 720
"""Of a longer ask, the first and the last half of this many characters are read."""
_STEM_CHARS = range(4, 9)
"""Lengths of the beginnings of a word that are features."""
_LENGTHS = (1, 2, 4, 8, 14, 24, 40)
"""Bounds of the classes of length, in words; four CJK characters count as two words."""

_TOKEN = re.compile(r"[\u3005-\u3007\u3041-\u30ff\u3400-\u9fff]+|[\uac00-\ud7a3]+|[^\W_]+")
_HAN_OR_KANA = "\u3005"
_HANGUL = "\uac00"
_HANGUL_END = "\ud7a3"
_CODE = re.compile(r"`|\w\(|[{}]|\w_\w|[a-z][A-Z]|\w\.\w+\(|\b\w+\.[a-z]{1,4}\b|=\"?\w")


def features(ask: str) -> list[str]:
    """The features of `ask`, some more than once. Linear; reads at most `MAX_CHARS` characters.

    A stem ends in `*`, a phrase holds spaces, the ends of the ask are marked `^` and `$`, a piece
    of CJK text begins with `~`, and the shape with `#`.
    """
    if len(ask) > MAX_CHARS:
        ask = f"{ask[: MAX_CHARS // 2]} {ask[-MAX_CHARS // 2 :]}"
    text = unicodedata.normalize("NFKC", ask)
    found: list[str] = []
    add = found.append
    words: list[str] = []
    length = 0
    for token in _TOKEN.findall(text.casefold()):
        first = token[0]
        if first < _HAN_OR_KANA:
            words.append(token)
            length += 2
            size = len(token)
            for end in _STEM_CHARS:
                if end >= size:
                    break
                add(token[:end] + "*")
        elif _HANGUL <= first <= _HANGUL_END:
            words.append(token)
            length += 2
            found.extend(_pieces(token, 3))
        else:
            length += len(token)
            found.extend(_pieces(token, 4))
    found.extend(words)
    if words:
        pairs = [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)]
        found.extend(pairs)
        found.extend(f"{pair} {word}" for pair, word in zip(pairs, words[2:], strict=False))
        add("^" + words[0])
        add(words[-1] + "$")
        if pairs:
            add("^" + pairs[0])
            add(pairs[-1] + "$")
    found.extend(_shape(text, length // 2))
    return found


def _pieces(run: str, longest: int) -> Iterator[str]:
    """Pieces of one to `longest` characters, those at the run's ends marked as well."""
    size = len(run)
    for length in range(1, min(longest, size) + 1):
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
    if "?" in text:
        yield "#question"
    if '"' in text or "\u201c" in text or "\u201e" in text or "«" in text or "「" in text:
        yield "#quoted"
