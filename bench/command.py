"""The command line that the benchmarks share, and how a run of one goes."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markdown import Markdown

from bench.parts import Part
from bench.process import ServerError
from bench.results import RESULTS, Goal, goal_table
from bench.store import Store
from flashlane.backends.llama_server_patch.build import BuildError
from flashlane.models import ModelError
from flashlane.packages import DownloadError
from flashlane.paths import cache_dir

_EPILOG = """\
Parts:
{parts}

What was measured is kept: the same command goes on where it was interrupted, and a part that was
run before is only read. --fresh forgets it. A change of engine, models or server options measures
anew what depends on it.{more}
"""

Context = TypeVar("Context")


def parser(
    name: str, description: str, parts: Sequence[Part[Context]], more: str = ""
) -> argparse.ArgumentParser:
    """The options that every benchmark has; `more` is for the end of the help."""
    names = [part.name for part in parts]
    listed = "\n".join(f"  {part.name:<12} {part.about}" for part in parts)
    made = argparse.ArgumentParser(
        prog=f"python -m bench.{name}",
        description=description,
        epilog=_EPILOG.format(parts=listed, more=f" {more}" if more else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add(
        "--only",
        type=lambda text: _parts(text, names),
        default=names,
        metavar="PART,...",
        help="these parts alone",
    )
    add(
        "--quick",
        type=positive,
        metavar="N",
        help=f"N cases of each part: a trial, written beside the results as {name}-quick",
    )
    add("--target", default="qwen2.5-coder-1.5b", help="model that answers: a name or a GGUF file")
    add(
        "--server", type=Path, metavar="FILE", help="llama-server to measure (default: this tree's)"
    )
    add("--server-args", default="", metavar="ARGS", help="more options for it, in one string")
    add("--threads", type=positive, metavar="N", help="threads of every server (default: its own)")
    add("--output", type=Path, default=RESULTS, metavar="FOLDER", help="default: bench/results")
    add("--fresh", action="store_true", help="forget what was measured before")
    return made


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def store_of(name: str, args: argparse.Namespace) -> Store:
    """The finished cases of the benchmark `name`."""
    return Store(cache_dir() / "bench" / f"{name}.jsonl", fresh=args.fresh)


def measure(
    parts: Sequence[Part[Context]],
    context: Context,
    store: Store,
    key: Callable[[str], str],
    wanted: Sequence[str],
    measured: Any,
) -> None:
    """Into `measured`, the parts wanted, and of the others what was found before by their `key`.

    The order is that of `parts`: what shows a change within minutes comes first.
    """
    for part in parts:
        if part.name in wanted:
            store.put(key(part.name), part.measure(context))
        found = store.get(key(part.name))
        if found is not None:
            part.add(found, measured)


def run(find: Callable[[], Sequence[Goal]], results: Path) -> int:
    """0 when every goal that was measured is met, 1 when one is not, 2 when a part failed."""
    # As on Ctrl-C, what was started is stopped; Python's default would leave the servers behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        goals = find()
    except (ServerError, ModelError, BuildError, DownloadError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    Console().print(Markdown(goal_table(goals)))
    print(results)
    return int(any(goal.met is False for goal in goals))


def command(name: str, argv: Sequence[str] | None) -> str:
    """What was typed."""
    return " ".join([f"python -m bench.{name}", *(sys.argv[1:] if argv is None else argv)])


def _parts(text: str, known: Sequence[str]) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if not wanted or any(part not in known for part in wanted):
        raise argparse.ArgumentTypeError(f"{text!r}: known parts are {', '.join(known)}")
    return wanted
