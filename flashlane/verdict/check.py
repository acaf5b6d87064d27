"""May an answer made from a compressed prompt go out? Decided from the whole original text.

Pure and deterministic: no model, no I/O, no clock. Every doubt sends the request to the direct
lane, so a check that cannot tell says no.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashlane.decision import Reason
from flashlane.request import RequestView
from flashlane.verdict.defects import defect
from flashlane.verdict.edits import edit_problem, edits
from flashlane.verdict.enumeration import counted, items_of, list_doubt
from flashlane.verdict.literals import Stated, literals, occurs, squeezed
from flashlane.verdict.numerals import numbers
from flashlane.verdict.places import Places, fold
from flashlane.verdict.structured import leaves, looks_like_json, parsed, schema_problem, too_many
from flashlane.verdict.support import Asked, asked, doubt, is_year
from flashlane.verdict.wants import Wants, yes_or_no

_MAX_CLAIMS = 6
_MAX_ANSWER_CHARS = 20_000
_MAX_QUOTE_WORDS = 400
_LONG_WORDS = 10

Kept = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Verdict:
    """Whether an answer may go out; `reasons` say why, `checks` what each check found."""

    accepted: bool
    reasons: tuple[Reason, ...]
    checks: Mapping[str, str] = field(default_factory=dict)
    """Name of a check (form, edits, list, count, quote, claims, mention) to `ok` or a code."""


def verdict(
    answer: str,
    original: str,
    view: RequestView,
    *,
    finish_reason: str = "stop",
    schema: Mapping[str, Any] | None = None,
    kept: Kept | None = None,
) -> Verdict:
    """The verdict on `answer`, given the request's whole text `original`.

    `schema` is the JSON schema that the request demands, if any. `kept` are the (begin, end) of
    the characters of `original` that the answer's prompt held, where they are known: what matches
    the ask must then have been among them. Never raises for any text.
    """
    problem = defect(answer, finish_reason)
    if problem is not None:
        return _doubted("form", problem)
    if len(answer) > _MAX_ANSWER_CHARS:
        return _doubted("form", Reason("long_answer", "the answer is too long to check"))
    changes = edits(answer)
    if changes:
        return _result("edits", edit_problem(changes, original), "every edit applies to the text")
    wants = Wants(view.ask)
    if wants.code:
        return _doubted("edits", Reason("no_edit", "the ask wants code changed; no edit to check"))
    if not view.ask.strip():
        return _doubted("claims", Reason("no_ask", "no ask was found to hold the answer against"))
    places = Places(original, _asked_at(original, view))
    ask = asked(view.ask, places)
    said = yes_or_no(answer)
    if said is not None:
        return _mention(said, wants, ask, places)
    if not ask.ranked:
        return _doubted("claims", Reason("no_place", "no word of the ask stands in the text"))
    form = "json" if schema is not None else next(iter(wants.formats), "")
    if not form and looks_like_json(answer):
        form = "json"
    if form:
        return _structured(answer, form, schema, ask, places, kept)
    if wants.excludes:
        return _doubted("claims", Reason("exclusion", "the ask excludes something"))
    return _plain(answer, wants, ask, places, kept)


def _plain(answer: str, wants: Wants, ask: Asked, places: Places, kept: Kept | None) -> Verdict:
    if wants.quote:
        return _quoted(answer, ask, places, kept)
    if wants.count:
        return _count(answer, wants, ask, places, kept)
    items = items_of(answer)
    if wants.all or _is_list(answer, items):
        if len(items) < 2:
            return _doubted("list", Reason("one_item", "one item where the ask wants all of them"))
        return _result(
            "list", list_doubt(items, ask, places), f"the text holds these {len(items)} items only"
        )
    return _claims(answer, wants, ask, places, kept)


def _is_list(answer: str, items: Sequence[str]) -> bool:
    lines = [line for line in answer.splitlines() if line.strip()]
    return len(items) > 2 and (len(lines) > 2 or len(answer.split()) <= 6 * len(items))


def _claims(answer: str, wants: Wants, ask: Asked, places: Places, kept: Kept | None) -> Verdict:
    """Every sentence of the answer is supported where the text speaks of what was asked."""
    own = Places(answer)
    sentences = [own.raw(index) for index in range(len(own))]
    if len(sentences) > _MAX_CLAIMS:
        return _doubted("claims", Reason("many_claims", "the answer says more than can be checked"))
    stated = literals(answer)
    if wants.time and not any(s.kind == "date" or is_year(s) or ":" in s.form for s in stated):
        return _doubted("claims", Reason("no_time", "the ask wants a time and gets none"))
    if wants.share and not any(s.number for s in stated):
        return _doubted("claims", Reason("no_share", "the ask wants a share and gets none"))
    supported = False
    for sentence in sentences:
        problem = doubt(sentence, ask, places, kept)
        if problem is not None and not (problem.code == "nothing_new" and len(sentences) > 1):
            return _doubted("claims", problem)
        supported = supported or problem is None
    if not supported:
        return _doubted("claims", Reason("nothing_new", "the answer says only what the ask does"))
    return _accepted("claims", "what the answer states stands where the text speaks of the ask")


def _count(answer: str, wants: Wants, ask: Asked, places: Places, kept: Kept | None) -> Verdict:
    given = [n for n in numbers(fold(answer)) if not _in_ask(n.values, ask)]
    if len(given) != 1 or (given[0].mark == "%" and not wants.share):
        return _doubted("count", Reason("no_count", "the ask wants a number; not one was given"))
    count = counted(ask, places)
    if count is None and any(is_year(s) for s in literals(answer)):
        return _doubted("count", Reason("no_count", "the ask wants a number and gets a year"))
    if count is None:
        problem = doubt(answer.strip(), ask, places, kept)
        return _result("count", problem, "the number stands where the text speaks of the ask")
    if count == 0:
        return _doubted("count", Reason("count_unclear", "the places to count share no pattern"))
    if count not in given[0].values:
        return _doubted("count", Reason("count_differs", f"the text holds {count} such places"))
    return _accepted("count", f"the text holds {count} such places")


def _in_ask(values: frozenset[Any], ask: Asked) -> bool:
    return any(not values.isdisjoint(number.values) for number in numbers(ask.folded))


def _quoted(answer: str, ask: Asked, places: Places, kept: Kept | None) -> Verdict:
    """The quotation stands in the text, whole sentences of it, at the ask's best place."""
    quote = squeezed(fold(answer)).strip(" \"'`「」『』>")
    words = quote.split(" ")
    if len(words) > _MAX_QUOTE_WORDS:
        return _doubted("quote", Reason("long_quote", "the quotation is too long to check"))
    pattern = r"[\s>*]{1,9}".join(re.escape(word) for word in words)
    found = [(m.start(), m.end()) for m in re.finditer(pattern, places.folded)][:16]
    if not found:
        return _doubted("quote", Reason("quote_absent", "the quotation is not in the text"))
    best = ask.ranked[0]
    for begin, end in found:
        first, last = places.at(begin), places.at(end - 1)
        if not first <= best.index <= last:
            continue
        left = places.folded[places.starts[first] : begin]
        right = places.folded[end : places.ends[last]]
        if not any(c.isalnum() for c in left + right) or (left[-1:] == '"' and '"' in right[:2]):
            return _accepted("quote", "the quotation is the place that matches the ask best")
        return _doubted("quote", Reason("quote_cut", "the quotation is a piece of a sentence"))
    return _doubted("quote", Reason("better_place", "another place matches the ask better"))


