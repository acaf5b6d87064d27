"""Time to first token behind a known prefix from each tier, with KVFlash and without."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.kvflash.context import PAGE_TOKENS, Context
from bench.kvflash.replay import TARGET
from bench.kvflash.texts import Words
from bench.server import Completion, Server
from bench.store import Json, Record, number
from bench.summary import median_ratio

TIERS = ("slot", "sibling", "ram", "disk")
PREFIX_TOKENS, NEW_TOKENS = 4096, 64
_FILLER_TOKENS = 256
_GROUPS = 3
_CTX_TOKENS = 12_288  # the prefix twice, fillers, and what is new
_STORE_MIB = _MEMORY_MIB = 4096


@dataclass(frozen=True)
class Warm:
    """One group's request on one tier: the prefix known, the same new tokens. Milliseconds.

    `own`: these new tokens without KVFlash, the prefix in the slot. `cold`: prefix and as many new
    tokens without KVFlash, nothing known. `found` is the tier that the server reports.
    """

    group: int
    tier: str
    found: str
    warm_ms: float
    warm_cpu_ms: float
    own_ms: float
    own_cpu_ms: float
    cold_ms: float
    cold_cpu_ms: float
    cold_prefill_ms: float
    processed: int
    restore_ms: float

    @property
    def brought_back_ms(self) -> float:
        """The restore; of a state that was not where it should be, the whole request."""
        return self.restore_ms if self.found == self.tier else self.warm_ms


def measure(context: Context) -> list[Warm]:
    found = []
    for group in context.cases("ttft", range(_GROUPS)):
        key = context.key(
            "ttft", TARGET, group=group, lengths=[PREFIX_TOKENS, NEW_TOKENS, _FILLER_TOKENS]
        )
        record = context.store.case(key, partial(_group, context, group))
        found += [_row(record, group, tier) for tier in TIERS]
    return found


def select(rows: Sequence[Warm], tier: str) -> list[Warm]:
    return [row for row in rows if row.tier == tier]


def ratio(rows: Sequence[Warm], tier: str) -> float | None:
    """Median of (warm - the new tokens' own cost) / cold."""
    these = select(rows, tier)
    return median_ratio([r.warm_ms - r.own_ms for r in these], [r.cold_ms for r in these])


def cpu_ratio(rows: Sequence[Warm], tier: str) -> float | None:
    these = select(rows, tier)
    return median_ratio(
        [r.warm_cpu_ms - r.own_cpu_ms for r in these], [r.cold_cpu_ms for r in these]
    )


def extra_ms(rows: Sequence[Warm], tier: str) -> float | None:
    """Median of what a warm request takes beyond its new tokens' own cost, whoever counts it."""
    these = select(rows, tier)
    return median(r.warm_ms - r.own_ms for r in these) if these else None


def beyond_new(rows: Sequence[Warm]) -> int | None:
    """The most tokens that a warm request processed beyond its new ones."""
    return max((row.processed - NEW_TOKENS for row in rows), default=None)


def disk_to_ram(rows: Sequence[Warm]) -> float | None:
    """Median of restore from disk / from memory, of the same prefix."""
    disk, ram = select(rows, "disk"), select(rows, "ram")
    return median_ratio([r.brought_back_ms for r in disk], [r.brought_back_ms for r in ram])


def prefill_to_restore(rows: Sequence[Warm]) -> float | None:
    """Median of the cold prefill / the restore from disk."""
    disk = select(rows, "disk")
    return median_ratio([r.cold_prefill_ms for r in disk], [r.brought_back_ms for r in disk])


def summary(rows: Sequence[Warm]) -> list[Json]:
    found: list[Json] = []
    for tier in TIERS:
        these = select(rows, tier)
        if these:
            found.append(
                {
                    "tier": tier,
                    "runs": len(these),
                    "found_there": sum(r.found == tier for r in these),
                    "warm_ms": round(median(r.warm_ms for r in these), 1),
                    "own_ms": round(median(r.own_ms for r in these), 1),
                    "cold_ms": round(median(r.cold_ms for r in these), 1),
                    "extra_ms": extra_ms(rows, tier),
                    "restore_ms": round(median(r.restore_ms for r in these), 2),
                    "processed": max(r.processed for r in these),
                    "ratio": ratio(rows, tier),
                    "cpu_ratio": cpu_ratio(rows, tier),
                }
            )
    return found


def _group(context: Context, group: int) -> Record:
    """Every tier of one prefix. The server without KVFlash is asked in turn with the other."""
    record: Record = {}
    folder = context.options.logs.parent
    with (
        tempfile.TemporaryDirectory(prefix="kvflash-", dir=folder) as store,
        context.cold("ttft-off", TARGET, _CTX_TOKENS) as off,
    ):
        words = context.words(TARGET, off)
        prefix = words(f"ttft/{group}/prefix", PREFIX_TOKENS)

        def new(name: str) -> list[int]:
            return prefix + words(f"ttft/{group}/{name}", NEW_TOKENS)

        def warm(on: Server, tier: str) -> None:
            """The pair of one tier, first the one and then the other."""
            prompt = new(tier)
            both: dict[str, Completion] = {}
            servers = {"warm": on, "own": off}
            order = list(servers) if group % 2 else list(servers)[::-1]
            for name in order:
                both[name] = servers[name].complete(prompt, 1)
            record[tier] = _pair(both["warm"], both["own"])

        def go_on(on: Server) -> None:
            """The slot comes to hold more than a page beyond the prefix."""
            on.complete(new("slot") + words(f"ttft/{group}/more", PAGE_TOKENS), 1)

        def fill(on: Server) -> None:
            """Two other prompts take both slots."""
            for number_ in range(2):
                on.complete(words(f"ttft/{group}/filler/{number_}", _FILLER_TOKENS), 1)

        start = partial(_start, context, Path(store))
        _warm_up(off, words)
        cold = off.complete(new("cold"), 1)
        record["cold"] = {
            "ms": cold.wall_ms,
            "cpu_ms": cold.cpu_ms,
            "prefill_ms": cold.timings.prompt_ms,
        }
        with start() as on:
            _warm_up(on, words)
            on.complete(prefix, 1)
            warm(on, "slot")
            go_on(on)
            warm(on, "sibling")
            fill(on)
            warm(on, "ram")
        with start() as on:
            _warm_up(on, words, again=True)
            warm(on, "disk")
    return record


def _start(context: Context, store: Path) -> AbstractContextManager[Server]:
    return context.kvflash(
        "ttft-on",
        TARGET,
        _CTX_TOKENS,
        *("--cache-ram", str(_MEMORY_MIB)),
        *("--kvflash-store", str(store), "--kvflash-store-mb", str(_STORE_MIB)),
    )


def _warm_up(server: Server, words: Words, *, again: bool = False) -> None:
    """The first request pays for loading the model's pages. `again`: another, not found on disk."""
    server.complete(words(f"ttft/warm-up/{again}", _FILLER_TOKENS), 1)


def _pair(warm: Completion, own: Completion) -> Record:
    about = warm.timings.kvflash
    return {
        "found": about.tier if about else "",
        "restore_ms": about.restore_ms if about else 0.0,
        "processed": warm.timings.prompt_n,
        "warm_ms": warm.wall_ms,
        "warm_cpu_ms": warm.cpu_ms,
        "own_ms": own.wall_ms,
        "own_cpu_ms": own.cpu_ms,
    }


def _row(record: Record, group: int, tier: str) -> Warm:
    cold, pair = record["cold"], record[tier]
    assert isinstance(cold, dict) and isinstance(pair, dict)
    return Warm(
        group=group,
        tier=tier,
        found=str(pair["found"]),
        warm_ms=number(pair, "warm_ms"),
        warm_cpu_ms=number(pair, "warm_cpu_ms"),
        own_ms=number(pair, "own_ms"),
        own_cpu_ms=number(pair, "own_cpu_ms"),
        cold_ms=number(cold, "ms"),
        cold_cpu_ms=number(cold, "cpu_ms"),
        cold_prefill_ms=number(cold, "prefill_ms"),
        processed=int(number(pair, "processed")),
        restore_ms=number(pair, "restore_ms"),
    )
