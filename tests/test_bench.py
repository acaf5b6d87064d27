"""The benchmarks' own rules: what is split, where needles land, how answers and times count."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench import data, haystacks, summary
from bench.data import HotpotItem, Paragraph, Question, Split
from bench.pflash import __main__ as command
from bench.pflash import (
    bm25,
    dialogue,
    goals,
    metrics,
    needles,
    packing,
    qa,
    ruler,
    stall,
    survival,
    timing,
)
from bench.pflash.context import Context
from bench.pflash.measured import PARTS, Measured
from bench.results import Goal, goal_table, write_json
from bench.server import Compressed, Server
from bench.store import Record, Store, key_of

ESSAYS = tuple(
    " ".join(f"Thought {n} of essay {e} is about topic {n * 7 % 13}." for n in range(400))
    for e in range(3)
)
SPLITS: tuple[Split, ...] = ("reported", "tuning")


def count(text: str) -> int:
    return len(text) // 4


@pytest.fixture(autouse=True)
def _no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haystacks, "essays", lambda split: ESSAYS)


# The split.


def test_the_split_never_moves() -> None:
    known = {
        "Normans": "reported",
        "Oxygen": "reported",
        "Harvard_University": "reported",
        "worked.txt": "tuning",
    }
    assert {name: data.split_of(name) for name in known} == known


def test_about_a_quarter_is_for_tuning() -> None:
    share = sum(data.split_of(f"article {n}") == "tuning" for n in range(4000)) / 4000
    assert 0.22 < share < 0.28


def test_the_splits_share_no_name_and_no_sentence() -> None:
    one, other = needles.forms("reported"), needles.forms("tuning")
    for field in (
        "names",
        "people",
        "towns",
        "lexical",
        "paraphrases",
        "two_hop",
        "contradictions",
    ):
        assert not set(getattr(one, field)) & set(getattr(other, field)), field


# Needles.


@pytest.mark.parametrize("split", SPLITS)
def test_a_paraphrase_shares_no_content_word(split: Split) -> None:
    for needle, question in needles.forms(split).paraphrases:
        shared = needles.content_words(needle) & needles.content_words(question)
        assert not shared, (shared, needle, question)


def test_enough_paraphrases() -> None:
    assert len(set(needles.forms("reported").paraphrases)) >= 40
    assert len(set(needles.forms("tuning").paraphrases)) >= 20


def test_content_words_see_through_endings() -> None:
    assert needles.content_words("The baker baked") & needles.content_words("Who bakes?")
    assert not needles.content_words("What is it, and of whom?")


@pytest.mark.parametrize("split", SPLITS)
def test_the_second_hop_shares_no_name_with_the_question(split: Split) -> None:
    for first, second, question in needles.forms(split).two_hop:
        assert "{person}" in first and "{person}" in second
        assert "{person}" not in question and "{name}" not in second


@pytest.mark.parametrize(
    "build", [needles.lexical, needles.paraphrased, needles.two_hop, needles.contradicting]
)
def test_every_case_holds_its_evidence_once(
    build: Callable[[Split, needles.Count], list[needles.Case]],
) -> None:
    cases = build("reported", count)
    assert len({case.id for case in cases}) == len(cases) >= 30
    assert {case.kind for case in cases} == set(haystacks.KINDS)
    for case in cases:
        assert all(case.text.count(item) == 1 for item in case.evidence), case.id
        assert case.tokens <= count(case.text) <= case.tokens * 1.1 + 60, case.id
    assert build("reported", count) == cases


def test_ruler_cases_hold_what_is_asked_for() -> None:
    cases = ruler.cases("reported", count)
    assert len({case.id for case in cases}) == len(cases) == 56
    told = {case.kind: len(case.evidence) for case in cases}
    assert told == {
        "single": 1,
        "single-uuid": 1,
        "multi-key": 1,
        "all-keys": 1,
        "multi-value": 4,
        "multi-query": 4,
        "variable-tracking": 5,
    }
    for case in cases:
        assert all(case.text.count(item) == 1 for item in case.evidence), case.id
        assert 0.5 * case.tokens <= count(case.text) <= 1.2 * case.tokens, case.id
    assert ruler.cases("reported", count) == cases


def test_lexical_cases_cover_lengths_and_depths() -> None:
    cases = needles.lexical("reported", count)
    depths: dict[int, set[float]] = {}
    for case in cases:
        depths.setdefault(case.tokens, set()).add(case.depth)
    assert set(depths) == {2048, 4096, 8192, 16384}
    assert all({0.02, 0.26, 0.5, 0.74, 0.98} <= found for found in depths.values())
    for case in cases:
        at = case.text.index(case.evidence[0]) / len(case.text)
        assert abs(at - case.depth) < 0.06, case.id


def test_the_correction_comes_later() -> None:
    for split in SPLITS:
        for case in needles.contradicting(split, count):
            assert case.text.index(case.evidence[0]) / len(case.text) > case.depth


@pytest.mark.parametrize("kind", haystacks.KINDS)
def test_a_needle_lies_between_units(kind: str) -> None:
    units = haystacks.haystack(kind, 1000, "reported", "x", count)
    unit = haystacks.as_unit(kind, "The NEEDLE is here.", random.Random(1))
    text = haystacks.place(units, [(0.5, unit)])
    assert text.replace(unit, "", 1) == "".join(units)
    before, after = text.split(unit)
    assert any("".join(units[:n]) == before for n in range(len(units))) and after
    if kind == "json":
        for line in text.splitlines():
            json.loads(line.removesuffix(","))


def test_places_keep_their_order() -> None:
    units = [f"{n} " for n in range(10)]
    assert haystacks.place(units, [(1.0, "z"), (0.0, "a")]) == f"a{''.join(units)}z"
    assert haystacks.place(units, [(0.5, "m"), (0.5, "n")]).index("mn")


# Question answering.


def test_sentences_end_where_they_end() -> None:
    text = 'St. Paul met Dr. Ames in 1901. He left. "Why?" asked J. Doe, ca. 2 years on.'
    assert [sentence for _, sentence in data.sentences(text)][:2] == [
        "St. Paul met Dr. Ames in 1901.",
        "He left.",
    ]
    assert all(text[begin:].startswith(sentence) for begin, sentence in data.sentences(text))


def test_the_support_is_the_sentence_of_the_answer() -> None:
    paragraph = data._SquadParagraph.model_validate(
        {
            "context": "Rain fell. The king was Rollo. He won.",
            "qas": [
                {
                    "id": "q",
                    "question": " Who was king? ",
                    "is_impossible": False,
                    "answers": [{"text": "Rollo", "answer_start": 24}],
                },
                {"id": "n", "question": "?", "is_impossible": True, "answers": []},
            ],
        }
    )
    found = data._squad_paragraph("Some_King", paragraph)
    assert found.questions == (
        Question("q", "Who was king?", ("Rollo",), ("The king was Rollo.",)),
    )


def _paragraph(title: str, name: str) -> Paragraph:
    support = f"{name} is answered by {title}-{name}."
    text = f"{support} " + " ".join(
        f"Filler {name} {title} number {n} stands here." for n in range(20)
    )
    return Paragraph(
        title, text, (Question(f"{title}/{name}", f"What of {name}?", (name,), (support,)),)
    )


def test_packed_squad_contexts() -> None:
    articles = {
        title: tuple(_paragraph(title, f"P{n}") for n in range(12)) for title in ("A", "B", "C")
    }
    packed = packing.pack_squad(articles, 20, count)
    assert sum(len(context.questions) for context in packed) >= 20
    assert packed == packing.pack_squad(articles, 20, count)
    for context in packed:
        assert 3000 <= count(context.text) <= packing.CONTEXT_TOKENS * 1.05
        for question in context.questions:
            assert all(context.text.count(item) == 1 for item in question.support)


def test_packed_hotpot_contexts_hold_both_hops() -> None:
    items = []
    for n in range(12):
        gold = (_paragraph(f"G{n}", "one"), _paragraph(f"G{n}", "two"))
        others = tuple(_paragraph(f"O{n}", f"d{k}") for k in range(8))
        support = tuple(p.questions[0].support[0] for p in gold)
        items.append(HotpotItem(Question(f"q{n}", "?", ("x",), support), gold, others))
    packed = packing.pack_hotpot(items, 12, count)
    assert sorted(q.id for c in packed for q in c.questions) == sorted(i.question.id for i in items)
    for context in packed:
        assert 3000 <= count(context.text) <= packing.CONTEXT_TOKENS * 1.05
        for question in context.questions:
            assert all(item in context.text for item in question.support)


@pytest.mark.parametrize(
    ("answer", "accepted", "exact", "f1", "contained"),
    [
        ("The Rollo.", ["Rollo"], 1, 1, 1),
        ("It was Rollo", ["Rollo", "King Rollo"], 0, 0.5, 1),
        ("king rollo", ["Rollo the king"], 0, 1, 0),
        ("Harald", ["Rollo"], 0, 0, 0),
        ("", ["Rollo"], 0, 0, 0),
        ("rollover", ["Rollo"], 0, 0, 0),
    ],
)
def test_answer_measures(
    answer: str, accepted: list[str], exact: float, f1: float, contained: float
) -> None:
    assert metrics.exact_match(answer, accepted) == exact
    assert metrics.f1(answer, accepted) == pytest.approx(f1)
    assert metrics.contains(answer, accepted) == contained


def _qa_row(f1: float | None, full: float) -> qa.Row:
    return qa.Row("squad", "q", "ours", 0.2, True, 0.2, full, f1, f1, f1)


def test_relative_f1_is_of_the_same_questions() -> None:
    found = qa.relative_f1([_qa_row(0.5, 1.0), _qa_row(None, 0.0), _qa_row(1.0, 1.0)])
    assert found is not None and found[0] == 0.75 and found[1] <= 0.75 <= found[2]
    assert qa.relative_f1([_qa_row(None, 1.0)]) is None


# Survival.


def _reply(kept: int) -> Compressed:
    return Compressed(original_tokens=100, kept_tokens=kept, reason="compressed")


def test_evidence_must_be_whole() -> None:
    assert survival.verdict("a b. c d.", ["a b.", "c d."], _reply(20))["kept"] is True
    assert survival.verdict("a b. c", ["a b.", "c d."], _reply(20))["kept"] is False


def test_an_uncompressed_prompt_keeps_nothing() -> None:
    record = survival.verdict("a b.", ["a b."], _reply(100))
    assert record["kept"] is False and record["whole"] is True


# The baseline without the server.

LINES = (
    '  Indented by two. Dr. Ames left! "Why?" He asked.\n\n\ndef f(x):\n    return x\n'
    '{"note": "One. Two."},\n\tLast'
)


@pytest.mark.parametrize("text", [LINES, "", "\n\n", "one", "\n\nA. B. \n", ESSAYS[0]])
def test_units_are_the_text(text: str) -> None:
    assert "".join(bm25.units(text)) == text


def test_units_are_the_sentences_of_lines() -> None:
    assert bm25.units(LINES) == [
        "  Indented by two. ",
        "Dr. Ames left! ",
        '"Why?" ',
        "He asked.\n\n\n",
        "def f(x):\n",
        "    return x\n",
        '{"note": "One. ',
        'Two."},\n',
        "\tLast",
    ]


@pytest.fixture
def by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The higher the first number of a unit, the better, in the place of BM25."""

    def scores(units: Sequence[str], question: str) -> list[float]:
        return [float(re.findall(r"\d+", f"{unit} 0")[0]) for unit in units]

    monkeypatch.setattr(bm25, "_scores", scores)


