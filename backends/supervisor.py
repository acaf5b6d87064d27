"""The supervisor: starts, watches, evicts and stops llama-servers. No request passes through it.

It listens on a Unix socket that its owner alone can open and speaks one JSON object a line.
Started by a proxy it lives by leases: a lease is an open connection, so the kernel ends it with
its holder, even one that was killed. Without a lease for `LEASE_GRACE_S` it stops everything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from flashlane.backends.control import PROTOCOL, socket_path
from flashlane.backends.eviction import CannotFit, Running, eviction_for
from flashlane.backends.process import BackendError, BackendProcess
from flashlane.config import ConfigError, load_config

log = logging.getLogger("flashlane.supervisor")

LEASE_GRACE_S = 10.0


class Supervisor:
    """State of one supervisor; lives in one event loop."""

    def __init__(self, config_path: Path) -> None:
        self.config = load_config(config_path)
        self.backends = {n: BackendProcess(n, c) for n, c in self.config.backends.items()}
        self.stopping = asyncio.Event()
        self._leases = 0
        self._lease_lost = time.monotonic()
        self._admission = asyncio.Lock()

    async def run(self, path: Path) -> None:
        server = await asyncio.start_unix_server(self._serve, str(path))
        path.chmod(0o600)
        eager = [
            asyncio.create_task(self._start_eagerly(name))
            for name, backend in self.config.backends.items()
            if backend.start == "eager"
        ]
        watch = asyncio.create_task(self._watch_leases())
        try:
            await self.stopping.wait()
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for task in (watch, *eager):
                task.cancel()
            await asyncio.gather(*(backend.stop() for backend in self.backends.values()))

    async def ensure(self, name: str) -> BackendProcess:
        """Backend `name`, ready; others are stopped where the memory budget asks for it."""
        backend = self.backends.get(name)
        if backend is None:
            known = ", ".join(self.backends) or "none"
            raise BackendError(f"backend {name!r} is not in the config; known backends: {known}")
        if backend.pid is None and self.config.memory_budget_mb:
            async with self._admission:
                await self._make_room(backend)
                await backend.ensure()
        await backend.ensure()
        return backend

    async def _make_room(self, target: BackendProcess) -> None:
        running = [
            Running(b.name, b.memory_bytes(), b.last_used, await b.busy())
            for b in self.backends.values()
            if b.pid is not None
        ]
        budget = (self.config.memory_budget_mb or 0) * 1_000_000
        need = Running(target.name, target.memory_bytes(), time.monotonic())
        try:
            victims = eviction_for(need, running, budget)
        except CannotFit as error:
            raise BackendError(str(error)) from error
        for name in victims:
            log.info("backend %s: stopped, its memory is needed by %s", name, target.name)
            await self.backends[name].stop()

    async def _start_eagerly(self, name: str) -> None:
        try:
            await self.ensure(name)
        except BackendError as error:
            log.error("%s", error)

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self._leases == 0 and time.monotonic() - self._lease_lost > LEASE_GRACE_S:
                log.info("no lease for %.0f s: stopping", LEASE_GRACE_S)
                self.stopping.set()
                return

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        holds_lease = False
        try:
            while line := await reader.readline():
                reply = await self._answer(line)
                if reply.pop("lease", False) and not holds_lease:
                    holds_lease = True
                    self._leases += 1
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            if holds_lease:
                self._leases -= 1
                self._lease_lost = time.monotonic()
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
            operation = message["op"]
            if message.get("v") != PROTOCOL:
                return {"ok": False, "error": f"protocol is {message.get('v')}, mine is {PROTOCOL}"}
            if operation == "ensure":
                backend = await self.ensure(str(message.get("backend")))
                return {"ok": True, "pid": backend.pid, "url": backend.config.base_url}
            if operation == "lease":
                return {"ok": True, "lease": True, "pid": os.getpid()}
            if operation == "status":
                return {"ok": True, "pid": os.getpid(), "backends": self._status()}
            if operation == "shutdown":
                self.stopping.set()
                return {"ok": True}
            return {"ok": False, "error": f"op is {operation!r}; known: ensure, lease, status, shutdown"}
        except BackendError as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"ok": False, "error": "a message is one JSON object a line with v and op"}

    def _status(self) -> dict[str, Any]:
        return {
            name: {"pid": b.pid, "url": b.config.base_url, "start": b.config.start}
            for name, b in self.backends.items()
        }


async def _main(config_path: Path) -> None:
    supervisor = Supervisor(config_path)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stopping.set)
    await supervisor.run(socket_path(config_path))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the llama-servers of one config.")
    parser.add_argument("--config", type=Path, required=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_main(parser.parse_args().config.resolve()))
    except ConfigError as error:
        sys.exit(f"flashlane: {error}")


if __name__ == "__main__":
    main()
