"""Finding the ask in a user's turn: its place, its language, and material that asks by itself."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.router import places
from flashlane.ask import find_ask
from flashlane.asklines import leans_back, looks_like_ask
from flashlane.request import read_request

PROSE = "\n\n".join(
    f"The harbour of part {i} was opened in 19{i:02}. " + "It stayed open after the storm. " * 8
    for i in range(30)
)
ASKS = [
    "Summarise the report in three sentences.",
    "Welche Frist gilt laut Vertrag für den Vermieter?",
    "Fasse den Bericht bitte kurz zusammen.",
    "Recopie mot pour mot la clause de non-concurrence.",
    "Cuéntame en tres párrafos de qué habla esta tesis.",
    "Relacione todos os bens do inventário com o respectivo valor.",
    "Elencami tutte le scadenze del contratto.",
    "Перечисли все даты, которые названы в договоре.",
    "请列出文中提到的所有日期。",
    "この文書に出てくる日付をすべて挙げてください。",
    "이 문서에 나오는 날짜를 모두 나열해 주세요.",
]
TERSE = [
    "invoice number",
    "aktenzeichen der zweiten klage",
    "siret du sous-traitant",
    "boiei total",
]


def found(*texts: str) -> str:
    return "\n".join(texts[p.text][p.start : p.end] for p in find_ask(texts))


def sure(*texts: str) -> bool:
    return any(piece.strong for piece in find_ask(texts))


@pytest.mark.parametrize("ask", ASKS)
def test_an_ask_reads_like_one_in_each_language(ask: str) -> None:
    assert looks_like_ask(ask)


@pytest.mark.parametrize(
    "line",
    [
        "The harbour was opened in 1901 and stayed open after the storm.",
        "Der Hafen lag am Abend still, und das Wasser stieg kaum weiter.",
        "Le port était calme ce soir-là et la mer montait à peine.",
        "El puerto estaba en calma y el agua apenas subía aquella tarde.",
        "港は一九〇一年に開かれた。",
        "2026-03-21 12:01:07 INFO worker-1 took 368 ms",
    ],
)
def test_prose_and_logs_do_not(line: str) -> None:
    assert not looks_like_ask(line)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("joint", ["\n\n", "\n\n---\n\n"])
def test_after_and_before_material_the_ask_is_all_that_is_found(ask: str, joint: str) -> None:
    assert found(PROSE + joint + ask) == ask
    assert found(ask + joint + PROSE) == ask


@pytest.mark.parametrize("ask", TERSE)
@pytest.mark.parametrize("joint", ["\n\n", "\n"])
def test_words_that_read_like_no_ask_are_kept_for_their_place(ask: str, joint: str) -> None:
    for text in (PROSE + joint + ask, ask + joint + PROSE):
        assert ask in found(text)
        assert not sure(text)


@pytest.mark.parametrize("ask", ASKS)
def test_both_sides(ask: str) -> None:
    text = f"{ask}\n\n{PROSE}\n\nAnswer in English."
    assert found(text) == f"{ask}\nAnswer in English."


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(("opening", "closing"), [("```\n", "\n```"), ("<doc>\n", "\n</doc>")])
def test_in_the_middle(ask: str, opening: str, closing: str) -> None:
    document = f"{opening}{PROSE}{closing}"
    assert found(f"{document}\n\n{ask}\n\n{document}") == ask
    assert found(document, ask, document) == ask


def test_in_the_middle_right_before_a_fence() -> None:
    long = "It stayed open after the storm. " * 40
    text = f"{long}\n\n---\nList every date in it.\n```\n{long}\n```\n{long}"
    assert found(text) == "List every date in it."
    fenced = f"{long}\n```\nList every date in it.\n```\n{long}"
    assert "List" not in found(fenced)


def test_a_question_before_code_is_sure_though_its_docstrings_ask_too() -> None:
    code = "\n\n".join(
        f'def shift_{i}(row):\n    """What row {i} holds. Find the header."""\n    return row[{i}]'
        for i in range(60)
    )
    ask = "Which function reads the third row?"
    assert found(f"{ask}\n\n{code}") == ask
    assert sure(f"{ask}\n\n{code}")
    assert not sure(code)


@pytest.mark.parametrize("blank", ["\r", " \t", "\u3000"])
def test_blank_lines_need_not_be_empty(blank: str) -> None:
    text = f"{PROSE}\n\nList every date in it.".replace("\n\n", f"\n{blank}\n")
    assert sure(text)
    assert len(found(text).strip()) < 40


def test_between_long_paragraphs() -> None:
    long = "It stayed open after the storm. " * 40
    assert found(f"{long}\n\n{long}\n\nList every date in it.\n\n{long}\n\n{long}").startswith(
        "List"
    )


def test_labels_and_tags_name_the_ask() -> None:
    for tail in ("Question: the gate", "<question>\nthe gate\n</question>", "### Task\nthe gate"):
        assert found(f"{PROSE}\n\n{tail}") == tail.removeprefix("<question>\n").removesuffix(
            "\n</question>"
        )


def test_a_prompt_with_a_slot_for_the_answer() -> None:
    text = f"{PROSE}\n\nQuestion: Who opened the harbour?\nAnswer:"
    assert found(text) == "Question: Who opened the harbour?\nAnswer:"


def test_on_the_line_of_the_material() -> None:
    line = "It stayed open after the storm. " * 200
    assert found(f"Summarise this text. {line}").strip() == "Summarise this text."
    assert found(f"{line}Who closed the gate?").strip() == "Who closed the gate?"


def test_a_long_ask_is_kept_whole() -> None:
    ask = "Please compare both offers.\n\n- which is cheaper?\n- which is faster?\n\nUse a table."
    assert found(f"{PROSE}\n\n{ask}") == ask
    assert found(f"{ask}\n\n{PROSE}") == ask


def test_material_alone_has_no_sure_ask() -> None:
    for name in ("prose", "one line", "log", "code", "csv", "faq", "exam", "style guide", "chat"):
        assert not sure(places.MATERIALS[name](random.Random(3))), name


@pytest.mark.parametrize("name", ["faq", "labelled faq", "exam", "style guide", "mails", "chat"])
def test_material_full_of_questions_and_orders(name: str) -> None:
    text = places.MATERIALS[name](random.Random(4))
    for ask, joint in product(["Summarise it.", "the invoice number"], ["\n\n", "\n\n---\n\n"]):
        for content in (f"{text}{joint}{ask}", f"{ask}{joint}{text}"):
            assert ask in found(content)
            assert len(found(content)) < 600


@pytest.mark.parametrize(
    "text", ["and the second one?", "und die zweite?", "et la deuxième ?", "y la otra", "Why?"]
)
def test_follow_ups_lean_back(text: str) -> None:
    assert leans_back([text])


@pytest.mark.parametrize(
    "text", ["Summarise it.", "Which gate was closed?", PROSE[:90], "要約して"]
)
def test_an_ask_of_its_own_does_not(text: str) -> None:
    assert not leans_back([text])


def test_a_program_s_note_is_no_ask() -> None:
    assert find_ask(["<system-reminder>\nlist every file\n</system-reminder>"]) == ()
    assert find_ask(["<question>list every file</question>"])


def test_labelled_asks_are_found_in_all_sorts_of_material() -> None:
    rows = list(places.rows(places.asks("tuning")[::9], ("after", "before")))
    for total in places.totals(rows, "place"):
        assert float(str(total["found"])) >= 0.99, total
        assert float(str(total["extra_chars"])) < 80, total
    for total in places.totals(list(places.rows(places.asks("tuning")[::30], ["middle"])), "place"):
        assert float(str(total["misled"])) <= 0.02, total


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n")), max_size=40),
    ask=st.sampled_from(ASKS),
    before=st.booleans(),
)
def test_a_clear_ask_is_found_beside_any_material(lines: list[str], ask: str, before: bool) -> None:
    material = "\n".join(lines)
    assert ask in found(f"{ask}\n\n{material}" if before else f"{material}\n\n{ask}")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(alphabet="ab?.:<>`-#\n 　要", max_size=900), max_size=5))
def test_pieces_are_in_order_and_within_their_text(texts: list[str]) -> None:
    ends = [(-1, -1)]
    for piece in find_ask(texts):
        assert 0 <= piece.start < piece.end <= len(texts[piece.text])
        assert (piece.text, piece.start) >= ends[-1]
        ends.append((piece.text, piece.end))


def test_what_is_read_does_not_grow_with_the_text() -> None:
    for text in ("a" * 10_000_000, "a b. " * 2_000_000, "\n" * 10_000_000, "a?\n\n" * 2_500_000):
        view = read_request({"prompt": text})
        assert sum(len(span.text) for span in view.instructions) < 10_000
