"""Whether a line of text asks for something, in one of the ten languages known here.

Pure; each line is read once from its beginning, and no more than its first clauses are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flashlane import askwords as words

_QUESTION = "?？؟"
_DECOR = " \t\r\u3000#*_>-•·–—\"'`“”„«»‘’「」『』()[]（）¿¡"
"""What may stand around a line's words: white space, quotes, brackets, Markdown."""
_CJK = "\u1100"
"""Scripts from here on are written without spaces, or with endings that matter more."""
_ENDS = ".。!！…~"
_BARE = str.maketrans("áéíóú", "aeiou")
_CLITIC_ENDS = frozenset(word[-1] for word in words.CLITICS)
_APART = str.maketrans(',.;:!?…()"“”„«»', " " * 15)
_TELLING = words.POLITE | {phrase.split()[0] for phrase in words.SAID_TO}
"""Words without which nothing that is said to somebody stands in a text."""
_STOP = re.compile("[.!:;] ")
_STOP_OR_COMMA = re.compile("[.!:;,] ")
_STOP_WITHIN_CHARS = 240
_CLAUSES_READ = 6
_CLAUSE_CHARS = 40
_PROSE_CHARS = 60
_SAID_TO_CHARS = 300
_LINES_READ = 12
_INDENTS = ("\n    ", "\n\t")
"""From here on a block is a program's, or says more on its first lines."""
_LEANING_CHARS = 80
_LEANING_WORDS = 4
_LEANING_CJK_CHARS = 6


def leans_back(texts: Sequence[str]) -> bool:
    """Whether an ask, in its pieces, leans on the one before it: "and the second one?"."""
    if sum(map(len, texts)) > _LEANING_CHARS:
        return False
    folded = " ".join(texts).strip(_DECOR).casefold()
    for start in words.FOLLOW_UPS:
        if folded.startswith(start) and (start >= _CJK or not folded[len(start) :][:1].isalnum()):
            return True
    spaced = folded.rstrip(_QUESTION + ".。!！").split()
    if len(spaced) > _LEANING_WORDS or (folded >= _CJK and len(folded) > _LEANING_CJK_CHARS):
        return False
    alone = len(spaced) <= 1 and folded < _CJK
    return alone or not (_starts_ask(folded) or _cjk_asks(folded))


def looks_like_ask(text: str) -> bool:
    """Whether a short text asks or orders something, in one of the languages known here."""
    folded = text.casefold()
    for indent in _INDENTS:
        at = folded.find(indent)
        if at >= 0:
            folded = folded[:at]
    if any(map(_line_asks, folded.split("\n", _LINES_READ)[:_LINES_READ])):
        return True
    if len(folded) > _SAID_TO_CHARS:
        return False
    said = folded.translate(_APART).split()
    if _TELLING.isdisjoint(said):
        return False
    return not words.POLITE.isdisjoint(said) or any(map(folded.__contains__, words.SAID_TO))


def _line_asks(line: str) -> bool:
    """Whether a case-folded line asks or orders something."""
    line = line.strip(_DECOR)
    if line.startswith("<"):
        line = line[line.find(">") + 1 :].strip(_DECOR)
    if line.endswith(">"):
        at = line.rfind("<")
        line = line[: at if at > 0 else len(line)].strip(_DECOR)
    line = line.lstrip("0123456789.)、 ")
    if not line:
        return False
    if line[-1] in _QUESTION or "？" in line or "؟" in line or "? " in line:
        return True
    label = line.replace("：", ":", 1)[:32].partition(":")
    if label[0].strip(_DECOR) in words.LABELS and (label[1] or len(line) == len(label[0])):
        return True
    if not line.isascii() and _cjk_asks(line.rstrip(_ENDS)):
        return True
    return _starts_ask(line)


def _starts_ask(line: str) -> bool:
    """Whether one of a line's first clauses begins with an order, or the line with a question."""
    ends = line[-1:] in ".。"
    may_question = not (ends and len(line) > _PROSE_CHARS)
    at = 0
    for _ in range(_CLAUSES_READ):
        rest = line[at : at + _CLAUSE_CHARS].lstrip(_DECOR).replace("’", "'")
        word, _, following = rest.partition(" ")
        word = word.rstrip(",.:;!")
        while word in words.FILLERS and following:
            word, _, following = following.partition(" ")
            word = word.rstrip(",.:;!")
        if _orders(word) or rest.startswith(words.PHRASES):
            return True
        if may_question and (
            word.split("'")[0] in words.INTERROGATIVES
            or (word in words.PREPOSITIONS and following.split(" ", 1)[0] in words.INTERROGATIVES)
        ):
            return True
        stops = _STOP if ends and word not in words.PREPOSITIONS else _STOP_OR_COMMA
        stop = stops.search(line, at, at + _STOP_WITHIN_CHARS)
        if stop is None:
            break
        at, may_question = stop.end(), not ends
    return line.rstrip(".!").rsplit(" ", 1)[-1] in words.LAST_WORDS


def _orders(word: str) -> bool:
    """Whether `word` is an order to do something with a text, a pronoun behind it or not."""
    if word in words.IMPERATIVES:
        return True
    stem, _, pronoun = word.partition("-")
    if pronoun:
        return stem in words.IMPERATIVES
    if word[-1:] not in _CLITIC_ENDS:
        return False
    for size in (2, 3, 4):
        if word[-size:] in words.CLITICS and word[:-size].translate(_BARE) in words.IMPERATIVES:
            return True
    return False


def _cjk_asks(line: str) -> bool:
    if not any(char >= _CJK for char in line[:_CLAUSE_CHARS]):
        return False
    return (
        line.startswith(words.CJK_STARTS)
        or line.endswith(words.CJK_ENDS)
        or any(word in line for word in words.CJK_POLITE)
    )