@pytest.mark.usefixtures("by_number")
def test_the_best_units_stay_in_their_order() -> None:
    text = "Rank 1 a. Rank 3 b. Rank 0 c. Rank 9 d. Rank 3 e."
    assert bm25.keep(text, "", 0.65, len) == "Rank 3 b. Rank 9 d. Rank 3 e."
    assert bm25.keep(text, "", 0.42, len) == "Rank 3 b. Rank 9 d. "
    assert bm25.keep(text, "", 1.0, len) == text


@pytest.mark.usefixtures("by_number")
def test_a_unit_that_does_not_fit_makes_room_for_the_next() -> None:
    text = f"Rank 9 {'x' * 80}. Rank 5 a. Rank 1 b."
    assert bm25.keep(text, "", 0.1, len) == "Rank 5 a. "


@pytest.mark.usefixtures("by_number")
@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.3])
def test_what_is_kept_fills_the_budget(ratio: float) -> None:
    def total(text: str) -> int:
        return sum(map(count, bm25.units(text)))

    case = needles.lexical("reported", count)[0]
    wanted, longest = ratio * total(case.text), max(map(count, bm25.units(case.text)))
    assert wanted - longest < total(bm25.keep(case.text, "", ratio, count)) <= wanted


@pytest.mark.usefixtures("by_number")
def test_bm25_asks_the_server_for_counts_alone() -> None:
    server = cast(Server, SimpleNamespace(count=count))
    case = needles.lexical("reported", count)[0]
    found = survival._compressed(server, case, survival.BM25, 0.2)
    assert found.text == bm25.keep(case.text, case.question, 0.2, count)
    assert found.share == pytest.approx(0.2, abs=0.01)
    question = Question("q", "Who was king?", (), ())
    whole, short = qa._messages(case.text, question), qa._messages(found.text, question)
    in_messages = qa._by_bm25(server, case.text, question, 0.2)
    assert in_messages.messages == short
    counts = [sum(count(message["content"]) for message in each) for each in (whole, short)]
    assert [in_messages.original_tokens, in_messages.kept_tokens] == counts


