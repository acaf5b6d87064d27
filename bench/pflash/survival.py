"""Whether the evidence survives compression, without the target's prefill: /pflash/compress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.data import Split
from bench.pflash import bm25, needles, ruler
from bench.pflash.context import Context
from bench.pflash.needles import Case, Count
from bench.server import Compressed, Server
from bench.store import Json, Record, number

BM25 = "bm25"
# Who selects: a scorer of the server (None: the one that it is configured with), or bm25.py.
SCORERS: Mapping[str, str | None] = {
    "ours": None,
    "BM25 in our order": "lexical",
    "BM25": BM25,
    "uniform": "uniform",
}
RATIOS = (0.1, 0.2)

_PARTS: Mapping[str, Sequence[Callable[[Split, Count], list[Case]]]] = {
    "needles": (needles.lexical,),
    "paraphrase": (needles.paraphrased,),
    "two-hop": (needles.two_hop, needles.contradicting),
    "ruler": (ruler.cases,),
}
PARTS = tuple(_PARTS)


@dataclass(frozen=True)
class Row:
    """One case under one scorer at one keep ratio."""

    part: str
    kind: str
    tokens: int
    depth: float
    scorer: str
    ratio: float
    kept: bool
    whole: bool
    share: float
    score_ms: float


def measure(context: Context, part: str) -> list[Row]:
    """Rows of one of `PARTS`."""
    rows: list[Row] = []
    with context.target(part, 4096) as server:
        for build in _PARTS[part]:
            cases = build(context.options.split, server.count)
            for case in context.cases(cases[0].part, cases):
                rows += _case_rows(context, server, case)
    return rows


def keyed(context: Context, name: str | None) -> Callable[..., str]:
    """Gives the key of a case under one of `SCORERS`: neither engine nor options are in BM25's."""
    return context.plain_key if name == BM25 else context.key


def verdict(kept: str, evidence: Sequence[str], reply: Compressed) -> Record:
    """Whether every string of the evidence is whole in `kept`.

    A prompt that came back uncompressed counts as lost: it holds the evidence for no merit.
    """
    return {
        "kept": not reply.whole and all(item in kept for item in evidence),
        "whole": reply.whole,
        "share": round(reply.share, 4),
        "score_ms": round(reply.score_ms, 2),
        "reason": reply.reason,
        "mask_hits": reply.mask_hits,
    }


def summary(rows: Sequence[Row]) -> list[Json]:
    """Share kept by part, scorer and ratio, and within them by kind and by length."""
    found: list[Json] = []
    for part, scorer, ratio in sorted({(r.part, r.scorer, r.ratio) for r in rows}):
        these = select(rows, part, scorer, ratio)
        found.append(
            {
                "part": part,
                "scorer": scorer,
                "keep_ratio": ratio,
                "cases": len(these),
                "kept": round(fmean(row.kept for row in these), 4),
                "kept_share_mean": round(fmean(row.share for row in these), 4),
                "kept_share_max": round(max(row.share for row in these), 4),
                "uncompressed": sum(row.whole for row in these),
                "by_kind": {kind: _kept_of(these, kind=kind) for kind in _values(these, "kind")},
                "by_tokens": {n: _kept_of(these, tokens=n) for n in _values(these, "tokens")},
            }
        )
    return found


def select(rows: Sequence[Row], part: str, scorer: str, ratio: float) -> list[Row]:
    return [r for r in rows if (r.part, r.scorer, r.ratio) == (part, scorer, ratio)]


def _case_rows(context: Context, server: Server, case: Case) -> list[Row]:
    rows = []
    for scorer, name in SCORERS.items():
        for ratio in RATIOS:

            def ask(name: str | None = name, ratio: float = ratio) -> Record:
                reply = _compressed(server, case, name, ratio)
                return verdict(reply.text or "", case.evidence, reply)

            key = keyed(context, name)(
                case.id, text=case.text, question=case.question, scorer_name=name, ratio=ratio
            )
            record = context.store.case(key, ask)
            rows.append(
                Row(
                    part=case.part,
                    kind=case.kind,
                    tokens=case.tokens,
                    depth=case.depth,
                    scorer=scorer,
                    ratio=ratio,
                    kept=record["kept"] is True,
                    whole=record["whole"] is True,
                    share=number(record, "share"),
                    score_ms=number(record, "score_ms"),
                )
            )
    return rows


def _compressed(server: Server, case: Case, name: str | None, ratio: float) -> Compressed:
    if name != BM25:
        return server.compress(ratio, text=case.text, question=case.question, scorer=name)
    kept = bm25.keep(case.text, case.question, ratio, server.count)
    return Compressed(
        text=kept, original_tokens=server.count(case.text), kept_tokens=server.count(kept)
    )


def _values(rows: Sequence[Row], field: str) -> list[str]:
    return [str(value) for value in sorted({getattr(row, field) for row in rows})]


def _kept_of(rows: Sequence[Row], *, kind: str | None = None, tokens: str | None = None) -> float:
    these = [r for r in rows if kind in (None, r.kind) and tokens in (None, str(r.tokens))]
    return round(fmean(row.kept for row in these), 4)
