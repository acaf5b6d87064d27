"""Finding the ask: which pieces of a user's turn say what is wanted, and which are material.

An ask stands at the beginning or at the end of what was pasted, seldom in its middle. The ends
are read in blocks (paragraphs, cut also at rules, fences and tags), from outside inwards, and
no further than a fixed number of characters. The middle is looked at only when the ends say
nothing, for a short block set apart on both sides, and never where a text holds several such
blocks: those are an FAQ or an exam, not an ask. Pure; the work at the ends does not grow with
the text, that in the middle is one pass over line ends with a fixed limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flashlane.askline import QUESTION_MARKS, looks_like_ask, mark_between, mark_of

ALL_ASK_CHARS = 600
"""A turn no longer than this is all ask; so is a block of a longer one that looks like one."""
_UNDECIDED_CHARS = 1200
"""A turn no longer than this in which no ask stands out is all ask."""
_RUN_MAX_CHARS = 2000
_RUN_MAX_BLOCKS = 8
_MAX_LINES = 64
_LINE_MAX_CHARS = 1200
_EDGE_MAX_LINES = 12
_WEAK_MAX_CHARS = 240
_WEAK_ASIDE_CHARS = 80
_SENTENCES_CHARS = 300
_MIDDLE_BLOCK_CHARS = 400
_MIDDLE_WORK = 300
_MIDDLE_MAX_LOOKS = 16
_MIDDLE_MAX_ASKS = 2
_PEEK_CHARS = 4096
_MAX_PIECES = 32
_STOPS = ".。!！?？؟:："
_MARK_STARTS = "`~<-=*_\"'[ \r"


@dataclass(frozen=True)
class Piece:
    """A part of `texts[text]`, from `start` to `end`, that is ask.

    `strong`: it reads like an ask; otherwise only its place and shape speak for it.
    """

    text: int
    start: int
    end: int
    strong: bool


@dataclass
class _Block:
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


def find_ask(texts: Sequence[str]) -> tuple[Piece, ...]:
    """The ask in one turn of a user, whose content parts are `texts`; in reading order.

    Empty where all of it looks like material.
    """
    total = sum(map(len, texts))
    if total <= ALL_ASK_CHARS and len(texts) <= _MAX_PIECES:
        return _whole(texts)
    head, head_strong = _run(texts, _ends(texts, forward=True), forward=True)
    tail, tail_strong = _run(texts, _ends(texts, forward=False), forward=False)
    found = [*head, *tail]
    if not (head_strong or tail_strong):
        middle = _middle(texts)
        longest = _WEAK_MAX_CHARS if middle else ALL_ASK_CHARS
        found = [*(b for b in _outermost(texts) if len(b) <= longest), *middle]
        if total <= _UNDECIDED_CHARS and not any(block.strong for block in found):
            return _whole(texts[:_MAX_PIECES])
    return _pieces(texts, found)


def _whole(texts: Sequence[str]) -> tuple[Piece, ...]:
    return tuple(
        Piece(i, 0, len(text), True) for i, text in enumerate(texts) if text and not text.isspace()
    )


def _pieces(texts: Sequence[str], found: list[_Block]) -> tuple[Piece, ...]:
    """Blocks in reading order; neighbours with only white space between them are one piece."""
    pieces: list[Piece] = []
    for block in sorted(found, key=lambda block: (block.text, block.start)):
        last = pieces[-1] if pieces else None
        if last and last.text == block.text and block.start <= last.end + _WEAK_MAX_CHARS:
            between = texts[block.text][last.end : block.start]
            if block.start <= last.end or not between.strip():
                end = max(last.end, block.end)
                pieces[-1] = Piece(last.text, last.start, end, last.strong or block.strong)
                continue
        pieces.append(Piece(block.text, block.start, block.end, block.strong))
    return tuple(pieces)


# Blocks at an end -------------------------------------------------------------------------


def _ends(texts: Sequence[str], *, forward: bool) -> list[_Block]:
    """The outermost blocks, outermost first; the last may be `material`, and then ends them."""
    blocks: list[_Block] = []
    chars = 0
    order = range(len(texts)) if forward else range(len(texts) - 1, -1, -1)
    for seen, i in enumerate(order):
        if seen >= _MAX_PIECES:
            break
        for block in _blocks(texts[i], i, forward=forward):
            blocks.append(block)
            chars += len(block)
            if block.material or len(blocks) > _RUN_MAX_BLOCKS or chars > _RUN_MAX_CHARS:
                return blocks
        if blocks:
            blocks[-1].apart = True
    return blocks


def _lines(text: str, *, forward: bool) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whole) of at most `_MAX_LINES` lines, from one end inwards.

    `whole` is False for a line too long to be looked at, which is the last one given.
    """
    size = len(text)
    if forward:
        at = 0
        for _ in range(_MAX_LINES):
            end = text.find("\n", at, at + _LINE_MAX_CHARS + 1)
            if end < 0:
                end = min(size, at + _LINE_MAX_CHARS)
                yield at, end, end == size
                return
            yield at, end, True
            at = end + 1
    else:
        at = size
        for _ in range(_MAX_LINES):
            start = text.rfind("\n", max(0, at - _LINE_MAX_CHARS - 1), at) + 1
            if start == 0:
                start = max(0, at - _LINE_MAX_CHARS)
                yield start, at, start == 0
                return
            yield start, at, True
            at = start - 1
    yield (at, at, False)


