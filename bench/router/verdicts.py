"""How often the verify lane's verdict lets right and wrong answers out: simulated answers.

`python -m bench.router.verdicts [--split tuning|reported] [--questions N]`

Texts are packed as in `bench.pflash.packing`. A right answer is the set's own. Wrong ones: of the
same kind from anywhere in the text (`same_kind`), of the same kind from the very sentence that
answers (`same_sentence`), and the answer of another question on the same text (`other_answer`).
Look-ups and lists are made here: a wrong value of another key, a list without its last item. No
model answers, so the shares say what the checks alone tell apart; the ask is given to them as the
reader should find it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.data import Question, Split, hotpot, split_of, squad, words
from bench.pflash.packing import Packed, pack_hotpot, pack_squad
from flashlane.request import RequestView, Span
from flashlane.verdict import Verdict, verdict
from flashlane.verdict.literals import literals
from flashlane.verdict.places import fold

RIGHT = "right"
QUESTIONS = {"squad": 1200, "hotpot": 1200, "key_value": 300, "enumeration": 300}
_SYSTEM = (
    "You answer questions from the passages that the user gives. "
    "Reply with the answer alone, in as few words as possible, without explanation."
)
_SAME_KIND_ANSWERS = 2
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Case:
    """An answer to `ask` about `text`; `label` says how it was made."""

    part: str
    label: str
    text: str
    ask: str
    answer: str


def judged(case: Case) -> Verdict:
    original = f"{_SYSTEM}\n\n{case.text}\n\n{case.ask}"
    view = RequestView(
        kind="chat",
        model="simulated",
        ask=case.ask,
        instructions=(
            Span(_SYSTEM, "system", "messages[0]"),
            Span(case.ask, "user", "messages[1]"),
        ),
        context=(Span(case.text, "user", "messages[1]"),),
        estimated_tokens=len(original) // _CHARS_PER_TOKEN,
        context_tokens=len(case.text) // _CHARS_PER_TOKEN,
    )
    return verdict(case.answer, original, view)


def cases(split: Split, questions: dict[str, int]) -> Iterator[Case]:
    yield from _asked("squad", pack_squad(squad(split), questions["squad"], _count))
    yield from _asked("hotpot", pack_hotpot(hotpot(split), questions["hotpot"], _count))
    yield from key_values(split, questions["key_value"])
    yield from enumerations(split, questions["enumeration"])


def shares(found: Iterable[tuple[Case, Verdict]]) -> dict[str, dict[str, dict[str, float]]]:
    """By part and label: answers, and the share of them that was accepted."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for case, verdict_ in found:
        counts[case.part, case.label][0] += 1
        counts[case.part, case.label][1] += verdict_.accepted
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (part, label), (answers, accepted) in sorted(counts.items()):
        table.setdefault(part, {})[label] = {
            "answers": answers,
            "accepted": round(accepted / answers, 4),
        }
    return table


def _count(text: str) -> int:
    return len(text) // _CHARS_PER_TOKEN


def _asked(part: str, packed: Sequence[Packed]) -> Iterator[Case]:
    seen: set[str] = set()
    for context in packed:
        spelled = [
            (stated.kind, context.text[stated.begin : stated.end])
            for stated in literals(context.text)
            if not (stated.begin == 0 or context.text[stated.begin - 2 : stated.begin] in _STARTS)
        ]
        for question in context.questions:
            if question.id in seen:
                continue
            seen.add(question.id)
            ask = f"Question: {question.text}"
            yield Case(part, RIGHT, context.text, ask, question.answers[0])
            for label, answer in _wrong(context, question, spelled):
                yield Case(part, label, context.text, ask, answer)