def test_bm25_finds_shared_words_and_no_others() -> None:
    pytest.importorskip("bm25s", reason="of requirements/bench.txt")
    filler = [f"Nothing of note was said on day {n}." for n in range(50)]
    asked, other = "The spare key hangs in the hall.", "It is kept behind the barometer."
    text = " ".join([*filler[:25], asked, *filler[25:], other])
    kept = bm25.keep(text, "Where is the spare key?", 0.1, count)
    assert asked in kept and other not in kept and kept.startswith(filler[0])


def test_bm25_needs_neither_engine_nor_options() -> None:
    """Its finished cases stay when the engine changes; the others are of one engine."""

    class Keys:
        def key(self, case: str) -> str:
            return f"{case} of this engine"

        def plain_key(self, case: str) -> str:
            return case

    kept = {
        label: survival.keyed(cast(Context, Keys()), name)("x")
        for label, name in survival.SCORERS.items()
    }
    assert kept == dict.fromkeys(kept, "x of this engine") | {"BM25": "x"}


# Times.


def test_ratios_are_taken_pair_by_pair() -> None:
    assert summary.median_ratio([10, 20, 90], [10, 10, 10]) == 2
    assert summary.median_ratio([], []) is None
    with pytest.raises(ValueError, match="zip"):
        summary.median_ratio([1], [])


