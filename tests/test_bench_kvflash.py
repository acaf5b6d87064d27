"""KVFlash's benchmark: its traces, what it makes of recorded sessions, and how figures count."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.kvflash import __main__ as command
from bench.kvflash import affinity, goals, miss, replay, report, sessions, texts, tiers
from bench.kvflash import traces as kvflash_traces
from bench.kvflash.context import Context, Options
from bench.kvflash.measured import PARTS, Measured
from bench.kvflash.replay import DEFAULT, DENSE, OURS, SAME
from bench.kvflash.sessions import Message, Recording
from bench.kvflash.traces import Ask, Piece, Trace
from bench.server import Server
from bench.store import Store

CHATS, TURNS = 8, 10


# Traces.


@pytest.mark.parametrize(
    "order",
    [
        kvflash_traces.round_robin(),
        kvflash_traces.shuffled("x"),
        kvflash_traces.bursts("x"),
    ],
)
def test_every_chat_has_all_its_turns(order: list[int]) -> None:
    assert Counter(order) == dict.fromkeys(range(CHATS), TURNS)


def test_orders_differ_and_stay() -> None:
    assert kvflash_traces.shuffled("x") == kvflash_traces.shuffled("x")
    assert kvflash_traces.shuffled("x") != kvflash_traces.shuffled("y")
    runs = 1 + sum(a != b for a, b in pairwise(kvflash_traces.bursts("x")))
    assert CHATS * TURNS / 4 <= runs < CHATS * TURNS / 2


def test_traces_are_what_they_say() -> None:
    found = {trace.name: trace for trace in kvflash_traces.traces()}
    pressure = [
        *(trace for trace in found.values() if trace.pressure),
        kvflash_traces.short_trace(),
    ]
    assert [trace.name for trace in pressure] == [
        "round robin",
        "random",
        "bursts",
        "shared",
        "round robin, target",
    ]
    for trace in pressure:
        assert Counter(ask.chat for ask in trace.asks) == dict.fromkeys(range(CHATS), TURNS)
    beginnings = Counter(ask.pieces[0] for ask in found["shared"].asks if len(ask.pieces) > 1)
    assert list(beginnings.values()) == [CHATS]
    assert kvflash_traces.traces() == tuple(found.values())
    seeds = [piece.seed for trace in found.values() for piece in trace.asks[-1].pieces]
    assert len(set(seeds)) == len(found)


def test_scarce_memory_holds_about_half_of_the_chats() -> None:
    (scarce,) = (trace for trace in kvflash_traces.traces() if trace.scarce)
    held = sum(ask.tokens + scarce.answer_tokens for ask in scarce.asks) * 512
    assert 0.4 < (scarce.memory_mib << 20) / held < 0.65
    roomy = [trace for trace in kvflash_traces.traces() if not trace.scarce]
    assert all(trace.memory_mib << 20 > 4 * held for trace in roomy)


def test_pieces_are_cut_to_the_token() -> None:
    pieces = (Piece("a", 5), Piece("b", 5))
    assert list(kvflash_traces.cut(pieces, 7)) == [Piece("a", 5), Piece("b", 2)]
    assert list(kvflash_traces.cut(pieces, 5)) == [Piece("a", 5)]
    assert list(kvflash_traces.cut(pieces, 99)) == list(pieces)
    assert list(kvflash_traces.cut(pieces, 0)) == []


# Texts.


def test_fewer_tokens_are_the_beginning_of_more() -> None:
    server = SimpleNamespace(
        count=lambda text: len(text) // 4,
        tokenize=lambda text: [hash(text[at : at + 4]) for at in range(0, len(text), 4)],
    )
    for made in (
        [texts.letters, texts.letters],
        [texts.Generated(cast(Server, server)), texts.Generated(cast(Server, server))],
    ):
        longer, shorter = made[0]("x", 3000), made[1]("x", 900)
        assert len(longer) == 3000 and len(shorter) == 900
        assert longer[:900] == shorter == made[0]("x", 900)
        assert made[1]("x", 3000) == longer
        assert made[0]("y", 900)[:40] != shorter[:40]


# Recorded sessions.


def _recording(id_: str, session: str, lengths: str, first: str = "") -> Recording:
    """Messages of 160 characters for each letter: u asks, a answers; a digit asks that often."""
    messages = [
        Message(role="assistant" if role == "a" else "user", content=f"{session}{n}" * 80)
        for n, role in enumerate(lengths)
    ]
    messages[0].content = first or messages[0].content
    return Recording(id=id_, source_session_id=session, messages=messages)


def test_a_session_counts_once_as_long_as_it_was_recorded() -> None:
    found = sessions.shape(
        [
            _recording("agent-2026-05-02-x", "S", "uau"),
            _recording("agent-2026-05-02-y", "S", "uauauu"),
            _recording("agent-2026-04-01-z", "T", "ua"),
        ]
    )
    assert [len(session.turns) for session in found] == [1, 3]
    assert found[1].turns[-1] == sessions.Turn(answer_chars=160, ask_chars=320)
    assert found[1].turns[0] == sessions.Turn(answer_chars=0, ask_chars=160)


def test_a_shared_beginning_is_that_of_the_most_alike() -> None:
    found = sessions.shape(
        [
            _recording("a-2026-01-01", "A", "u", "x" * 900 + "1" * 100),
            _recording("a-2026-01-02", "B", "u", "x" * 300 + "2" * 100),
            _recording("a-2026-01-03", "C", "u", "x" * 300 + "2" * 50 + "3" * 600),
        ]
    )
    assert [(session.like, session.shared_chars) for session in found] == [
        (None, 0),
        (0, 300),
        (1, 350),
    ]


def test_sessions_share_in_the_trace_what_they_shared() -> None:
    def session(chars: int, like: int | None, shared: int) -> sessions.Session:
        return sessions.Session((sessions.Turn(0, chars), sessions.Turn(3200, 320)), like, shared)

    trace = sessions.trace_of([session(32000, None, 0), session(16000, 0, 6400)])
    firsts = {ask.chat: ask.pieces for ask in trace.asks if len(ask.pieces) > 1 or ask.tokens > 500}
    assert firsts[0] == (Piece("agent/0", 1000),)
    assert firsts[1] == (Piece("agent/0", 200), Piece("agent/1", 300))
    later = [ask for ask in trace.asks if ask.pieces not in firsts.values()]
    assert [ask.tokens for ask in later] == [110, 110]
    assert {ask.chat for ask in later} == {0, 1} and trace == sessions.trace_of(
        [session(32000, None, 0), session(16000, 0, 6400)]
    )


def test_a_session_ends_where_it_would_be_too_long() -> None:
    turns = (sessions.Turn(0, 160_000), *[sessions.Turn(0, 32_000)] * 20)
    trace = sessions.trace_of([sessions.Session(turns, None, 0)])
    assert sum(ask.tokens for ask in trace.asks) == 6000


# Replays.


def test_prompts_go_on_with_the_answers_given() -> None:
    trace = Trace(
        "t",
        "",
        (Ask(0, (Piece("a", 3),)), Ask(1, (Piece("b", 2),)), Ask(0, (Piece("c", 4),))),
        answer_tokens=2,
    )
    answers: list[list[int]] = []
    found = []
    for prompt in replay.prompts(trace, texts.letters, answers):
        found.append(prompt)
        answers.append([900 + len(answers), 999])
    first, other, later = (prompt.tokens for prompt in found)
    assert first == texts.letters("a", 3) and other == texts.letters("b", 2)
    assert later == [*first, 900, 999, *texts.letters("c", 4)]
    assert [(prompt.turn, prompt.new_tokens) for prompt in found] == [(0, 3), (0, 2), (1, 5)]
    assert trace.longest_tokens == 11


def test_differences_are_of_the_tokens_that_both_list() -> None:
    assert replay.difference({1: -1.0, 2: -3.0}, {1: -1.5, 3: -9.0}) == 0.5
    assert replay.difference({1: -1.0}, {2: -1.0}) == 0.0


def _row(trace: str, variant: str, processed: int, **fields: object) -> replay.Row:
    row = replay.Row(trace, DENSE, variant, 0, 2, 1000, 41, processed, "ram", True, 0.0)
    return replace(row, **fields)  # type: ignore[arg-type]


def _goals(measured: Measured) -> dict[str, float | None]:
    return {goal.id: goal.value for goal in goals.goals_of(measured)}


def test_pressure_is_the_sum_of_its_traces_and_never_more_the_worst() -> None:
    rows = [
        *(_row("round robin", variant, n) for variant, n in ((OURS, 100), (DEFAULT, 500))),
        *(_row("random", variant, n) for variant, n in ((OURS, 300), (DEFAULT, 300))),
        *(_row("agents", variant, n) for variant, n in ((OURS, 110), (DEFAULT, 100))),
        *(_row("scarce", variant, n) for variant, n in ((OURS, 120), (SAME, 100))),
    ]
    found = _goals(Measured(traces=rows))
    assert found["pressure"] == 2.0
    assert found["never-more-default"] == pytest.approx(1.1)
    assert found["never-more-same-memory"] == pytest.approx(1.2)


def test_one_wrong_answer_of_ours_misses_equality() -> None:
    rows = [_row("random", OURS, 1), _row("random", OURS, 1), _row("random", DEFAULT, 1)]
    assert _goals(Measured(traces=rows))["equal"] == 1.0
    wrong = replace(rows[0], equal=False)
    assert _goals(Measured(traces=rows[:1], growing=[wrong]))["equal"] == 0.5
    assert _goals(Measured(traces=[rows[0], replace(rows[2], equal=False)]))["equal"] == 1.0


def test_a_growing_chat_is_judged_by_its_worst_third_turn() -> None:
    model = "tiny hybrid"
    rows = [
        _row("four chats", OURS, 41, model=model),
        _row("four chats", OURS, 73, model=model, chat=1),
        _row("four chats", OURS, 900, model=model, turn=1),
        _row("four chats", DEFAULT, 900, model=model),
    ]
    found = _goals(Measured(growing=rows))
    assert found["growing-tiny-hybrid"] == 32
    assert found["growing-sliding-window"] is None


# Times.


def _warm(tier: str, **fields: object) -> tiers.Warm:
    row = tiers.Warm(0, tier, tier, 800, 800, 500, 600, 10_000, 10_000, 9000, 64, 4.0)
    return replace(row, **fields)  # type: ignore[arg-type]


def test_warm_is_what_is_left_of_the_new_tokens_own_cost() -> None:
    rows = [_warm("ram"), _warm("ram", warm_ms=2500), _warm("ram", warm_ms=700)]
    assert tiers.ratio(rows, "ram") == pytest.approx(0.03)
    assert tiers.cpu_ratio(rows, "ram") == pytest.approx(0.02)
    assert tiers.extra_ms(rows, "ram") == 300
    assert tiers.ratio(rows, "slot") is None


def test_the_disk_is_compared_with_memory_and_with_prefill() -> None:
    rows = [_warm("ram"), _warm("disk", restore_ms=9.0, processed=100)]
    found = _goals(Measured(warm=rows))
    assert found["disk-restore"] == 2.25
    assert found["disk-prefill"] == 1000
    assert found["warm-tokens"] == 36
    assert found["warm-slot"] is None and found["warm-disk"] == pytest.approx(0.03)


def test_a_state_that_was_not_found_shows_in_the_note() -> None:
    rows = [_warm("ram"), _warm("disk", found="none", restore_ms=0.0)]
    goal = goals.goals_of(Measured(warm=rows))[3]
    assert goal.id == "warm-disk" and goal.note.startswith("0 of 1 found there")
    found = _goals(Measured(warm=rows))
    assert found["disk-restore"] == 200 and found["disk-prefill"] == 11.25


def test_a_miss_is_counted_around_the_prefill_and_whole() -> None:
    rows = [
        miss.Miss(DENSE, 13.0, 10.0, 12.5, 10.0),
        miss.Miss(miss.SMALL, 1041.0, 1000.0, 1005.0, 1000.0),
        miss.Miss(miss.SMALL, 1012.0, 1010.0, 1001.0, 1000.0),
        miss.Miss(miss.SMALL, 992.0, 990.0, 1002.0, 1000.0),
    ]
    assert miss.extra_ms(rows, DENSE) == 0.5
    assert miss.extra_ms(rows, miss.SMALL) == 1.0
    found = _goals(Measured(miss=rows))
    assert found["miss-ms"] == 1.0
    assert found["miss-share"] == pytest.approx(0.011)


# Two backends.


def _sent(killed: bool, answered: bool, deployment: str, home: str) -> affinity.Sent:
    return affinity.Sent(0, 1, killed, answered, deployment, home)


def test_first_turns_have_nowhere_to_land() -> None:
    rows = [
        _sent(False, True, "left", ""),
        _sent(False, True, "left", "left"),
        _sent(False, True, "right", "left"),
        _sent(True, True, "right", "left"),
        _sent(True, False, "", "left"),
    ]
    assert affinity.landed(rows) == 0.5
    assert affinity.lost(rows) == 0.5
    assert affinity.landed(rows[:1]) is None and affinity.lost(rows[:3]) is None


def test_a_stream_that_breaks_off_is_lost() -> None:
    part = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    assert affinity.streamed(f"{part}{part}data: [DONE]\n\n") == "aa"
    assert affinity.streamed(part) is None
    assert affinity.streamed(f'{part}data: {{"error": {{"code": 500}}}}\n\ndata: [DONE]\n') is None
    assert affinity.whole('{"choices": [{"message": {"content": "a"}}]}') == "a"
    assert affinity.whole('{"error": {}}') is None


# Goals, files, command.


def test_every_goal_stands_in_an_empty_report() -> None:
    found = goals.goals_of(Measured())
    assert len({goal.id for goal in found}) == len(found) == 19
    assert all(goal.met is None and goal.note == "" for goal in found)


def _measured() -> Measured:
    rows = [_row(name, variant, 9) for name in ("random", "agents") for variant in (OURS, DEFAULT)]
    return Measured(
        traces=rows,
        growing=[_row("one chat", OURS, 41, model=replay.WINDOWED)],
        miss=[miss.Miss(DENSE, 13.0, 10.0, 12.5, 10.0)],
        affinity=[_sent(False, True, "left", "left")],
        warm=[_warm(tier) for tier in tiers.TIERS],
    )


def test_a_part_reads_back_what_it_found(tmp_path: Path) -> None:
    wanted = _measured()
    for part in PARTS:
        rows = getattr(wanted, part.rows)
        found = replace(part, find=lambda _, rows=rows: rows).measure(cast(Context, None))
        Store(tmp_path / part.name).put("k", found)
        record = Store(tmp_path / part.name).get("k")
        assert record is not None
        measured = Measured()
        part.add(record, measured)
        assert getattr(measured, part.rows) == rows


def test_the_page_shows_every_part(tmp_path: Path) -> None:
    options = Options(
        server=Path("s"), quick=2, threads=None, server_args=(), logs=tmp_path, named={}
    )
    found = report.write(tmp_path, "kvflash-quick", options, "c", _measured())
    page = (tmp_path / "kvflash-quick.md").read_text()
    assert all(goal.text in page for goal in found)
    assert all(f"## {title}" in page for title in report._TITLES.values())
    assert (tmp_path / "kvflash-quick.json").exists() and "A quick run of 2" in page


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "trace"])
    assert "known parts are traces, growing, miss, affinity, ttft" in capsys.readouterr().err
