"""What earlier answers bring to a decision, and what an answer leaves: without a process."""

from __future__ import annotations

import asyncio
import random
import time
import timeit
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flashlane.affinity import Affinity
from flashlane.config import AffinityConfig, Deployment, FlashlaneConfig
from flashlane.decision import Decision, Recollection, Signals
from flashlane.exactness import exactness
from flashlane.flight import FirstPass, Flight
from flashlane.gears import limit_in
from flashlane.lanes import Engine, backend_engine, lane_options, lane_plans
from flashlane.learning import Learning, Outlook, memory_name, traces_of
from flashlane.policy import decide
from flashlane.request import RequestView, read_request
from flashlane.speeds import Figures, Key, Mean
from flashlane.verify.check import Check

BASE = "http://127.0.0.1:18160/v1"
TEXT = "Item 7 of the first shed was put on the upper shelf by the keeper. " * 250
DEPLOYMENTS = (
    Deployment("local", BASE, "llamafile/local"),
    Deployment("local-pflash", BASE, "llamafile/local"),
    Deployment("far", "https://gpu.example/v1", "openai/big"),
)


def config_of(**fields: Any) -> FlashlaneConfig:
    return FlashlaneConfig.model_validate(
        {
            "backends": {
                "local": {
                    "model": "m",
                    "port": 18160,
                    "pflash": {"mode": "auto"},
                    "speeds": {"prefill_tokens_per_s": 300},
                    **fields.pop("backend", {}),
                }
            },
            "lanes": {"local": {"pflash": "local-pflash"}},
            **fields,
        }
    )


CONFIG = config_of()
ENGINE = backend_engine(CONFIG, "local")


@dataclass
class Places:
    run: str = "r1"
    limit: int = 0

    def server_id(self, engine: Engine) -> str:
        return f"{engine.label}@{self.run}" if self.run and engine.backend else ""

    def gear_limit(self, backend: str) -> int:
        return self.limit


@dataclass
class World:
    """One worker, one engine that forgets nothing, and a clock that the tests need not wait for."""

    learning: Learning
    places: Places = field(default_factory=Places)
    config: FlashlaneConfig = CONFIG

    def look(
        self, body: dict[str, Any], owner: str = "key", asked: int | None = None
    ) -> tuple[Decision, Outlook, RequestView, Signals]:
        view = read_request({"model": "local", **body}, None, "chat")
        signals = exactness(view)
        found = self.learning.outlook(
            self.config,
            DEPLOYMENTS,
            view,
            signals,
            body,
            owner,
            self.places,
            lambda group: True,
            asked,
        )
        decision = decide(view, signals, self.config.policy, found.lanes, found.memory)
        return decision, found, view, signals

    def turn(self, body: dict[str, Any], owner: str = "key", **timings: Any) -> Decision:
        """A request and its answer."""
        decision, found, _, _ = self.look(body, owner)
        flight = Flight("f", "r", "", "chat", "local", False)
        flight.announce(decision, {})
        flight.memory, flight.belief = found.memory_name, found.belief
        asyncio.run(self.learning.name_beginnings(flight, body, "chat"))
        self.learning.reached(
            flight, self.config, DEPLOYMENTS, decision.group, BASE, f"local@{self.places.run}"
        )
        held = decision.costs[decision.lane].cached_tokens
        told = {"prompt_n": decision.estimated_tokens - held, "cache_n": held}
        flight.timings = {**told, **timings}
        self.learning.answered(flight, self.config)
        return decision


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    learning = Learning(tmp_path / "learned.sqlite", Affinity(AffinityConfig()))
    yield World(learning)
    learning.file.close()


def body(*asks: str, text: str = TEXT) -> dict[str, Any]:
    """A chat that began with `text`."""
    messages = [{"role": "user", "content": f"{text}\n\n{asks[0]}"}]
    for ask in asks[1:]:
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": ask}]
    return {"messages": messages}


BROAD, EXACT = "Summarise the text.", "Count the items."


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


