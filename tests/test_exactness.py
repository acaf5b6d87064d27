"""Exactness: the body's structure first, then the model over the words of the ask."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.decision import BROAD_KINDS, EXACT_KINDS
from flashlane.exactness import exactness
from flashlane.exactness.concepts import BROAD_CONCEPTS, concepts, entries, feature
from flashlane.exactness.model import WEIGHTS, Model, model, parse, text_of
from flashlane.exactness.vector import vector
from flashlane.exactness.wording import MAX_CHARS, bounded, fold, sentences
from flashlane.request import RequestView, read_request

TABLES = sorted((Path(WEIGHTS).parent / "words").glob("*.txt"))
ASKS = Path(__file__).parents[1] / "bench" / "router" / "asks"
LANGUAGES = {"en", "de", "fr", "es", "pt", "it", "zh", "ja", "ko", "ru"}

ASKED = [{"role": "user", "content": "Summarise the text."}]


def view_of(ask: str, **fields: Any) -> RequestView:
    return RequestView("chat", "local", ask, (), (), 5000, 4980, **fields)


def features(ask: str) -> set[str]:
    return {feature for sentence in sentences(ask) for feature in sentence.features}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"grammar": 'root ::= "a"'},
        {"logprobs": True},
        {"n": 2},
        {
            "messages": [
                {"role": "user", "content": "Sum it up."},
                {"role": "assistant", "content": "It"},
            ]
        },
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_structure_decides_before_words(fields: dict[str, Any]) -> None:
    body = {"messages": ASKED, **fields}
    signals = exactness(read_request(body))
    assert (signals.exact, signals.kind) == (True, "structure")


def test_images_and_token_ids_are_exact() -> None:
    assert exactness(view_of("Summarise it.", multimodal=True)).kind == "multimodal"
    assert exactness(view_of("", token_prompt=True)).kind == "token_prompt"


def test_no_ask_is_unsure_and_exact() -> None:
    signals = exactness(view_of(" \n"))
    assert (signals.exact, signals.kind) == (True, "unsure")


@pytest.mark.parametrize(
    ("broad", "exact"),
    [
        ("Summarise the text in three sentences.", "List all the names in the text."),
        ("Fasse das Dokument kurz zusammen.", "Wie viele Namen stehen im Dokument?"),
        ("Résume l'article en quelques phrases.", "Traduis l'article en anglais."),
        ("Resume el artículo.", "¿Cuál es el número de la factura?"),
        ("Riassumi l'articolo.", "Correggi gli errori di ortografia."),
        ("Faça um resumo do texto.", "Converta a tabela para JSON."),
        ("总结一下这篇文章。", "把全文翻译成英文。"),
        ("この記事を要約してください。", "この記事に出てくる日付をすべて挙げてください。"),
        ("이 글을 요약해 줘.", "이 글에 나오는 이름을 모두 나열해 줘."),
        ("Кратко перескажи статью.", "Переведи статью на английский."),
    ],
)
def test_the_plainest_asks_of_ten_languages(broad: str, exact: str) -> None:
    one, other = exactness(view_of(broad)), exactness(view_of(exact))
    assert not one.exact and one.kind in BROAD_KINDS
    assert other.exact and other.kind in (*EXACT_KINDS, "unsure")


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        ("How many chapters are there?", "counting"),
        ("Translate the document into French.", "transformation"),
        ("List every person who is mentioned.", "enumeration"),
        ("Quote the sentence about rent, word for word.", "quoting"),
        ("Summarise the article.", "summary"),
        ("Compare the two proposals.", "comparison"),
    ],
)
def test_the_kind_is_named(ask: str, kind: str) -> None:
    assert exactness(view_of(ask)).kind == kind


def test_a_mixed_wish_is_exact() -> None:
    assert exactness(view_of("Summarise the report and list every date that it names.")).exact


def test_material_does_not_count() -> None:
    """A text full of exact words under a broad ask, and the other way round."""
    exact = "In the harbour every list was exact, word for word, and counted as JSON. " * 40
    broad = "Such a summary explained the main ideas, compared them and judged others. " * 40
    for material, ask, expected in (
        (exact, "Summarise the text.", False),
        (broad, "How many ideas are there?", True),
    ):
        body = {"messages": [{"role": "user", "content": f"{material}\n\n{ask}"}]}
        assert exactness(read_request(body)).exact is expected


def test_reasons_name_concepts_and_no_words_of_the_ask() -> None:
    signals = exactness(view_of("Summarise what Ottokar told Kunigunde at Durrenstein."))
    said = " ".join(reason.text for reason in signals.reasons).casefold()
    assert "summary" in said
    assert not any(word in said for word in ("ottokar", "kunigunde", "durrenstein"))


def small_model(bound: float) -> Model:
    none = (0.0,) * (len(EXACT_KINDS) + len(BROAD_KINDS))
    return Model(-1.0, bound, {}, none, {})


def test_between_the_bound_and_even_odds_is_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashlane.exactness.model", lambda: small_model(-1.5))
    signals = exactness(view_of("Hm."))
    assert (signals.exact, signals.kind) == (True, "unsure")
    monkeypatch.setattr("flashlane.exactness.model", lambda: small_model(-0.5))
    signals = exactness(view_of("Hm."))
    assert not signals.exact and signals.confidence == pytest.approx(0.731, abs=0.001)


def test_unsure_counts_as_exact_in_the_model_that_ships() -> None:
    assert model().bound <= 0


def test_the_weights_are_what_is_written_of_them() -> None:
    text = WEIGHTS.read_text("utf-8")
    assert text_of(parse(text)) == text
    assert all(map(math.isfinite, model().weights.values()))


@given(
    st.dictionaries(
        st.from_regex(r"[@~^]?[a-zé一-龥]{1,6}( [a-z]{1,4}|\$|\*)?", fullmatch=True),
        st.integers(-9999, 9999),
        max_size=20,
    ),
    st.integers(-5000, 0),
)
def test_a_model_survives_being_written(weights: dict[str, int], bound: int) -> None:
    kinds = len(EXACT_KINDS) + len(BROAD_KINDS)
    wanted = Model(
        0.25,
        bound / 1000,
        {name: value / 1000 for name, value in weights.items()},
        tuple(i / 1000 for i in range(kinds)),
        {name: (value / 1000,) * kinds for name, value in weights.items() if name[0] == "@"},
    )
    assert parse(text_of(wanted)) == wanted


def test_every_language_has_every_concept() -> None:
    assert {path.stem for path in TABLES} == LANGUAGES
    of = {path.stem: {concept for concept, _ in entries(path)} for path in TABLES}
    assert all(found == of["en"] for found in of.values())
    assert of["en"] > BROAD_CONCEPTS


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_entry_can_be_found(path: Path) -> None:
    """An entry is found in an ask that consists of it, or, for a stem, of a longer word."""
    for concept, entry in entries(path):
        ask = entry.removesuffix("*") + ("xyzxyz" if entry.endswith("*") else "")
        assert feature(entry) in features(ask), (concept, entry)
        assert concept in concepts()[feature(entry)]


def test_accents_case_and_quotes() -> None:
    assert fold("Énumère CUÁL") == "enumere cual"
    assert features("Énumère tout") == features("enumere tout")
    assert not any("harbour" in f for f in features('Explain "the harbour" to me.'))
    assert fold("が") == "が", "kana keep their marks"


def test_korean_reads_across_spaces() -> None:
    assert "~요약해주" in features("요약해 주세요") & features("요약해주세요")


def test_of_a_long_ask_both_ends_are_read() -> None:
    ask = "Summarise it. " + "Nothing much. " * 5000 + "And list every date."
    assert len(bounded(ask)) <= MAX_CHARS + 1
    assert {"summarise", "every date"} <= features(ask)
    assert len(vector(ask, concepts())) < 2000


@settings(max_examples=300)
@given(st.text(max_size=3000))
def test_any_text_has_a_reading(ask: str) -> None:
    signals = exactness(view_of(ask))
    assert signals.exact is (signals.kind not in BROAD_KINDS)
    assert signals.reasons
    values = vector(ask, concepts())
    grams = [value for name, value in values.items() if not name.startswith("@")]
    assert math.hypot(*grams) == pytest.approx(4.0)


def test_labelled_asks_keep_their_form() -> None:
    """Each file has its language, each id is one of a kind, and no ask is in two places."""
    ids: set[str] = set()
    asks: set[tuple[str, str]] = set()
    for path in sorted(ASKS.glob("*/*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            assert row["lang"] == path.stem
            assert row["kind"] in (EXACT_KINDS if row["exact"] else BROAD_KINDS), row["id"]
            ask = (row["lang"], " ".join(fold(row["ask"]).split()))
            assert row["id"] not in ids and ask not in asks, row["id"]
            ids.add(row["id"])
            asks.add(ask)
    assert {lang for lang, _ in asks} == LANGUAGES
