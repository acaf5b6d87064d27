"""Which labelled asks are taken for exact: by words alone, by the learned model, and by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bench.router.context import Context
from bench.router.learn import Row as Labelled
from bench.router.learn import rows as labelled
from bench.store import Json, Record
from flashlane.decision import BROAD_KINDS, EXACT_KINDS
from flashlane.exactness import exactness
from flashlane.exactness.concepts import BROAD_CONCEPTS, concepts
from flashlane.exactness.wording import sentences
from flashlane.request import RequestView, read_request

HALF = "reported"
PRODUCT = "model"
"""What the router uses."""


@dataclass(frozen=True)
class Row:
    """Of the asks of one language and kind in the reported half: how many each way calls exact.

    `named`: the router's kind is the labelled one, or it is unsure and the ask exact.
    """

    lang: str
    kind: str
    exact: bool
    asks: int
    words: int
    model: int
    both: int
    named: int


def measure(context: Context) -> list[Row]:
    def hold() -> Record:
        found: list[Json] = [asdict(row) for row in tally(labelled(HALF))]
        return {"rows": found}

    rows = context.store.case(context.key("asks", half=HALF), hold)["rows"]
    assert isinstance(rows, list)
    return [Row(**row) for row in rows if isinstance(row, dict)]  # type: ignore[arg-type]


def tally(asks: Sequence[Labelled]) -> Iterator[Row]:
    groups: dict[tuple[str, str], list[Labelled]] = {}
    for ask in asks:
        groups.setdefault((ask["lang"], ask["kind"]), []).append(ask)
    for (lang, kind), group in sorted(groups.items()):
        texts = [ask["ask"] for ask in group]
        signals = [exactness(_view(text)) for text in texts]
        words = [by_words(text) for text in texts]
        model = [one.exact for one in signals]
        both = [a or b for a, b in zip(words, model, strict=True)]
        named = sum(one.kind == kind or (one.kind == "unsure") for one in signals)
        exact = group[0]["exact"]
        yield Row(lang, kind, exact, len(group), sum(words), sum(model), sum(both), named)


def by_words(ask: str) -> bool:
    """Whether an ask is exact by the tables of words alone: one exact word outweighs the others.

    Without any word that the tables know it is unsure, which counts as exact.
    """
    known = concepts()
    found = {
        concept
        for sentence in sentences(ask)
        for feature in sentence.features
        for concept in known.get(feature, ())
    }
    return not found or not found <= BROAD_CONCEPTS


def recall(rows: Sequence[Row], way: str = PRODUCT) -> float | None:
    """Share of the exact asks that are called exact; None without rows."""
    return _share([row for row in rows if row.exact], way)


def wrongly_exact(rows: Sequence[Row], way: str = PRODUCT) -> float | None:
    """Share of the broad asks that are called exact; None without rows."""
    return _share([row for row in rows if not row.exact], way)


def worst_recall(rows: Sequence[Row], way: str = PRODUCT) -> tuple[str, float] | None:
    """The language with the lowest recall."""
    by_lang = {row.lang: recall([r for r in rows if r.lang == row.lang], way) for row in rows}
    found = {lang: share for lang, share in by_lang.items() if share is not None}
    return min(found.items(), key=lambda item: item[1]) if found else None


def summary(rows: Sequence[Row]) -> list[Json]:
    """Rows for the report: by language, then by kind, then all."""
    if not rows:
        return []
    return [
        *(_line(f"{lang}", [r for r in rows if r.lang == lang]) for lang in _values(rows, "lang")),
        *(
            _line(kind, [r for r in rows if r.kind == kind])
            for kind in (*EXACT_KINDS, *BROAD_KINDS)
        ),
        _line("all", rows),
    ]


def _line(of: str, rows: Sequence[Row]) -> Record:
    line: Record = {"of": of, "asks": sum(row.asks for row in rows)}
    for way in ("words", PRODUCT, "both"):
        line[f"{way}: exact recognised"] = _rounded(recall(rows, way))
        line[f"{way}: broad called exact"] = _rounded(wrongly_exact(rows, way))
    line["model: precision"] = _rounded(_precision(rows))
    line["kind right"] = _rounded(sum(r.named for r in rows) / sum(r.asks for r in rows))
    return line


def _precision(rows: Sequence[Row]) -> float | None:
    called = sum(row.model for row in rows)
    return sum(row.model for row in rows if row.exact) / called if called else None


def _share(rows: Sequence[Row], way: str) -> float | None:
    asks = sum(row.asks for row in rows)
    return sum(getattr(row, way) for row in rows) / asks if asks else None


def _values(rows: Sequence[Row], field: str) -> list[str]:
    return sorted({str(getattr(row, field)) for row in rows})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _view(ask: str) -> RequestView:
    return read_request({"model": "local", "messages": [{"role": "user", "content": ask}]})
