"""The outermost blocks of a text: paragraphs, cut also at rules, fences and tags.

Pure; what is read at an end does not grow with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from flashlane import askwords as words

ALL_ASK_CHARS = 600
"""A turn no longer than this is all ask; so is a block of a longer one that looks like one."""
RUN_MAX_CHARS = 2000
"""How much of a turn's end is read, and how long an ask can be."""
_RUN_MAX_BLOCKS = 8
LINE_MAX_CHARS = 1200
"""No more of a block that is too long is looked at."""
_READ_CHARS = 3000
MARK_MAX_CHARS = 240
"""A line that is a rule, a fence or a tag is no longer than this."""
MAX_PIECES = 32
"""How many content parts are read, from each end."""
_MARK_STARTS = "`~<>|{}-=*_\"'["
_SEAM = re.compile(rf"\n(?=[ \t\r\u3000]*[\n{re.escape(_MARK_STARTS)}])")
"""Before a line that is blank, or begins like a rule, a fence or a tag."""


@dataclass
class Block:
    """A part of `texts[text]`, from `start` to `end`."""

    text: int
    start: int
    end: int
    material: bool = False
    """Too long, or fenced, tagged or quoted: no ask goes on beyond it."""
    apart: bool = False
    """A rule, fence, tag or the end of a content part stands between it and the inner text."""
    labelled: bool = False
    strong: bool = False

    def __len__(self) -> int:
        return self.end - self.start


def ends(texts: Sequence[str], *, forward: bool) -> Iterator[Block]:
    """The outermost blocks, outermost first; one that is `material` is the last."""
    count = chars = 0
    last: Block | None = None
    order = range(len(texts)) if forward else range(len(texts) - 1, -1, -1)
    for i in order[:MAX_PIECES]:
        for block in _blocks(texts[i], i, forward=forward):
            yield block
            last = block
            count, chars = count + 1, chars + len(block)
            if block.material or count > _RUN_MAX_BLOCKS or chars > RUN_MAX_CHARS:
                return
        if last is not None:
            last.apart = True


def _blocks(text: str, index: int, *, forward: bool) -> Iterator[Block]:
    size = len(text)
    low, high = (0, min(size, _READ_CHARS)) if forward else (max(0, size - _READ_CHARS), size)
    last: Block | None = None
    labelled = False
    done = low if forward else high
    for start in _seams(text, low, high, forward=forward):
        end = text.find("\n", start, high)
        end = end if end >= 0 else high
        line = text[start:end].strip()
        mark = mark_of(line) if line else "blank"
        if not mark:
            continue
        one, other = (done, start - 1) if forward else (end + 1, done)
        done = end + 1 if forward else start - 1
        if one < other:
            last = _block(text, Block(index, one, other, labelled=labelled), forward=forward)
            yield last
            if last.material:
                return
        if last is not None and mark != "blank":
            last.apart = True
        if mark == "material":
            yield Block(index, start, start, material=True)
            return
        labelled = mark == "ask" if mark != "blank" else labelled
    one, other = (done, high) if forward else (low, done)
    whole = high == size and low == 0
    if one < other or not whole:
        block = Block(index, min(one, other), other, not whole, labelled=labelled)
        yield _block(text, block, forward=forward)


def _seams(text: str, low: int, high: int, *, forward: bool) -> Iterable[int]:
    """Where the lines begin that are blank or may be marks; first and last lines are looked at."""
    seams = (seam.end() for seam in _SEAM.finditer(text, low, high))
    first = (low,) if low == 0 else ()
    last = (text.rfind("\n", low, high) + 1,) if high == len(text) else ()
    return chain(first, seams, last) if forward else reversed([*first, *seams, *last])


def _block(text: str, block: Block, *, forward: bool) -> Block:
    """`block`, or as many of its outer lines as show that it is too long for an ask."""
    start, end = block.start, block.end
    if end - start <= ALL_ASK_CHARS:
        return block
    block.material = True
    if forward:
        stop = text.find("\n", start + ALL_ASK_CHARS + 1, end)
        block.end = min(stop if stop >= 0 else end, start + LINE_MAX_CHARS)
    else:
        stop = text.rfind("\n", start, end - ALL_ASK_CHARS - 1) + 1
        block.start = max(stop or start, end - LINE_MAX_CHARS)
    return block


def tagged(text: str) -> bool:
    """Whether a text is one element of some tag that names no ask: a note that a program adds."""
    text = text.strip()
    name = text[1 : text.find(">")] if text.startswith("<") else ""
    return bool(name) and text.endswith(f"</{name}>") and mark_of(f"<{name}>") == "material"


def mark_of(line: str) -> str:
    """What a line stands for besides words: "rule", "ask" (a tag around one), "material", ""."""
    first = line[0]
    if first not in _MARK_STARTS or len(line) > MARK_MAX_CHARS:
        return ""
    if first in ">|{}":
        return "material"
    closes = {"<": ">", "[": "]"}.get(first)
    if closes is None:
        if line[1:3] != first * 2:
            return ""
        if first in "-=*_":
            return "" if line.strip(first) and line[3:5] != "--" else "rule"
        quoted_whole = len(line) > 3 and line.endswith(first * 3)
        return "" if quoted_whole else "material"
    if line[-1] != closes:
        return {"<|": "rule", "<<": "material"}.get(line[:2], "")
    name = line[1:-1]
    if closes in name or not name or (first == "[" and " " in name):
        return ""  # text between two tags on one line, or a remark in brackets
    folded = name.casefold()
    return "ask" if any(word in folded for word in words.TAG_WORDS) else "material"
