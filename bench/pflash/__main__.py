"""`python -m bench.pflash`: measures PFlash against its goals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.command import command, measure, parser, positive, run, store_of
from bench.pflash import report
from bench.pflash.context import Context, Options
from bench.pflash.measured import PARTS, Measured
from bench.pflash.survival import SCORERS
from bench.results import Goal
from flashlane.backends.llama_server_patch.build import ensure_engine
from flashlane.models import ensure_model
from flashlane.paths import cache_dir
from flashlane.scorer import SCORER_MODEL, ensure_scorer

_NAME = "pflash"


def main(argv: Sequence[str] | None = None) -> int:
    """The code that `bench.command.run` gives."""
    args = _parser().parse_args(argv)
    split = [args.split] if args.split != "reported" else []
    name = "-".join([_NAME, *split, *(["quick"] if args.quick else [])])

    def find() -> Sequence[Goal]:
        options = _options(args)
        context = Context(options, store_of(_NAME, args))
        measured = _measure(context, args.only)
        return report.write(args.output, name, options, command(_NAME, argv), measured)

    return run(find, args.output / f"{name}.json")


def _measure(context: Context, wanted: Sequence[str]) -> Measured:
    options = context.options
    measured = Measured()

    def key(part: str) -> str:
        return context.key(
            "part",
            part=part,
            split=options.split,
            quick=options.quick,
            window=options.window,
            baseline_answers=options.baseline_answers,
            scorers=list(SCORERS),
        )

    measure(PARTS, context, context.store, key, wanted, measured)
    return measured


def _options(args: argparse.Namespace) -> Options:
    return Options(
        server=args.server.resolve() if args.server else ensure_engine(),
        target=ensure_model(args.target),
        scorer=ensure_scorer() if args.scorer == SCORER_MODEL else ensure_model(args.scorer),
        score=args.score,
        split=args.split,
        quick=args.quick,
        threads=args.threads,
        window=args.window,
        baseline_answers=args.baseline_answers,
        server_args=tuple(args.server_args.split()),
        logs=cache_dir() / "bench" / "logs",
    )


def _parser() -> argparse.ArgumentParser:
    made = parser(
        _NAME,
        "Measures PFlash against its goals and writes JSON, Markdown and plots.",
        PARTS,
        "Tune with --split tuning; what is reported\nis never tuned on.",
    )
    add = made.add_argument
    add("--scorer", default=SCORER_MODEL, help="model that scores: a name or a GGUF file")
    add(
        "--score",
        choices=("model", "uniform"),
        default="model",
        help="the server's --pflash-score (default: model)",
    )
    add(
        "--window",
        type=positive,
        default=768,
        metavar="TOKENS",
        help="the scorer's window, for its plain prefill (default: 768, the scorer's own)",
    )
    add("--baseline-answers", action="store_true", help="answers from the baselines' texts too")
    add("--split", choices=("reported", "tuning"), default="reported", help="default: reported")
    return made


if __name__ == "__main__":
    sys.exit(main())
