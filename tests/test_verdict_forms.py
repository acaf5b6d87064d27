"""Verdicts on lists, counts, structured answers and edits."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlane.verdict.dates import dates
from flashlane.verdict.defects import loops
from flashlane.verdict.numerals import numbers
from flashlane.verdict.places import fold
from tests.test_verdict import INVOICES, code, judge

ORDERS = "\n".join(
    f"2024-03-05 order={i} user=u{i} status={'failed' if i % 4 == 0 else 'ok'}"
    for i in range(1, 13)
)
FRUITS = "Fruits we sell:\n- apples\n- pears\n- plums\n- figs\n\nVegetables:\n- kale\n- leek\n"
CREW = (
    "The crew had four members. The crew of the Aurora were Anna Berg, Carl Dahl, Eva Falk and "
    "Gus Holm. They sailed in 1912. The cook was Ivan Jansen."
)
USERS = json.dumps({"users": [{"name": "bob"}, {"name": "eve"}, {"name": "mal"}]}, indent=1)
TABLE = "| name | city |\n|---|---|\n| Bob | Rome |\n| Eve | Oslo |\n| Mal | Bonn |\n"
CSV = "id,name,city\n1,Bob,Rome\n2,Eve,Oslo\n3,Mal,Bonn\n"
MAGIC = "\n".join(
    f"One of the special magic numbers for {key} is: {number}."
    for key, number in [("apple", 7711), ("pear", 1111), ("apple", 8822), ("apple", 9933)]
)
FAILED_ORDERS = "List all orders with status failed"
SOLD = "List all fruits we sell"


@pytest.mark.parametrize(
    ("answer", "text", "ask", "accepted"),
    [
        ("4, 8, 12", ORDERS, FAILED_ORDERS, True),
        ("order 4, order 8 and order 12", ORDERS, FAILED_ORDERS, True),
        ("- 4\n- 8\n- 12", ORDERS, FAILED_ORDERS, True),
        ("4, 8", ORDERS, FAILED_ORDERS, False),
        ("4, 8, 11", ORDERS, FAILED_ORDERS, False),
        ("4, 8, 12, 16", ORDERS, FAILED_ORDERS, False),
        ("12", ORDERS, FAILED_ORDERS, False),
        ("- apples\n- pears\n- plums\n- figs", FRUITS, SOLD, True),
        ("apples, pears, plums, figs", FRUITS, SOLD, True),
        ("Here is the list:\n- apples\n- pears\n- plums\n- figs", FRUITS, SOLD, True),
        ("- apples\n- pears\n- plums", FRUITS, SOLD, False),
        ("apples, pears, plums, figs, kale", FRUITS, SOLD, False),
        ("kale, leek", FRUITS, SOLD, False),
        ("Anna Berg, Carl Dahl, Eva Falk and Gus Holm", CREW, "List the crew of the Aurora.", True),
        ("Anna Berg, Carl Dahl and Eva Falk", CREW, "List the crew of the Aurora.", False),
        ("Carl Dahl, Eva Falk, Gus Holm", CREW, "List the crew of the Aurora.", False),
        ("Anna Berg, Ivan Jansen", CREW, "List the crew of the Aurora.", False),
        ("bob, eve, mal", USERS, "List the name of every user", True),
        ("bob, eve", USERS, "List the name of every user", False),
        ("Bob\nEve\nMal", TABLE, "List every name in the table", True),
        ("Bob\nEve", TABLE, "List every name in the table", False),
        ("Bob\nEve\nMal", CSV, "List every name in the table", True),
        ("Eve\nMal", CSV, "List every name in the table", False),
        ("7711, 8822, 9933", MAGIC, "What are all the magic numbers for apple?", True),
        ("7711, 8822", MAGIC, "What are all the magic numbers for apple?", False),
        ("7711, 1111, 8822, 9933", MAGIC, "What are all the magic numbers for apple?", False),
        ("3", ORDERS, "How many orders have status failed?", True),
        ("three", ORDERS, "How many orders have status failed?", True),
        ("drei", ORDERS, "Wie viele Einträge haben status failed?", True),
        ("4", ORDERS, "How many orders have status failed?", False),
        ("none of them", ORDERS, "How many orders have status failed?", False),
    ],
)
def test_lists_and_counts(answer: str, text: str, ask: str, accepted: bool) -> None:
    result = judge(answer, text, ask)
    assert result.accepted is accepted, result.reasons


@given(st.sets(st.integers(1, 60), min_size=4, max_size=20), st.data())
@settings(max_examples=60, deadline=None)
def test_a_list_that_lacks_any_item_is_doubted(failed: set[int], data: st.DataObject) -> None:
    text = "\n".join(
        f"job=j{i:02d} state={'failed' if i in failed else 'done'}" for i in range(1, 61)
    )
    ask = "List all jobs with state failed"
    names = [f"j{i:02d}" for i in sorted(failed)]
    assert judge(", ".join(names), text, ask).accepted
    lost = data.draw(st.sampled_from(names))
    assert not judge(", ".join(n for n in names if n != lost), text, ask).accepted


TOTAL_JSON = "Extract the total of invoice A-17 as JSON"
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "ask", "schema", "why"),
    [
        ('{"total": 1204.5}', TOTAL_JSON, SCHEMA, "supported"),
        ('```json\n{"total": 1204.50}\n```', TOTAL_JSON, SCHEMA, "supported"),
        ('{"invoice": "A-17", "total": "1,204.50"}', TOTAL_JSON, None, "supported"),
        ("total: 1204.50", "Give the total of invoice A-17 as YAML", None, "supported"),
        ('{"total": "1204.50"}', TOTAL_JSON, SCHEMA, "schema_violated"),
        ('{"total": 1204.5, "x": 1}', TOTAL_JSON, SCHEMA, "schema_violated"),
        ('{"x": 1}', TOTAL_JSON, SCHEMA, "schema_violated"),
        ('{"total": 1204.5', TOTAL_JSON, SCHEMA, "json_broken"),
        ("1204.50 EUR", TOTAL_JSON, None, "json_broken"),
        ('{"total": 1205.5}', TOTAL_JSON, SCHEMA, "literal_absent"),
        ('{"total": 980.00}', TOTAL_JSON, SCHEMA, None),
        ('{"total": null}', TOTAL_JSON, None, "unverifiable"),
        ('{"total": true}', TOTAL_JSON, None, "unverifiable"),
        ("[" * 500 + "1", TOTAL_JSON, None, "too_large"),
        ('{"total": 1204.5}', TOTAL_JSON, {"type": 7}, "schema_broken"),
        ('{"total": 1204.5}', TOTAL_JSON, {"$ref": "http://example.org/x"}, "schema_broken"),
        ('{"total": 1204.5}', TOTAL_JSON, {"$ref": "#"}, "schema_broken"),
        ('{"total": 1204.5}', TOTAL_JSON, {"pattern": "(a+)+$"}, "schema_pattern"),
        ("a: &x [1]\nb: *x", "Give the total of invoice A-17 as YAML", None, "yaml_broken"),
        ("a,b\n1", "Give the total of invoice A-17 as CSV", None, "csv_broken"),
    ],
)
def test_structured(answer: str, ask: str, schema: dict[str, object] | None, why: str) -> None:
    result = judge(answer, INVOICES, ask, schema=schema)
    assert result.accepted is (why == "supported"), result.reasons
    assert why in (None, code(result))


PROGRAM = [f"def step_{i}(x):\n    y = x + {i}\n    return y\n" for i in range(1, 9)]
SOURCE = "```python\n" + "\n".join(PROGRAM) + "```"
FIX = "Fix the bug in step_3: add 30, not 3."
DIFF = """--- a/steps.py
+++ b/steps.py
@@ -9,3 +9,3 @@
 def step_3(x):
