"""A trace of mixed requests under the router, and with every request sent to one lane.

What was said before is the same in every variant: assistants' turns hold the right answers, not
what the target said, so that requests can be compared one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from bench.data import Split, hotpot, squad, words
from bench.pflash.metrics import contains
from bench.router import verdicts
from bench.router.context import Context
from bench.router.served import served
from bench.router.verify import cut_to
from bench.store import Json, Record

ROUTER, DIRECT, PFLASH = "router", "always direct", "always pflash"
VARIANTS: Mapping[str, str | None] = {ROUTER: None, DIRECT: "direct", PFLASH: "pflash"}
_EACH = 40  # requests of a kind
_CHATS, _AGENTS = 8, 4
_TOKENS = (600, 1600)  # of a document
_ANSWER_TOKENS = 48
_STOP = words("a an and at by for in of on or the to")
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_log",
            "description": "Lines of a job's log.",
            "parameters": {"type": "object", "properties": {"job": {"type": "string"}}},
        },
    }
]


@dataclass(frozen=True)
class Asked:
    """One request of the trace. `right` judges its answer; `group` names what it belongs to."""

    kind: str
    group: str
    body: Mapping[str, Any]
    right: Callable[[str], bool]


@dataclass(frozen=True)
class Row:
    """`ms`: the whole request; `tokens`: prompt tokens that the target processed; `held`: tokens of
    its conversation's prefix that the lane before held and this one did not use."""

    variant: str
    kind: str
    group: str
    lane: str
    answered_by: str
    reasons: str
    right: bool
    ms: float
    tokens: float
    saved_ms: float


