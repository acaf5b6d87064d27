"""PFlash's external helper as a process: what it is told and inherits, every way it can fail, and
that nothing is left of it."""

from __future__ import annotations

import base64
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from helper_driver import TEXT, Driver, alive, compiled, driving, fake, gone

REFUSED = {
    "helper_nan": '{"schema": 1, "id": $ID, "scores": [0, 1, NaN]}',
    "helper_indices": '{"schema": 1, "id": $ID, "keep": [2, 0]}',
    "helper_garbage": "hello",
    "helper_error": '{"id": $ID, "error": "no model"}',
}

Open = Callable[..., AbstractContextManager[Driver]]


@pytest.fixture
def opened(
    engine: Path, engine_source: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Open:
    program = compiled(engine, engine_source, tmp_path_factory.getbasetemp())
    return partial(driving, program, engine, tmp_path)


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_a_refused_answer_ends_the_helper_unless_it_is_an_error(opened: Open, code: str) -> None:
    with opened(*fake("raw", REFUSED[code])) as driver:
        first, second = driver.score(), driver.score()
        assert first["failure"] == code and not first["scores"] and not first["keep"]
        kept = code == "helper_error"
        assert second["failure"] == (code if kept else "helper_backoff")
        assert len(driver.pids()) == 1
        assert gone(driver.pids(), 0.5) is not kept
        expected = {code: 2} if kept else {code: 1, "helper_backoff": 1}
        assert driver.counters()["failures"] == expected


def test_good_answers_come_from_one_process(opened: Open) -> None:
    with opened(*fake("good")) as driver:
        for _ in range(3):
            assert driver.score()["scores"] == [0, 1, 2]
        assert driver.counters() == {
            "requests": 3,
            "answered": 3,
            "started": 1,
            "restarts": 0,
            "failures": {},
        }
    assert driver.end_ms < 1000


def test_indices_come_back(opened: Open) -> None:
    with opened(*fake("raw", '{"schema": 1, "id": $ID, "keep": [0, 2]}')) as driver:
        assert driver.score()["keep"] == [0, 2]


def test_what_the_helper_is_told(opened: Open) -> None:
    text = 'ein "Zitat"\n\x00 文字 🙂\u2028'
    size = len(text.encode())
    with opened(*fake("echo")) as driver:
        spans = [[0, 3], [3, size]]
        reply = driver.score(
            text=text, question="wer?", spans=spans, keep_ratio=0.2, timeout_ms=1500
        )
        assert reply["scores"] == [0, 1]
        request = driver.notes()[-1]["request"]
    assert 1000 < request.pop("timeout_ms") <= 1500
    assert request == {
        "schema": 1,
        "id": 1,
        "text": text,
        "question": "wer?",
        "spans": spans,
        "keep_ratio": 0.2,
    }


def test_bytes_that_are_no_utf8_arrive_unchanged(opened: Open) -> None:
    raw = b"\xff\xfe a\xed\xa0\x80b \xf0\x9f\x99"
    with opened(*fake("echo")) as driver:
        driver.score(text_hex=raw.hex(), spans=[[0, len(raw)]])
        request = driver.notes()[-1]["request"]
    assert "text" not in request
    assert base64.b64decode(request["text_base64"]) == raw


def test_what_the_helper_inherits(opened: Open) -> None:
    with Path(os.devnull).open() as extra:
        os.set_inheritable(extra.fileno(), True)
        with opened(*fake("about", "$HOME; *"), pass_fds=(extra.fileno(),)) as driver:
            assert driver.score()["failure"] == ""
            about = driver.notes()[-1]
            pid = driver.pids()[0]
    assert about["session"] == about["group"] == pid
    assert about["descriptors"] == [0, 1, 2, 3]  # 3 lists the folder
    assert about["blocked"] == 0
    assert about["arguments"] == ["$HOME; *"]
    assert not {"LLAMA_API_KEY", "LLAMA_ARG_PORT"} & set(about["environment"])


FAULTS = {
    "hang": "helper_timeout",
    "deaf": "helper_timeout",
    "drip": "helper_timeout",
    "late": "helper_timeout",
    "no-newline": "helper_timeout",
    "crash": "helper_exit",
    "half": "helper_exit",
    "signal": "helper_exit",
    "one-byte": "helper_exit",
    "close-stdin": "helper_exit",
    "close-stdout": "helper_exit",
    "flood": "helper_output_limit",
    "flood-unasked": "helper_output_limit",
    "flood-lines": "helper_garbage",
    "two-lines": "helper_garbage",
}


@pytest.mark.parametrize("mode", FAULTS)
def test_a_fault_fails_one_request_in_time(opened: Open, mode: str) -> None:
    # more than a pipe holds, so that who does not read is met while it is written to
    with opened(*fake(mode)) as driver:
        limit_ms = 400 if FAULTS[mode] == "helper_timeout" else 5000
        text = TEXT + "x" * (1 << 20 if mode != "drip" else 0)
        reply = driver.score(text=text, timeout_ms=limit_ms)
        assert (reply["failure"], reply["scores"]) == (FAULTS[mode], [])
        assert reply["ms"] < limit_ms + 500
        assert gone(driver.pids())
        assert driver.score()["failure"] == "helper_backoff"


def test_an_early_answer_counts_once_the_request_is_written(opened: Open) -> None:
    with opened(*fake("early")) as driver:
        assert driver.score(text=TEXT + "x" * (1 << 20))["scores"] == [0, 1, 2]


def test_a_late_answer_is_never_taken_for_the_next(opened: Open) -> None:
    with opened(*fake("late-in-new-process")) as driver:
        driver.do(op="start")
        assert driver.score(timeout_ms=300)["failure"] == "helper_timeout"
        driver.sleep(0.3)
        assert driver.score()["scores"] == [0, 1, 2]
        assert len(driver.pids()) == 2
        assert driver.counters()["restarts"] == 1


def test_a_line_that_nobody_asked_for_is_never_taken(opened: Open) -> None:
    with opened(*fake("late-line")) as driver:
        assert driver.score()["failure"] == ""
        driver.sleep(0.3)
        assert driver.score()["failure"] == "helper_garbage"
        assert gone(driver.pids())


def test_waits_double_and_refuse_at_once(opened: Open) -> None:
    with opened(*fake("crash")) as driver:
        for wait_s in (0.2, 0.4, 0.8):
            assert driver.score()["failure"] == "helper_exit"
            driver.sleep(wait_s * 0.6)
            refused = driver.score()
            assert refused["failure"] == "helper_backoff" and refused["ms"] < 100
            driver.sleep(wait_s * 0.4 + 0.05)
        assert driver.score()["failure"] == "helper_exit"
        assert driver.counters()["started"] == 4


def test_one_that_ends_after_each_answer_is_started_again(opened: Open) -> None:
    with opened(*fake("once")) as driver:
        for _ in range(2):
            assert driver.score()["failure"] == ""
            driver.sleep(0.4)
        assert driver.counters()["restarts"] == 1


def test_programs_that_cannot_run(opened: Open, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("echo no shell\n")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    executable_text = tmp_path / "executable"
    executable_text.write_text("echo no shell\n")
    executable_text.chmod(text.stat().st_mode | stat.S_IXUSR)
    for path in (tmp_path / "missing", text, tmp_path, script, executable_text, Path("true")):
        with opened(str(path)) as driver:
            assert driver.score()["failure"] == "helper_start"
            assert driver.score()["failure"] == "helper_backoff"
            assert driver.counters()["started"] == 0
        assert str(path) in driver.log.read_text()


def test_requests_wait_for_each_other_within_their_time(opened: Open) -> None:
    with opened(*fake("slow")) as driver:
        driver.do(op="start")
        driver.sleep(0.2)
        reply = driver.score(threads=4, timeout_ms=800)
        failures = sorted(one["failure"] for one in reply["all"])
        assert failures[:2] == ["", ""] and failures[3] == "helper_timeout"
        assert reply["ms"] < 1300


def test_what_it_says_on_stderr_is_bounded_and_harmless(opened: Open) -> None:
    with opened(*fake("loud")) as driver:
        assert driver.score(timeout_ms=5000)["failure"] == ""
    log = driver.log.read_bytes()
    assert b"?[31mloud" in log and b"\x1b[31mloud" not in log
    assert b"the rest is dropped" in log
    assert len(log) < 200_000


def test_one_that_ignores_the_end_is_killed(opened: Open) -> None:
    with opened(*fake("stubborn")) as driver:
        assert driver.score()["failure"] == ""
    assert 1900 < driver.end_ms < 3000


@pytest.mark.parametrize("hangs", [False, True])
def test_its_children_end_with_it(opened: Open, hangs: bool) -> None:
    with opened(*fake("family", *(["hang"] if hangs else []))) as driver:
        reply = driver.score(timeout_ms=1500)
        assert reply["failure"] == ("helper_timeout" if hangs else "")
        pids = driver.pids()
        assert len(pids) == 3
        assert gone(pids) if hangs else all(alive(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_it_ends_with_a_server_that_was_killed(opened: Open) -> None:
    with opened(*fake("stubborn")) as driver:
        assert driver.score()["failure"] == ""
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait()
        assert gone(driver.pids())


def test_a_dying_thread_does_not_take_it_along(opened: Open) -> None:
    """Linux ties a child to the thread that forked it; each request here has its own thread."""
    with opened(*fake("good")) as driver:
        for _ in range(5):
            assert driver.score()["failure"] == ""
        assert len(driver.pids()) == 1
