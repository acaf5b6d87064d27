"""Lists and counts: the items found share a pattern, and the text must hold no more of it.

What stands before each item, generalised (numbers to one sign, a differing first word to a gap),
is looked for in the whole text; whatever follows it there and is not in the answer makes a doubt.
Pure; patterns are bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flashlane.decision import Reason
from flashlane.verdict.literals import occurs, squeezed
from flashlane.verdict.places import Places, Term, fold, has_term
from flashlane.verdict.support import Asked
from flashlane.verdict.wants import is_unit_word

_BULLET = re.compile(r"^[ \t]*(?:[-*•·+–]|\d{1,4}[.):、]|[a-z][.)]|\|)[ \t]*")
_TOKEN = re.compile(r"\d[\d.,:]{0,30}|[^\W\d_]{1,60}|[^\w\s]|_")
_COMMA = re.compile(
    r"\s*(?:[,;、，；]\s*(?:and|und|et|y|e|и|or)?(?=\W|\s)|\s(?:and|und|et|y|e|и)\s|\s?[和と및]\s?)\s*"
)
_LEAD_IN = re.compile(r"^[^\n:：]{0,120}[:：]\s*")
_PREFIX_TOKENS = 6
_MAX_ITEMS = 500
_MAX_SPOTS = 64
_LOOK_BEHIND = 160
_TABLE_RULE = re.compile(r"^[\s|:\-+=]*$")


@dataclass(frozen=True)
class _Line:
    """A line that fits the items' pattern; `rest` is what follows the pattern on it."""

    text: str
    rest: str
    unit: int


@dataclass(frozen=True)
class _Spot:
    """One place of an item: its offset and the generalised tokens before it on its line."""

    begin: int
    prefix: tuple[str, ...]


def items_of(answer: str) -> list[str]:
    """The items of a list: bulleted or plain lines, or one line with commas. Folded."""
    lines = [line for line in fold(answer).splitlines() if line.strip(" `*-")]
    if len(lines) > 1 and lines[0].rstrip().endswith((":", "：")):
        lines = lines[1:]
    bulleted = [line for line in lines if _BULLET.match(line)]
    if bulleted and len(bulleted) >= len(lines) - 1:
        lines = bulleted
    if len(lines) == 1:
        text = _BULLET.sub("", lines[0])
        lead = _LEAD_IN.match(text)
        pieces = _COMMA.split(text[lead.end() :] if lead else text)
        found = [_clean(piece) for piece in pieces]
    else:
        found = [_clean(_BULLET.sub("", line)) for line in lines]
    return list(dict.fromkeys(item for item in found if item))[:_MAX_ITEMS]


def _clean(item: str) -> str:
    return squeezed(item).strip(" .,;:|\"'`*[]()。、")


def list_doubt(items: Sequence[str], ask: Asked, places: Places) -> Reason | None:
    """Why `items` may not be all of what the ask wants; None when the text holds no more."""
    spots: dict[str, list[_Spot]] = {}
    for given in items:
        item = given
        found = _spots(item, places)
        while not found and " " in item and any(has_term(item.split(" ")[0], t) for t in ask.terms):
            item = item.split(" ", 1)[1]
            found = _spots(item, places)
        if not found:
            return Reason("item_absent", "an item of the list is not in the text")
        spots[item] = found
    items = list(spots)
    prefix = _shared(list(spots.values()))
    if prefix is None:
        return _series_doubt(items, ask, places)
    lines = _lines_of(prefix, spots, places)
    narrowed = _narrow(lines, items, ask)
    if narrowed is None:
        return Reason("condition_unclear", "the ask's condition holds for some items only")
    missing = [line for line in narrowed if not _names(line.rest, items)]
    if missing:
        return Reason(
            "list_incomplete",
            f"{len(missing)} more places of the text fit the pattern of the {len(items)} items",
        )
    listed = {item for item in items if any(_names(line.rest, [item]) for line in narrowed)}
    if len(listed) < len(items):
        return Reason("item_misplaced", "an item does not stand where the others do")
    return _elsewhere([line.unit for line in narrowed], ask, places)


