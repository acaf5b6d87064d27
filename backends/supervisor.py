"""Starts, watches, evicts and stops the llama-servers of one config. No request passes through.

`python -m flashlane.backends.supervisor --config FILE` runs until it is told to stop; with
`--owner-leases` it also ends when nobody has held a lease for some seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from pydantic import ValidationError

from flashlane.backends import channel
from flashlane.backends.channel import ControlError, Reply, Request
from flashlane.backends.eviction import DoesNotFit, Running, Target, eviction_for
from flashlane.backends.llama_server_patch.build import BACKEND_FLAGS, BuildError, engine_path
from flashlane.backends.memory import memory_bytes
from flashlane.backends.orphans import end_orphans, note_children
from flashlane.backends.process import Limits, Program, ServerProcess
from flashlane.config import BackendConfig, ConfigError, FlashlaneConfig, load_config
from flashlane.models import ModelError, ensure_model
from flashlane.paths import config_file
from flashlane.scorer import SCORER_MODEL, ensure_scorer

log = logging.getLogger("flashlane.supervisor")

_LOCK_WAIT_S = 30.0
_POLL_S = 0.1
_SETTLE_S = 1.0
"""A backend that was asked for this short a time ago counts as busy: its request is on its way."""
_LAST_LEASE_WAIT_S = 1.0
"""How long a shutdown waits for the leases of owners that have just ended to go."""


class Supervisor:
    """All state of one supervisor; lives in one event loop."""

    def __init__(self, config_path: Path, limits: Limits, *, owner_leases: bool) -> None:
        self.config: FlashlaneConfig = load_config(config_path)
        self._digest = channel.config_digest(config_path)
        self._place = channel.place_of(config_path)
        self._limits = limits
        self._owner_leases = owner_leases
        self._servers = {
            name: ServerProcess(name, backend, limits, self._note_children)
            for name, backend in self.config.backends.items()
        }
        self._sizes_bytes: dict[str, int] = {}
        self._admission = asyncio.Lock()
        self._stop = asyncio.Event()
        self._leases = 0
        self._last_owner = time.monotonic()
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until stopped, then stop every child. Raises `ControlError`."""
        lock = await _take_lock(self._place.lock)
        tasks: list[asyncio.Task[None]] = []
        try:
            if count := await asyncio.to_thread(end_orphans, self._place.children):
                log.warning("ended %d llama-server(s) that an earlier supervisor left", count)
            self._place.socket.unlink(missing_ok=True)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._stop.set)
            before = os.umask(0o177)
            try:
                server = await asyncio.start_unix_server(
                    self._serve, self._place.socket, limit=channel.LINE_LIMIT_BYTES
                )
            finally:
                os.umask(before)
            log.info("supervisor %d listens on %s", os.getpid(), self._place.socket)
            self._last_owner = time.monotonic()
            tasks += [
                asyncio.create_task(self._start_quietly(name))
                for name, backend in self.config.backends.items()
                if backend.start == "eager"
            ]
            if self._owner_leases:
                tasks.append(asyncio.create_task(self._watch_leases()))
            await self._stop.wait()
            server.close()
            self._place.socket.unlink(missing_ok=True)
        finally:
            # First whoever could start a server again; a client whose connection ends asks anew.
            ending = [*tasks, *self._connections]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            await asyncio.gather(*(server.stop() for server in self._servers.values()))
            self._place.children.unlink(missing_ok=True)
            os.close(lock)
            log.info("supervisor %d has stopped", os.getpid())

    async def ensure(self, name: str) -> ServerProcess:
        """The backend, ready. Raises `ControlError`."""
        server = self._known(name)
        if not server.active or server.state == "stopping":
            server.waiting += 1
            try:
                async with self._admission:
                    if server.state in ("stopped", "failed"):
                        await self._admit(server)
            finally:
                server.waiting -= 1
        await server.ready()
        return server

    async def _admit(self, server: ServerProcess) -> None:
        """Make room under the memory budget and begin to start `server`."""
        program = await asyncio.to_thread(find_program, server.name, server.config)
        size = await asyncio.to_thread(memory_bytes, server.config, program.model)
        self._sizes_bytes[server.name] = size
        budget_mb = self.config.memory_budget_mb
        budget_bytes = None if budget_mb is None else budget_mb * 2**20
        deadline = time.monotonic() + self._limits.busy_wait_s
        while True:
            if self._stop.is_set():
                raise ControlError("the supervisor is stopping")
            running = [
                await self._running(other)
                for other in self._servers.values()
                if other.active and other is not server
            ]
            try:
                victims = eviction_for(Target(server.name, size), running, budget_bytes)
            except DoesNotFit as reason:
                if not reason.when_idle or time.monotonic() > deadline:
                    raise ControlError(str(reason)) from reason
                await asyncio.sleep(_POLL_S)
                continue
            seen = {entry.name: entry.last_used for entry in running}
            for name in victims:
                victim = self._servers[name]
                if victim.waiting or victim.last_used != seen[name]:
                    break  # it was asked for since we looked
                log.info("stopping %s to make room for %s", name, server.name)
                await victim.stop()
            else:
                server.start(program)
                return

    async def _running(self, server: ServerProcess) -> Running:
        last_used = server.last_used
        fresh = time.monotonic() - last_used < _SETTLE_S
        busy = fresh or await server.busy()
        return Running(server.name, self._sizes_bytes[server.name], last_used, busy)

    async def _start_quietly(self, name: str) -> None:
        try:
            await self.ensure(name)
        except ControlError as error:
            log.error("%s", error)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        leased = False
        try:
            if not channel.is_own_peer(writer.get_extra_info("socket")):
                return
            while line := await reader.readline():
                self._last_owner = time.monotonic()
                reply, takes_lease = await self._answer(line, leased)
                if takes_lease and not leased:
                    leased = True
                    self._leases += 1
                writer.write(reply.model_dump_json().encode() + b"\n")
                await writer.drain()
                if reply.stopping:
                    self._stop.set()
        except (ConnectionError, ValueError):
            pass  # the peer went away, or sent a line longer than the limit
        except asyncio.CancelledError:
            pass  # the supervisor ends; asyncio's streams would log the cancellation as an error
        finally:
            if leased:
                self._leases -= 1
                self._last_owner = time.monotonic()
            self._connections.discard(task)
            writer.close()

    async def _answer(self, line: bytes, leased: bool) -> tuple[Reply, bool]:
        try:
            request = Request.model_validate_json(line)
        except ValidationError:
            return self._reply(error="the supervisor does not know this request"), False
        if request.v != channel.VERSION:
            return self._reply(
                error=f"another version of flashlane's supervisor is running (pid {os.getpid()}); "
                "stop the proxy that started it, then try again"
            ), False
        try:
            name = request.backend or ""
            if request.cmd == "ensure":
                return self._reply(only=await self.ensure(name)), False
            if request.cmd == "stop":
                server = self._known(name)
                async with self._admission:
                    await server.stop()
                return self._reply(only=server), False
        except ControlError as error:
            return self._reply(error=str(error)), False
        if request.cmd == "shutdown":
            stopping = not request.if_last or await self._is_last(leased)
            return self._reply(stopping=stopping), False
        return self._reply(), request.cmd == "lease"

    async def _is_last(self, leased: bool) -> bool:
        if not self._owner_leases:
            return False
        deadline = time.monotonic() + _LAST_LEASE_WAIT_S
        while self._leases > int(leased) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return self._leases <= int(leased)

    async def _watch_leases(self) -> None:
        grace = self._limits.lease_grace_s
        while self._leases or time.monotonic() - self._last_owner < grace:
            await asyncio.sleep(min(_POLL_S, grace / 4))
        log.info("nobody has held a lease for %.1f s: stopping", grace)
        self._stop.set()

    def _known(self, name: str) -> ServerProcess:
        if name not in self._servers:
            raise ControlError(
                f"backend {name!r} is not in the supervisor's config; it has: "
                f"{', '.join(self._servers) or 'none'}"
            )
        return self._servers[name]

    def _reply(
        self, *, error: str | None = None, only: ServerProcess | None = None, stopping: bool = False
    ) -> Reply:
        shown = [only] if only is not None else list(self._servers.values())
        return Reply(
            ok=error is None,
            error=error,
            pid=os.getpid(),
            stopping=stopping,
            leases=self._leases,
            config_digest=self._digest,
            backends=() if error else tuple(server.status() for server in shown),
        )

    def _note_children(self) -> None:
        pids = [server.pid for server in self._servers.values() if server.pid is not None]
        note_children(self._place.children, pids)