def _blocks(text: str, index: int, *, forward: bool) -> Iterator[_Block]:
    block: _Block | None = None
    labelled = False
    for start, end, whole in _lines(text, forward=forward):
        if not whole:
            if block is None:
                block = _Block(index, start, end)
            block.start, block.end = min(block.start, start), max(block.end, end)
            block.material = True
            yield block
            return
        line = text[start:end].strip()
        mark = mark_of(line) if line else "blank"
        if not mark:
            if block is None:
                block = _Block(index, start, end, labelled=labelled)
            block.start, block.end = min(block.start, start), max(block.end, end)
            if len(block) > _LINE_MAX_CHARS:
                block.material = True
                yield block
                return
            continue
        if block is not None:
            block.apart = mark != "blank"
            block.material = len(block) > ALL_ASK_CHARS
            yield block
            if block.material:
                return
            block = None
        if mark == "material":
            yield _Block(index, start, start, material=True)
            return
        labelled = mark == "ask" if mark != "blank" else labelled
    if block is not None:
        block.material = len(block) > ALL_ASK_CHARS
        yield block


# What an end says -------------------------------------------------------------------------


def _run(texts: Sequence[str], blocks: list[_Block], *, forward: bool) -> tuple[list[_Block], bool]:
    """The blocks at one end that are ask, and whether any of them reads like one."""
    run: list[_Block] = []
    edge: _Block | None = None
    for block in blocks:
        if block.material:
            edge = _edge(texts, block, forward=forward)
            break
        block.strong = block.labelled or looks_like_ask(texts[block.text][block.start : block.end])
        run.append(block)
    strong = [i for i, block in enumerate(run) if block.strong]
    if edge is not None and len(strong) == len(run):
        run.append(edge)
        strong.append(len(run) - 1)
    if strong:
        upto = _upto(texts, run, strong, forward=forward)
        if upto >= 0:
            return run[: upto + 1], True
    return _weak(blocks), False


def _upto(texts: Sequence[str], run: list[_Block], strong: list[int], *, forward: bool) -> int:
    """Index of the innermost block of the ask, -1 for none."""
    gaps = sum(1 for one, next_ in pairwise(strong) if next_ > one + 1)
    if len(strong) >= 3 and gaps >= 2:  # question, answer, question, answer
        return strong[0] if strong[0] == 0 or (forward and len(run[0]) <= _WEAK_ASIDE_CHARS) else -1
    upto = strong[-1]
    while upto > strong[0] and _goes_on(texts, run[upto], forward=forward):
        upto = strong[strong.index(upto) - 1]
    return upto if sum(map(len, run[: upto + 1])) <= _RUN_MAX_CHARS else strong[0]


def _goes_on(texts: Sequence[str], block: _Block, *, forward: bool) -> bool:
    """Whether a question is one of several of a text: there is another one further in."""
    text = texts[block.text]
    if block.labelled or text[block.end - 1 : block.end] not in tuple(QUESTION_MARKS):
        return False
    low, high = (
        (block.end, block.end + _PEEK_CHARS)
        if forward
        else (max(0, block.start - _PEEK_CHARS), max(0, block.start - 1))
    )
    return any(text.find(f"{mark}\n", low, high) >= 0 for mark in QUESTION_MARKS)


def _outermost(texts: Sequence[str]) -> list[_Block]:
    """The short block at each end: where nothing says which is the ask, both may be."""
    found = []
    for forward in (True, False):
        block = next(iter(_ends(texts, forward=forward)), None)
        if block is not None and not block.material and 0 < len(block) <= ALL_ASK_CHARS:
            found.append(block)
    return found


def _weak(blocks: list[_Block]) -> list[_Block]:
    """The outermost block if its shape alone sets it apart: short, and before something long."""
    if len(blocks) < 2 or blocks[0].material or not 0 < len(blocks[0]) <= _WEAK_MAX_CHARS:
        return []
    first, second = blocks[0], blocks[1]
    long = second.material or len(second) >= 2 * len(first)
    return [first] if first.apart or long else []