def _spots(item: str, places: Places) -> list[_Spot]:
    text = places.folded
    found: list[_Spot] = []
    at = text.find(item)
    while at >= 0 and len(found) < _MAX_SPOTS:
        end = at + len(item)
        cut = (at and text[at - 1].isalnum() and item[0].isalnum() and item[0] < "\u3040") or (
            end < len(text) and text[end].isalnum() and item[-1].isalnum() and item[-1] < "\u3040"
        )
        if not cut:
            found.append(_Spot(at, _prefix(text, at)))
        at = text.find(item, at + 1)
    return found


def _prefix(text: str, at: int) -> tuple[str, ...]:
    """Tokens before `at` on its line, last first; "^" where the line begins."""
    line = max(text.rfind("\n", 0, at) + 1, at - _LOOK_BEHIND)
    tokens = ["#" if t[0].isdigit() else t for t in _TOKEN.findall(text[line:at])]
    tokens = tokens[-_PREFIX_TOKENS:]
    if line == 0 or text[line - 1] == "\n":
        whole = len(_TOKEN.findall(text[line:at])) <= _PREFIX_TOKENS
        tokens = (["^"] if whole else []) + tokens
    return tuple(reversed(tokens))


def _shared(spots: Sequence[Sequence[_Spot]]) -> tuple[str, ...] | None:
    """The longest prefix that one spot of every item has, or None when it tells too little."""
    votes: Counter[tuple[str, ...]] = Counter()
    for of_item in spots:
        seen = set()
        for spot in of_item:
            for length in range(1, len(spot.prefix) + 1):
                seen.add(spot.prefix[:length])
            if "^" in spot.prefix and 3 <= len(spot.prefix) <= 5:
                seen.add((*spot.prefix[:-2], "*", "^"))
        votes.update(seen)
    common = [p for p, n in votes.items() if n == len(spots) and _tells(p)]
    return max(common, key=lambda p: (len(p), "*" not in p, p), default=None)


def _tells(prefix: tuple[str, ...]) -> bool:
    return prefix[-1] == "^" or sum(token.isalpha() for token in prefix) >= 1


def _pattern(prefix: tuple[str, ...]) -> re.Pattern[str]:
    parts = []
    for mark in reversed(prefix):
        if mark == "^":
            parts.append(r"^[ \t>]{0,16}")
        elif mark == "#":
            parts.append(r"\d[\d.,:]{0,30}[ \t]{0,3}")
        elif mark == "*":
            parts.append(r"[^\s:=,|]{1,60}[ \t]{0,3}")
        else:
            edge = r"(?<![^\W_])" if mark[0].isalnum() and not parts else ""
            parts.append(edge + re.escape(mark) + r"[ \t]{0,3}")
    return re.compile("".join(parts), re.MULTILINE)


def _lines_of(
    prefix: tuple[str, ...], spots: dict[str, list[_Spot]], places: Places
) -> list[_Line]:
    """The line of each place in the text that has the prefix.

    A prefix without a word, a bullet say, is looked for only in the paragraphs of the items.
    """
    text = places.folded
    worded = any(token.isalpha() for token in prefix)
    blocks = {
        places.paragraphs[places.at(spot.begin)]
        for found in spots.values()
        for spot in found
        if spot.prefix[: len(prefix) - ("*" in prefix) * 2]
        == prefix[: len(prefix) - ("*" in prefix) * 2]
    }
    found = []
    for match in _pattern(prefix).finditer(text):
        begin = text.rfind("\n", 0, match.end()) + 1
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        rest = text[match.end() : end]
        if not rest.strip() or (_TABLE_RULE.match(rest) and "-" in rest):
            continue
        following = text[
            end + 1 : text.find("\n", end + 1) if text.find("\n", end + 1) > 0 else None
        ]
        if "|" in text[begin:end] and _TABLE_RULE.match(following) and "-" in following:
            continue  # a table's heading
        unit = places.at(match.end())
        if not worded and places.paragraphs[unit] not in blocks:
            continue
        found.append(_Line(text[begin:end], rest, unit))
    return found


