"""Contexts of several paragraphs, packed to a length, with the questions they answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.data import HotpotItem, Paragraph, Question

CONTEXT_TOKENS = 3200
_SQUAD_QUESTIONS = 6
_HOTPOT_QUESTIONS = 4
_LONGEST_PARAGRAPH_TOKENS = 400

Count = Callable[[str], int]


@dataclass(frozen=True)
class Packed:
    """A context and questions whose whole evidence it holds."""

    id: str
    text: str
    questions: tuple[Question, ...]


def pack_squad(
    articles: dict[str, tuple[Paragraph, ...]], questions: int, count: Count
) -> list[Packed]:
    """Half of each context is of one article, the rest of the others; then it is shuffled.

    Each context has six questions, each of another paragraph of that article, so that the
    nearest distractors are about the same subject.
    """
    titles = sorted(articles)
    packed = []
    for number in range(-(-questions // _SQUAD_QUESTIONS)):
        draw = random.Random(f"squad/{number}")
        title = titles[number % len(titles)]
        own = _short(articles[title], count)
        draw.shuffle(own)
        asked = [p for p in own if p.questions][:_SQUAD_QUESTIONS]
        near = _up_to(CONTEXT_TOKENS / 2, asked, own, count)
        strangers = [p for other in titles if other != title for p in articles[other]]
        draw.shuffle(strangers)
        chosen = _up_to(CONTEXT_TOKENS, near, _short(strangers[:60], count), count)
        picked = [draw.choice(paragraph.questions) for paragraph in asked]
        packed.append(_packed(f"squad/{number}", chosen, picked, draw))
    return packed


def pack_hotpot(items: Sequence[HotpotItem], questions: int, count: Count) -> list[Packed]:
    """Four questions share a context: their gold paragraphs, and distractors of each in turn."""
    order = list(items)
    random.Random("hotpot").shuffle(order)
    packed = []
    for number in range(-(-questions // _HOTPOT_QUESTIONS)):
        draw = random.Random(f"hotpot/{number}")
        group = order[number * _HOTPOT_QUESTIONS : (number + 1) * _HOTPOT_QUESTIONS]
        gold = _once(paragraph for item in group for paragraph in item.gold)
        others = [paragraph for item in group for paragraph in item.others]
        draw.shuffle(others)
        others += [p for item in draw.sample(order, 6) for p in item.others]
        chosen = _up_to(CONTEXT_TOKENS, gold, _short(others, count), count)
        packed.append(_packed(f"hotpot/{number}", chosen, [i.question for i in group], draw))
    return packed


def _packed(
    name: str, paragraphs: Sequence[Paragraph], questions: Sequence[Question], draw: random.Random
) -> Packed:
    order = list(paragraphs)
    draw.shuffle(order)
    return Packed(name, "\n\n".join(_shown(p) for p in order), tuple(questions))


def _shown(paragraph: Paragraph) -> str:
    return f"{paragraph.title}\n{paragraph.text}"


def _up_to(
    tokens: float, begun: Sequence[Paragraph], more: Iterable[Paragraph], count: Count
) -> list[Paragraph]:
    """`begun` and, of `more`, what fits into `tokens`; no text twice."""
    chosen = list(begun)
    seen = {paragraph.text for paragraph in chosen}
    used = sum(count(_shown(paragraph)) for paragraph in chosen)
    for paragraph in more:
        if paragraph.text in seen:
            continue
        length = count(_shown(paragraph))
        if used + length <= tokens:
            chosen.append(paragraph)
            seen.add(paragraph.text)
            used += length
    return chosen


def _short(paragraphs: Iterable[Paragraph], count: Count) -> list[Paragraph]:
    return [p for p in paragraphs if count(_shown(p)) <= _LONGEST_PARAGRAPH_TOKENS]


def _once(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    return list({paragraph.text: paragraph for paragraph in paragraphs}.values())