def _wrong(
    context: Packed, question: Question, spelled: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    draw = random.Random(question.id)
    own = literals(question.answers[0])
    kind = own[0].kind if own else "name"
    pool = sorted({text for k, text in spelled if k == kind and _is_wrong(text, question)})
    for text in draw.sample(pool, min(_SAME_KIND_ANSWERS, len(pool))):
        yield "same_kind", text
    near = [text for text in pool if any(text in sentence for sentence in question.support)]
    if near:
        yield "same_sentence", draw.choice(near)
    others = [
        other.answers[0]
        for other in context.questions
        if other is not question and _is_wrong(other.answers[0], question)
    ]
    if others:
        yield "other_answer", draw.choice(others)


def _is_wrong(text: str, question: Question) -> bool:
    folded = fold(text)
    accepted = [fold(answer) for answer in question.answers]
    return folded not in fold(question.text) and all(
        folded not in answer and answer not in folded for answer in accepted
    )


_WORDS = words("""
amber basil cedar delta ember flint grove heron iris jade kelp larch
maple north otter pearl quill raven sable thorn umber velvet willow xenon
yarrow zephyr
""")
_STARTS = (". ", "! ", "? ", "\n\n", ".\n")  # any word is a capital one there
_PAIRS = 200
_ROWS = 60


def key_values(split: Split, number: int) -> Iterator[Case]:
    """Look-ups in a table of keys, one text for each; the wrong value is another key's."""
    for index, draw in _draws("key_value", split, number):
        keys = _keys(draw, _PAIRS)
        value = {key: str(draw.randrange(1000, 10**6)) for key in keys}
        form = draw.choice(("{} = {}", "{}: {}", "The value of {} is {}.", '"{}": "{}",'))
        text = "\n".join(form.format(key, value[key]) for key in keys)
        key, other = draw.sample(keys, 2)
        ask = (f"What is the value of {key}?", f"Which value does {key} have?")[index % 2]
        yield Case("key_value", RIGHT, text, ask, value[key])
        yield Case("key_value", "other_answer", text, ask, value[other])


def enumerations(split: Split, number: int) -> Iterator[Case]:
    """Lists and counts over rows of a state; wrong ones lack an item or are one off."""
    for index, draw in _draws("enumeration", split, number):
        states = draw.sample(("failed", "pending", "shipped", "blocked", "retired"), 3)
        names = _keys(draw, _ROWS)
        rows = [(name, draw.choice(states)) for name in names]
        form = draw.choice(("job {0} state={1}", "- {0} ({1})", "{0},{1}", "{0}: {1}"))
        text = "\n".join(form.format(*row) for row in rows)
        wanted = [name for name, state in rows if state == states[0]]
        if len(wanted) < 3:
            continue
        if index % 3 == 2:
            ask = f"How many entries are {states[0]}?"
            yield Case("enumeration", RIGHT, text, ask, str(len(wanted)))
            wrong = str(len(wanted) + draw.choice((-1, 1)))
            yield Case("enumeration", "wrong_count", text, ask, wrong)
            continue
        ask = f"List all entries that are {states[0]}."
        join = (", ".join, "\n- ".join)[index % 2]
        lead = ("", "- ")[index % 2]
        yield Case("enumeration", RIGHT, text, ask, lead + join(wanted))
        yield Case("enumeration", "cut_list", text, ask, lead + join(wanted[:-1]))
        stranger = next(name for name, state in rows if state != states[0])
        swapped = [*wanted[:-1], stranger]
        yield Case("enumeration", "swapped_item", text, ask, lead + join(swapped))


def _draws(part: str, split: Split, number: int) -> Iterator[tuple[int, random.Random]]:
    """`number` seeded draws of a split: names are dealt to the splits like questions are."""
    index = found = 0
    while found < number:
        name = f"{part}/{index}"
        if split_of(name) == split:
            yield found, random.Random(name)
            found += 1
        index += 1


def _keys(draw: random.Random, number: int) -> list[str]:
    keys: dict[str, None] = {}
    while len(keys) < number:
        keys[f"{draw.choice(_WORDS)}-{draw.choice(_WORDS)}-{draw.randrange(10, 1000)}"] = None
    return list(keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=("tuning", "reported"), default="reported")
    parser.add_argument("--questions", type=int, help="at most so many questions of each part")
    options = parser.parse_args()
    limit = options.questions
    questions = {part: min(n, limit or n) for part, n in QUESTIONS.items()}
    found = [(case, judged(case)) for case in cases(options.split, questions)]
    print(json.dumps({"split": options.split, "parts": shares(found)}, indent=2))


if __name__ == "__main__":
    main()