def find_program(name: str, backend: BackendConfig) -> Program:
    """Server and model of a backend, both present. Raises `ControlError`."""
    try:
        model = ensure_model(backend.model)
        scorer = _scorer(backend)
    except ModelError as error:
        raise ControlError(f"backend {name!r}: {error}") from error
    server = Path(backend.server).expanduser().resolve() if backend.server else _cached_engine()
    if server is None or not os.access(server, os.X_OK):
        what = f"server is {backend.server!r}, which" if backend.server else "llama-server"
        raise ControlError(
            f"backend {name!r}: {what} is not there to be run; build it with `flashlane build`, or "
            f"set flashlane.backends.{name}.server to the path of a llama-server"
        )
    return Program(server, model, _known_flags(server, server.stat().st_mtime_ns), scorer)


def _scorer(backend: BackendConfig) -> Path | None:
    """The file of `pflash.model`: a path, a known name, or the scorer that set-up makes."""
    if backend.pflash.score != "model":
        return None
    named = backend.pflash.model or SCORER_MODEL
    return ensure_scorer() if named == SCORER_MODEL else ensure_model(named)


def _cached_engine() -> Path | None:
    """The build of `BACKEND` where that is set, else the first that is there, CPU last."""
    wanted = os.environ.get("BACKEND")
    for backend in [wanted] if wanted else reversed(BACKEND_FLAGS):
        with contextlib.suppress(BuildError):
            if (found := engine_path(backend)) is not None:
                return found
    return None


@functools.lru_cache(maxsize=16)
def _known_flags(server: Path, _changed_ns: int) -> frozenset[str]:
    try:
        done = subprocess.run(
            [str(server), "--help"], capture_output=True, text=True, timeout=30, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(word.rstrip(",") for word in done.stdout.split() if word.startswith("--"))


async def _take_lock(path: Path) -> int:
    """Held for life, so that a config has one supervisor; waits for one that is just ending."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if _answers(path.with_suffix(".sock")) or time.monotonic() > deadline:
                os.close(descriptor)
                raise ControlError("a supervisor of this config is running already") from None
            await asyncio.sleep(_POLL_S)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="flashlane.backends.supervisor", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--owner-leases", action="store_true")
    parser.add_argument("--foreground", action="store_true", help="the default")
    for name, default in vars(Limits()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config_path = config_file(given.config)
    os.chdir(config_path.parent)  # paths in the config are meant from where it lies
    limits = Limits(**{name: getattr(given, name) for name in vars(Limits())})

    async def serve() -> None:
        await Supervisor(config_path, limits, owner_leases=given.owner_leases).run()

    try:
        asyncio.run(serve())
    except (ControlError, ConfigError) as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
