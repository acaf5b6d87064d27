"""The verdict on answers: what may go out, and what makes a doubt, over kinds and languages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.request import RequestView, Span
from flashlane.verdict import Verdict, verdict


def view_of(ask: str, text: str) -> RequestView:
    return RequestView(
        kind="chat",
        model="m",
        ask=ask,
        instructions=(Span(ask, "user", "messages[0]"),),
        context=(Span(text, "user", "messages[0]"),),
        estimated_tokens=len(text) // 4,
        context_tokens=len(text) // 4,
    )


def judge(answer: str, text: str, ask: str, **options: object) -> Verdict:
    return verdict(answer, f"{text}\n\n{ask}", view_of(ask, text), **options)  # type: ignore[arg-type]


def code(result: Verdict) -> str:
    return result.reasons[0].code


INVOICES = """Invoice A-17
Customer: Meyer
Total: 1,204.50 EUR

Invoice A-18
Customer: Smith
Total: 980.00 EUR
"""
TOTAL = "What is the total of invoice A-17?"

HARBOUR = (
    "The harbour of Brel was opened on 5 March 1901 by Ada Winter. It has twenty-one berths. "
    "The lighthouse was finished in 1934 by Carl Holm.\n\n"
    "The market hall burned down in 1952. Trams run every twelve minutes to the old town."
)

KEYS = "\n".join(f"key k{i:03d}: {i * 7919 % 99991}" for i in range(1, 200))


@pytest.mark.parametrize(
    ("answer", "text", "ask"),
    [
        ("1,204.50 EUR", INVOICES, TOTAL),
        ("1.204,50 EUR", INVOICES, TOTAL),
        ("1204.5", INVOICES, TOTAL),
        ("€1 204.50", INVOICES, TOTAL),
        ("The total of invoice A-17 is 1204.50 EUR.", INVOICES, TOTAL),
        ("5 March 1901", HARBOUR, "When was the harbour of Brel opened?"),
        ("March 5th, 1901", HARBOUR, "When was the harbour of Brel opened?"),
        ("1901-03-05", HARBOUR, "When was the harbour of Brel opened?"),
        ("05.03.1901", HARBOUR, "When was the harbour of Brel opened?"),
        ("1901", HARBOUR, "In what year was the harbour of Brel opened?"),
        ("Ada Winter", HARBOUR, "Who opened the harbour of Brel?"),
        ("It was opened by Ada Winter.", HARBOUR, "Who opened the harbour of Brel?"),
        ("21", HARBOUR, "How many berths does the harbour have?"),
        ("twenty-one berths", HARBOUR, "How many berths does the harbour have?"),
        ("Carl Holm", HARBOUR, "Who finished the lighthouse?"),
        ("1934", HARBOUR, "When was the lighthouse finished?"),
        (str(7919 * 42 % 99991), KEYS, "What is the value of k042?"),
        ("７９１９", KEYS, "What is the value of k001?"),
        (
            "parse_header()",
            "The file io.py reads.\nHeaders are decoded in parse_header() first.\nNothing else.",
            "Which function decodes the headers?",
        ),
        (
            "ops@example.org",
            "Sales: sales@example.org\nSupport: ops@example.org",
            "What is the support address?",
        ),
        (
            "/etc/brel/main.conf",
            "Logs go to /var/log/brel.log daily.\nThe settings are read from /etc/brel/main.conf.",
            "From which path are the settings read?",
        ),
        (
            "0,75 %",
            "Die Inflation fiel.\nDer Leitzins liegt bei 0,75 Prozent.",
            "Wie hoch ist der Leitzins?",
        ),
        (
            "21",
            "Der Hafen hat einundzwanzig Liegeplätze. Die Halle brannte ab.",
            "Wie viele Liegeplätze hat der Hafen?",
        ),
        (
            "3 Millionen Euro",
            "Der Umbau der Brücke kostete 3.000.000 Euro. Die Halle war billig.",
            "Was kostete der Umbau der Brücke?",
        ),
        (
            "12 mars 1998",
            "Le pont a été inauguré le 12/03/1998. La halle est ancienne.",
            "Quand le pont a-t-il été inauguré ?",
        ),
        (
            "97",
            "La bibliothèque possède quatre-vingt-dix-sept manuscrits. Le port est vide.",
            "Combien de manuscrits possède la bibliothèque ?",
        ),
        (
            "Lucía Prado",
            "El puente fue diseñado por Lucía Prado. El mercado abrió en 1950.",
            "¿Quién diseñó el puente?",
        ),
        (
            "42",
            "La biblioteca ha quarantadue sale. Il porto è vuoto.",
            "Quante sale ha la biblioteca?",
        ),
        (
            "3 de abril de 2011",
            "A ponte foi inaugurada em 2011-04-03. O mercado fechou.",
            "Quando foi inaugurada a ponte?",
        ),
        (
            "Анна Белова",
            "Маяк построила Анна Белова. Порт открыли позже.",
            "Кто построил маяк?",
        ),
        ("1934年", "港口很旧。灯塔建于一九三四年。市场很大。", "灯塔建于哪一年？"),
        ("2024-03-05", "会议延期了。新桥于2024年3月5日通车。", "新桥何时通车？"),
        (
            "田中花子",
            "港は古い。灯台を設計したのは田中花子です。市場は広い。",
            "灯台を設計したのは誰ですか？",
        ),
        (
            "김하나",
            "항구는 낡았다. 등대를 설계한 사람은 김하나 입니다.",
            "등대를 설계한 사람은 누구입니까?",
        ),
    ],
)
def test_accepted(answer: str, text: str, ask: str) -> None:
    result = judge(answer, text, ask)
    assert result.accepted, result.reasons


@pytest.mark.parametrize(
    ("answer", "text", "ask", "why"),
    [
        ("980.00 EUR", INVOICES, TOTAL, ""),
        ("1,205.50 EUR", INVOICES, TOTAL, "literal_absent"),
        ("1,204.50 USD", INVOICES, TOTAL, ""),
        ("Smith", INVOICES, "Who is the customer of invoice A-17?", ""),
        ("1934", HARBOUR, "When was the harbour of Brel opened?", ""),
        ("6 March 1901", HARBOUR, "When was the harbour of Brel opened?", "literal_absent"),
        ("Carl Holm", HARBOUR, "Who opened the harbour of Brel?", ""),
        ("twelve", HARBOUR, "How many berths does the harbour have?", ""),
        ("twenty-two", HARBOUR, "How many berths does the harbour have?", ""),
        ("Brel", HARBOUR, "Who opened the harbour of Brel?", "nothing_new"),
        ("Ada Summer", HARBOUR, "Who opened the harbour of Brel?", "literal_absent"),
        ("It was not opened by Ada Winter.", HARBOUR, "Who opened the harbour of Brel?", ""),
        (str(7919 * 43 % 99991), KEYS, "What is the value of k042?", ""),
        ("yes", HARBOUR, "Was the harbour opened by Ada Winter?", "yes_or_no"),
        ("Ja.", HARBOUR, "Wurde der Hafen eröffnet?", "yes_or_no"),
        ("是", HARBOUR, "灯塔完工了吗？", ""),
        ("the mayor", HARBOUR, "When was the harbour of Brel opened?", "no_time"),
        ("1934", HARBOUR, "Which buildings were not finished in 1901?", "exclusion"),
        ("12", "Total: 12\n\nTotal: 15\n", "What is the total?", "rival_place"),
        (
            "Berlin",
            "The office is in Berlin. Later notice: the office is in Munich.",
            "Where is the office?",
            "rival_place",
        ),
        (
            "1641",
            "The chemist John Mayow was born in Cornwall in 1641, studied at Oxford, wrote much "
            "on air and combustion, and died in London in 1679.",
            "When did the chemist John Mayow die in London?",
            "rival_in_place",
        ),
        (
            "Eva Falk",
            "A harbour was painted by Eva Falk. The town hall is brown.",
            "Who audited the annual accounts of the harbour company and signed the report?",
            "weak_place",
        ),
        ("", HARBOUR, "Who opened the harbour?", "empty_answer"),
        ("…", HARBOUR, "Who opened the harbour?", "empty_answer"),
        ("I cannot find that.", HARBOUR, "Who opened the harbour?", "refusal"),
        ("It is not mentioned in the provided text.", HARBOUR, "Who opened it?", "refusal"),
        ("Das wird im Text nicht erwähnt.", HARBOUR, "Wer?", "refusal"),
        ("Ce n'est pas mentionné dans le texte.", HARBOUR, "Qui ?", "refusal"),
        ("El texto no menciona ese dato.", HARBOUR, "¿Quién?", "refusal"),
        ("O texto não menciona isso.", HARBOUR, "Quem?", "refusal"),
        ("Il testo non specifica chi.", HARBOUR, "Chi?", "refusal"),
        ("文中没有提到。", HARBOUR, "谁？", "refusal"),
        ("本文には記載されていません。", HARBOUR, "誰？", "refusal"),
        ("본문에서 찾을 수 없습니다.", HARBOUR, "누구?", "refusal"),
        ("В тексте это не упоминается.", HARBOUR, "Кто?", "refusal"),
        ("the harbour " * 40, HARBOUR, "Who opened the harbour?", "repetition"),
        ("Ada Winter", HARBOUR, "", "no_ask"),
        ("Ada Winter", "Nothing of the kind.", "Wer eröffnete Xyzzy?", "no_place"),
        ("Fix it so.", HARBOUR, "Fix the bug in parse()", "no_edit"),
    ],
)
def test_doubted(answer: str, text: str, ask: str, why: str) -> None:
    result = judge(answer, text, ask)
    assert not result.accepted, result.reasons
    assert why in ("", code(result))


def test_cut_off_is_a_doubt() -> None:
    ask = "Who opened the harbour of Brel?"
    assert judge("Ada Winter", HARBOUR, ask, finish_reason="stop").accepted
    for reason in ("length", "max_tokens"):
        assert code(judge("Ada Winter", HARBOUR, ask, finish_reason=reason)) == "cut_off"
    assert code(judge("Ada Winter", HARBOUR, ask, finish_reason="content_filter")) == "unfinished"


def test_the_ask_itself_proves_nothing() -> None:
    text = "Nothing is said of buildings here. The weather was fine."
    ask = "The harbour was opened by Ada Winter or by Carl Holm: who opened the harbour?"
    assert not judge("Ada Winter", text, ask).accepted


def test_what_was_not_kept_makes_a_doubt() -> None:
    ask = "Who opened the harbour of Brel?"
    end = HARBOUR.index("It has")
    assert judge("Ada Winter", HARBOUR, ask, kept=[(0, len(HARBOUR))]).accepted
    assert judge("Ada Winter", HARBOUR, ask, kept=[(0, end)]).accepted
    assert code(judge("Ada Winter", HARBOUR, ask, kept=[(end, len(HARBOUR))])) == "unseen_place"


@pytest.mark.parametrize(
    ("answer", "ask", "accepted"),
    [
        ("Yes", 'Does the text mention "Ada Winter"?', True),
        ("No", 'Does the text mention "Ada Winter"?', False),
        ("No", 'Does the text mention "Eva Falk"?', True),
        ("Yes", 'Does the text mention "Eva Falk"?', False),
        ("Nein", 'Wird im Text "Eva Falk" erwähnt?', True),
        ("Yes", 'Does the text mention "Ada" and "Eva"?', False),
    ],
)
def test_mentions_are_looked_up(answer: str, ask: str, accepted: bool) -> None:
    assert judge(answer, HARBOUR, ask).accepted is accepted


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("The lighthouse was finished in 1934 by Carl Holm.", True),
        ('"The lighthouse  was finished in\n1934 by Carl Holm."', True),
        ("“The lighthouse was finished in 1934 by Carl Holm.”", True),
        ("The lighthouse was finished in 1934", False),
        ("The lighthouse was finished in 1935 by Carl Holm.", False),
        ("The market hall burned down in 1952.", False),
    ],
)
def test_quotations(answer: str, accepted: bool) -> None:
    ask = "Quote the sentence about when the lighthouse was finished."
    assert judge(answer, HARBOUR, ask).accepted is accepted


_ANY = st.text(max_size=300)


@given(answer=_ANY, text=_ANY, ask=_ANY, reason=st.sampled_from(["stop", "length", "x"]))
@settings(max_examples=200, deadline=None)
def test_never_raises(answer: str, text: str, ask: str, reason: str) -> None:
    result = judge(answer, text, ask, finish_reason=reason)
    assert result.reasons
    assert not (result.accepted and reason != "stop")


_PIECES = st.lists(
    st.sampled_from(
        ["1,204", ".5", "\n- ", "@@ -1,2 +1 @@\n", "{}", '"a": ', "[1", "list", " 十二", "March 3 ",
         "~/a/b", "how many", ": ", "\n\n", "Ada ", "json", "k042", "quote ", "'", "`x`", "| a |\n"]
    ),
    max_size=25,
)  # fmt: skip


@given(_PIECES, _PIECES, _PIECES)
@settings(max_examples=300, deadline=None)
def test_never_raises_for_odd_mixtures(a: list[str], b: list[str], c: list[str]) -> None:
    assert judge("".join(a), "".join(b), "".join(c)).reasons


@given(st.integers(10, 10**9))
@settings(max_examples=80, deadline=None)
def test_a_number_that_the_text_lacks_is_doubted(number: int) -> None:
    text = HARBOUR.replace("twenty-one", f"{number + 1:,}")
    assert not judge(str(number), text, "How many berths does the harbour have?").accepted


@given(st.integers(3000, 10**9), st.sampled_from(["{:,}", "{}", "{:_}"]))
@settings(max_examples=80, deadline=None)
def test_a_number_is_known_in_every_spelling(number: int, form: str) -> None:
    spelled = form.format(number).replace("_", ".")
    text = HARBOUR.replace("twenty-one", f"{number}")
    assert judge(spelled, text, "How many berths does the harbour have?").accepted


@given(st.from_regex(r"[A-Z]{2}-[0-9]{4,6}", fullmatch=True))
@settings(max_examples=80, deadline=None)
def test_an_id_that_the_text_lacks_is_doubted(identity: str) -> None:
    text = "The berth of the ferry is QX-77. The market opens at nine."
    assert not judge(identity, text, "What is the berth of the ferry?").accepted


@given(st.text(st.characters(categories=["Ll"]), min_size=1, max_size=40))
@settings(max_examples=80, deadline=None)
def test_more_text_about_other_things_never_takes_the_support_away(noise: str) -> None:
    ask = "Who opened the harbour of Brel?"
    assert judge("Ada Winter", f"{HARBOUR}\n\n{noise}", ask).accepted