def test_another_model_and_other_arguments_are_another_engine() -> None:
    names = {
        backend_engine(config_of(backend=fields), "local").name
        for fields in ({}, {"model": "n"}, {"args": ["-fa", "on"]}, {"threads": 3}, {"slots": 7})
    }
    assert len(names) == 4, "how many at once is no other speed"


def test_what_was_learned_takes_the_place_of_the_seeds() -> None:
    plans = lane_plans(CONFIG, DEPLOYMENTS, "local")
    assert lane_options(plans)["direct"].prefill_tokens_per_s == 300.0
    figures = Figures(
        {
            Key(ENGINE.name, "prefill"): Mean(50.0, 5),
            Key(ENGINE.name, "scorer"): Mean(5000.0, 5),
            Key(ENGINE.name, "tokens_per_estimate"): Mean(1.4, 5),
            Key(ENGINE.name, "overhead_ms"): Mean(80.0, 5),
            Key("local/other/00", "prefill"): Mean(1.0, 5),
        }
    )
    for option in lane_options(plans, figures=figures).values():
        assert (option.prefill_tokens_per_s, option.scorer_tokens_per_s) == (50.0, 5000.0)
        assert (option.tokens_per_estimate, option.overhead_ms) == (1.4, 80.0)
    far = lane_options(lane_plans(CONFIG, DEPLOYMENTS, "far"), figures=figures)
    assert far["direct"].prefill_tokens_per_s == 100.0


def test_costs_have_parts_that_add_up(world: World) -> None:
    world.learning.speeds._figures = Figures(
        {
            Key(ENGINE.name, "scorer"): Mean(20_000.0, 5),
            Key(ENGINE.name, "overhead_ms"): Mean(80.0, 5),
        }
    )
    decision, *_ = world.look(body(BROAD))
    cost = decision.costs["pflash"]
    assert cost.overhead_ms == 80.0 and cost.score_ms > 100.0 and cost.second_ms == 0.0
    assert decision.costs_ms["pflash"] == cost.score_ms + cost.prefill_ms + cost.overhead_ms


def test_a_text_that_another_conversation_left_is_cached(world: World) -> None:
    assert world.look(body(BROAD))[0].lane == "pflash"
    assert world.turn(body(EXACT)).lane == "direct"
    decision, found, view, _ = world.look(body(BROAD))
    assert found.memory is None, "another ask, another conversation"
    assert decision.lane == "direct" and codes(decision)[-1] == "no_saving"
    assert decision.costs["direct"].cached_tokens > 0.95 * view.estimated_tokens
    assert world.look(body(BROAD, text=f"New. {TEXT}"))[0].lane == "pflash"


def test_what_was_shortened_otherwise_is_not_cached(world: World) -> None:
    kept = body(BROAD)
    assert world.turn(kept).keep_ratio == 0.4
    other = body("Explain the text.")
    assert world.look(other)[0].costs["pflash"].cached_tokens > 3000
    wider = {**other, "pflash_keep_ratio": 0.7}
    assert world.look(wider)[0].costs["pflash"].cached_tokens == 0


def test_another_run_has_an_empty_cache_unless_it_keeps_a_store(world: World) -> None:
    world.turn(body(EXACT))
    world.places.run = "r2"
    for asks in ((BROAD,), (EXACT, BROAD)):
        assert world.look(body(*asks))[0].costs["direct"].cached_tokens == 0
    world.config = config_of(backend={"kvflash": {"store": "/s", "store_mb": 9}})
    assert world.look(body(EXACT, BROAD))[0].costs["direct"].cached_tokens > 3000


def test_a_cache_that_disappoints_counts_for_less(world: World) -> None:
    asks = [EXACT]
    for number in range(8):
        world.turn(body(*asks), cache_n=0)
        asks.append(f"Count the items of shed {number}.")
    decision, found, view, _ = world.look(body(*asks))
    assert found.belief and found.belief.tokens > 3000
    assert decision.costs["direct"].cached_tokens < 0.2 * view.estimated_tokens
    for number in range(12):
        world.turn(body(*asks), cache_n=view.estimated_tokens, prompt_n=1)
        asks.append(f"Count the items of barn {number}.")
    decision, _, view, _ = world.look(body(*asks))
    assert decision.costs["direct"].cached_tokens > 0.8 * view.estimated_tokens


