"""Finding the ask: which pieces of a user's turn say what is wanted, and which are material.

An ask stands at the beginning or at the end of what was pasted, seldom in its middle. The ends
are read in blocks (paragraphs, cut also at rules, fences and tags), from outside inwards, and
no further than a fixed number of characters. The middle is looked at only when the ends say
nothing, for a short block set apart on both sides, and never where a text holds several such
blocks: those are an FAQ or an exam, not an ask. Pure; the work at the ends does not grow with
the text, that in the middle is one pass over line ends with fixed limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from flashlane.askblocks import (
    ALL_ASK_CHARS,
    LINE_MAX_CHARS,
    MARK_MAX_CHARS,
    MAX_PIECES,
    RUN_MAX_CHARS,
    Block,
    ends,
    mark_of,
    tagged,
)
from flashlane.asklines import looks_like_ask

_UNDECIDED_CHARS = 1200
"""A turn no longer than this in which no ask stands out is all ask."""
_WEAK_MAX_BLOCKS = 2
"""An ask does not go on behind so many blocks in a row that read like none."""
_SERIES_BLOCKS = 4
"""So many blocks in a row that read like asks are a list of them: an exam, a style guide."""
_EDGE_MAX_LINES = 9
_WEAK_MAX_CHARS = 300
_ASIDE_CHARS = 80
_SENTENCES_CHARS = 400
_MIDDLE_BLOCK_CHARS = 400
_MIDDLE_CHARS = 400_000
_MIDDLE_MAX_CUTS = 300
_MIDDLE_MAX_LOOKS = 16
_MIDDLE_MAX_ASKS = 2
_PEEK_CHARS = 4096
_SHAPE_CHARS = 24
_QUESTION = "?？؟"
_STOP = re.compile(r"[.!?؟:](?=\s)|[。！？：]")
_MARK_BETWEEN_STARTS = "\n\r`~<-=*_\"'["
_BLANK_OR_MARK = re.compile(rf"\n(?=[{re.escape(_MARK_BETWEEN_STARTS)}])")
"""Before a line that is blank, or begins like a rule, a fence or a tag."""


@dataclass(frozen=True)
class Piece:
    """A part of `texts[text]`, from `start` to `end`, that is ask.

    `strong`: it reads like an ask and is not one of several of the text's own; otherwise only its
    place and shape speak for it.
    """

    text: int
    start: int
    end: int
    strong: bool


@dataclass
class _End:
    """What one end of a turn says."""

    run: list[Block]
    """Blocks that read like an ask, or stand outside of one that does."""
    weak: list[Block]
    """The outermost block, line or sentence, where only its place speaks for it."""
    sure: bool = False
    """`run` is not one of a series of questions or orders: those are the text's own."""


def find_ask(texts: Sequence[str], *, ends_only: bool = False) -> tuple[Piece, ...]:
    """The ask in one turn of a user, whose content parts are `texts`; in reading order.

    Empty where all of it looks like material. `ends_only` leaves out the search between the ends.
    """
    total = sum(map(len, texts))
    if total <= ALL_ASK_CHARS and len(texts) <= MAX_PIECES:
        return _whole(texts)
    head = _end(texts, forward=True)
    tail = _end(texts, forward=False)
    found = [*head.run, *tail.run]
    if not head.run:
        found += [block for block in head.weak if _kept(texts, block, tail)]
    if not tail.run:
        found += [block for block in tail.weak if _kept(texts, block, head)]
    if not (head.sure or tail.sure):
        for block in found:
            block.strong = False
        found += [] if ends_only else _middle(texts)
        if total <= _UNDECIDED_CHARS and not any(block.strong for block in found):
            return _whole(texts[:MAX_PIECES])
    return _pieces(texts, found)


def _kept(texts: Sequence[str], block: Block, other: _End) -> bool:
    """Whether a weak block is ask although the other end reads like one."""
    if not other.sure or block.apart:
        return True
    text = texts[block.text][block.start : block.end].strip()
    return text.endswith((":", "：")) or _terse(text)


def _terse(text: str) -> bool:
    """Whether `text` is a few words without a full stop, as people type them."""
    return len(text) <= _ASIDE_CHARS and text[-1:] not in ".。;,{}|"


def _whole(texts: Sequence[str]) -> tuple[Piece, ...]:
    """All of a short turn but for parts that are blank, or wrapped whole in a tag of material."""
    return tuple(
        Piece(i, 0, len(text), True)
        for i, text in enumerate(texts)
        if text and not text.isspace() and not tagged(text)
    )


