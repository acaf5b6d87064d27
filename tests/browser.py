"""Headless Chromium, driven over its DevTools protocol: what a person would see and do."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_START_LIMIT_S = 60.0
_WAIT_LIMIT_S = 30.0


class Page:
    """One tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._ids = itertools.count(1)
        self.console: list[str] = []
        """What the page logged or failed with, a policy that it broke included."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._connection.recv(timeout=_WAIT_LIMIT_S))
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") in (
            "Log.entryAdded",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
        ):
            self.console.append(json.dumps(message["params"]))

    def evaluate(self, expression: str) -> Any:
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, (expression, self.text(), self.console)
            time.sleep(0.1)

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def view(self, width: int, height: int, scheme: str) -> None:
        """Take the shape of a screen; `scheme` is light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def screenshot(self, path: Path) -> None:
        """The whole page, from top to bottom."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A new browser that keeps everything under `folder`, with one empty tab."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",  # the tests may run as root in a container
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    try:
        port = _port(folder / "profile" / "DevToolsActivePort", process)
        targets = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=30).json()
        url = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page")
        with connect(url, max_size=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(file.read_text().splitlines()[0])
        time.sleep(0.1)
    raise RuntimeError("Chromium did not start")
