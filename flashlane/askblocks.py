"""The outermost blocks of a text: paragraphs, cut also at rules, fences and tags.

Pure; what is read at an end does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flashlane import askwords as words

ALL_ASK_CHARS = 600
"""A turn no longer than this is all ask; so is a block of a longer one that looks like one."""
RUN_MAX_CHARS = 2000
"""How much of a turn's end is read, and how long an ask can be."""
_RUN_MAX_BLOCKS = 8
_MAX_LINES = 64
LINE_MAX_CHARS = 1200
"""A longer line is not looked at as one."""
MARK_MAX_CHARS = 240
"""A line that is a rule, a fence or a tag is no longer than this."""
MAX_PIECES = 32
"""How many content parts are read, from each end."""
_MARK_STARTS = "`~<>|{}-=*_\"'["


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


def _lines(text: str, *, forward: bool) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whole) of at most `_MAX_LINES` lines, from one end inwards.

    `whole` is False for a line too long to be looked at, which is the last one given.
    """
    size = len(text)
    if forward:
        at = 0
        for _ in range(_MAX_LINES):
            end = text.find("\n", at, at + LINE_MAX_CHARS + 1)
            if end < 0:
                end = min(size, at + LINE_MAX_CHARS)
                yield at, end, end == size
                return
            yield at, end, True
            at = end + 1
    else:
        at = size
        for _ in range(_MAX_LINES):
            start = text.rfind("\n", max(0, at - LINE_MAX_CHARS - 1), at) + 1
            if start == 0:
                start = max(0, at - LINE_MAX_CHARS)
                yield start, at, start == 0
                return
            yield start, at, True
            at = start - 1
    yield (at, at, False)


def _blocks(text: str, index: int, *, forward: bool) -> Iterator[Block]:
    block: Block | None = None
    last: Block | None = None
    labelled = False
    for start, end, whole in _lines(text, forward=forward):
        line = text[start:end].strip() if whole else ""
        mark = (mark_of(line) if line else "blank") if whole else ""
        if not mark:
            if block is None:
                block = Block(index, start, end, labelled=labelled)
            block.start, block.end = min(block.start, start), max(block.end, end)
            if not whole or len(block) > ALL_ASK_CHARS:
                block.material = True
                yield block
                return
            continue
        if block is not None:
            yield block
            last, block = block, None
        if last is not None and mark != "blank":
            last.apart = True
        if mark == "material":
            yield Block(index, start, start, material=True)
            return
        labelled = mark == "ask" if mark != "blank" else labelled
    if block is not None:
        yield block


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