def _mention(said: bool, wants: Wants, ask: Asked, places: Places) -> Verdict:
    """Yes or no can be checked only where the ask is whether a literal occurs in the text."""
    named: list[Stated] = [s for s in literals(ask.text) if s.kind in ("quote", "code")]
    if not wants.mention or len(named) != 1:
        return _doubted("mention", Reason("yes_or_no", "a yes or no that no literal can prove"))
    there = occurs(named[0].form, squeezed(places.folded))
    if there != said:
        return _doubted("mention", Reason("mention_differs", "the text says otherwise"))
    return _accepted("mention", "whether the text holds what the ask names was looked up")


def _structured(
    answer: str,
    form: str,
    schema: Mapping[str, Any] | None,
    ask: Asked,
    places: Places,
    kept: Kept | None,
) -> Verdict:
    value, problem = parsed(answer, form)
    if problem is None and schema is not None:
        problem = schema_problem(value, schema)
    if problem is not None:
        return _doubted("form", problem)
    found = leaves(value)
    if not found or too_many(found):
        return _doubted("form", Reason("unverifiable", f"the {form} cannot be checked by value"))
    groups: dict[str, list[str]] = {}
    for leaf in found:
        if leaf.value is None or isinstance(leaf.value, bool) or not str(leaf.value).strip():
            return _doubted("claims", Reason("unverifiable", f"a {form} value has no literal"))
        groups.setdefault(leaf.keys, []).append(str(leaf.value))
    supported = False
    for keys, values in groups.items():
        if len(values) > 1 or isinstance(value, list):
            items = list(dict.fromkeys(squeezed(fold(v)) for v in values))
            problem = list_doubt(items, ask, places)
            check = "list"
        else:
            keyed = asked(f"{ask.text}\n{re.sub(r'[_.-]', ' ', keys)}", places)
            problem = doubt(values[0], keyed, places, kept)
            check = "claims"
        if problem is not None and problem.code != "nothing_new":
            return _doubted(check, problem)
        supported = supported or problem is None
    if not supported:
        return _doubted("claims", Reason("nothing_new", "the answer says only what the ask does"))
    return Verdict(
        True,
        (Reason("supported", f"the {form} parses and its values stand in their places"),),
        {"form": "ok", "claims": "ok"},
    )


def _asked_at(original: str, view: RequestView) -> list[tuple[int, int]]:
    """Where the ask itself stands in `original`: it must not prove its own answer."""
    found = []
    texts = [span.text for span in view.instructions if span.role == "user"] or [view.ask]
    for text in (text.strip() for text in texts):
        at = original.rfind(text) if text and text in view.ask else -1
        if at >= 0:
            found.append((at, at + len(text)))
    return found


def _result(check: str, problem: Reason | None, words: str) -> Verdict:
    return _accepted(check, words) if problem is None else _doubted(check, problem)


def _accepted(check: str, words: str) -> Verdict:
    return Verdict(True, (Reason("supported", words),), {check: "ok"})


def _doubted(check: str, reason: Reason) -> Verdict:
    return Verdict(False, (reason,), {check: reason.code})