def test_a_conversation_is_its_owners_alone(world: World) -> None:
    world.turn(body(EXACT), owner="one")
    view = read_request({"model": "local", **body(EXACT, BROAD)}, None, "chat")
    assert memory_name("one", view) != memory_name("two", view)
    assert world.look(body(EXACT, BROAD), "one")[1].memory is not None
    assert world.look(body(EXACT, BROAD), "two")[1].memory is None


def test_no_flip_loses_a_prefix_for_nothing(world: World) -> None:
    """200 conversations of ten turns, whatever is asked in whatever order."""
    draw = random.Random(5)
    flips = 0
    for number in range(200):
        text = f"Shed {number}. {TEXT[: draw.randrange(4_000, len(TEXT))]}"
        asks = [draw.choice((BROAD, EXACT, "Explain the text."))]
        last: Decision | None = None
        for _ in range(10):
            decision, found, _, signals = world.look(body(*asks, text=text))
            if last is not None and decision.lane != last.lane:
                flips += 1
                held = found.memory.held[last.lane].tokens if found.memory else 0
                saved_ms = decision.costs_ms[last.lane] - decision.costs_ms[decision.lane]
                forced = signals.exact and decision.lane == "direct"
                assert forced or not held or saved_ms > world.config.policy.flip_margin_ms
                assert "flips" in codes(decision)
            last = world.turn(body(*asks, text=text))
            asks.append(draw.choice((BROAD, EXACT, "Explain the text.")))
    assert 20 < flips < 250, "from compressed to direct where an ask is exact, and never back"


def flight_of(lane: Any, group: str, **fields: Any) -> Flight:
    flight = Flight("f", "r", "", "chat", "local", False)
    flight.decision = Decision(lane, group, False, 0.4, None, (), estimated_tokens=3000)
    for name, value in fields.items():
        setattr(flight, name, value)
    return flight


def test_an_answer_leaves_traces_where_it_was_made() -> None:
    def left(flight: Flight) -> list[tuple[str, float, str, bool]]:
        return [(t.lane, t.keep_ratio, t.server, t.last) for t in traces_of(flight, 1.0)]

    plain = flight_of("pflash", "p")
    plain.reached("p", "e", "a@1")
    assert left(plain) == [("pflash", 0.4, "a@1", True)]
    fallen = flight_of("pflash", "p")
    fallen.reached("p", "e", "a@1")
    fallen.reached("local", "e", "b@1")
    assert left(fallen) == [("direct", 1.0, "b@1", True)]
    doubted = flight_of("verify", "p", check=Check(None, "p", "local"))
    doubted.reached("p", "e", "a@1")
    doubted.first_pass = FirstPass(100, 10.0)
    doubted.reached("local", "e", "b@1")
    assert left(doubted) == [("verify", 0.4, "a@1", True), ("direct", 1.0, "b@1", False)]


def test_gears_come_with_a_drafter_alone(world: World) -> None:
    world.config = config_of(gears={"mode": "auto", "choices": [0, 4, 32]})
    assert world.look(body(EXACT))[0].gear is None
    world.places.limit = 15
    decision = world.look(body(EXACT))[0]
    assert decision.gear == 4 and codes(decision)[-1] == "gear_start"
    assert world.look(body(EXACT))[1].lanes["direct"].drafting.choices == (0, 4, 15)  # type: ignore[union-attr]
    for asked, gear in ((2, 2), (0, 0), (99, 15)):
        decision = world.look(body(EXACT), asked=asked)[0]
        assert (decision.gear, codes(decision)[-1]) == (gear, "gear_asked")
    world.config = config_of()
    assert world.look(body(EXACT), asked=2)[0].gear is None, "left to the client and the engine"


