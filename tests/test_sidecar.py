"""The classifier beside the rules: what it may change, and all the ways in which it may not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import flashlane.sidecar
from flashlane.config import ConfigError, FlashlaneConfig, SidecarConfig, load_config
from flashlane.decision import LaneOption, Reason, Signals
from flashlane.request import Lane, RequestView, read_request
from flashlane.sidecar import (
    BROAD_KINDS,
    EXACT_KINDS,
    Opinion,
    Sidecar,
    combine,
    effect,
    question,
    read_opinion,
    worth_asking,
)

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))
ACTIVE = SidecarConfig(mode="active", model="small", timeout_ms=200, min_confidence=0.8)
SHADOW = ACTIVE.model_copy(update={"mode": "shadow"})
RULED_EXACT = Signals(True, "counting", (Reason("exact_ask", "the ask says 'how many'"),))
RULED_BROAD = Signals(False, "summary", (Reason("broad_ask", "the ask says 'sum up'"),))
UNSURE = Signals(True, "unsure", (Reason("unsure", "the ask says neither"),))
LANES: dict[Lane, LaneOption] = {
    "direct": LaneOption("local", 100.0),
    "pflash": LaneOption("local-pflash", 100.0),
}
EXACT = '{"exact": true, "kind": "retrieval", "confidence": 0.9}'
BROAD = '{"exact": false, "kind": "summary", "confidence": 0.95}'

opinions = st.builds(
    lambda exact, number, confidence: Opinion(
        exact=exact,
        kind=(EXACT_KINDS if exact else BROAD_KINDS)[number],
        confidence=confidence,
    ),
    st.booleans(),
    st.integers(0, len(BROAD_KINDS) - 1),
    st.floats(0, 1),
)


def codes(signals: Signals) -> list[str]:
    return [reason.code for reason in signals.reasons]


# What may be changed.


@given(opinions, st.floats(0, 1))
def test_exactness_found_by_rules_always_wins(opinion: Opinion, bound: float) -> None:
    config = ACTIVE.model_copy(update={"min_confidence": bound})
    found = combine(RULED_EXACT, opinion, config)
    assert (found.exact, found.kind) == (True, "counting")
    assert codes(found)[-1] == ("sidecar_agrees" if opinion.exact else "sidecar_ignored")


@given(opinions, st.floats(0, 1))
def test_bolder_only_where_unsure_and_above_the_bound(opinion: Opinion, bound: float) -> None:
    config = ACTIVE.model_copy(update={"min_confidence": bound})
    found = combine(UNSURE, opinion, config)
    assert found.exact == (opinion.exact or opinion.confidence <= bound)
    if not found.exact:
        assert found.kind == opinion.kind and codes(found) == ["unsure", "sidecar_broad"]
    else:
        assert found.kind == "unsure"


@given(opinions)
def test_safer_always(opinion: Opinion) -> None:
    found = combine(RULED_BROAD, opinion, ACTIVE)
    assert found.exact == opinion.exact
    assert found.kind == (opinion.kind if opinion.exact else "summary")
    assert codes(found)[-1] == ("sidecar_safer" if opinion.exact else "sidecar_agrees")


def test_a_bound_of_one_lets_nothing_become_bolder() -> None:
    sure = Opinion(exact=False, kind="summary", confidence=1.0)
    config = ACTIVE.model_copy(update={"min_confidence": 1.0})
    assert combine(UNSURE, sure, config).exact
    assert not combine(UNSURE, sure, ACTIVE).exact


@given(opinions, st.sampled_from(["off", "shadow"]))
def test_off_and_shadow_change_nothing(opinion: Opinion, mode: str) -> None:
    config = ACTIVE.model_copy(update={"mode": mode})
    for signals in (RULED_BROAD, RULED_EXACT, UNSURE):
        assert combine(signals, opinion, config) is signals
        assert combine(signals, None, ACTIVE) is signals


# What counts as an opinion.


@pytest.mark.parametrize(
    "text",
    [EXACT, f"  {EXACT}\n", f"```json\n{EXACT}\n```", f"```{EXACT}```"],
    ids=["plain", "spaces", "fence", "short fence"],
)
def test_an_opinion_is_read(text: str) -> None:
    assert read_opinion(text) == Opinion(exact=True, kind="retrieval", confidence=0.9)


@pytest.mark.parametrize(
    "text",
    [
        None,
        17,
        "",
        "exact",
        "Sure! " + EXACT,
        EXACT + EXACT,
        EXACT[:-1],
        "[" * 900,
        '{"exact": ' * 90,
        "[]",
        "null",
        EXACT + " " * 1000,
        '{"exact": 1, "kind": "retrieval", "confidence": 0.9}',
        '{"exact": "true", "kind": "retrieval", "confidence": 0.9}',
        '{"exact": true, "kind": "retrieval"}',
        '{"exact": true, "kind": "retrieval", "confidence": "0.9"}',
        '{"exact": true, "kind": "retrieval", "confidence": true}',
        '{"exact": true, "kind": "retrieval", "confidence": 1.5}',
        '{"exact": true, "kind": "retrieval", "confidence": -0.1}',
        '{"exact": true, "kind": "retrieval", "confidence": NaN}',
        '{"exact": true, "kind": "retrieval", "confidence": 1e999}',
        '{"exact": true, "kind": ["retrieval"], "confidence": 0.9}',
        '{"exact": true, "kind": "anything", "confidence": 0.9}',
        '{"exact": false, "kind": "retrieval", "confidence": 0.9}',
        '{"exact": true, "kind": "summary", "confidence": 0.9}',
        '{"exact": true, "kind": "retrieval", "confidence": 0.9, "lane": "pflash"}',
        "\ud800" + EXACT,
    ],
)
def test_anything_else_is_none(text: object) -> None:
    assert read_opinion(text) is None


@given(st.text(max_size=60) | st.recursive(st.none() | st.booleans(), st.lists).map(json.dumps))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert read_opinion(text) is None or json.loads(text)


def test_the_question_holds_the_ask_alone_and_not_all_of_a_long_one() -> None:
    body = {"model": "local", "messages": [{"role": "user", "content": f"{DOCUMENT}\n\nSum up."}]}
    view = read_request(body, None, "chat")
    assert "shelf" not in json.dumps(question(view.ask))
    long = "begin " + "x" * 1_000_000 + " end\ud800"
    messages = question(long)
    size = len(json.dumps(messages).encode())
    assert size < 4000
    assert "begin" in messages[1]["content"] and "end" in messages[1]["content"]
    messages[1]["content"].encode()


# When it is asked at all.


def view_of(ask: str = "What do you make of it?", **fields: Any) -> RequestView:
    body = {"model": "local", "messages": [{"role": "user", "content": f"{DOCUMENT * 4}\n\n{ask}"}]}
    return read_request({**body, **fields}, None, "chat")


def config_of(sidecar: SidecarConfig = ACTIVE) -> FlashlaneConfig:
    return FlashlaneConfig(sidecar=sidecar)


def test_it_is_asked_where_it_could_matter() -> None:
    for signals in (UNSURE, RULED_BROAD):
        assert worth_asking(view_of(), signals, LANES, config_of())
        assert worth_asking(view_of(), signals, LANES, config_of(SHADOW))
    assert not worth_asking(view_of(), RULED_EXACT, LANES, config_of())
    assert worth_asking(view_of(), RULED_EXACT, LANES, config_of(SHADOW))


@pytest.mark.parametrize(
    ("view", "lanes"),
    [
        (view_of(tools=[{"type": "function"}]), LANES),
        (view_of(route="pflash"), LANES),
        (read_request({"model": "m", "prompt": [1, 2] * 4000}, None, "completion"), LANES),
        (
            read_request({"messages": [{"role": "user", "content": "Sum up."}]}, None, "chat"),
            LANES,
        ),
        (replace(view_of(), ask=" "), LANES),
        (view_of(), {"direct": LANES["direct"]}),
        (view_of(), {**LANES, "pflash": replace(LANES["pflash"], allowed=False)}),
    ],
    ids=["tools", "forced", "tokens", "short", "no ask", "no lane", "lane not allowed"],
)
@pytest.mark.parametrize("mode", [ACTIVE, SHADOW], ids=["active", "shadow"])
def test_it_is_not_asked_where_all_is_settled(
    view: RequestView, lanes: dict[Lane, LaneOption], mode: SidecarConfig
) -> None:
    assert not worth_asking(view, UNSURE, lanes, config_of(mode))


# The shell.


@dataclass
class Noted:
    sidecar: str = ""


@dataclass
class Model:
    """Answers as it is told to, and notes what it was asked and whether it was cancelled."""

    answer: Callable[[], Awaitable[object]]
    asked: list[str] = field(default_factory=list)
    cancelled: int = 0

    async def __call__(self, model: str, messages: list[dict[str, str]]) -> object:
        self.asked.append(model)
        try:
            return await self.answer()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def saying(text: object) -> Model:
    async def answer() -> object:
        return text

    return Model(answer)


def failing(error: BaseException) -> Model:
    async def answer() -> object:
        raise error

    return Model(answer)


def stuck() -> Model:
    async def answer() -> object:
        await asyncio.Event().wait()
        return EXACT

    return Model(answer)


async def advised(
    sidecar: Sidecar, signals: Signals, config: SidecarConfig = ACTIVE
) -> tuple[Signals, str]:
    noted = Noted()
    found = await sidecar.advise(view_of(), signals, LANES, config_of(config), noted)
    return found, noted.sidecar


@pytest.mark.parametrize(
    ("answer", "signals", "exact", "note"),
    [
        (EXACT, RULED_BROAD, True, "exact 0.90 safer"),
        (EXACT, UNSURE, True, "exact 0.90 agree"),
        (BROAD, UNSURE, False, "broad 0.95 broad"),
        (BROAD, RULED_BROAD, False, "broad 0.95 agree"),
        (BROAD.replace("0.95", "0.5"), UNSURE, True, "broad 0.50 ignored"),
    ],
)
def test_active(answer: str, signals: Signals, exact: bool, note: str) -> None:
    model = saying(answer)
    sidecar = Sidecar(model)
    found, noted = asyncio.run(advised(sidecar, signals))
    assert (found.exact, noted, model.asked) == (exact, note, ["small"])
    assert sidecar.counts == {note.split()[-1]: 1}


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (stuck(), "timeout"),
        (saying("I think it is exact."), "broken"),
        (saying(None), "broken"),
        (failing(RuntimeError("the prompt's own words")), "error"),
        (failing(asyncio.CancelledError()), "error"),
    ],
    ids=["slow", "broken", "nothing", "error", "cancelled within"],
)
@pytest.mark.parametrize("signals", [UNSURE, RULED_BROAD], ids=["unsure", "broad"])
def test_a_failure_changes_nothing_and_is_logged_by_its_class(
    model: Model, note: str, signals: Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sidecar = Sidecar(model)
    found, noted = asyncio.run(advised(sidecar, signals))
    assert found is signals and noted == note
    assert sidecar.counts == {note: 1}
    assert len(caplog.messages) == 1 and "own words" not in caplog.text


def test_a_slow_answer_is_given_up_even_if_it_cannot_be_cancelled() -> None:
    async def run() -> None:
        let_go = asyncio.Event()

        async def answer() -> object:
            while not let_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await let_go.wait()
            return EXACT

        _, noted = await advised(Sidecar(Model(answer)), UNSURE)
        assert noted == "timeout" and not let_go.is_set()
        let_go.set()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_client_that_leaves_takes_the_question_with_it() -> None:
    model = stuck()

    async def run() -> None:
        config = ACTIVE.model_copy(update={"timeout_ms": 60_000})
        task = asyncio.ensure_future(advised(Sidecar(model), UNSURE, config))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        assert model.cancelled == 1

    asyncio.run(run())


def test_shadow_is_not_waited_for_and_not_used() -> None:
    async def run() -> None:
        told = asyncio.Event()

        async def answer() -> object:
            await told.wait()
            return BROAD

        sidecar, noted = Sidecar(Model(answer)), Noted()
        found = await sidecar.advise(view_of(), UNSURE, LANES, config_of(SHADOW), noted)
        assert found is UNSURE and noted.sidecar == "shadow: unanswered"
        told.set()
        while noted.sidecar == "shadow: unanswered":
            await asyncio.sleep(0.01)
        assert noted.sidecar == "shadow: broad 0.95 broad"
        assert sidecar.counts == {"broad": 1}

    asyncio.run(asyncio.wait_for(run(), 20))


def test_shadow_says_where_the_answer_would_have_come_too_late() -> None:
    async def answer() -> object:
        await asyncio.sleep(0.05)
        return EXACT

    async def run() -> str:
        noted = Noted()
        config = config_of(SHADOW.model_copy(update={"timeout_ms": 1}))
        await Sidecar(Model(answer)).advise(view_of(), UNSURE, LANES, config, noted)
        while noted.sidecar == "shadow: unanswered":
            await asyncio.sleep(0.01)
        return noted.sidecar

    said = asyncio.run(asyncio.wait_for(run(), 20))
    assert said == "shadow: exact 0.90 agree, too late"


def test_a_crowd_of_questions_is_bounded() -> None:
    model = stuck()

    async def run() -> list[str]:
        sidecar = Sidecar(model)
        crowd = [advised(sidecar, UNSURE) for _ in range(20)]
        return [note for _, note in await asyncio.gather(*crowd)]

    notes = asyncio.run(run())
    assert notes.count("timeout") == 8 and notes.count("busy") == 12
    assert len(model.asked) == 8


def test_a_sidecar_that_keeps_failing_rests_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    model = failing(OSError("down"))
    sidecar = Sidecar(model)

    async def notes(count: int) -> list[str]:
        return [(await advised(sidecar, UNSURE))[1] for _ in range(count)]

    assert asyncio.run(notes(7)) == ["error"] * 5 + ["resting"] * 2
    later = time.monotonic() + 31.0
    monkeypatch.setattr(flashlane.sidecar.time, "monotonic", lambda: later)
    sidecar._complete = saying(BROAD)
    assert asyncio.run(notes(1)) == ["broad 0.95 broad"]


def test_broken_answers_are_no_reason_to_rest() -> None:
    sidecar = Sidecar(saying("no"))

    async def run() -> list[str]:
        return [(await advised(sidecar, UNSURE))[1] for _ in range(9)]

    assert asyncio.run(run()) == ["broken"] * 9


@pytest.mark.parametrize("opinion", [EXACT, BROAD])
def test_a_note_names_the_effect(opinion: str) -> None:
    read = read_opinion(opinion)
    assert read is not None
    assert {effect(s, read, ACTIVE) for s in (UNSURE, RULED_BROAD, RULED_EXACT)} == (
        {"agree", "safer"} if read.exact else {"agree", "broad", "ignored"}
    )


# The config.


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"mode": "active"}, ["sidecar.mode is 'active'", "sidecar.model", "it has: local"]),
        ({"mode": "shadow", "model": "x"}, ["sidecar.model", "'x'", "it has: local"]),
        ({"model": "x"}, ["sidecar.model", "'x'"]),
        ({"mode": "on", "model": "local"}, ["sidecar.mode is 'on'", "'off', 'shadow' or 'active'"]),
        ({"timeout": 3}, ["sidecar.timeout is not a known key", "'timeout_ms'"]),
        ({"min_confidence": 2}, ["sidecar.min_confidence is 2", "less than or equal to 1"]),
    ],
)
def test_config_errors(tmp_path: Path, section: dict[str, Any], words: list[str]) -> None:
    path = tmp_path / "c.yaml"
    section_text = {"model_list": [{"model_name": "local"}], "flashlane": {"sidecar": section}}
    path.write_text(yaml.safe_dump(section_text))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    for word in words:
        assert word in str(caught.value)


def test_a_bare_off_is_off(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("flashlane: {sidecar: {mode: off}}")
    assert load_config(path).sidecar.mode == "off"
