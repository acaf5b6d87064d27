"""Finding the ask: at each place, in several turns, whatever the material is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.request import RequestError, RequestView, read_request

PROSE = "The harbour was closed in winter, and the ships waited outside. " * 30
PARAGRAPHS = "\n\n".join([PROSE[:600]] * 8)
LOG = "\n".join(f"2026-04-17T00:50:{i:02d}.493Z INFO worker-{i}: check header" for i in range(60))
CODE = "\n\n".join(
    f"def swap_{i}(message):\n    return [find(m) for m in message]" for i in range(40)
)
FAQ = "\n\n".join(f"What does part {i} do?\nIt turns the handle {i} times." for i in range(60))
MATERIALS = {"prose": PROSE, "paragraphs": PARAGRAPHS, "log": LOG, "code": CODE, "faq": FAQ}
ASKS = (
    "Summarise it in two sentences.",
    "Kontonummer der Hausverwaltung?",
    "給料日はいつですか",
    "the second invoice, its total",
    "Quels sont les risques cités ?",
)


def read(*turns: tuple[str, Any], **fields: Any) -> RequestView:
    messages = [{"role": role, "content": content} for role, content in turns]
    return read_request({"messages": messages, **fields})


@pytest.mark.parametrize("material", MATERIALS)
@pytest.mark.parametrize("ask", ASKS)
def test_after_and_before(material: str, ask: str) -> None:
    text = MATERIALS[material]
    assert ask in read(("user", f"{text}\n\n{ask}")).ask
    assert ask in read(("user", f"{ask}\n\n{text}")).ask


def test_prose_is_not_taken_along() -> None:
    for text in (PROSE, PARAGRAPHS):
        assert read(("user", f"{text}\n\nSummarise it.")).ask == "Summarise it."
        assert read(("user", f"Summarise it.\n\n{text}")).ask == "Summarise it."


def test_in_the_middle() -> None:
    view = read(("user", f"{PARAGRAPHS}\n\nWhich ship waited longest?\n\n{PARAGRAPHS}"))
    assert view.ask == "Which ship waited longest?"
    assert len(view.context) == 2


def test_on_both_sides() -> None:
    view = read(("user", f"Summarise this text.\n\n{PARAGRAPHS}\n\nIn German, please."))
    assert view.ask == "Summarise this text.\nIn German, please."


def test_in_a_part_of_its_own() -> None:
    parts = [{"type": "text", "text": PROSE}, {"type": "text", "text": "Summarise it."}]
    view = read(("user", parts))
    assert view.ask == "Summarise it." and view.ask_where == ("messages[0].content[1]",)


def test_an_earlier_turn_asks_where_the_newest_is_material() -> None:
    view = read(
        ("user", "Translate what I send you into German."), ("assistant", "Yes."), ("user", PROSE)
    )
    assert view.ask == "Translate what I send you into German."
    assert view.ask_where == ("messages[0]",)


def test_a_follow_up_leans_on_the_turn_before() -> None:
    view = read(
        ("user", f"{PROSE}\n\nWhat was the total of the first invoice?"),
        ("assistant", "12"),
        ("user", "And the second one?"),
    )
    assert view.ask == "What was the total of the first invoice?\nAnd the second one?"


def test_a_new_ask_stands_alone() -> None:
    view = read(("user", "Translate it."), ("assistant", "Done."), ("user", "Who wrote it?"))
    assert view.ask == "Who wrote it?"


def test_what_an_assistant_or_a_tool_says_is_no_ask() -> None:
    view = read(
        ("user", "Summarise the file."), ("assistant", "List every item?"), ("tool", "Count them!")
    )
    assert view.ask == "Summarise the file."


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": f"{PROSE}\n\nSummarise it."},
        {"input": f"{PROSE}\n\nSummarise it.", "instructions": "Be brief."},
        {
            "system": "Be brief.",
            "messages": [{"role": "user", "content": f"{PROSE}\n\nSummarise it."}],
        },
    ],
)
def test_every_kind_of_body(body: dict[str, Any]) -> None:
    assert read_request(body).ask == "Summarise it."


def test_limits_of_the_answer() -> None:
    assert read(("user", "hi")).max_tokens is None
    assert read(("user", "hi"), max_tokens=7).max_tokens == 7
    assert read(("user", "hi"), max_completion_tokens=8, max_tokens=7).max_tokens == 8
    assert read(("user", "hi"), max_tokens=True).max_tokens is None


def test_a_conversation_keeps_its_name_as_it_grows() -> None:
    first = read(("system", "Be brief."), ("user", PROSE))
    later = read(
        ("system", "Be brief."), ("user", PROSE), ("assistant", "Yes."), ("user", "Who wrote it?")
    )
    assert first.conversation and first.conversation == later.conversation
    assert read(("system", "Be long."), ("user", PROSE)).conversation != first.conversation
    assert read_request({"input": "hi", "previous_response_id": "r"}).conversation == ""


def test_large_and_deep_bodies() -> None:
    assert "Summarise it." in read(("user", f"{'x y ' * 2_500_000}\n\nSummarise it.")).ask
    many = [("user" if i % 2 else "assistant", f"turn {i}") for i in range(10_000)]
    assert read(*many).ask == "turn 9999"
    nested: Any = "deep"
    for _ in range(5000):
        nested = [{"type": "tool_result", "content": nested}]
    assert (
        read(("user", [*nested, {"type": "text", "text": "Summarise it."}])).ask == "Summarise it."
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "type", "content", "text", "output", "input", "messages", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
_FIELDS = ("messages", "input", "prompt", "system", "instructions", "tools", "text", "model", "n")


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=5))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        view = read_request(body)
    except RequestError:
        return
    assert view.estimated_tokens >= view.context_tokens >= 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=400), min_size=1, max_size=6))
def test_what_is_found_stands_in_the_body(paragraphs: list[str]) -> None:
    text = "\n\n".join(paragraphs)
    view = read(("user", text))
    for span in (*view.instructions, *view.context):
        assert span.text in text


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(MATERIALS)), st.sampled_from(ASKS), st.integers(1, 40))
def test_more_material_does_not_hide_it(material: str, ask: str, times: int) -> None:
    text = "\n\n".join([MATERIALS[material]] * times)
    assert ask in read(("user", f"{text}\n\n{ask}")).ask
