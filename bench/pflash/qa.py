"""Answers from compressed contexts against answers from the whole prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.data import Question, hotpot, squad
from bench.pflash import bm25
from bench.pflash.context import Context
from bench.pflash.metrics import contains, exact_match, f1
from bench.pflash.packing import Packed, pack_hotpot, pack_squad
from bench.pflash.survival import BM25, SCORERS, keyed, verdict
from bench.server import Compressed, Message, Server
from bench.store import Json, Record, number
from bench.summary import ratio_of_means

RATIOS = {"squad": (0.1, 0.2), "hotpot": (0.2, 0.3)}
QUESTIONS = {"squad": 102, "hotpot": 104}  # whole contexts of packing.py

_SYSTEM = (
    "You answer questions from the passages that the user gives. "
    "Reply with the answer alone, in as few words as possible, without explanation."
)
_ANSWER_TOKENS = 32


@dataclass(frozen=True)
class Row:
    """One question at one keep ratio; the answer's measures are None where it was not asked."""

    part: str
    question: str
    scorer: str
    ratio: float
    kept: bool
    share: float
    full_f1: float
    f1: float | None
    exact: float | None
    contains: float | None


def measure(context: Context, part: str) -> list[Row]:
    """Rows of `squad` or `hotpot`.

    The compressed messages come from /pflash/compress, so that what is checked for its evidence
    is what is answered from, and no state of an earlier question on the same context helps or
    harms. The questions of a context follow each other, so the whole prompt is prefilled once.
    """
    rows: list[Row] = []
    with context.target(part, 8192, "--parallel", "1") as server:
        asked = [
            (packed, question)
            for packed in _contexts(context, part, server)
            for question in packed.questions
        ]
        for packed, question in context.cases(f"{part} full", asked):
            _full(context, server, packed, question)
        for packed, question in context.cases(part, asked):
            rows += _question_rows(context, server, part, packed, question)
    return rows


def summary(rows: Sequence[Row]) -> list[Json]:
    """By part, scorer and ratio: support kept, and the answers beside those of the whole prompt."""
    found: list[Json] = []
    for part, scorer, ratio in sorted({(r.part, r.scorer, r.ratio) for r in rows}):
        these = select(rows, part, scorer, ratio)
        entry: dict[str, Json] = {
            "part": part,
            "scorer": scorer,
            "keep_ratio": ratio,
            "questions": len(these),
            "support_kept": round(fmean(row.kept for row in these), 4),
            "kept_share_mean": round(fmean(row.share for row in these), 4),
        }
        answered = [row for row in these if row.f1 is not None]
        if answered:
            entry["full_f1"] = round(fmean(row.full_f1 for row in answered), 4)
            entry["f1"] = round(fmean(row.f1 or 0 for row in answered), 4)
            entry["exact_match"] = round(fmean(row.exact or 0 for row in answered), 4)
            entry["contains"] = round(fmean(row.contains or 0 for row in answered), 4)
            relative = relative_f1(answered)
            entry["f1_relative"] = [round(v, 4) for v in relative] if relative else None
        found.append(entry)
    return found


def select(rows: Sequence[Row], part: str, scorer: str, ratio: float) -> list[Row]:
    return [r for r in rows if (r.part, r.scorer, r.ratio) == (part, scorer, ratio)]


def relative_f1(rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """(F1 / F1 of the whole prompt, and its 95 % interval) over the questions answered."""
    answered = [(row.f1, row.full_f1) for row in rows if row.f1 is not None]
    return ratio_of_means([a for a, _ in answered], [b for _, b in answered])


def _contexts(context: Context, part: str, server: Server) -> list[Packed]:
    split = context.options.split
    if part == "squad":
        return pack_squad(squad(split), QUESTIONS[part], server.count)
    return pack_hotpot(hotpot(split), QUESTIONS[part], server.count)


def _messages(text: str, question: Question) -> list[Message]:
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"{text}\n\nQuestion: {question.text}"},
    ]


def _full(context: Context, server: Server, packed: Packed, question: Question) -> str:
    return _answer(context, server, "full", _messages(packed.text, question), cached=True)


def _answer(
    context: Context, server: Server, case: str, messages: Sequence[Message], *, cached: bool
) -> str:
    """The target's own answer to `messages`, whoever shortened them."""

    def ask() -> Record:
        answer = server.chat(
            messages,
            max_tokens=_ANSWER_TOKENS,
            cache_prompt=cached,
            pflash={"mode": "off"},
        )
        return {"answer": answer.text.strip()}

    key = context.plain_key(case, messages=messages, answer_tokens=_ANSWER_TOKENS)
    return str(context.store.case(key, ask)["answer"])


def _question_rows(
    context: Context, server: Server, part: str, packed: Packed, question: Question
) -> list[Row]:
    full = _full(context, server, packed, question)
    rows = []
    for scorer, name in SCORERS.items():
        answered = name is None or context.options.baseline_answers
        for ratio in RATIOS[part]:
            record = _compressed(context, server, packed, question, name, ratio, answered)
            answer = str(record["answer"]) if answered else None
            rows.append(
                Row(
                    part=part,
                    question=question.id,
                    scorer=scorer,
                    ratio=ratio,
                    kept=record["kept"] is True,
                    share=number(record, "share"),
                    full_f1=f1(full, question.answers),
                    f1=None if answer is None else f1(answer, question.answers),
                    exact=None if answer is None else exact_match(answer, question.answers),
                    contains=None if answer is None else contains(answer, question.answers),
                )
            )
    return rows


def _compressed(
    context: Context,
    server: Server,
    packed: Packed,
    question: Question,
    name: str | None,
    ratio: float,
    answered: bool,
) -> Record:
    messages = _messages(packed.text, question)

    def ask() -> Record:
        if name == BM25:
            reply = _by_bm25(server, packed.text, question, ratio)
        else:
            reply = server.compress(ratio, messages=messages, question=question.text, scorer=name)
        kept = reply.messages or []
        record = verdict(kept[-1]["content"] if kept else "", question.support, reply)
        if answered:
            record["answer"] = _answer(context, server, "shortened", kept, cached=False)
        return record

    key = keyed(context, name)(
        "qa",
        messages=messages,
        scorer_name=name,
        ratio=ratio,
        answer_tokens=answered * _ANSWER_TOKENS,
    )
    return context.store.case(key, ask)


def _by_bm25(server: Server, text: str, question: Question, ratio: float) -> Compressed:
    whole = _messages(text, question)
    short = _messages(bm25.keep(text, question.text, ratio, server.count), question)
    original, kept = (sum(server.count(m["content"]) for m in each) for each in (whole, short))
    return Compressed(messages=short, original_tokens=original, kept_tokens=kept)
