"""The `flashlane` command."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Lanes for long prompts: LiteLLM in front of patched llama.cpp servers.",
)
_CONFIG = Path("litellm_config.yaml")
ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The LiteLLM config that holds `flashlane:`.")
]


def _fail(message: str) -> typer.Exit:
    Console(stderr=True).print(
        f"flashlane: {message}", markup=False, highlight=False, soft_wrap=True
    )
    return typer.Exit(1)


@app.command()
def serve(
    config: ConfigOption = _CONFIG,
    port: Annotated[
        int, typer.Option(help="Port of the proxy on loopback.", min=1, max=65535)
    ] = 4000,
) -> None:
    """Start the backends and the LiteLLM proxy; Ctrl-C stops everything."""
    from flashlane.config import ConfigError
    from flashlane.paths import config_file, state_dir
    from flashlane.serve import ServeError, raise_on_terminate, running_proxy

    raise_on_terminate()
    console = Console(highlight=False, soft_wrap=True)
    try:
        console.print("Starting the supervisor and LiteLLM (10 to 30 s) …")
        with running_proxy(config_file(config), port) as proxy:
            console.print(
                _greeting(proxy.base_url, state_dir() / "master_key", proxy.log), markup=False
            )
            while proxy.process.poll() is None:
                time.sleep(0.5)
            raise _fail(f"LiteLLM ended with code {proxy.process.returncode}; see {proxy.log}")
    except KeyboardInterrupt:
        console.print("Stopped.")
    except (ConfigError, ServeError, RuntimeError, OSError) as error:
        raise _fail(str(error)) from error


def _greeting(url: str, key_file: Path, log: Path) -> str:
    return f"""
Listening on {url}  (OpenAI: {url}/v1, Anthropic: {url})
Log: {log}

Try it:
  curl {url}/v1/chat/completions \\
    -H "Authorization: Bearer $(cat {key_file})" -H "Content-Type: application/json" \\
    -d '{{"model": "local", "messages": [{{"role": "user", "content": "Say hello."}}]}}' -i

The x-flashlane-* response headers say which lane answered and why; `flashlane routes` lists
past requests. The first request loads the model. Ctrl-C stops everything.
"""


@app.command()
def build(
    backend: Annotated[str, typer.Option(help="cpu, cuda, metal, vulkan or hip.")] = "cpu",
) -> None:
    """Build the patched llama-server into the user's cache, if it is not there yet."""
    from flashlane.backends.llama_server_patch.build import BuildError, ensure_engine

    try:
        typer.echo(ensure_engine(backend))
    except BuildError as error:
        raise _fail(str(error)) from error


@app.command()
def doctor(config: ConfigOption = _CONFIG) -> None:
    """Check compiler, build, model, ports and config, and say what to do."""
    from flashlane.doctor import run_checks

    try:
        checks = run_checks(config)
    except OSError as error:
        raise _fail(str(error)) from error
    table = Table("check", "", "found", "what to do", box=None)
    for check in checks:
        table.add_row(check.name, "ok" if check.ok else "FAIL", check.message, check.fix or "")
    Console(highlight=False).print(table)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


@app.command()
def config_schema() -> None:
    """Print the JSON Schema of a config file, for editors that check one as it is written."""
    from flashlane.config.schema import config_schema

    print(json.dumps(config_schema(), indent=2))


def _json(value: object) -> str:
    """One line of JSON, readable where UTF-8 can say it: a lone surrogate is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _encodes(text) else json.dumps(value)


def _printable(line: str) -> str:
    """`line`, with a lone surrogate escaped."""
    return line if _encodes(line) else line.encode("utf-8", "backslashreplace").decode()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@app.command()
def explain(
    file: Annotated[
        Path | None, typer.Argument(help="Request JSON; standard input if absent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    batch: Annotated[
        Path | None, typer.Option(help="A request on each line in, an object on each line out.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header sent along: 'x-flashlane-route: pflash'.")
    ] = None,
    config: ConfigOption = _CONFIG,
) -> None:
    """Print the lane that a request would take, and why. Needs no model and no server."""
    from flashlane.config import ConfigError
    from flashlane.explain import Explainer
    from flashlane.request import RequestError

    if batch is not None and file is not None:
        raise _fail(f"--batch {batch} and {file} are both given; send one of them")
    try:
        named = config if config.exists() or config != _CONFIG else None
        explainer = Explainer(named, _headers(header or []))
        if batch is not None:
            with batch.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        print(_json(explainer.line(line, number)))
            return
        request = file.read_bytes() if file else sys.stdin.buffer.read()
        found = explainer.explain(request.decode("utf-8"))
    except (ConfigError, RequestError, OSError, ValueError) as error:
        raise _fail(str(error)) from error
    if as_json:
        print(_json(found.to_json()))
        return
    for shown in found.lines():
        print(_printable(shown))


def _headers(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon:
            raise ValueError(f"--header is {text!r}; it must be 'NAME: VALUE'")
        headers[name.strip()] = value.strip()
    return headers


@app.command()
def routes(
    limit: Annotated[int, typer.Option(help="Newest records to show.")] = 20,
    lane: Annotated[str | None, typer.Option(help="Only this lane.")] = None,
    since: Annotated[
        float | None, typer.Option(help="Only the last so many hours.", min=0.0)
    ] = None,
    only_summary: Annotated[
        bool, typer.Option("--summary", help="No requests, the summary alone.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A JSON object for each request; with --summary, one for all."),
    ] = False,
    config: ConfigOption = _CONFIG,
) -> None:
    """Print the route log: the newest requests, and what each lane did and saved."""
    from dataclasses import asdict

    from flashlane.config import ConfigError, load_config
    from flashlane.paths import state_dir
    from flashlane.report import Report, Scope, report
    from flashlane.request import LANE_ALIASES
    from flashlane.routelog import RouteLog
    from flashlane.routes import print_records, print_report

    if lane is not None and lane not in LANE_ALIASES:
        raise _fail(f"--lane is {lane!r}; accepted values: {', '.join(LANE_ALIASES)}")
    try:
        named = config.exists() or config != _CONFIG
        sqlite = load_config(config).route_log.sqlite if named else None
        route_log = RouteLog(Path(sqlite) if sqlite else state_dir() / "routes.sqlite")
    except (ConfigError, OSError) as error:
        raise _fail(str(error)) from error
    now = time.time()
    scope = Scope(until=now, since=None if since is None else now - 3600 * since)
    found = Report(since=scope.since, until=now)
    try:
        named_lane = LANE_ALIASES[lane] if lane else None
        records = list(route_log.records(limit, named_lane, since=scope.since))
        if records:
            with route_log.reading() as connection:
                found = report(connection, scope)
    except (sqlite3.Error, OSError) as error:
        raise _fail(f"{route_log.path} is not a route log that can be read: {error}") from error
    if as_json:
        for value in [found.to_json()] if only_summary else map(asdict, records):
            print(_json(value))
        return
    if not records:
        print(f"no such requests in {route_log.path}")
        return
    console = Console(highlight=False)
    if not only_summary:
        print_records(console, records)
        console.print()
    print_report(console, found)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
