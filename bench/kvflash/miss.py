"""What KVFlash costs a request whose prefix is nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench.kvflash.context import Context
from bench.kvflash.replay import DENSE
from bench.kvflash.texts import Words
from bench.server import Completion, Server
from bench.store import Json, Record, number

SMALL = "small"
_PAIRS: Mapping[str, int] = {DENSE: 60, SMALL: 20}
_PROMPT_TOKENS = 512
_CTX_TOKENS = 4096
_SETTLING = 3  # prompts before, so that each later one takes a slot from another


@dataclass(frozen=True)
class Miss:
    """The same fresh prompt with KVFlash and without: the whole request, and its prefill. Ms."""

    model: str
    on_ms: float
    on_prefill_ms: float
    off_ms: float
    off_prefill_ms: float

    @property
    def extra_ms(self) -> float:
        """Of the time around the prefill: where KVFlash looks, and saves what loses its slot."""
        return (self.on_ms - self.on_prefill_ms) - (self.off_ms - self.off_prefill_ms)

    @property
    def extra_share(self) -> float:
        """Of the whole request, in prefills."""
        return (self.on_ms - self.off_ms) / self.off_prefill_ms


def measure(context: Context) -> list[Miss]:
    rows = []
    for model, pairs in _PAIRS.items():
        with (
            context.kvflash("miss-on", model, _CTX_TOKENS) as on,
            context.upstream("miss-off", model, _CTX_TOKENS) as off,
        ):
            words = context.words(model, on)
            for server in (on, off):
                for number_ in range(_SETTLING):
                    server.complete(words(f"miss/settling/{number_}", _PROMPT_TOKENS), 1)
            for pair in context.cases(f"miss, {model}", range(pairs)):
                key = context.key("miss", model, pair=pair, tokens=_PROMPT_TOKENS)
                record = context.store.case(key, partial(_pair, on, off, words, pair))
                rows.append(Miss(model, **{name: number(record, name) for name in record}))
    return rows


def extra_ms(rows: Sequence[Miss], model: str) -> float | None:
    these = [row.extra_ms for row in rows if row.model == model]
    return median(these) if these else None


def extra_share(rows: Sequence[Miss], model: str) -> float | None:
    these = [row.extra_share for row in rows if row.model == model]
    return median(these) if these else None


def summary(rows: Sequence[Miss]) -> list[Json]:
    found: list[Json] = []
    for model in dict.fromkeys(row.model for row in rows):
        these = [row for row in rows if row.model == model]
        found.append(
            {
                "model": model,
                "pairs": len(these),
                "on_ms": round(median(r.on_ms for r in these), 2),
                "off_ms": round(median(r.off_ms for r in these), 2),
                "prefill_ms": round(median(r.off_prefill_ms for r in these), 2),
                "extra_around_prefill_ms": extra_ms(rows, model),
                "extra_share_of_prefill": extra_share(rows, model),
            }
        )
    return found


def _pair(on: Server, off: Server, words: Words, pair: int) -> Record:
    prompt = words(f"miss/{pair}", _PROMPT_TOKENS)
    servers = {"on": on, "off": off}
    done: dict[str, Completion] = {}
    for name in list(servers) if pair % 2 else list(servers)[::-1]:
        done[name] = servers[name].complete(prompt, 1)
    record: Record = {}
    for name in servers:
        record[f"{name}_ms"] = done[name].wall_ms
        record[f"{name}_prefill_ms"] = done[name].timings.prompt_ms
    return record