def test_the_interval_of_a_share() -> None:
    low, high = summary.proportion_interval(40, 40)
    assert 0.9 < low < 1 and high == pytest.approx(1)


def test_gaps_count_the_edges() -> None:
    assert stall.longest_gap_ms([1.0, 1.2, 1.9], 1.0, 2.0) == pytest.approx(700)
    assert stall.longest_gap_ms([], 1.0, 2.0) == pytest.approx(1000)
    assert stall.longest_gap_ms([0.5, 5.0], 1.0, 2.0) == pytest.approx(1000)
    assert stall.speed([1.0, 1.5, 2.0], 1.0, 2.0) == 2


def _ttft(compressed: bool) -> timing.Ttft:
    return timing.Ttft(4096, 0.1, 6000, 1, 1000, 1, 500, 950, 0.1, compressed)


def test_an_uncompressed_prompt_reaches_no_limit() -> None:
    assert timing.of_limit([_ttft(True)], 4096, 0.1) == pytest.approx(0.95)
    assert timing.of_limit([_ttft(False)], 4096, 0.1) == 0
    assert timing.speedup([_ttft(True)], 4096, 0.1) == 6


def test_the_first_turn_is_not_a_later_one() -> None:
    turns = [
        dialogue.Turn(name, turn, ttft, 1, 1, 0, True)
        for name, times in (("both", (9, 1, 2)), ("cache only", (1, 2, 4)))
        for turn, ttft in enumerate(times)
    ]
    assert dialogue.later_turns_ratio(turns, "cache only") == 2