def _pieces(texts: Sequence[str], found: list[Block]) -> tuple[Piece, ...]:
    """Blocks as pieces in reading order; with nothing but white space between them, as one."""
    pieces: list[Piece] = []
    for block in sorted(found, key=lambda block: (block.text, block.start)):
        last = pieces[-1] if pieces else None
        if last and last.text == block.text and block.start <= last.end + MARK_MAX_CHARS:
            between = texts[block.text][last.end : block.start]
            if block.start <= last.end or not between.strip():
                end = max(last.end, block.end)
                pieces[-1] = Piece(last.text, last.start, end, last.strong or block.strong)
                continue
        pieces.append(Piece(block.text, block.start, block.end, block.strong))
    return tuple(pieces)


# What an end says -------------------------------------------------------------------------


def _end(texts: Sequence[str], *, forward: bool) -> _End:
    run: list[Block] = []
    strong: list[int] = []
    for i, block in enumerate(ends(texts, forward=forward)):
        if block.material:
            if not run:
                return _edge(texts, block, forward=forward)
            break
        run.append(block)
        block.strong = block.labelled or looks_like_ask(texts[block.text][block.start : block.end])
        if block.strong:
            strong.append(i)
        elif i - (strong[-1] if strong else -1) >= _WEAK_MAX_BLOCKS:
            break
    if not run:
        return _End([], [])
    first = run[0]
    weak = [first] if first.apart or len(first) <= _WEAK_MAX_CHARS else []
    if not strong:
        return _End([], weak) if weak else _edge(texts, first, forward=forward)
    gaps = sum(1 for one, following in pairwise(strong) if following > one + 1)
    if first.strong and (first.apart or first.labelled):
        return _End(_upto(texts, run, strong, forward=forward), [], sure=True)
    if len(strong) >= _SERIES_BLOCKS or gaps >= 2:
        # No text ends with a question that it answers further on.
        answered = gaps >= 2 and not forward
        return _End([first], [], sure=answered) if first.strong else _End([], weak)
    kept = _upto(texts, run, strong, forward=forward)
    sure = not _goes_on(texts, run[strong[0]], forward=forward)
    if not sure and not first.strong:
        return _End([], weak)
    return _End(kept, [], sure)


def _upto(
    texts: Sequence[str], run: list[Block], strong: list[int], *, forward: bool
) -> list[Block]:
    """The blocks of an ask, from the outermost to the innermost that reads like one."""
    if len(strong) >= _SERIES_BLOCKS:
        return run[: strong[0] + 1]
    upto = strong[-1]
    while upto > strong[0] and (
        _goes_on(texts, run[upto], forward=forward)
        or sum(map(len, run[: upto + 1])) > RUN_MAX_CHARS
    ):
        upto = strong[strong.index(upto) - 1]
    return run[: upto + 1]


def _goes_on(texts: Sequence[str], block: Block, *, forward: bool) -> bool:
    """Whether a question is one of several of a text: there is another one further in."""
    text = texts[block.text]
    if block.labelled or text[block.end - 1 : block.end] not in tuple(_QUESTION):
        return False
    low, high = (
        (block.end, block.end + _PEEK_CHARS)
        if forward
        else (max(0, block.start - _PEEK_CHARS), max(0, block.start - 1))
    )
    return any(text.find(f"{mark}\n", low, high) >= 0 for mark in _QUESTION)


def _edge(texts: Sequence[str], block: Block, *, forward: bool) -> _End:
    """What the outermost lines of a long block say, or the sentences of a long line."""
    text = texts[block.text]
    if len(block) == 0:
        return _End([], [])
    outer = _outer_lines(text, block, forward=forward)
    first = next(outer, None)
    if first is None:
        return _sentences(text, block, forward=forward)
    second = next(outer, None)
    first.strong = looks_like_ask(text[first.start : first.end])
    if not first.strong and len(first) > _WEAK_MAX_CHARS:
        return _End([], [])
    alike = second is not None and _alike(text, first, second)
    if alike or not first.strong:
        short = len(first) <= _WEAK_MAX_CHARS and (first.strong or not alike)
        return _End([], [first] if short else [])
    lines = [first, *((second,) if second else ()), *outer]
    for line in lines:
        line.strong = line.strong or looks_like_ask(text[line.start : line.end])
    asks = next((i for i, line in enumerate(lines) if not line.strong), len(lines))
    listed = asks > _SERIES_BLOCKS or any(line.strong for line in lines[asks:])
    return _End(lines[: 1 if listed else asks], [], sure=not listed)


def _outer_lines(text: str, block: Block, *, forward: bool) -> Iterator[Block]:
    """The outermost lines of a block, but none that reaches to its other end."""
    low, high = block.start, block.end
    for _ in range(_EDGE_MAX_LINES):
        at = text.find("\n", low, high) if forward else text.rfind("\n", low, high)
        if at < 0 or at == (low if forward else high - 1):
            return
        start, end = (low, at) if forward else (at + 1, high)
        if end - start > ALL_ASK_CHARS:
            return
        yield Block(block.text, start, end)
        low, high = (at + 1, high) if forward else (low, at)


