"""`python -m bench.pflash`: measures PFlash against its goals."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from bench.pflash import report
from bench.pflash.context import Context, Options
from bench.pflash.measured import PARTS, Measured
from bench.pflash.survival import SCORERS
from bench.process import ServerError
from bench.results import RESULTS, goal_table
from bench.store import Store
from flashlane.backends.llama_server_patch.build import BuildError, ensure_engine
from flashlane.models import ModelError, ensure_model
from flashlane.packages import DownloadError
from flashlane.paths import cache_dir
from flashlane.scorer import SCORER_MODEL, ensure_scorer

_EPILOG = """\
Parts:
{parts}

What was measured is kept: the same command goes on where it was interrupted, and a part that was
run before is only read. --fresh forgets it. A change of engine, models or server options measures
anew what depends on it. Tune with --split tuning; what is reported is never tuned on.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every goal that was measured is met, 1 when one is not, 2 when a part failed."""
    args = _parser().parse_args(argv)
    # As on Ctrl-C, what was started is stopped; Python's default would leave the servers behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = _options(args)
        name = "-".join(
            [
                "pflash",
                *([args.split] if args.split != "reported" else []),
                *(["quick"] if args.quick else []),
            ]
        )
        store = Store(cache_dir() / "bench" / "pflash.jsonl", fresh=args.fresh)
        measured = _measure(Context(options, store), args.only)
    except (ServerError, ModelError, BuildError, DownloadError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    goals = report.write(args.output, name, options, _command(argv), measured)
    Console().print(Markdown(goal_table(goals)))
    print(f"{args.output / name}.json")
    return int(any(goal.met is False for goal in goals))


def _measure(context: Context, wanted: Sequence[str]) -> Measured:
    """The parts wanted, and of the others what was found before with the same engine and models.

    Quality comes first: a change that loses evidence shows within minutes.
    """
    options = context.options
    measured = Measured()
    for part in PARTS:
        key = context.key(
            "part",
            part=part.name,
            split=options.split,
            quick=options.quick,
            window=options.window,
            baseline_answers=options.baseline_answers,
            scorers=list(SCORERS),
        )
        if part.name in wanted:
            context.store.put(key, part.measure(context))
        found = context.store.get(key)
        if found is not None:
            part.add(found, measured)
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


def _command(argv: Sequence[str] | None) -> str:
    return " ".join(["python -m bench.pflash", *(sys.argv[1:] if argv is None else argv)])


def _parts(text: str) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    known = [part.name for part in PARTS]
    if not wanted or any(part not in known for part in wanted):
        raise argparse.ArgumentTypeError(f"{text!r}: known parts are {', '.join(known)}")
    return wanted


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {part.name:<12} {part.about}" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="python -m bench.pflash",
        description="Measures PFlash against its goals and writes JSON, Markdown and plots.",
        epilog=_EPILOG.format(parts=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--only",
        type=_parts,
        default=[part.name for part in PARTS],
        metavar="PART,...",
        help="these parts alone",
    )
    add(
        "--quick",
        type=_positive,
        metavar="N",
        help="N cases of each part: a trial, written beside the results as pflash-quick",
    )
    add("--target", default="qwen2.5-coder-1.5b", help="model that answers: a name or a GGUF file")
    add("--scorer", default=SCORER_MODEL, help="model that scores: a name or a GGUF file")
    add(
        "--score",
        choices=("model", "uniform"),
        default="model",
        help="the server's --pflash-score (default: model)",
    )
    add(
        "--server", type=Path, metavar="FILE", help="llama-server to measure (default: this tree's)"
    )
    add("--server-args", default="", metavar="ARGS", help="more options for it, in one string")
    add("--threads", type=_positive, metavar="N", help="threads of every server (default: its own)")
    add(
        "--window",
        type=_positive,
        default=768,
        metavar="TOKENS",
        help="the scorer's window, for its plain prefill (default: 768, the scorer's own)",
    )
    add("--baseline-answers", action="store_true", help="answers from the baselines' texts too")
    add("--split", choices=("reported", "tuning"), default="reported", help="default: reported")
    add("--output", type=Path, default=RESULTS, metavar="FOLDER", help="default: bench/results")
    add("--fresh", action="store_true", help="forget what was measured before")
    return parser


if __name__ == "__main__":
    sys.exit(main())