@pytest.mark.parametrize(
    ("props", "limit"),
    [
        ({"gears": {"types": ["draft-dflash"], "n_max": 15}}, 15),
        ({"gears": {"types": [], "n_max": 0}}, 0),
        ({"gears": {"types": [], "n_max": 7}}, 0),
        ({}, None),
        ([], None),
        ({"gears": {"types": ["x"], "n_max": "15"}}, None),
        ({"gears": {"types": "x", "n_max": 15}}, None),
        ({"gears": {"types": ["x"], "n_max": -1}}, None),
    ],
    ids=str,
)
def test_what_a_server_says_of_its_drafter(props: object, limit: int | None) -> None:
    assert limit_in(props) == limit


def test_what_fails_to_be_learned_costs_no_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(world.learning.speeds, "learn", fails)
    assert world.turn(body(EXACT), prompt_ms=1000.0).lane == "direct"


def test_an_answer_is_taken_in_once(world: World) -> None:
    flight = flight_of("direct", "local", timings={"prompt_n": 500, "prompt_ms": 1000.0})
    world.learning.reached(flight, CONFIG, DEPLOYMENTS, "local", BASE, "local@r1")
    for _ in range(3):
        world.learning.answered(flight, CONFIG)
    means = world.learning.speeds.figures().means
    assert means[Key(ENGINE.name, "prefill")] == Mean(400.0, 2), "the seed and one sample"


def test_two_workers_remember_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "learned.sqlite"
    worlds = [World(Learning(path, Affinity(AffinityConfig()))) for _ in range(2)]
    try:
        for one in worlds:
            one.look(body(EXACT))
        worlds[0].turn(body(EXACT), prompt_ms=90_000.0)
        deadline = time.monotonic() + 10
        found: Recollection | None = None
        while found is None and time.monotonic() < deadline:
            time.sleep(0.05)
            found = worlds[1].look(body(EXACT, BROAD))[1].memory
        assert found is not None and found.held["direct"].tokens > 3000
        learned = [w.learning.speeds.figures().of(ENGINE.name, "prefill") for w in worlds]
        assert learned[0] == learned[1] and learned[0] != 300.0
    finally:
        for one in worlds:
            one.learning.file.close()


def test_a_prompt_that_nobody_holds_is_not_hashed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.turn(body(EXACT))
    looks: list[str] = []
    local = world.learning._affinity.holdings.local
    monkeypatch.setattr(local, "last_use", lambda server, link, now: looks.append(server))
    world.look(body(BROAD, text=f"New. {TEXT}"))
    assert looks == ["local@r1"] * 2, "once for each lane"


@pytest.mark.parametrize("case", ["fresh", "known text", "later turn"])
def test_a_decision_costs_next_to_nothing(world: World, case: str) -> None:
    """Beside reading and exactness: with figures, gears, and a thousand conversations."""
    world.config = config_of(gears={"mode": "auto"})
    world.places.limit = 15
    for number in range(1000):
        world.turn(body(EXACT, text=f"Shed {number}. {TEXT[:5000]}"))
    world.turn(body(EXACT))
    asks = (EXACT, BROAD) if case == "later turn" else (BROAD,)
    request = body(*asks, text=f"Fresh. {TEXT}" if case == "fresh" else TEXT)
    view = read_request({"model": "local", **request}, None, "chat")
    signals = exactness(view)

    def once() -> None:
        found = world.learning.outlook(
            world.config,
            DEPLOYMENTS,
            view,
            signals,
            request,
            "key",
            world.places,
            lambda group: True,
        )
        decide(view, signals, world.config.policy, found.lanes, found.memory)

    assert (world.look(request)[1].memory is not None) == (case == "later turn")
    took_ms = min(timeit.repeat(once, timer=time.thread_time, number=50, repeat=8)) / 50 * 1000
    print(f"{took_ms:.4f} ms")
    assert took_ms < 0.2, took_ms
