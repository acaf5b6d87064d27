"""Mixed load on KVFlash for a while: no wrong answer, and no more memory or disk than it may take.

Two minutes by default; FLASHLANE_SOAK_MINUTES names another length, as `make soak` does.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from engine_process import Engine, running
from kvflash_server import EXACT, PAGE, Tokens, ask, pool

from bench import tiny_models
from bench.tiny_models import text

MINUTES = float(os.environ.get("FLASHLANE_SOAK_MINUTES", "2"))
KINDS = ("dense", "windowed", "hybrid")  # share the time
ARGS = ("--ctx-size", "4096", "--kv-unified", "--kvflash-tau", str(PAGE), *EXACT)
CLIENTS = 4
RAM_MIB, DISK_MIB, BUDGET = 8, 16, 1500
SLACK_BYTES = 48 << 20  # cells that are first used, buffers of requests, the heap's holes
ROUNDING = 0.01  # of a logit, from batches that differ
LEAK_BYTES = 8 << 20  # that the second half may take beyond the first
MIB = 1 << 20


class Load:
    """Prompts with their answers: documents with questions, and every turn of some chats."""

    def __init__(self, cold: Engine) -> None:
        self.answers: list[tuple[Tokens, Tokens]] = []
        for document in range(12):
            for question in range(6):
                prompt = text(document, 150 + 60 * document) + text(100 + question, 20)
                self._add(cold, prompt)
        for chat in range(8):
            prompt = text(200 + chat, 300)
            for turn in range(5):
                prompt = prompt + text(1000 * chat + turn, 30)
                prompt = prompt + self._add(cold, prompt)

    def _add(self, cold: Engine, prompt: Tokens) -> Tokens:
        answer = ask(cold, prompt, cache_prompt=False)[0]
        self.answers.append((prompt, answer))
        return answer


class Client(threading.Thread):
    """Asks at random until `end`; what went wrong is in `wrong`."""

    def __init__(
        self, server: Engine, cold: Engine, load: Load, folder: Path, seed: int, end: float
    ) -> None:
        super().__init__()
        self.server, self.cold, self.load, self.folder, self.end = server, cold, load, folder, end
        self.draw = random.Random(seed)
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        steps = [self.question] * 20 + [self.leave, self.too_long, self.erase, self.damage]
        try:
            while time.monotonic() < self.end:
                step = self.draw.choice(steps)
                step()
                self.done[step.__name__] += 1
        except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
            self.wrong.append(repr(error))

    def question(self) -> None:
        at = self.draw.randrange(len(self.load.answers))
        prompt, expected = self.load.answers[at]
        answer, timings = ask(self.server, prompt)
        if answer != expected and not self.is_tie(prompt, answer, expected):
            self.wrong.append(f"prompt {at}: {answer}, not {expected}: {timings['kvflash']}")

    def is_tie(self, prompt: Tokens, answer: Tokens, expected: Tokens) -> bool:
        """Whether a cold run too says the other token where it is helped by a rounding error."""
        same = next(i for i, token in enumerate(answer) if token != expected[i])
        bias = [[answer[same], ROUNDING]]
        helped, _ = ask(
            self.cold, prompt + expected[:same], n_predict=1, cache_prompt=False, logit_bias=bias
        )
        self.done["tie"] += 1
        return helped == answer[same : same + 1]

    def leave(self) -> None:
        """Goes away in the middle of a stream."""
        prompt, _ = self.draw.choice(self.load.answers)
        address = self.server.base.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=60)
        body = {"prompt": prompt, "n_predict": 200, "stream": True, "ignore_eos": True}
        connection.request("POST", "/completion", json.dumps(body))
        connection.getresponse().read(self.draw.randrange(1, 400))
        connection.close()

    def too_long(self) -> None:
        reply = self.server.post("/completion", {"prompt": text(1, 5000), "n_predict": 1})
        assert reply.status == 400, reply.text

    def erase(self) -> None:
        reply = self.server.post(f"/slots/{self.draw.randrange(3)}?action=erase", {})
        assert reply.status == 200, reply.text

    def damage(self) -> None:
        """Flips a byte of a stored state, if there is one."""
        records = list(self.folder.rglob("*.kv"))
        if records:
            try:
                with self.draw.choice(records).open("r+b") as file:
                    file.seek(self.draw.randrange(4096))
                    file.write(b"\xa5")
            except OSError:
                pass  # another server, or the bound, has removed it


@pytest.mark.timeout(MINUTES * 60 + 300)
@pytest.mark.parametrize("kind", KINDS)
def test_soak(engine: Path, tmp_path: Path, kind: str) -> None:
    model = getattr(tiny_models, kind)(tmp_path / "model.gguf")
    folder, files = tmp_path / "store", tmp_path / "files"
    folder.mkdir()
    files.mkdir()
    args = ("--parallel", "3", "--kvflash", str(BUDGET), "--cache-ram", str(RAM_MIB))
    args += ("--kvflash-store", str(folder), "--kvflash-store-mb", str(DISK_MIB))
    args += ("--slot-save-path", str(files))
    with (
        running(engine, model, tmp_path / "cold", *ARGS, "--cache-ram", "0") as cold,
        running(engine, model, tmp_path / "log", *ARGS, *args) as server,
    ):
        load = Load(cold)
        process = psutil.Process(server.process.pid)
        ask(server, load.answers[-1][0])
        before = process.memory_info().rss
        begin = time.monotonic()
        end = begin + 60 * MINUTES / len(KINDS)
        clients = [Client(server, cold, load, folder, seed, end) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        most = [before, before]  # in each half
        while any(client.is_alive() for client in clients):
            half = time.monotonic() > (begin + end) / 2
            most[half] = max(most[half], process.memory_info().rss)
            found = pool(server)
            assert found["ram_bytes"] <= RAM_MIB * MIB
            stored = sum(size_of(path) for path in folder.rglob("*.kv"))
            assert stored <= DISK_MIB * MIB
            time.sleep(0.2)
        wrong = [line for client in clients for line in client.wrong]
        done = sum((client.done for client in clients), Counter())
        assert not wrong, (len(wrong), wrong[:5])
        assert done["question"] > 100 and len(done.keys() - {"tie"}) == 5, done
        assert done["tie"] <= max(1, done["question"] / 100), done
        hits = found["hits"]
        assert min(hits["slot"], hits["ram"], hits["disk"], found["damaged"], found["evicted"]) > 0
        assert max(most) - before <= RAM_MIB * MIB + SLACK_BYTES, (before, most)
        assert most[1] - most[0] <= LEAK_BYTES, most


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # removed meanwhile
