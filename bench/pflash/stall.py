"""What scoring a long prompt does to a request that is decoding meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from statistics import median

from bench.pflash.context import Context
from bench.pflash.timing import document
from bench.process import ServerError
from bench.server import Message, Server
from bench.store import Json, Record, number

_PROMPT_TOKENS = 16_384
_SLOT_TOKENS = 20_480
_RUNS = 3
_ALONE_S = 6.0  # of undisturbed decoding, before and after
_DECODE_LIMIT_TOKENS = 6000
_QUESTION = "Which of the things above was delayed the longest?"


@dataclass(frozen=True)
class Stall:
    """Decode speed in tokens/s and the longest wait for a token, alone and while scoring.

    `prefill_longest_ms` is the longest wait while the kept tokens were prefilled: the server's own
    batching, with or without PFlash.
    """

    alone_speed: float
    scoring_speed: float
    alone_longest_ms: float
    scoring_longest_ms: float
    prefill_longest_ms: float
    score_ms: float

    @property
    def speed_ratio(self) -> float:
        return self.scoring_speed / self.alone_speed if self.alone_speed else 0.0


def measure(context: Context) -> list[Stall]:
    """Nothing where no model scores. Raises `ServerError` when the prompt was not scored."""
    if context.options.score != "model":
        return []
    with context.target("stall", 2 * _SLOT_TOKENS, "--parallel", "2") as server:
        found = []
        for run in context.cases("stall", range(_RUNS)):
            key = context.key("stall", run=run, tokens=_PROMPT_TOKENS)
            record = context.store.case(key, partial(_run, server, run))
            found.append(Stall(**{name: number(record, name) for name in record}))
    return found


def summary(rows: Sequence[Stall]) -> list[Json]:
    return [{name: round(value, 2) for name, value in asdict(row).items()} for row in rows]


def speed_ratio(rows: Sequence[Stall]) -> float | None:
    return median(row.speed_ratio for row in rows) if rows else None


def longest_ms(rows: Sequence[Stall]) -> float | None:
    return max(row.scoring_longest_ms for row in rows) if rows else None


def speed(arrivals: Sequence[float], begin: float, end: float) -> float:
    """Tokens per second that arrived in [begin, end), seconds of time.monotonic()."""
    return sum(begin <= at < end for at in arrivals) / (end - begin) if end > begin else 0.0


def longest_gap_ms(arrivals: Sequence[float], begin: float, end: float) -> float:
    """The longest wait for a token that overlaps [begin, end), counted within it.

    The edges count as arrivals, so a stream that stops for the whole time shows all of it.
    """
    inside = [begin, *(at for at in sorted(arrivals) if begin <= at < end), end]
    return max((b - a for a, b in pairwise(inside)), default=0.0) * 1e3


class _Decoding:
    """A request that decodes in a thread until it is told to stop."""

    def __init__(self, server: Server) -> None:
        self.arrivals: list[float] = []
        self._server = server
        self._stop = threading.Event()
        self._failure: ServerError | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Decoding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raises what ended the stream before it was told to stop."""
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive():
            raise ServerError("the decoding request ended before the measurement did")

    def _run(self) -> None:
        messages: list[Message] = [{"role": "user", "content": "Count from one to ten thousand."}]
        stream = self._server.stream(
            messages,
            max_tokens=_DECODE_LIMIT_TOKENS,
            ignore_eos=True,
            id_slot=0,
            pflash={"mode": "off"},
        )
        try:
            for arrival in stream:
                self.arrivals.append(arrival.at_s)
                if self._stop.is_set():
                    break
        except ServerError as error:
            self._failure = error
        finally:
            stream.close()


def _run(server: Server, run: int) -> Record:
    text = document(server, _PROMPT_TOKENS, f"stall/{run}")
    with _Decoding(server) as decoding:
        while len(decoding.arrivals) < 5:
            time.sleep(0.05)
            decoding.check()
        before = time.monotonic()
        time.sleep(_ALONE_S)
        sent = time.monotonic()
        answer = server.chat(
            [{"role": "user", "content": f"{text}\n\n{_QUESTION}"}],
            max_tokens=1,
            cache_prompt=False,
            id_slot=1,
            pflash={"mode": "always", "keep_ratio": 0.1, "min_keep_tokens": 0},
        )
        done = time.monotonic()
        time.sleep(_ALONE_S)
        end = time.monotonic()
        decoding.check()
        arrivals = list(decoding.arrivals)
    about = answer.timings.pflash
    if about is None or about.kept_tokens >= about.original_tokens:
        raise ServerError(f"the prompt was not scored: {about.reason if about else 'no report'}")
    score_ms = about.score_ms
    # Scoring comes first in a request, so it ends about its own length after the request was sent.
    scored = sent + score_ms / 1e3
    return {
        "alone_speed": (speed(arrivals, before, sent) + speed(arrivals, done, end)) / 2,
        "scoring_speed": speed(arrivals, sent, scored),
        "alone_longest_ms": max(
            longest_gap_ms(arrivals, before, sent), longest_gap_ms(arrivals, done, end)
        ),
        "scoring_longest_ms": longest_gap_ms(arrivals, sent, scored),
        "prefill_longest_ms": longest_gap_ms(arrivals, scored, done),
        "score_ms": score_ms,
    }
