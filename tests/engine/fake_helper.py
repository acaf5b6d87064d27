"""A PFlash helper that misbehaves as its first argument says. The standard library only.

FAKE_NOTES names a file to which each process appends what it is and what it was asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20


def note(**fields: object) -> None:
    with Path(os.environ["FAKE_NOTES"]).open("a") as notes:
        notes.write(json.dumps(fields) + "\n")


def ask() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    request: dict[str, Any] = json.loads(line)
    return request


def put(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def good(request: dict[str, Any]) -> str:
    scores = list(range(len(request["spans"])))
    return json.dumps({"schema": 1, "id": request["id"], "scores": scores}) + "\n"


def status(key: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(key + ":"))


def serve(mode: str, rest: list[str], turn: int) -> None:
    """One request in `mode`."""
    if mode == "flood-unasked":
        put("x" * (65 * MIB))
    if mode == "deaf":
        time.sleep(60)
    if mode == "early":
        put('{"schema": 1, "id": 1, "scores": [0, 1, 2]}\n')
    if mode == "one-byte":
        os.read(0, 1)
        os._exit(0)
    if mode == "close-stdin":
        os.close(0)
        time.sleep(60)
    request = ask()
    if mode == "good":
        put(good(request))
    elif mode == "raw":
        put(rest[0].replace("$ID", str(request["id"])) + "\n")
    elif mode == "echo":
        note(request=request)
        put(good(request))
    elif mode == "about":
        inherited = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        note(
            session=os.getsid(0),
            group=os.getpgrp(),
            descriptors=inherited,
            blocked=int(status("SigBlk"), 16),
            environment=dict(os.environ),
            arguments=sys.argv[2:],
        )
        put(good(request))
    elif mode == "hang":
        time.sleep(60)
    elif mode == "half":
        put(good(request)[:12])
        os._exit(1)
    elif mode == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif mode == "flood":
        put("x" * (65 * MIB))
        time.sleep(60)
    elif mode == "flood-lines":
        put("x\n" * (32 * MIB))
        time.sleep(60)
    elif mode == "no-newline":
        put(good(request).rstrip())
        time.sleep(60)
    elif mode == "two-lines":
        put(good(request) * 2)
    elif mode == "late-line":
        put(good(request))
        time.sleep(0.1)
        put(good({**request, "id": request["id"] + 1}))
    elif mode == "late":
        if turn == 0:
            time.sleep(0.5)
        put(good(request))
    elif mode == "late-in-new-process":
        # the first process hangs, the next one answers
        if len(Path(os.environ["FAKE_NOTES"]).read_text().splitlines()) == 1:
            time.sleep(60)
        put(good(request))
    elif mode == "drip":
        for letter in good(request):
            put(letter)
            time.sleep(0.05)
    elif mode == "slow":
        time.sleep(0.3)
        put(good(request))
    elif mode == "close-stdout":
        os.close(1)
        time.sleep(60)
    elif mode == "once":
        put(good(request))
        os._exit(0)
    elif mode == "loud":
        for _ in range(20_000):
            os.write(2, b"\x1b[31mloud \xff " + b"y" * 1000 + b"\n")
        put(good(request))
    elif mode == "family":
        for extra in ([], ["stubborn"]):
            child = subprocess.Popen([sys.executable, __file__, "child", *extra])
            note(pid=child.pid)
        time.sleep(0.3)
        if rest:
            time.sleep(60)
        put(good(request))


def main() -> None:
    mode, rest = sys.argv[1], sys.argv[2:]
    if mode in ("child", "stubborn"):
        if mode == "stubborn" or "stubborn" in rest:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if mode == "child":
            time.sleep(60)
            return
    note(pid=os.getpid())
    if mode == "crash":
        os._exit(3)
    turn = 0
    while True:
        serve("good" if mode == "stubborn" else mode, rest, turn)
        turn += 1
        if mode == "stubborn":
            while True:
                time.sleep(60)


if __name__ == "__main__":
    main()
