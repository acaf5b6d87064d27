"""Everything at once: chats scored and kept, streams that clients leave, /pflash/compress, state.

`make test-threads` runs it on a server built with ThreadSanitizer, which ends at its first report.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from engine_process import Engine, compress, running, scored_by

CLIENTS = 6
ROUNDS = 3
QUESTIONS = ("Which shelf holds box 17?", "What did the keeper write down?", "Who took box 31?")


def document(number: int) -> str:
    lines = [
        f"Box {i} of lot {number} went to shelf {i * 7 % 13}, wrote the keeper." for i in range(40)
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def server(
    engine: Path,
    one_layer_model: Path,
    engine_scorer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    args = scored_by(engine_scorer, "auto")
    args += ["--pflash-min-tokens", "128", "--pflash-min-keep-tokens", "64", "--pflash-keep-ratio"]
    args += ["0.25", "--pflash-timeout-ms", "600000", "--metrics", "--slots", "--parallel", "2"]
    args += ["--threads", "1", "--kvflash", "1024", "--kvflash-policy", "qk"]
    store = tmp_path_factory.mktemp("store")
    args += ["--kvflash-store", str(store), "--kvflash-store-mb", "64"]
    log = tmp_path_factory.mktemp("concurrency") / "log"
    with running(engine, one_layer_model, log, *args, "--ctx-size", "8192") as started:
        yield started


def chat_body(number: int, question: str, **fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": f"{document(number)}\n\n{question}"}]
    return {"messages": messages, "max_tokens": 4, "temperature": 0, **fields}


def chatting(server: Engine, client: int, turn: int) -> int:
    """The kept tokens of a document that several clients ask about at the same time."""
    body = chat_body(turn, QUESTIONS[turn], pflash={"mode": "always"})
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.text
    kept: int = reply.json()["timings"]["pflash"]["kept_tokens"]
    return kept


def compressing(server: Engine, client: int, turn: int) -> int:
    kept: int = compress(server, text=document(turn), question=QUESTIONS[turn])["kept_tokens"]
    return kept


def leaving(server: Engine, client: int, turn: int) -> int:
    """A client that sends its request, reads a little or nothing, and goes."""
    body = json.dumps(chat_body(10 + client, QUESTIONS[turn], stream=True, max_tokens=64)).encode()
    place = urlsplit(server.base)
    assert place.hostname and place.port
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=300) as connection:
        connection.sendall(head.encode() + body)
        if turn:
            connection.recv(1)
    return 0


def looking(server: Engine, client: int, turn: int) -> int:
    for path in ("/props", "/metrics", "/slots"):
        assert server.get(path).status == 200
    return 0


WORK: tuple[Callable[[Engine, int, int], int], ...] = (chatting, compressing, leaving, looking)


def test_everything_at_once(server: Engine) -> None:
    def client(number: int) -> list[tuple[str, int, int]]:
        done = []
        for turn in range(ROUNDS):
            for step in range(len(WORK)):
                act = WORK[(number + step) % len(WORK)]
                done.append((act.__name__, turn, act(server, number, turn)))
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        results = [item for found in pool.map(client, range(CLIENTS)) for item in found]
    assert len(results) == CLIENTS * ROUNDS * len(WORK)
    for name in ("chatting", "compressing"):
        for turn in range(ROUNDS):
            kept = {value for act, at, value in results if (act, at) == (name, turn)}
            assert len(kept) == 1 and 0 not in kept, (name, turn, kept)
    assert server.process.poll() is None
    # whoever left gave its slot back
    assert server.post("/v1/chat/completions", chat_body(99, QUESTIONS[0])).status == 200