def _alike(text: str, one: Block, other: Block) -> bool:
    """Whether two lines are entries of a log, a table or a program: built alike, not of words."""
    first = text[one.start : one.start + _SHAPE_CHARS]
    if first[:1].isspace() or first[:1] in "{}<|":
        return True
    shape = _shape(first)
    return shape == _shape(text[other.start : other.start + _SHAPE_CHARS]) and not shape.isalpha()


def _shape(line: str) -> str:
    """A line's beginning, with runs of letters and of digits as one sign each; words are "a"."""
    signs = ["0" if c.isdigit() else "a" if c.isalpha() or c.isspace() else c for c in line]
    return "".join([s for i, s in enumerate(signs) if i == 0 or s != signs[i - 1]])[:6]


def _sentences(text: str, block: Block, *, forward: bool) -> _End:
    """What the outermost two sentences of a long line say."""
    low, high = block.start, block.end
    if forward:
        high = min(high, low + _SENTENCES_CHARS)
        cuts = [0, *_sentence_ends(text[low:high])[:2]]
    else:
        high = low + len(text[low:high].rstrip()) if high - low <= LINE_MAX_CHARS else high
        low = max(low, high - _SENTENCES_CHARS)
        window = text[low:high]
        cuts = [*[end for end in _sentence_ends(window) if end < len(window)][-2:], len(window)]
    sentences = [Block(block.text, low + a, low + b) for a, b in pairwise(cuts)]
    for sentence in sentences:
        sentence.strong = looks_like_ask(text[sentence.start : sentence.end])
    outwards = sentences if forward else sentences[::-1]
    strong = [i for i, sentence in enumerate(outwards) if sentence.strong]
    return _End(outwards[: strong[-1] + 1] if strong else [], [], sure=bool(strong))


def _sentence_ends(window: str) -> list[int]:
    return [stop.end() for stop in _STOP.finditer(window)]


# The middle -------------------------------------------------------------------------------


def _middle(texts: Sequence[str]) -> list[Block]:
    """Asks between material: short blocks with a mark or a much longer block on both sides."""
    if len(texts) > 2:
        parts = [
            Block(i, 0, len(text), apart=True, strong=True)
            for i, text in enumerate(texts[1 : MAX_PIECES - 1], 1)
            if 0 < len(text) <= ALL_ASK_CHARS and looks_like_ask(text)
        ]
        return parts if len(parts) <= _MIDDLE_MAX_ASKS else []
    found: list[Block] = []
    for i, text in enumerate(texts):
        found += _between(text, i, _MIDDLE_CHARS // len(texts))
    return found if len(found) <= _MIDDLE_MAX_ASKS else []


def _between(text: str, index: int, chars: int) -> list[Block]:
    """Blocks that ask, set apart on both sides, in the first `chars` of `text`."""
    found: list[Block] = []
    waiting: Block | None = None
    inside = ""
    looks = start = before = 0
    size = min(len(text), chars)
    cuts = islice(_BLANK_OR_MARK.finditer(text, 0, size), _MIDDLE_MAX_CUTS)
    first = [0] if text[:1] in tuple(_MARK_BETWEEN_STARTS) else []
    for at in [*first, *[cut.end() for cut in cuts], size + 1]:
        end = at if at > size or text[at : at + 1] == "\n" else text.find("\n", at, size)
        mark, within = "blank", inside
        if end != at:
            end = end if end >= 0 else size
            if end - at > MARK_MAX_CHARS:
                continue
            mark, inside = _mark_between(text[at:end].strip(), inside)
            if not mark:
                continue
        length = at - 1 - start
        if length > 0:
            if waiting is not None:
                if mark == "apart" or length >= _far(waiting):
                    found.append(waiting)
                waiting = None
            far_before = before < 0 or (before >= 200 and before >= 3 * length)
            if far_before and length <= _MIDDLE_BLOCK_CHARS and not within:
                looks += 1
                if looks > _MIDDLE_MAX_LOOKS:
                    return []
                asks = looks_like_ask(text[start : at - 1])
                if asks or (before < 0 and mark == "apart"):
                    waiting = Block(index, start, at - 1, strong=asks and before < 0)
            before = length
        if mark == "apart":
            if waiting is not None:
                found.append(waiting)
            waiting, before = None, -1
        start = end + 1
    return found


def _far(block: Block) -> int:
    """How long a neighbour must be for a block to stand out beside it, in characters."""
    return max(200, 3 * len(block))


def _mark_between(line: str, inside: str) -> tuple[str, str]:
    """A line's mark ("blank", "apart" or "") and the fence or tag that it leaves open."""
    if not line:
        return "blank", inside
    mark = mark_of(line)
    if not mark:
        return "", inside
    if mark == "material":
        if line[0] in "<[":
            return "apart", "" if line.startswith(("</", "[/")) else inside or "tag"
        fence = line[:3]
        return "apart", "" if inside == fence else inside or fence
    return "apart", inside