def _narrow(lines: Sequence[_Line], items: Sequence[str], ask: Asked) -> list[_Line] | None:
    """The lines for which every word of the ask holds that holds for each item's line."""
    narrowed = list(lines)
    for term in ask.terms:
        having = [line for line in narrowed if has_term(line.text, term)]
        if not having or len(having) == len(narrowed):
            continue
        named = [line for line in narrowed if _names(line.rest, items)]
        with_term = [line for line in named if has_term(line.text, term)]
        if named and len(with_term) == len(named):
            narrowed = having
        elif with_term or not named:
            return None
    return narrowed


def _names(rest: str, items: Sequence[str]) -> bool:
    """Whether one of `items` begins `rest`, behind quotes and brackets at most."""
    begun = squeezed(rest[:2000]).lstrip(" \"'`*[(")
    return any(begun.startswith(item) and occurs(item, begun[: len(item) + 1]) for item in items)


def _elsewhere(units: Sequence[int], ask: Asked, places: Places) -> Reason | None:
    """Whether the place that matches the ask best is neither among the items nor heads them."""
    best = ask.ranked[0]
    top = {place.index for place in ask.ranked if place.score >= best.score}
    paragraphs = {places.paragraphs[unit] for unit in units}
    first = {
        paragraph: min(u for u in units if places.paragraphs[u] == paragraph)
        for paragraph in paragraphs
    }
    for index in top:
        if places.paragraphs[index] in paragraphs:
            continue
        following = places.paragraphs[index] + 1
        if (
            following in first
            and index + 1 < len(places)
            and places.paragraphs[index + 1] == following
        ):
            continue
        return Reason("better_place", "another place of the text matches the ask better")
    return None


def _series_doubt(items: Sequence[str], ask: Asked, places: Places) -> Reason | None:
    """Items that stand in one sentence: its series must hold no more than them."""
    for place in ask.ranked[:8]:
        unit = squeezed(places.unit(place.index))
        if not all(occurs(item, unit) for item in items):
            continue
        if place.score < ask.ranked[0].score:
            return Reason("better_place", "another place of the text matches the ask better")
        begin = min(unit.find(item) for item in items)
        last = max(items, key=lambda item: unit.find(item))
        end = unit.find(last) + len(last)
        inner = [_clean(piece) for piece in _COMMA.split(unit[begin:end])]
        if any(piece and not any(i in piece or piece in i for i in items) for piece in inner):
            return Reason("list_incomplete", "the series in the text holds more than the answer")
        before, after = unit[max(0, begin - 8) : begin], unit[end : end + 8]
        if re.search(r"[,;、，]\s*(?:and |und |et |y |e )?$", before) or re.match(
            r"\s*[,;、，]|\s(?:and|und|et|y|e|и|or|sowie|as well)\s|[和と및]", after
        ):
            return Reason("list_incomplete", "the series in the text goes on beyond the answer")
        rivals = [p for p in ask.ranked if p.index != place.index and p.score * 1.1 >= place.score]
        if rivals:
            return Reason("rival_place", "another place of the text matches the ask as well")
        return None
    return Reason("no_pattern", "the items of the list share no pattern in the text")


def counted(ask: Asked, places: Places) -> int | None:
    """How many lines the ask's own words pick out; None when they pick out no list.

    They do when at least two lines hold every word of the ask that the text knows at all, and
    all of these begin alike.
    """
    terms = [term for term in ask.terms if not is_unit_word(term.word)]
    postings = places.postings(terms)
    known: list[Term] = [term for term in terms if postings[term]]
    if not known:
        return None
    picked = set(postings[known[0]])
    for term in known[1:]:
        picked &= set(postings[term])
    if len(picked) < 2:
        return None
    shapes = {_shape(places.unit(index)) for index in picked}
    return len(picked) if len(shapes) == 1 else 0


def _shape(unit: str) -> tuple[str, ...]:
    tokens = _TOKEN.findall(unit[:200])[:24]
    marks = ["#" if t[0].isdigit() else "w" if t[0].isalnum() else t for t in tokens[:4]]
    return tuple(marks[:2])
