"""`python -m bench.router`: measures the router against its goals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.command import command, measure, parser, run, store_of
from bench.results import Goal
from bench.router import report
from bench.router.context import SCORER, SMALL, TARGET, Context, Options
from bench.router.measured import PARTS, Measured
from flashlane.backends.llama_server_patch.build import ensure_engine
from flashlane.models import ensure_model
from flashlane.paths import cache_dir
from flashlane.scorer import ensure_scorer

_NAME = "router"


def main(argv: Sequence[str] | None = None) -> int:
    """The code that `bench.command.run` gives."""
    args = _parser().parse_args(argv)
    name = f"{_NAME}-quick" if args.quick else _NAME

    def find() -> Sequence[Goal]:
        options = _options(args)
        context = Context(options, store_of(_NAME, args))
        measured = Measured()
        measure(
            PARTS,
            context,
            context.store,
            lambda part: context.key("part", part=part, quick=options.quick),
            args.only,
            measured,
        )
        return report.write(args.output, name, options, command(_NAME, argv), measured)

    return run(find, args.output / f"{name}.json")


def _options(args: argparse.Namespace) -> Options:
    return Options(
        server=args.server.resolve() if args.server else ensure_engine(),
        quick=args.quick,
        threads=args.threads,
        server_args=tuple(args.server_args.split()),
        logs=cache_dir() / "bench" / "logs",
        named={
            TARGET: ensure_model(args.target),
            SCORER: ensure_scorer(),
            SMALL: ensure_model(args.small),
        },
    )


def _parser() -> argparse.ArgumentParser:
    made = parser(_NAME, "Measures the router against its goals.", PARTS)
    made.add_argument("--small", default="smollm2-135m", help="model named where none answers")
    return made


if __name__ == "__main__":
    sys.exit(main())
