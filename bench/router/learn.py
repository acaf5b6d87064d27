"""Learns the weights that tell exact asks from broad ones: `python -m bench.router.learn`.

It reads the tuning half of the labelled asks and the asks of `extra/`, never the reported half. The
bound comes from cross-validation: asks are scored by models that have not seen them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich import print as say

from flashlane.decision import BROAD_KINDS, EXACT_KINDS
from flashlane.exactness.concepts import concepts
from flashlane.exactness.model import WEIGHTS, Model, text_of
from flashlane.exactness.vector import vector

ASKS = Path(__file__).with_name("asks")
_KINDS = EXACT_KINDS + BROAD_KINDS
_STRENGTH = 5.0
_KIND_STRENGTH = 1.0
"""Inverse regularisation of the two models."""
_FOLDS = 10
_MIN_ASKS = 2
_MIN_KIND_ASKS = 5
"""Features of fewer asks are not learned."""
BROAD_AS_EXACT = 0.07
"""Share of the tuning half's broad asks that may be called exact, in cross-validation.

Many asks decide where it lies, not the one exact ask that is read worst.
"""

Row = dict[str, Any]


def rows(part: str) -> list[Row]:
    """The labelled asks of one folder below `asks`, in the order of their files."""
    found = []
    for path in sorted((ASKS / part).glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return found


def main(broad_as_exact: float = BROAD_AS_EXACT) -> None:
    """Learn, print what cross-validation says, and write `flashlane/exactness/weights.txt`."""
    tuning, extra = rows("tuning"), rows("extra")
    asks = tuning + extra
    vectors = _vectors(asks, _MIN_ASKS)
    scores = cross_validated(tuning, extra, vectors)
    exact = [s for s, row in zip(scores, tuning, strict=True) if row["exact"]]
    broad = sorted(s for s, row in zip(scores, tuning, strict=True) if not row["exact"])
    highest_broad = broad[-int(broad_as_exact * len(broad)) - 1]
    bound = min(math.nextafter(highest_broad, math.inf), 0.0)
    wrong = sum(score >= bound for score in broad) / len(broad)
    say(f"{len(tuning)} + {len(extra)} asks; cross-validated on the first: bound {bound:.2f},")
    say(f"recall {sum(s >= bound for s in exact) / len(exact):.4f}, broad called exact {wrong:.4f}")
    found = learned(asks, vectors, bound)
    WEIGHTS.write_text(text_of(found), "utf-8")
    say(f"{len(found.weights)} weights, {WEIGHTS.stat().st_size / 1024:.0f} KiB")


def cross_validated(
    tuning: Sequence[Row], extra: Sequence[Row], vectors: Sequence[dict[str, float]]
) -> list[float]:
    """Log-odds of each tuning ask, from models that learned from all asks but its tenth of them."""
    from sklearn.model_selection import StratifiedKFold

    count = len(tuning)
    labels = [row["exact"] for row in [*tuning, *extra]]
    strata = [f"{row['lang']} {row['exact']}" for row in tuning]
    scores = [0.0] * count
    for kept, held in StratifiedKFold(_FOLDS, shuffle=True, random_state=1).split(strata, strata):
        of = [*kept, *range(count, len(labels))]
        vectorizer, fitted = _fit([vectors[i] for i in of], [labels[i] for i in of], _STRENGTH)
        found = fitted.decision_function(vectorizer.transform([vectors[i] for i in held]))
        for index, score in zip(held, found, strict=True):
            scores[index] = float(score)
    return scores


def learned(asks: Sequence[Row], vectors: Sequence[dict[str, float]], bound: float) -> Model:
    """The model of all `asks`."""
    vectorizer, fitted = _fit(vectors, [row["exact"] for row in asks], _STRENGTH)
    features = vectorizer.get_feature_names_out()
    weights = dict(zip(features, map(float, fitted.coef_[0]), strict=True))
    of_kinds = [
        {f: v for f, v in row.items() if f.startswith("@") and " " not in f}
        for row in _vectors(asks, _MIN_KIND_ASKS)
    ]
    names, by_kind = _fit(of_kinds, [_KINDS.index(row["kind"]) for row in asks], _KIND_STRENGTH)
    columns = zip(names.get_feature_names_out(), by_kind.coef_.T.tolist(), strict=True)
    return Model(
        float(fitted.intercept_[0]),
        bound,
        weights,
        tuple(by_kind.intercept_.tolist()),
        {name: tuple(column) for name, column in columns},
    )


def _vectors(asks: Sequence[Row], least: int) -> list[dict[str, float]]:
    """The features of each ask that at least `least` asks have."""
    whole = [vector(row["ask"], concepts()) for row in asks]
    counts = Counter(feature for values in whole for feature in values)
    return [{f: v for f, v in values.items() if counts[f] >= least} for values in whole]


def _fit(vectors: Sequence[dict[str, float]], labels: Sequence[Any], strength: float) -> Any:
    """The vectorizer and the logistic regression of `vectors`; many labels share one softmax."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    vectorizer = DictVectorizer()
    matrix = vectorizer.fit_transform(vectors)
    matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
    solver = "liblinear" if len(set(labels)) == 2 else "lbfgs"
    model = LogisticRegression(C=strength, max_iter=2000, solver=solver)
    return vectorizer, model.fit(matrix, labels)


if __name__ == "__main__":
    typer.run(main)
