"""How long a decision takes: reading a request, its exactness and the decision, in this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.haystacks import haystack
from bench.router.context import Context
from bench.store import Json, Record
from flashlane.config import PolicyConfig
from flashlane.decision import LaneOption
from flashlane.exactness import exactness
from flashlane.policy import decide
from flashlane.request import Lane, read_request

TOKENS = (4_000, 128_000)
_CHARS_PER_TOKEN = 4
_RUNS = 2_000
_LANES: dict[Lane, LaneOption] = {
    "direct": LaneOption("local", 300.0),
    "pflash": LaneOption("local-pflash", 300.0, 3000.0),
    "verify": LaneOption("local-verify", 300.0, 3000.0),
}


@dataclass(frozen=True)
class Times:
    """Of one shape of a request, in ms; `part` is `all` or one step."""

    shape: str
    tokens: int
    part: str
    runs: int
    p50_ms: float
    p99_ms: float


def measure(context: Context) -> list[Times]:
    def hold() -> Record:
        found: list[Json] = [asdict(row) for row in _run(context)]
        return {"rows": found}

    rows = context.store.case(context.key("speed", runs=_RUNS), hold)["rows"]
    assert isinstance(rows, list)
    return [Times(**row) for row in rows if isinstance(row, dict)]  # type: ignore[arg-type]


def slowest(rows: Sequence[Times], tokens: int) -> float | None:
    """The worst p99 of any shape with so many tokens, all steps together."""
    return max((r.p99_ms for r in rows if r.tokens == tokens and r.part == "all"), default=None)


def summary(rows: Sequence[Times]) -> list[Json]:
    return [asdict(row) for row in rows]


def _run(context: Context) -> Iterator[Times]:
    shapes = [(tokens, *shape) for tokens in TOKENS for shape in _shapes(tokens)]
    runs = _RUNS if context.options.quick is None else 200
    for tokens, shape, body in context.cases("speed", shapes, limit=False):
        for part, step in _steps(body).items():
            times = _timed(step, runs)
            p50, p99 = times[len(times) // 2], times[int(0.99 * len(times))]
            yield Times(shape, tokens, part, len(times), round(p50, 4), round(p99, 4))


def _steps(body: dict[str, Any]) -> dict[str, Callable[[], object]]:
    policy = PolicyConfig()
    view = read_request(body)
    signals = exactness(view)
    return {
        "all": lambda: _decided(body, policy),
        "reading": lambda: read_request(body),
        "exactness": lambda: exactness(view),
        "decision": lambda: decide(view, signals, policy, _LANES),
    }


def _decided(body: dict[str, Any], policy: PolicyConfig) -> object:
    view = read_request(body)
    return decide(view, exactness(view), policy, _LANES)


def _timed(step: Callable[[], object], runs: int) -> list[float]:
    """Milliseconds of processor time, sorted: another process on this core is not the router's."""
    found = []
    for _ in range(20):
        step()
    gc.collect()
    for _ in range(runs):
        started = time.thread_time_ns()
        step()
        found.append((time.thread_time_ns() - started) / 1e6)
    return sorted(found)


def _shapes(tokens: int) -> Iterator[tuple[str, dict[str, Any]]]:
    chars = tokens * _CHARS_PER_TOKEN
    prose, code = (_text(kind, chars) for kind in ("essays", "code"))
    ask = "Which ship is named in the third entry, and why does it matter?"
    yield "ask after prose", _chat(f"{prose}\n\n{ask}")
    yield "ask before code", _chat(f"{ask}\n\n{code}")
    turns = []
    for index, start in enumerate(range(0, chars, 800)):
        role = "assistant" if index % 2 else "user"
        turns.append({"role": role, "content": prose[start : start + 800]})
    yield "long chat", {"messages": [*turns, {"role": "user", "content": ask}]}
    yield "not ASCII", _chat(f"{_mixed(prose)}\n\n{ask}")
    yield "no ask", _chat(code)


def _chat(content: str) -> dict[str, Any]:
    return {"model": "local", "messages": [{"role": "user", "content": content}]}


def _text(kind: str, chars: int) -> str:
    text = "".join(haystack(kind, min(chars, 60_000), "reported", f"speed/{kind}", len))
    return (text * (chars // len(text) + 1))[:chars]


def _mixed(text: str) -> str:
    """One character in a hundred is not ASCII."""
    return "é".join(text[i : i + 99] for i in range(0, len(text), 100))