def _edge(texts: Sequence[str], block: _Block, *, forward: bool) -> _Block | None:
    """The outermost lines, or sentences, of a long block where they read like an ask."""
    if len(block) == 0:
        return None
    text = texts[block.text]
    low, high = block.start, block.end
    edge: _Block | None = None
    for _ in range(_EDGE_MAX_LINES):
        at = text.find("\n", low, high) if forward else text.rfind("\n", low, high)
        if at < 0:
            break
        start, end = (low, at) if forward else (at + 1, high)
        if end - start > ALL_ASK_CHARS or not looks_like_ask(text[start:end]):
            break
        if edge is None:
            edge = _Block(block.text, start, end, strong=True)
        edge.start, edge.end = min(edge.start, start), max(edge.end, end)
        low, high = (at + 1, high) if forward else (low, at)
    if edge is not None or high - low <= 0:
        return edge
    return _sentences(text, block, forward=forward)


def _sentences(text: str, block: _Block, *, forward: bool) -> _Block | None:
    """Up to two sentences at the edge of a long line."""
    if forward:
        low, high = block.start, min(block.end, block.start + _SENTENCES_CHARS)
        ends = _sentence_ends(text[low:high])[:2]
        for i, end in enumerate(ends):
            start = ends[i - 1] if i else 0
            if looks_like_ask(text[low + start : low + end]):
                return _Block(block.text, low, low + end, strong=True)
        return None
    low, high = max(block.start, block.end - _SENTENCES_CHARS), block.end
    window = text[low:high].rstrip()
    starts = [end for end in _sentence_ends(window) if end < len(window)][-2:]
    for start in starts:
        stop = next((end for end in starts if end > start), len(window))
        if looks_like_ask(window[start:stop]):
            return _Block(block.text, low + start, high, strong=True)
    return None


def _sentence_ends(window: str) -> list[int]:
    return [
        i + 1
        for i, char in enumerate(window)
        if char in _STOPS and (char > "\u3000" or window[i + 1 : i + 2].isspace())
    ]


# The middle -------------------------------------------------------------------------------


def _middle(texts: Sequence[str]) -> list[_Block]:
    """Asks between material: short blocks with a mark or a much longer block on both sides."""
    if len(texts) > 2:
        parts = [
            _Block(i, 0, len(text), apart=True, strong=True)
            for i, text in enumerate(texts[1 : _MAX_PIECES - 1], 1)
            if 0 < len(text) <= ALL_ASK_CHARS and looks_like_ask(text)
        ]
        return parts if len(parts) <= _MIDDLE_MAX_ASKS else []
    found: list[_Block] = []
    for i, text in enumerate(texts):
        found += _between(text, i, _MIDDLE_WORK // len(texts))
    return found if len(found) <= _MIDDLE_MAX_ASKS else []


def _between(text: str, index: int, work: int) -> list[_Block]:
    """Blocks that ask, set apart on both sides, in as many lines as `work` allows for."""
    found: list[_Block] = []
    waiting: _Block | None = None
    before, start, at, looks = 0, -1, 0, 0
    inside = ""
    size, find = len(text), text.find
    while at <= size and work > 0:
        end = find("\n", at)
        if end < 0:
            end = size
        work -= 1
        mark = "" if end > at else "blank"
        if 0 < end - at <= _WEAK_MAX_CHARS:
            work -= 2
            if text[at] in _MARK_STARTS:
                mark, inside = mark_between(text[at:end].strip(), inside)
        if not mark and end < size:
            start = at if start < 0 else start
        else:
            if start < 0 and not mark:
                start = at
            stop = at - 1 if mark else end
            if start >= 0:
                length = stop - start
                if waiting is not None and (mark == "apart" or length >= _far(waiting)):
                    found.append(waiting)
                waiting = None
                shaped = before < 0 or before >= max(200, 3 * length)
                if not inside and shaped and 0 < length <= _MIDDLE_BLOCK_CHARS:
                    looks += 1
                    if looks > _MIDDLE_MAX_LOOKS:
                        return []
                    if _begins_or_ends_asking(text[start:stop]):
                        waiting = _Block(index, start, stop, strong=before < 0)
                before, start = length, -1
            if mark == "apart":
                if waiting is not None:
                    found.append(waiting)
                waiting = None
                before = -1
        at = end + 1
    return found


def _begins_or_ends_asking(block: str) -> bool:
    lines = block.strip().split("\n")
    return looks_like_ask(lines[0]) or (len(lines) > 1 and looks_like_ask(lines[-1]))


def _far(block: _Block) -> int:
    """How long a neighbour must be for a block to stand out beside it, in characters."""
    return max(200, 3 * len(block))
