"""The retrieval and tracing tasks of RULER (Hsieh et al., 2024), in words of our own.

Numbers of keys, values, questions and hops are those of its settings; its two tasks that count
every word of a text are left out, since no part of such a text may be dropped.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.data import Split
from bench.haystacks import as_unit, haystack, names, place
from bench.pflash.needles import Case, Count

_TOKENS = (4096, 8192)
_CASES = 4  # of each task and length
_VARIABLE_LETTERS = 5
_NEEDLE_TOKENS = 20  # of one sentence, roughly


@dataclass(frozen=True)
class _Retrieval:
    """`keys` hidden with `values` each, `asked` of them asked for; `needles`: nothing but keys."""

    name: str
    keys: int = 1
    values: int = 1
    asked: int = 1
    uuids: bool = False
    needles: bool = False


_RETRIEVALS = (
    _Retrieval("single"),
    _Retrieval("single-uuid", uuids=True),
    _Retrieval("multi-key", keys=4),
    _Retrieval("all-keys", needles=True),
    _Retrieval("multi-value", values=4),
    _Retrieval("multi-query", keys=4, asked=4),
)
_TRACING = "variable-tracking"
_HOPS = 4


def cases(split: Split, count: Count) -> list[Case]:
    """Every task at both lengths, in a fixed order that mixes them."""
    found: list[Case] = []
    for tokens in _TOKENS:
        for number in range(_CASES):
            found += [_retrieval(task, split, tokens, number, count) for task in _RETRIEVALS]
            found.append(_tracing(split, tokens, number, count))
    random.Random(0).shuffle(found)
    return found


def _retrieval(task: _Retrieval, split: Split, tokens: int, number: int, count: Count) -> Case:
    draw = random.Random(f"ruler/{task.name}/{split}/{tokens}/{number}")
    n_keys = tokens // _NEEDLE_TOKENS if task.needles else task.keys
    keys = names(draw, n_keys)
    told = {key: [_said(task, key, draw) for _ in range(task.values)] for key in keys}
    asked = draw.sample(keys, task.asked)
    what = "number" if not task.uuids else "code"
    question = f"What is every pass {what} of {_listed(asked)} that the text mentions?"
    evidence = [sentence for key in asked for sentence in told[key]]
    every = [sentence for key in keys for sentence in told[key]]
    if task.needles:
        draw.shuffle(every)
        text = " ".join(every)
    else:
        text = _hidden(every, draw, split, tokens, count)
    return _case(task.name, split, tokens, number, text, question, evidence)


def _tracing(split: Split, tokens: int, number: int, count: Count) -> Case:
    """A value that goes from variable to variable, in the order of the text."""
    draw = random.Random(f"ruler/{_TRACING}/{split}/{tokens}/{number}")
    variables = [
        "".join(draw.choices(string.ascii_uppercase, k=_VARIABLE_LETTERS)) for _ in range(_HOPS + 1)
    ]
    value = draw.randrange(10_000, 99_999)
    chain = [f"VAR {variables[0]} = {value}."]
    chain += [f"VAR {to} = VAR {of}." for of, to in pairwise(variables)]
    depths = sorted(draw.uniform(0.02, 0.98) for _ in chain)
    text = _placed(list(zip(depths, chain, strict=True)), draw, split, tokens, count)
    question = f"Which variables have the value {value}, directly or through other variables?"
    return _case(_TRACING, split, tokens, number, text, question, chain)


def _said(task: _Retrieval, key: str, draw: random.Random) -> str:
    if task.uuids:
        return f"The pass code of {key} is {uuid.UUID(int=draw.getrandbits(128), version=4)}."
    return f"The pass number of {key} is {draw.randrange(10**6, 10**7)}."


def _listed(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"


def _hidden(
    needles: Sequence[str], draw: random.Random, split: Split, tokens: int, count: Count
) -> str:
    placed = [(draw.uniform(0.02, 0.98), needle) for needle in needles]
    return _placed(placed, draw, split, tokens, count)


def _placed(
    needles: Sequence[tuple[float, str]],
    draw: random.Random,
    split: Split,
    tokens: int,
    count: Count,
) -> str:
    units = haystack("essays", tokens, split, f"ruler/{draw.random()}", count)
    return place(units, [(depth, as_unit("essays", needle, draw)) for depth, needle in needles])


def _case(
    task: str,
    split: Split,
    tokens: int,
    number: int,
    text: str,
    question: str,
    evidence: Sequence[str],
) -> Case:
    return Case(
        id=f"ruler/{task}/{split}/{tokens}/{number}",
        part="ruler",
        kind=task,
        tokens=tokens,
        depth=text.index(evidence[0]) / len(text),
        text=text,
        question=question,
        evidence=tuple(evidence),
    )
