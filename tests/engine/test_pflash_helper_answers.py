"""Every form that a helper's answer can take, and a fuzz of it against the protocol's words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helper_driver import Driver, compiled, driving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CODES = {
    "helper_timeout",
    "helper_exit",
    "helper_garbage",
    "helper_nan",
    "helper_indices",
    "helper_output_limit",
    "helper_backoff",
    "helper_start",
    "helper_error",
}


@pytest.fixture(scope="module")
def driver(
    engine: Path, engine_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    program = compiled(engine, engine_source, tmp_path_factory.getbasetemp())
    with driving(program, engine, tmp_path_factory.mktemp("answers"), "unused") as opened:
        yield opened


def answer(body: str) -> str:
    return f'{{"schema": 1, "id": $ID, {body}}}'


ACCEPTED = {
    answer('"scores": [0.5, 2, -3e2]'): {"scores": [0.5, 2, -300], "keep": []},
    answer('"keep": [0, 2]'): {"scores": [], "keep": [0, 2]},
    '{"keep": [1], "id": $ID, "schema": 1}\r': {"scores": [], "keep": [1]},
}
REFUSED = {
    "helper_nan": [
        *(
            answer(f'"scores": [0, 1, {bad}]')
            for bad in ("NaN", "Infinity", "-Infinity", "nan", "-nan", "inf", "-inf")
        ),
        *(answer(f'"scores": [{bad}, 0, 1]') for bad in ("1e999", "-1e999", "1e300", "null")),
    ],
    "helper_indices": [
        *(
            answer(f'"keep": [{bad}]')
            for bad in ("-1", "2, 0", "1, 1", '"0"', "0.0", "1.5", "3", "", "true", "null", "[0]")
        ),
        answer('"keep": [18446744073709551616]'),
        answer('"keep": [-0]'),
    ],
    "helper_garbage": [
        "",
        "hello",
        "null",
        "[]",
        "{}",
        "\x00",
        '{"schema": 1, "id": 999, "scores": [0, 1, 2]}',
        '{"schema": 1, "id": "1", "scores": [0, 1, 2]}',
        '{"schema": 1, "id": 1.0, "scores": [0, 1, 2]}',
        '{"schema": 1, "id": null, "error": "x"}',
        '{"schema": 2, "id": $ID, "scores": [0, 1, 2]}',
        '{"schema": "1", "id": $ID, "scores": [0, 1, 2]}',
        '{"id": $ID, "scores": [0, 1, 2]}',
        '{"schema": 1, "scores": [0, 1, 2]}',
        '{"schema": 1, "id": $ID}',
        '{"id": $ID, "error": 5}',
        '{"id": $ID, "schema": 2, "error": "x"}',
        answer('"scores": [0, 1]'),
        answer('"scores": [0, 1, 2, 3]'),
        answer('"scores": ["0", "1", "2"]'),
        answer('"scores": [0, 1, [2]]'),
        answer('"scores": [0, 1, true]'),
        answer('"scores": {"0": 1}'),
        answer('"scores": "0"'),
        answer('"scores": null'),
        answer('"scores": [0, 1, 2], "keep": [0]'),
        answer('"scores": [0, 1, 2], "error": "x"'),
        answer('"scores": [0, 1], "scores": [2]'),
        answer('"keep": [0], "keep": [1]'),
        answer('"schema": 1, "keep": [0]'),
        answer('"scores": [0, 1, 2], "note": 1'),
        answer('"scores": [0, 1, 2]') + "{}",
        answer('"scores": [0, 1, 2]') + ",",
        answer('"scores": [0, 1, 2'),
        '{"schema": 1, "id": $ID, "scores": ' + "[" * 100_000,
    ],
    "helper_error": ['{"id": $ID, "error": "no model"}', answer('"error": "\\u0000"')],
}


def test_every_form_of_answer(driver: Driver) -> None:
    def parse(line: str) -> dict[str, Any]:
        text = line.replace("$ID", "7").encode().hex()
        return driver.do(op="parse", id=7, spans=3, line_hex=text)

    for line, values in ACCEPTED.items():
        assert parse(line) == {**values, "failure": "", "explained": False}, line
    for code, lines in REFUSED.items():
        for line in lines:
            nothing = {"scores": [], "keep": [], "failure": code, "explained": True}
            assert parse(line) == nothing, line


numbers = st.one_of(
    st.integers(-3, 6),
    st.floats(width=32),
    st.sampled_from([1e300, 2**64, 2**63, -(2**63), True, None, "0", [], {}]),
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.sampled_from([1, 1, 1, 2, "1", 1.0, None]),
        "id": st.sampled_from([7, 7, 7, 8, "7", 7.0]),
        "scores": st.one_of(
            st.lists(numbers, max_size=5), st.lists(st.floats(-9, 9), min_size=3, max_size=3)
        ),
        "keep": st.one_of(st.lists(numbers, max_size=4), st.lists(st.integers(0, 3), max_size=3)),
        "error": st.one_of(st.text(max_size=9), numbers),
        "other": numbers,
    },
)


def expected(body: dict[str, Any]) -> str:
    """Which kind of answer this is by the words of the protocol; empty when it is none."""

    def whole(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    kinds = {"scores", "keep", "error"} & set(body)
    if len(kinds) != 1 or set(body) - {"schema", "id"} != kinds:
        return ""
    kind = kinds.pop()
    if not whole(body.get("id")) or body["id"] != 7:
        return ""
    schema = body.get("schema", 1 if kind == "error" else None)
    if not whole(schema) or schema != 1:
        return ""
    value = body[kind]
    if kind == "error":
        return kind if isinstance(value, str) else ""
    if kind == "scores":
        fine = len(value) == 3 and all(
            isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) <= 3.4e38
            for v in value
        )
        return kind if fine else ""
    fine = bool(value) and all(whole(v) and 0 <= v < 3 for v in value)
    return kind if fine and value == sorted(set(value)) else ""


def test_fuzzed_answers(driver: Driver) -> None:
    def parse(line: bytes) -> dict[str, Any]:
        result = driver.do(op="parse", id=7, spans=3, line_hex=line.hex())
        assert result["failure"] in CODES | {""}
        if result["failure"]:
            assert not result["scores"] and not result["keep"]
        else:
            assert bool(result["scores"]) != bool(result["keep"])
            assert len(result["scores"]) in (0, 3)
            assert all(math.isfinite(score) for score in result["scores"])
            assert result["keep"] == sorted(set(result["keep"]) & {0, 1, 2})
        return result

    common = settings(
        max_examples=400,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )

    @common
    @given(bodies)
    def structured(body: dict[str, Any]) -> None:
        result = parse(json.dumps(body).encode())
        kind = expected(body)
        assert (result["failure"] == "") == (kind in ("scores", "keep"))
        assert (result["failure"] == "helper_error") == (kind == "error")
        if kind == "keep":
            assert result["keep"] == body["keep"]
        if kind == "scores":
            assert result["scores"] == pytest.approx(body["scores"], rel=1e-6)

    @common
    @given(st.binary(max_size=200).map(lambda raw: raw.replace(b"\n", b"")))
    def bytes_of_any_kind(raw: bytes) -> None:
        parse(raw)

    valid = b'{"schema":1,"id":7,"scores":[0.5,-2e3,1]}'

    @common
    @given(st.integers(0, len(valid)), st.integers(0, 3), st.binary(max_size=3))
    def a_changed_place(at: int, cut: int, put_in: bytes) -> None:
        parse(valid[:at] + put_in.replace(b"\n", b"") + valid[at + cut :])

    structured()
    bytes_of_any_kind()
    a_changed_place()
