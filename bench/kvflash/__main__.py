"""`python -m bench.kvflash`: measures KVFlash against its goals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.command import command, measure, parser, run, store_of
from bench.kvflash import report
from bench.kvflash.context import Context, Options
from bench.kvflash.measured import PARTS, Measured
from bench.kvflash.miss import SMALL
from bench.kvflash.replay import TARGET, WINDOWED
from bench.results import Goal
from flashlane.backends.llama_server_patch.build import ensure_engine
from flashlane.models import ensure_model
from flashlane.paths import cache_dir

_NAME = "kvflash"


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
            lambda part: context.key(
                "part",
                TARGET,
                part=part,
                quick=options.quick,
                models=[context.model_id(name) for name in options.named],
            ),
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
            SMALL: ensure_model(args.small),
            WINDOWED: ensure_model(args.windowed),
        },
    )


def _parser() -> argparse.ArgumentParser:
    made = parser(_NAME, "Measures KVFlash against its goals.", PARTS)
    add = made.add_argument
    add("--small", default="smollm2-135m", help="model behind the proxy, and of misses")
    add("--windowed", default="gemma-3-270m", help="model with a sliding window")
    return made


if __name__ == "__main__":
    sys.exit(main())
