"""The verify lane against the direct lane: the same questions, both through the proxy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from bench.data import Split, hotpot, squad
from bench.pflash.metrics import contains
from bench.pflash.packing import pack_hotpot, pack_squad
from bench.router import verdicts
from bench.router.context import Context
from bench.router.served import Served, served
from bench.store import Json, Record, number

QUESTIONS = {"squad": 40, "hotpot": 30, "key_value": 20, "enumeration": 20}
KEEP_RATIO = 0.25
CONTEXT_TOKENS = 1200
_ANSWER_TOKENS = {"enumeration": 256}
_SHORT_ANSWER_TOKENS = 32
_LINES = {"key_value": 60, "enumeration": 40}
_SYSTEM = (
    "You answer questions from the text that the user gives. "
    "Reply with the answer alone, in as few words as possible, without explanation."
)


@dataclass(frozen=True)
class Case:
    """`right` judges an answer."""

    part: str
    id: str
    text: str
    ask: str
    right: Callable[[str], bool]


@dataclass(frozen=True)
class Row:
    """One question. Tokens are prompt tokens that the target processed, in both passes together;
    `*_ms` the time before the first token of the answer, scoring included."""

    part: str
    id: str
    verdict: str
    reasons: str
    right: bool
    direct_right: bool
    first_right: bool | None
    tokens: float
    direct_tokens: float
    ms: float
    direct_ms: float


def measure(context: Context) -> list[Row]:
    rows = []
    with served(context, "verify", {"min_prompt_tokens": 256}) as proxy:
        for case in context.cases("verify", cases("reported")):
            key = context.key("verify", asked=[case.part, case.text, case.ask])
            record = context.store.case(key, partial(_record, proxy, case))
            direct_key = context.engine_key("verify/direct", asked=[case.part, case.text, case.ask])
            direct = context.store.case(direct_key, partial(_direct, proxy, case))
            rows.append(_row(case, record, direct))
    return rows


def accuracy(rows: Sequence[Row]) -> float | None:
    """Of the verify lane, over that of the direct lane."""
    direct = sum(row.direct_right for row in rows)
    return sum(row.right for row in rows) / direct if direct else None


def work(rows: Sequence[Row]) -> float | None:
    """Prompt tokens that the target processed, over those of the direct lane."""
    direct = sum(row.direct_tokens for row in rows)
    return sum(row.tokens for row in rows) / direct if direct else None


def let_through(rows: Sequence[Row]) -> float | None:
    """Share of wrong answers given out unverified among the questions that direct answers right."""
    asked = [row for row in rows if row.direct_right]
    bad = [row for row in asked if row.verdict == "accepted" and not row.right]
    return len(bad) / len(asked) if asked else None


def summary(rows: Sequence[Row]) -> list[Json]:
    found: list[Json] = []
    for part in [*dict.fromkeys(row.part for row in rows), "all"]:
        these = [row for row in rows if part in (row.part, "all")]
        if not these:
            continue
        found.append(
            {
                "part": part,
                "questions": len(these),
                "direct_right": round(fmean(row.direct_right for row in these), 4),
                "verify_right": round(fmean(row.right for row in these), 4),
                "accepted": round(fmean(row.verdict == "accepted" for row in these), 4),
                "let_through": let_through(these),
                "tokens_to_direct": work(these),
                "ms_to_direct": sum(r.ms for r in these) / sum(r.direct_ms for r in these),
            }
        )
    return found


def cases(split: Split) -> Iterator[Case]:
    for name, packed in (
        ("squad", pack_squad(squad(split), 6 * QUESTIONS["squad"], _count)),
        ("hotpot", pack_hotpot(hotpot(split), 4 * QUESTIONS["hotpot"], _count)),
    ):
        for context in packed[: QUESTIONS[name]]:
            question = context.questions[0]
            text = cut_to(context.text, question.support, question.id, CONTEXT_TOKENS)
            yield Case(
                name,
                question.id,
                text,
                f"Question: {question.text}",
                partial(_contains, answers=question.answers),
            )
    yield from _made("key_value", verdicts.key_values(split, 4 * QUESTIONS["key_value"]))
    yield from _made("enumeration", verdicts.enumerations(split, 4 * QUESTIONS["enumeration"]))


def _made(part: str, found: Iterator[verdicts.Case]) -> Iterator[Case]:
    """Look-ups and lists, their text cut to fewer lines that still hold the answer."""
    right = [case for case in found if case.label == verdicts.RIGHT][: QUESTIONS[part]]
    for index, case in enumerate(right):
        lines = case.text.split("\n")
        if part == "key_value":
            keep = next(i for i, line in enumerate(lines) if case.answer in line)
            start = max(0, min(keep - index % _LINES[part], len(lines) - _LINES[part]))
            lines = lines[start : start + _LINES[part]]
            yield Case(
                part,
                f"{part}/{index}",
                "\n".join(lines),
                case.ask,
                partial(_contains, answers=(case.answer,)),
            )
        else:
            yield Case(
                part, f"{part}/{index}", case.text, case.ask, partial(_same, wanted=case.answer)
            )


def cut_to(text: str, support: Sequence[str], seed: str, tokens: int) -> str:
    """Whole paragraphs of `text` up to so many tokens: those with support, and others that are
    drawn; in their order."""
    paragraphs = text.split("\n\n")
    holds = [any(sentence in paragraph for sentence in support) for paragraph in paragraphs]
    order = sorted(range(len(paragraphs)), key=lambda i: not holds[i])
    rest = [i for i in order if not holds[i]]
    random.Random(seed).shuffle(rest)
    chosen = [i for i in order if holds[i]]
    used = sum(_count(paragraphs[i]) for i in chosen)
    for i in rest:
        if used + _count(paragraphs[i]) <= tokens:
            chosen.append(i)
            used += _count(paragraphs[i])
    return "\n\n".join(paragraphs[i] for i in sorted(chosen))


def _count(text: str) -> int:
    return len(text) // 4


def _contains(answer: str, answers: Sequence[str]) -> bool:
    return contains(answer, answers) > 0


def _same(answer: str, wanted: str) -> bool:
    """Whether a list names the same entries, or the count is the same."""
    return _entries(answer) == _entries(wanted)


def _entries(text: str) -> list[str]:
    parts = text.replace("\n", ",").replace("- ", " ").split(",")
    return sorted({part.strip(" .*\"'").casefold() for part in parts if part.strip(" .*\"'")})


def _body(case: Case, lane: str) -> dict[str, object]:
    return {
        "messages": [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"{case.text}\n\n{case.ask}"},
        ],
        "max_tokens": _ANSWER_TOKENS.get(case.part, _SHORT_ANSWER_TOKENS),
        "route": lane,
        "cache_prompt": False,
    }


def _record(proxy: Served, case: Case) -> Record:
    body = {**_body(case, "verify"), "pflash": {"keep_ratio": KEEP_RATIO, "min_keep_tokens": 64}}
    reply = proxy.ask(body)
    record = reply.record
    second = record.answered_by == "direct"
    first = record.first_pass_tokens or 0
    return {
        "answer": reply.text,
        "verdict": record.verdict,
        "reasons": record.verdict_reasons,
        "tokens": (record.prompt_tokens or 0) - (record.cached_tokens or 0) + first * second,
        "ms": reply.ms,
        "answered_by": record.answered_by,
    }


def _direct(proxy: Served, case: Case) -> Record:
    reply = proxy.ask(_body(case, "direct"))
    record = reply.record
    tokens = (record.prompt_tokens or 0) - (record.cached_tokens or 0)
    return {"answer": reply.text, "tokens": tokens, "ms": reply.ms}


def _row(case: Case, record: Record, direct: Record) -> Row:
    answer = str(record["answer"])
    return Row(
        part=case.part,
        id=case.id,
        verdict=str(record["verdict"]),
        reasons=str(record["reasons"]),
        right=case.right(answer),
        direct_right=case.right(str(direct["answer"])),
        first_right=case.right(answer) if record["answered_by"] != "direct" else None,
        tokens=number(record, "tokens"),
        direct_tokens=number(direct, "tokens"),
        ms=number(record, "ms"),
        direct_ms=number(direct, "ms"),
    )
