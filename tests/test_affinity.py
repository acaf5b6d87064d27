"""Affinity over time: what answers teach, what failures take away. Only the clock is not real."""

from __future__ import annotations

import asyncio
from typing import Any

from flashlane.affinity import Affinity, Measured, Server, Trip, hint_of
from flashlane.config import AffinityConfig
from flashlane.prefix import Chain, chain_of

DOCUMENT = "The harbour opened in 1901 and closed in 1950. " * 100
A, B = (Server(label, label, slots=2, prefill_tokens_per_s=100.0) for label in "ab")
TOKENS = 1180
"""Estimated tokens of `trip()`."""


def trip(name: str = "x", text: str = DOCUMENT, hint: bytes = b"") -> Trip:
    body = {"messages": [{"role": "user", "content": text}]}
    chain = chain_of(body, "chat")
    assert chain is not None
    return Trip(name, "chat", "g", chain, hint)


class Played:
    """An affinity whose clock goes on a second with each step."""

    def __init__(self, **config: Any) -> None:
        self.affinity = Affinity(AffinityConfig(**config))
        self.now = 1000.0

    def choose(self, on: Trip, *servers: Server, group: str = "g") -> tuple[str, ...]:
        self.now += 1
        on.group = group
        chosen = asyncio.run(self.affinity.choose(on, servers or (A, B), self.now))
        self.reason = chosen.reason
        return chosen.labels

    def serve(self, on: Trip, server: Server, reused: int | None = None, **told: Any) -> None:
        self.now += 1
        asyncio.run(self.affinity.sent(on, server, self.now))
        asyncio.run(self.affinity.answered(on, Measured(reused_tokens=reused, **told), self.now))

    def gone(self, server: Server) -> None:
        asyncio.run(self.affinity.gone(server.id))


def test_a_prompt_goes_where_its_beginning_was_served() -> None:
    played = Played()
    assert played.choose(trip()) == ("a", "b")
    played.serve(trip(), B)
    assert played.choose(trip(text=f"{DOCUMENT} And more.")) == ("b",)
    assert played.choose(trip(text=f"Other. {DOCUMENT}")) == ("a", "b")


def test_another_group_is_another_model() -> None:
    played = Played()
    first = trip()
    played.choose(first)
    played.serve(first, B)
    assert played.choose(trip(), group="other") == ("a", "b")
    assert played.choose(trip()) == ("b",)


def test_a_server_that_has_ended_holds_nothing() -> None:
    played = Played()
    played.serve(trip(), B)
    played.gone(B)
    assert played.choose(trip()) == ("a", "b")
    restarted = Server("b@2", "b", slots=2, prefill_tokens_per_s=100.0)
    assert played.choose(trip(), A, restarted) == ("a", "b")


def test_one_that_found_nothing_loses_what_is_as_old() -> None:
    played = Played()
    older, newer = f"Older. {DOCUMENT}", f"Newer. {DOCUMENT}"
    played.serve(trip(text=older), B)
    played.serve(trip(), B)
    played.serve(trip(text=newer), B)
    lost = trip()
    assert played.choose(lost) == ("b",)
    played.serve(lost, B, reused=0)
    assert played.choose(trip(text=older)) == ("a", "b")
    assert played.choose(trip(text=newer)) == ("b",)
    assert played.choose(trip()) == ("b",)  # it has just read it


def test_one_that_found_most_of_it_loses_nothing() -> None:
    played = Played()
    older = f"Older. {DOCUMENT}"
    played.serve(trip(text=older), B)
    played.serve(trip(), B)
    again = trip()
    played.choose(again)
    played.serve(again, B, reused=TOKENS // 2)
    assert played.choose(trip(text=older)) == ("b",)


def test_an_answer_that_says_nothing_of_its_cache_proves_nothing() -> None:
    played = Played()
    played.serve(trip(), B)
    again = trip()
    played.choose(again)
    played.serve(again, B, reused=None)
    assert played.choose(trip()) == ("b",)


def test_a_server_that_never_keeps_anything_is_no_longer_preferred() -> None:
    played = Played(min_saving_ms=2000.0)
    for _ in range(12):
        on = trip()
        played.choose(on)
        played.serve(on, B, reused=0)
    assert played.choose(trip()) == ("a", "b")


def test_queues_are_weighed_with_what_answers_took() -> None:
    played = Played()
    told = {"processed_tokens": 1180, "prefill_ms": 1180.0, "busy_ms": 4000.0}
    for _ in range(20):
        played.serve(trip(), A, **told)
        played.serve(trip("y", text="Another. " * 99), B, **told)
    for number in range(3):
        on = trip(f"waiting {number}")
        assert played.choose(on) == (("a",) if number < 2 else ("b",))
    assert played.reason.code == "prefix_overloaded"
    assert "1 queued x 4000 ms / 2 slots" in played.reason.text


def test_who_has_answered_nothing_is_thought_to_be_like_the_others() -> None:
    played = Played()
    told = {"processed_tokens": 1180, "prefill_ms": 118_000.0, "busy_ms": 118_000.0}
    on = trip()
    played.choose(on)
    played.serve(on, B, **told)
    assert played.choose(trip()) == ("b",)
    assert "a: 0 ms wait + 117900 ms prefill" in played.reason.text


def test_a_failed_attempt_goes_to_the_other_server_next() -> None:
    played = Played()
    played.serve(trip(), B)
    on = trip()
    assert played.choose(on) == ("b",)
    assert played.choose(on) == ("a",)
    assert played.choose(on) == ("b",)  # no third one
    (found, _) = asyncio.run(played.affinity.holdings.look(["a", "b"], [b""], played.now))
    assert found.in_flight == 0


def test_a_server_that_is_starting_waits_for_its_turn() -> None:
    played = Played()
    played.serve(trip(), B)
    starting = Server("b", "b", slots=2, prefill_tokens_per_s=100.0, ready=False)
    assert played.choose(trip(), A, starting) == ("a",)
    assert played.choose(trip(), starting) == ("b",)


def test_estimates_follow_what_engines_count() -> None:
    played = Played()
    for _ in range(30):
        played.serve(trip(), B, prompt_tokens=2 * TOKENS)
    assert played.choose(trip()) == ("b",)
    assert f"of {2 * TOKENS} tokens held" in played.reason.text


def test_a_request_without_a_beginning_is_counted() -> None:
    played = Played()
    for number in range(3):
        played.choose(Trip(f"{number}", "completion", "g", Chain()), A)
    (found,) = asyncio.run(played.affinity.holdings.look(["a"], [], played.now))
    assert found.in_flight == 3


def test_a_cache_key_is_a_hint_of_its_owner_alone() -> None:
    played = Played()
    mine = hint_of("owner", "key")
    played.serve(trip(text="Hello there.", hint=mine), B)
    fresh = f"Never seen. {DOCUMENT}"
    assert played.choose(trip(text=fresh, hint=mine)) == ("b",)
    assert played.reason.code == "cache_key"
    assert played.choose(trip("z", text=fresh, hint=hint_of("other", "key"))) == ("a", "b")
    assert played.choose(trip("z", text=fresh, hint=hint_of("owner", "b"))) == ("a", "b")
    played.serve(trip("w", text=fresh), A)
    assert played.choose(trip("z", text=fresh, hint=mine)) == ("a",)


def test_hints_are_names_of_text_alone() -> None:
    assert hint_of("owner", None) == hint_of("owner", 7) == hint_of("owner", "") == b""
    assert hint_of("a", "bc") != hint_of("ab", "c")