# Goals and files.


def test_a_goal_is_met_or_not_or_not_measured() -> None:
    assert Goal("a", "t", 0.97, 0.97).met is True
    assert Goal("a", "t", 0.96, 0.97).met is False
    assert Goal("a", "t", 1.2, 1.1, "<=").met is False
    assert Goal("a", "t", None, 1.0).met is None
    table = goal_table([Goal("a", "kept", None, 0.9), Goal("b", "cost", 1.0, 1.1, "<=")])
    assert "| kept | – | ≥ 0.9 | not measured |" in table and "| ≤ 1.1 | yes |" in table


def test_every_goal_stands_in_an_empty_report() -> None:
    found = goals.goals_of(Measured())
    assert len({goal.id for goal in found}) == len(found) == 25
    assert all(goal.met is None for goal in found)


def test_goals_of_measurements() -> None:
    row = survival.Row("needles", "logs", 2048, 0.5, "ours", 0.1, True, False, 0.1, 5.0)
    measured = Measured(
        survival=[row, survival.Row(**{**row.__dict__, "scorer": "BM25", "kept": False})],
        stall=[stall.Stall(20, 12, 60, 200, 4000, 9000), stall.Stall(20, 8, 60, 400, 4000, 9000)],
    )
    found = {goal.id: goal.value for goal in goals.goals_of(measured)}
    assert found["needle-lexical-10"] == 1.0
    assert found["needle-lexical-20"] is None
    assert found["stall-speed"] == pytest.approx(0.5)
    assert found["stall-longest"] == 400


def test_the_result_file(tmp_path: Path) -> None:
    path = tmp_path / "results" / "x.json"
    write_json(path, command="c", goals=[Goal("a", "t", 1 / 3, 0.3)], data={"rows": []})
    content = json.loads(path.read_text())
    assert set(content) == {"commit", "date", "machine", "command", "goals", "data"}
    assert content["goals"][0] == {
        "id": "a",
        "text": "t",
        "value": 0.3333,
        "goal": 0.3,
        "op": ">=",
        "met": True,
        "note": "",
    }


# Going on after an interruption.


def test_a_finished_case_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "store.jsonl"
    calls: list[int] = []

    def measure() -> Record:
        calls.append(1)
        return {"kept": True}

    assert Store(path).case("k", measure) == Store(path).case("k", measure) == {"kept": True}
    assert len(calls) == 1
    assert Store(path, fresh=True).get("k") is None


def test_a_torn_line_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "store.jsonl"
    Store(path).put("one", {"n": 1})
    with path.open("a") as file:
        file.write('{"key": "two", "rec')
    store = Store(path)
    assert store.get("one") == {"n": 1} and store.get("two") is None
    store.put("two", {"n": 2})
    again = Store(path)
    assert again.get("one") == {"n": 1} and again.get("two") == {"n": 2}


def test_a_key_depends_on_everything() -> None:
    assert key_of(a=1, b="x") == key_of(b="x", a=1)
    assert len({key_of(a=1), key_of(a=2), key_of(b=1), key_of(a="1")}) == 4


def test_a_part_reads_back_what_it_found(tmp_path: Path) -> None:
    rows = {
        "survival": survival.Row("needles", "logs", 2048, 0.5, "ours", 0.1, True, False, 0.1, 5.0),
        "qa": _qa_row(0.5, 1.0),
        "ttft": _ttft(True),
        "cost": timing.Cost(4096, 1.0, 2.0),
        "chat": dialogue.Turn("both", 1, 5.0, 1, 2, 3.0, True),
        "stall": stall.Stall(20, 12, 60, 200, 4000, 9000),
    }
    for part in PARTS:
        measured, row = Measured(), rows[part.rows]
        store = Store(tmp_path / f"{part.name}.jsonl")
        store.put("k", {"rows": [dict(row.__dict__)]})
        found = Store(tmp_path / f"{part.name}.jsonl").get("k")
        assert found is not None
        part.add(found, measured)
        assert getattr(measured, part.rows) == [row]


# The command.


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "needle"])
    assert "known parts are needles, paraphrase" in capsys.readouterr().err
