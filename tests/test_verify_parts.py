"""The verify lane's parts without a proxy: reading an answer, marking a stream, counting passes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from flashlane.decision import Decision
from flashlane.flight import Flight, Flights, group_in, pass_in
from flashlane.request import Kind, read_request
from flashlane.verify import lane
from flashlane.verify.check import NUMBER_KEY, Check
from flashlane.verify.finished import Finished
from flashlane.verify.judge import accepted
from flashlane.verify.lane import relay, settle
from flashlane.verify.marks import marked, sign_of_life
from flashlane.verify.second import OWN_FALLBACKS, Second, second_body

DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(48))
RIGHT = "Item 7 was put on shelf 10 by the keeper."
WRONG = "Item 7 was put on shelf 99 by the keeper."
NOTE = {"verdict": "accepted", "reasons": "supported", "answered_by": "verify"}


def flight(endpoint: str = "chat", stream: bool = True) -> tuple[Flight, Check]:
    text = f"{DOCUMENT}\n\nOn which shelf was item 7 put by the keeper?"
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    found = Flight("f", "r", "", endpoint, "m", stream)
    found.decision = Decision("verify", "first", True, 0.5, None, ())
    found.check = Check(read_request(body, None, "chat"), "first", "direct")
    return found, found.check


def chat(text: str | None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {"content": text, **more}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def sse(**event: Any) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


MESSAGE = [
    sse(type="message_start", message={"content": [], "stop_reason": None}),
    sse(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
    sse(type="content_block_start", index=1, content_block={"type": "text", "text": ""}),
    sse(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "A "}),
    sse(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "b"}),
    sse(type="message_delta", delta={"stop_reason": "end_turn"}),
    sse(type="message_stop"),
]
OUTPUT = [{"type": "reasoning"}, {"type": "message", "content": [{"text": "A b"}]}]
CALL = {"function": {"name": "f"}}


@pytest.mark.parametrize(
    ("kind", "chunks", "end"),
    [
        ("chat", [chat("A ", role="assistant"), chat("b"), chat(None, "stop")], "stop"),
        ("chat", [{"choices": [{"message": {"content": "A b"}, "finish_reason": "stop"}]}], "stop"),
        ("chat", [chat("A b"), {"choices": [], "usage": {}}], ""),
        ("completion", [{"choices": [{"text": "A b", "finish_reason": "length"}]}], "length"),
        ("messages", MESSAGE, "end_turn"),
        ("messages", [b"".join(MESSAGE)], "end_turn"),
        (
            "messages",
            [{"content": [{"type": "text", "text": "A b"}], "stop_reason": "end_turn"}],
            "end_turn",
        ),
        ("responses", [{"status": "completed", "output": OUTPUT}], "completed"),
        (
            "responses",
            [
                {"type": "response.created", "response": {"status": "in_progress", "output": []}},
                {"type": "response.output_text.delta", "delta": "A b"},
                {"type": "response.output_item.done", "item": {"status": "completed"}},
                {
                    "type": "response.incomplete",
                    "response": {
                        "status": "incomplete",
                        "incomplete_details": {"reason": "max_output_tokens"},
                        "output": OUTPUT,
                    },
                },
            ],
            "max_output_tokens",
        ),
    ],
)
def test_an_answer_is_read(kind: Kind, chunks: list[Any], end: str) -> None:
    finished = Finished(kind)
    for chunk in chunks:
        finished.see(chunk)
    assert (finished.text, finished.finish_reason) == ("A b", end)
    assert not finished.tool_calls and not finished.several


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("chat", chat(None, tool_calls=[CALL])),
        ("chat", chat("", "tool_calls")),
        ("chat", {"choices": [{"message": {"content": None, "function_call": {"name": "f"}}}]}),
        ("messages", {"content": [{"type": "text", "text": "x"}, {"type": "tool_use"}]}),
        ("messages", sse(type="content_block_start", content_block={"type": "tool_use"})),
        ("responses", {"status": "completed", "output": [{"type": "function_call"}]}),
    ],
)
def test_a_tool_call_is_seen(kind: Kind, payload: Any) -> None:
    finished = Finished(kind)
    finished.see(payload)
    assert finished.tool_calls


def test_a_second_answer_is_seen() -> None:
    for payload in (
        {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]},
        {"choices": [{"index": 1, "text": "b"}]},
    ):
        finished = Finished("completion")
        finished.see(payload)
        assert finished.several


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_last_chunk_is_marked(kind: Kind) -> None:
    end = SimpleNamespace(choices=[{"finish_reason": "stop"}], system_fingerprint=None)
    go_on = SimpleNamespace(choices=[{"finish_reason": None}], system_fingerprint=None)
    assert marked(end, kind, NOTE) is end and end.flashlane == NOTE
    assert marked(go_on, kind, NOTE) is go_on and not hasattr(go_on, "flashlane")
    assert (end.system_fingerprint is None) == (kind == "completion")
    assert marked({"choices": [{"finish_reason": "stop"}]}, kind, NOTE)["flashlane"] == NOTE  # type: ignore[index]


def test_the_last_event_of_responses_is_marked() -> None:
    for name, ends in (("response.completed", True), ("response.output_text.delta", False)):
        event = SimpleNamespace(type=SimpleNamespace(value=name))
        marked(event, "responses", NOTE)
        assert hasattr(event, "flashlane") == ends


def test_the_message_delta_is_marked_and_nothing_else_changed() -> None:
    for chunk in (MESSAGE[3], MESSAGE[6], b'data: {"type": "message_delta", "usa'):
        assert marked(chunk, "messages", NOTE) == chunk
    done = marked(b"".join(MESSAGE), "messages", NOTE)
    assert isinstance(done, bytes)
    events = [json.loads(line[5:]) for line in done.decode().split("\n") if line[:5] == "data:"]
    assert [event.get("flashlane") for event in events if event["type"] == "message_delta"] == [
        NOTE
    ]
    assert sum("flashlane" in event for event in events) == 1
    assert done.endswith(MESSAGE[6])


def test_signs_of_life_are_comments_or_pings() -> None:
    assert sign_of_life("chat") == sign_of_life("responses") == b": keep-alive\n\n"
    assert sign_of_life("messages") == b'event: ping\ndata: {"type": "ping"}\n\n'


def judge(text: str, *, reason: str = "stop", pflash: dict[str, Any] | None = None) -> Flight:
    checked, check = flight()
    checked.timings["pflash"] = pflash or {"original_tokens": 9, "kept_tokens": 5}
    finished = Finished("chat")
    finished.see(chat(text, reason))
    asyncio.run(accepted(checked, check, finished))
    return checked


def test_verdicts() -> None:
    assert judge(RIGHT).verdict == "accepted"
    assert judge(WRONG).verdict == "doubted"
    assert judge(RIGHT, reason="length").verdict_reasons == "cut_off"
    whole = judge(WRONG, pflash={"original_tokens": 9, "kept_tokens": 9})
    assert (whole.verdict, whole.verdict_reasons) == ("accepted", "whole_prompt")
    left_whole = judge(WRONG, pflash={"reason": "compressor_timeout"})
    assert left_whole.verdict_reasons == "whole_prompt"


def test_a_check_that_fails_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ValueError("secret words of the prompt")

    monkeypatch.setattr("flashlane.verify.judge.verdict", broken)
    assert (judge(RIGHT).verdict, judge(RIGHT).verdict_reasons) == ("doubted", "check_failed")


def test_the_second_pass_is_the_clients_own_request() -> None:
    checked, check = flight()
    checked.whole = {"messages": ["the whole"]}
    metadata = {NUMBER_KEY: 1, "user_api_key": "k", "spend_logs_metadata": {"a": 1}}
    data = {
        "model": "first",
        "messages": ["shorter"],
        "max_tokens": 7,
        "metadata": {**metadata, OWN_FALLBACKS: ["mine"]},
        "fallbacks": ["direct", "mine"],
        "litellm_logging_obj": object(),
        "litellm_call_id": "one",
        "deployment": object(),
    }
    body = second_body(data, checked, check)
    assert body["model"] == "direct" and body["messages"] == ["the whole"]
    assert body["max_tokens"] == 7 and body["fallbacks"] == ["mine"]
    assert "litellm_logging_obj" not in body and "deployment" not in body
    assert body["litellm_call_id"] not in ("one", None)
    assert pass_in(body) == 2 and pass_in(data) == 1
    assert body["metadata"]["user_api_key"] == "k"
    assert body["metadata"]["spend_logs_metadata"] == {
        "a": 1,
        "flashlane": {"pass": 2, "first_call_id": "one"},
    }
    assert metadata["spend_logs_metadata"] == {"a": 1}, "the first call's is left alone"
    del data["metadata"][OWN_FALLBACKS]  # type: ignore[attr-defined]
    assert "fallbacks" not in second_body(data, checked, check)


def test_figures_of_both_passes() -> None:
    checked, check = flight(stream=False)
    checked.see_payload({"timings": {"prompt_n": 50, "prompt_ms": 5.0}, "usage": {"x": 1}})
    checked.judged(False, "quote_absent")
    checked.next_pass()
    checked.see_payload({"timings": {"prompt_n": 100, "prompt_ms": 9.0, "predicted_n": 3}})
    checked.logged(1, 0.5, {"timings": {"prompt_n": 50}, "usage": {"prompt_tokens": 50}})
    assert not check.complete
    checked.logged(2, 1.25, {"usage": {"prompt_tokens": 100}})
    check.settled, checked.answered_by = True, "direct"
    assert check.complete
    record = checked.record("ok", "", store_text=False)
    assert (record.first_pass_tokens, record.first_pass_cost, record.cost) == (50, 0.5, 1.75)
    assert record.prompt_tokens == 100 and record.completion_tokens == 3
    assert record.first_pass_ms is not None and record.ttft_ms == record.first_pass_ms + 9.0
    assert (record.verdict, record.verdict_reasons) == ("doubted", "quote_absent")


def test_a_first_pass_whose_engine_told_nothing_is_counted_by_its_log() -> None:
    checked, _ = flight()
    checked.next_pass()
    checked.logged(1, None, {"usage": {"prompt_tokens": 50}})
    assert checked.first_pass and checked.first_pass.tokens == 50
    assert checked.usage == {}


def test_a_group_that_is_not_the_lanes_is_a_fallback() -> None:
    checked, check = flight()
    checked.attempted("first")
    assert not check.fell_back and not checked.verdict
    checked.timings["pflash"] = {"kept_tokens": 5}
    checked.attempted("direct")
    assert check.fell_back and checked.verdict_reasons == "first_pass_failed"
    assert not checked.timings and checked.first_pass and checked.first_pass.tokens is None
    assert group_in({"litellm_metadata": {"model_group": "g"}}) == "g" and group_in({}) == ""


def test_an_ended_flight_holds_no_prompt() -> None:
    checked, check = flight()
    checked.whole = {"messages": [DOCUMENT]}
    flights = Flights()
    flights.begin(checked)
    assert DOCUMENT in check.original
    flights.end(checked)
    assert check.original == "" and not checked.whole


class Stream:
    """Chunks with a pause before each; `closed` once it was closed or read to its end."""

    def __init__(self, *chunks: Any, pause_s: float = 0.0, swallows: bool = False) -> None:
        self._chunks, self._pause_s, self._swallows = chunks, pause_s, swallows
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._run()

    async def _run(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            try:
                await asyncio.sleep(self._pause_s)
            except asyncio.CancelledError:
                if self._swallows:
                    raise RuntimeError("the connection is gone") from None
                raise
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


def relayed(
    first: Stream,
    second: Stream,
    monkeypatch: pytest.MonkeyPatch,
    *,
    leave_after: int | None = None,
) -> tuple[Flight, list[Any]]:
    checked, check = flight()

    async def run() -> list[Any]:
        async def again(*args: Any) -> Second:
            return Second(second, {})

        monkeypatch.setattr(lane, "second_pass", again)
        chunks = relay(checked, check, {}, first, None, 0.05)  # type: ignore[arg-type]
        got: list[Any] = []
        async for chunk in chunks:
            got.append(chunk)
            if len(got) == leave_after:
                break
        await chunks.aclose()
        return got

    return checked, asyncio.run(run())


def answer(text: str) -> list[dict[str, Any]]:
    return [chat(text), chat(None, "stop")]


def test_nothing_of_a_doubted_pass_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Stream(*answer("direct"))
    checked, got = relayed(Stream(*answer(WRONG)), second, monkeypatch)
    assert [chunk["choices"][0]["delta"]["content"] for chunk in got] == ["direct", None]
    assert got[-1]["flashlane"]["answered_by"] == checked.answered_by == "direct"
    assert second.closed


def test_a_silence_is_filled_in_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Stream(*answer(WRONG), pause_s=0.12), Stream(*answer("direct"), pause_s=0.12)
    checked, got = relayed(first, second, monkeypatch)
    signs = [number for number, chunk in enumerate(got) if chunk == sign_of_life("chat")]
    assert len(signs) >= 4 and signs == list(range(len(signs)))
    assert checked.first_chunk is not None and checked.first_chunk > checked.started + 0.3


def test_a_broken_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Stream(chat("Item 7"), ConnectionError("gone"))
    checked, got = relayed(first, Stream(*answer("direct")), monkeypatch)
    assert len(got) == 2 and checked.verdict_reasons == "first_pass_failed"


def test_a_broken_second_pass_is_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Stream(chat("dir"), ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        relayed(Stream(*answer(WRONG)), second, monkeypatch)
    assert second.closed


@pytest.mark.parametrize("swallows", [False, True])
def test_leaving_ends_the_first_pass(monkeypatch: pytest.MonkeyPatch, swallows: bool) -> None:
    """Also where LiteLLM makes an error of its own out of being cancelled."""
    first, second = Stream(*answer(RIGHT), pause_s=30, swallows=swallows), Stream()
    checked, got = relayed(first, second, monkeypatch, leave_after=1)
    checked.left_unchecked()
    assert got == [sign_of_life("chat")]
    assert checked.verdict == "unchecked" and checked.verdict_reasons == ""
    assert first.closed or swallows


def test_leaving_ends_the_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Stream(*answer("direct"), pause_s=30)
    checked, _ = relayed(Stream(*answer(WRONG)), waiting, monkeypatch, leave_after=1)
    checked.left_unchecked()
    assert waiting.closed and checked.verdict == "doubted" and checked.answered_by == ""
    flowing = Stream(*answer("direct"))
    checked, _ = relayed(Stream(*answer(WRONG)), flowing, monkeypatch, leave_after=1)
    checked.left_unchecked()
    assert flowing.closed and checked.verdict == "doubted" and checked.answered_by == "direct"


def test_a_whole_response_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, check = flight(stream=False)
    good = {"choices": [{"message": {"content": RIGHT}, "finish_reason": "stop"}]}

    async def never(*args: Any) -> None:
        raise AssertionError("no second pass is needed")

    monkeypatch.setattr(lane, "second_pass", never)
    assert asyncio.run(settle(checked, check, {}, good, None)) is good
    assert checked.answered_by == "verify"