-    y = x + 3
+    y = x + 30
     return y
"""
BLOCK = """steps.py
<<<<<<< SEARCH
    y = x + 3
=======
    y = x + 30
>>>>>>> REPLACE
"""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (DIFF, "supported"),
        (f"Here is the patch:\n\n```diff\n{DIFF}```\n", "supported"),
        (DIFF.replace("     return y", "     return y   "), "supported"),
        (BLOCK, "supported"),
        (DIFF.replace("step_3(x)", "step_3(z)"), "edit_does_not_apply"),
        (DIFF.replace("-    y = x + 3\n", "-    y = x + 4\n"), "edit_does_not_apply"),
        (DIFF.replace("-9,3 +9,3", "-9,4 +9,3"), "edit_malformed"),
        (DIFF.replace("-9,3 +9,3", "-9,2 +9,2"), "edit_malformed"),
        (DIFF.replace("30", "3"), "edit_malformed"),
        ("@@ -3 +3 @@\n-    return y\n+    return x\n", "edit_ambiguous"),
        (DIFF + DIFF.split("\n", 2)[2], "edit_overlaps"),
        ("@@ ... @@\n-    y = x + 3\n+    y = 4\n", "edit_malformed"),
        (BLOCK.replace("x + 3\n", "x + 33\n", 1), "edit_does_not_apply"),
        (BLOCK.replace("=======\n", ""), "edit_malformed"),
        (BLOCK.replace(">>>>>>> REPLACE\n", ""), "edit_malformed"),
        ("Change 3 to 30.", "no_edit"),
    ],
)
def test_edits(answer: str, why: str) -> None:
    result = judge(answer, SOURCE, FIX)
    assert (result.accepted, code(result)) == (why == "supported", why)


@given(st.integers(1, 8), st.integers(0, 2), st.text("abcxyz_ =+", min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_a_diff_applies_until_a_line_of_it_changes(step: int, line: int, change: str) -> None:
    old = [f"def step_{step}(x):", f"    y = x + {step}", "    return y"]
    new = [old[0], f"    y = x * {step}", old[2]]
    head = f"@@ -{4 * step - 3},3 +{4 * step - 3},3 @@"

    def diff(lines: list[str]) -> str:
        return "\n".join([head, f" {lines[0]}", f"-{lines[1]}", f"+{new[1]}", f" {lines[2]}", ""])

    assert judge(diff(old), SOURCE, FIX).accepted
    mutated = [text + "#" + change if i == line else text for i, text in enumerate(old)]
    assert not judge(diff(mutated), SOURCE, FIX).accepted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567.89", "1234567.89"),
        ("1.234.567,89", "1234567.89"),
        ("1 234 567,89", "1234567.89"),
        ("1'234'567", "1234567"),
        ("12,34,567", "1234567"),
        ("１，２３４", "1234"),
        ("-7", "-7"),
        ("$12k", "12000"),
        ("3.5 million", "3500000"),
        ("2,5 Mrd", "2500000000"),
        ("one hundred and five", "105"),
        ("two thousand twenty-four", "2024"),
        ("dreihundertfünfundzwanzig", "325"),
        ("quatre-vingt-onze", "91"),
        ("treinta y dos", "32"),
        ("ventitré", "23"),
        ("trinta e sete", "37"),
        ("сорок пять", "45"),
        ("三千五百", "3500"),
        ("二〇二四", "2024"),
        ("1万2千", "10000"),
        ("3億", "300000000"),
        ("삼십 개", "30"),
        ("21st", "21"),
    ],
)
def test_numbers(text: str, value: str) -> None:
    assert any(Decimal(value) in number.values for number in numbers(fold(text)))


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-03-05", (2024, 3, 5)),
        ("5 March 2024", (2024, 3, 5)),
        ("March 5th, 2024", (2024, 3, 5)),
        ("the 5th of March 2024", (2024, 3, 5)),
        ("05.03.2024", (2024, 3, 5)),
        ("3/5/24", (2024, 3, 5)),
        ("3/5/24", (2024, 5, 3)),
        ("5. März 2024", (2024, 3, 5)),
        ("5 mars 2024", (2024, 3, 5)),
        ("5 de marzo de 2024", (2024, 3, 5)),
        ("5 de março de 2024", (2024, 3, 5)),
        ("5 marzo 2024", (2024, 3, 5)),
        ("5 марта 2024", (2024, 3, 5)),
        ("2024年3月5日", (2024, 3, 5)),
        ("2024년 3월 5일", (2024, 3, 5)),
        ("March 2024", (2024, 3, 0)),
    ],
)
def test_dates(text: str, day: tuple[int, int, int]) -> None:
    assert any(day in date.days for date in dates(fold(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab" * 100, True),
        ("so it goes on. " * 6, True),
        ("a sensible line\n" * 4, True),
        ("One thing after another, never twice the same.", False),
        ("1000000000000000000000000000000000000000000", False),
        ("----------------------------------------------", False),
    ],
)
def test_loops(text: str, expected: bool) -> None:
    assert loops(text) is expected