def measure(context: Context) -> list[Row]:
    """A variant is measured as a whole: interrupted, it begins again."""
    asked = trace("reported")
    if context.options.quick is not None:
        asked = asked[:: max(len(asked) // (5 * context.options.quick), 1)]
    rows: list[Row] = []
    for variant in VARIANTS:
        key = context.key("mixed", variant=variant, trace=[dict(a.body) for a in asked])
        found = context.store.case(key, partial(_variant, context, variant, asked))["rows"]
        assert isinstance(found, list)
        rows += [Row(**row) for row in found if isinstance(row, dict)]  # type: ignore[arg-type]
    return rows


def total(rows: Sequence[Row], other: str) -> float | None:
    """Time of the router's requests over that of another variant's."""
    ours, theirs = (sum(r.ms for r in rows if r.variant == name) for name in (ROUTER, other))
    return ours / theirs if theirs else None


def accuracy(rows: Sequence[Row], variant: str = ROUTER) -> float | None:
    """Right answers of a variant over those of the direct lane."""
    ours, direct = (sum(r.right for r in rows if r.variant == v) for v in (variant, DIRECT))
    return ours / direct if direct else None


def bad_flips(rows: Sequence[Row]) -> int | None:
    """Changes of lane within a conversation whose predicted saving was none."""
    ours = [row for row in rows if row.variant == ROUTER]
    last: dict[str, str] = {}
    found = 0
    for row in ours:
        before = last.get(row.group)
        found += before is not None and before != row.lane and row.saved_ms <= 0
        last[row.group] = row.lane
    return found if ours else None


def summary(rows: Sequence[Row]) -> list[Json]:
    found: list[Json] = []
    for variant in dict.fromkeys(row.variant for row in rows):
        for kind in [*dict.fromkeys(row.kind for row in rows), "all"]:
            these = [r for r in rows if r.variant == variant and kind in (r.kind, "all")]
            found.append(
                {
                    "variant": variant,
                    "kind": kind,
                    "requests": len(these),
                    "right": round(fmean(r.right for r in these), 4),
                    "seconds": round(sum(r.ms for r in these) / 1e3, 1),
                    "tokens": sum(r.tokens for r in these),
                    "direct": sum(r.answered_by == "direct" for r in these),
                }
            )
    return found


def trace(split: Split) -> list[Asked]:
    """Requests of all kinds, drawn into one order; the turns of a conversation keep theirs."""
    threads: list[list[Asked]] = [
        *([asked] for asked in _broad(split)),
        *([asked] for asked in _exact(split)),
        *([asked] for asked in _tools(split)),
        *_chats(split),
        *_agents(split),
    ]
    draw = random.Random("mixed")
    found: list[Asked] = []
    while threads:
        thread = draw.choices(threads, [len(t) for t in threads])[0]
        found.append(thread.pop(0))
        threads = [t for t in threads if t]
    return found


def _variant(context: Context, variant: str, asked: Sequence[Asked]) -> Record:
    lane = VARIANTS[variant]
    rows: list[Json] = []
    with served(context, "mixed", {"min_prompt_tokens": 512}, kvflash=True) as proxy:
        for one in context.cases(f"mixed, {variant}", asked, limit=False):
            forced = "direct" if lane and "tools" in one.body else lane
            reply = proxy.ask({**one.body, **({"route": forced} if forced else {})})
            record = reply.record
            direct_ms, ours_ms = record.predicted_direct_ms, record.predicted_ttft_ms
            row = Row(
                variant,
                one.kind,
                one.group,
                record.lane,
                record.answered_by or record.lane,
                record.reasons,
                one.right(reply.text),
                reply.ms,
                float((record.prompt_tokens or 0) - (record.cached_tokens or 0))
                + float(record.first_pass_tokens or 0),
                (direct_ms or 0.0) - (ours_ms or 0.0),
            )
            rows.append(asdict(row))
    return {"rows": rows}


def _broad(split: Split) -> Iterator[Asked]:
    """Summaries of an article; right when its subject is named."""
    asks = (
        "Summarise this text in two sentences.",
        "What is this text about? Two sentences, please.",
        "Explain in a few words what the text deals with.",
        "Give me the gist of it.",
    )
    articles = squad(split)
    for number_, title in enumerate(sorted(articles)[:_EACH] * 2):
        if number_ == _EACH:
            return
        draw = random.Random(f"mixed/broad/{number_}")
        paragraphs = [p.text for p in articles[title]]
        draw.shuffle(paragraphs)
        text = _upto(paragraphs, draw.randint(*_TOKENS))
        subject = [w for w in title.replace("_", " ").split() if w.casefold() not in _STOP]
        yield Asked(
            "broad",
            f"broad/{number_}",
            _body([_user(f"{text}\n\n{asks[number_ % len(asks)]}")]),
            partial(_names, subject=subject),
        )


def _exact(split: Split) -> Iterator[Asked]:
    """Questions on passages and look-ups in tables."""
    questions = _questions(split)
    tables = verdicts.key_values(split, _EACH)
    for number_ in range(_EACH):
        if number_ % 4 == 3:
            case = next(c for c in tables if c.label == verdicts.RIGHT)
            content, answers = f"{case.text}\n\n{case.ask}", (case.answer,)
        else:
            text, question = next(questions)
            content, answers = f"{text}\n\n{question.text}", question.answers
        yield Asked(
            "exact",
            f"exact/{number_}",
            _body([_user(content)]),
            partial(_contains, answers=answers),
        )


def _tools(split: Split) -> Iterator[Asked]:
    """A question on a passage, with tools at hand that it does not need."""
    questions = _questions(split, skip=_EACH)
    for number_ in range(_EACH):
        text, question = next(questions)
        yield Asked(
            "tools",
            f"tools/{number_}",
            {**_body([_user(f"{text}\n\n{question.text}")]), "tools": _TOOLS},
            partial(_contains, answers=question.answers),
        )


def _chats(split: Split) -> Iterator[list[Asked]]:
    """A document in the first turn and questions on it, broad and exact ones."""
    articles = squad(split)
    titles = [t for t in sorted(articles) if sum(bool(p.questions) for p in articles[t]) > 8]
    for number_ in range(_CHATS):
        draw = random.Random(f"mixed/chat/{number_}")
        title = titles[-1 - number_]
        paragraphs = [p for p in articles[title] if p.questions][:5]
        text = _upto([p.text for p in paragraphs], _TOKENS[1])
        messages: list[dict[str, Any]] = []
        turns = []
        for turn in range(_EACH // _CHATS):
            question = draw.choice(paragraphs[turn % len(paragraphs)].questions)
            ask = question.text if turn % 2 else f"In short: {question.text}"
            content = f"{text}\n\n{ask}" if turn == 0 else ask
            messages = [*messages, _user(content)]
            turns.append(
                Asked(
                    "chat",
                    f"chat/{number_}",
                    _body(messages),
                    partial(_contains, answers=question.answers),
                )
            )
            messages = [*messages, {"role": "assistant", "content": question.answers[0]}]
        yield turns


def _agents(split: Split) -> Iterator[list[Asked]]:
    """Tool calls whose results pile up; each step asks for a value in the newest result."""
    for number_ in range(_AGENTS):
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You watch jobs. Answer with the value alone."}
        ]
        steps = []
        tables = verdicts.key_values(split, 1000)
        for step in range(_EACH // _AGENTS):
            case = next(c for c in tables if c.label == verdicts.RIGHT)
            lines = case.text.split("\n")
            at = next(i for i, line in enumerate(lines) if case.answer in line)
            start = max(0, min(at - step, len(lines) - 20))
            call = f"call_{number_}_{step}"
            function = {"name": "read_log", "arguments": f'{{"job": "{step}"}}'}
            messages = [
                *messages,
                _user(case.ask),
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": call, "type": "function", "function": function}],
                },
                {
                    "role": "tool",
                    "tool_call_id": call,
                    "content": "\n".join(lines[start : start + 20]),
                },
            ]
            steps.append(
                Asked(
                    "agent",
                    f"agent/{number_}",
                    {**_body(messages), "tools": _TOOLS},
                    partial(_contains, answers=(case.answer,)),
                )
            )
            messages = [*messages, {"role": "assistant", "content": case.answer}]
        yield steps


def _questions(split: Split, skip: int = 0) -> Iterator[tuple[str, Any]]:
    """(passages, question), two of SQuAD and one of HotpotQA in turn, each on its own passages."""
    draw = random.Random(f"mixed/questions/{skip}")
    articles = squad(split)
    titles = sorted(articles)
    items = list(hotpot(split))
    random.Random("mixed/hotpot").shuffle(items)
    for number_ in range(skip, 10**6):
        tokens = draw.randint(*_TOKENS)
        if number_ % 3 == 2:
            item = items[number_]
            paragraphs = [f"{p.title}\n{p.text}" for p in (*item.gold, *item.others)]
            question = item.question
        else:
            title = titles[(7 * number_) % len(titles)]
            holding = [p for p in articles[title] if p.questions]
            question = draw.choice(draw.choice(holding).questions)
            paragraphs = [p.text for p in articles[title]]
        yield cut_to("\n\n".join(paragraphs), question.support, question.id, tokens), question


def _upto(paragraphs: Sequence[str], tokens: int) -> str:
    chosen: list[str] = []
    for paragraph in paragraphs:
        chosen.append(paragraph)
        if sum(map(len, chosen)) >= 4 * tokens:
            break
    return "\n\n".join(chosen)


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _body(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"messages": list(messages), "max_tokens": _ANSWER_TOKENS}


def _names(answer: str, subject: Sequence[str]) -> bool:
    """Whether a summary names its subject: most words of the title, by their beginnings."""
    folded = answer.casefold()
    named = sum(word.casefold()[:5] in folded for word in subject)
    return 2 * named >= len(subject)


def _contains(answer: str, answers: Sequence[str]) -> bool:
    return contains(answer, answers) > 0
