"""A llama-server that a benchmark starts on loopback, asks, and stops by its own pid."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
from pydantic import BaseModel, ConfigDict

from bench.process import ServerError, running_process

_START_LIMIT_S = 120.0  # of a gigabyte's model on a busy machine
_REQUEST_LIMIT_S = 3600.0

Message: TypeAlias = "dict[str, str]"


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class PflashTimings(_Reply):
    mode: str = ""
    scorer: str = ""
    original_tokens: int = 0
    kept_tokens: int = 0
    score_ms: float = 0.0
    reason: str = ""


class KvflashTimings(_Reply):
    """`tier`: where the prompt's beginning came from; `none` where it was nowhere."""

    tier: str = "none"
    restored_tokens: int = 0
    restore_ms: float = 0.0


class Timings(_Reply):
    """llama-server's own; milliseconds and tokens. `cache_n` tokens came from the KV cache."""

    prompt_n: int = 0
    prompt_ms: float = 0.0
    cache_n: int = 0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    pflash: PflashTimings | None = None
    kvflash: KvflashTimings | None = None


class Compressed(_Reply):
    """What `/pflash/compress` answers: `text` or `messages`, as it was asked."""

    text: str | None = None
    messages: list[Message] | None = None
    original_tokens: int
    kept_tokens: int
    score_ms: float = 0.0
    scorer: str = ""
    reason: str = ""
    mask_hits: int = 0

    @property
    def share(self) -> float:
        return self.kept_tokens / max(self.original_tokens, 1)

    @property
    def whole(self) -> bool:
        """Whether nothing was dropped: such an answer proves nothing about a selection."""
        return self.kept_tokens >= self.original_tokens


class _Message(_Reply):
    content: str | None = None


class _Choice(_Reply):
    message: _Message = _Message()
    delta: _Message = _Message()


class _Chat(_Reply):
    choices: list[_Choice] = []
    timings: Timings | None = None


class _Likely(_Reply):
    id: int
    logprob: float


class _Position(_Reply):
    top_logprobs: list[_Likely] = []


class _Completion(_Reply):
    timings: Timings
    tokens: list[int] = []
    completion_probabilities: list[_Position] = []


class _Tokens(_Reply):
    tokens: list[int]


class _Content(_Reply):
    content: str


@dataclass(frozen=True)
class Answer:
    """`wall_ms` is the whole request as the client saw it, `cpu_ms` the server's processor time."""

    text: str
    timings: Timings
    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Completion:
    """The tokens of a greedy answer; `likely`: log probabilities of its first place by token, where
    `n_probs` asked for them. Times as of an `Answer`."""

    tokens: list[int]
    likely: dict[int, float]
    timings: Timings
    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Arrival:
    """A piece of a stream and the time.monotonic() second at which it came."""

    at_s: float
    text: str
    timings: Timings | None


class Server:
    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self._port = port
        self._process = psutil.Process(process.pid)
        self._counts: dict[str, int] = {}

    def cpu_s(self) -> float:
        """Processor seconds of the server so far, all its threads."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def post(self, path: str, body: Mapping[str, object]) -> bytes:
        """The body of a 200 answer. Raises `ServerError` otherwise."""
        connection = self._connect()
        try:
            return _checked(path, _send(connection, path, body))
        finally:
            connection.close()

    def chat(self, messages: Sequence[Message], **fields: object) -> Answer:
        """One chat completion at temperature 0; `fields` go into the body."""
        body = {"messages": list(messages), "temperature": 0, **fields}
        raw, wall_ms, cpu_ms = self._timed("/v1/chat/completions", body)
        reply = _Chat.model_validate_json(raw)
        text = reply.choices[0].message.content or ""
        return Answer(text, reply.timings or Timings(), wall_ms, cpu_ms)

    def complete(self, prompt: Sequence[int], n_predict: int, **fields: object) -> Completion:
        """`n_predict` tokens after `prompt` at temperature 0; `fields` go into the body."""
        body = {
            "prompt": list(prompt),
            "n_predict": n_predict,
            "temperature": 0,
            "ignore_eos": True,
            "return_tokens": True,
            **fields,
        }
        raw, wall_ms, cpu_ms = self._timed("/completion", body)
        reply = _Completion.model_validate_json(raw)
        places = reply.completion_probabilities
        likely = {top.id: top.logprob for top in places[0].top_logprobs} if places else {}
        return Completion(reply.tokens, likely, reply.timings, wall_ms, cpu_ms)

    def stream(
        self, messages: Sequence[Message], **fields: object
    ) -> Generator[Arrival, None, None]:
        """The same, piece by piece; closing the iterator ends the request."""
        path = "/v1/chat/completions"
        body = {"messages": list(messages), "temperature": 0, "stream": True, **fields}
        connection = self._connect()
        try:
            response = _send(connection, path, body)
            if response.status != 200:
                _checked(path, response)
            for line in response:
                at_s = time.monotonic()
                data = line.removeprefix(b"data: ").strip()
                if not line.startswith(b"data: ") or data == b"[DONE]":
                    continue
                chunk = _Chat.model_validate_json(data)
                text = chunk.choices[0].delta.content if chunk.choices else None
                yield Arrival(at_s, text or "", chunk.timings)
        finally:
            connection.close()

    def prefill(self, tokens: Sequence[int]) -> Timings:
        """Plain prefill of `tokens`, nothing cached, one token decoded."""
        body = {
            "prompt": list(tokens),
            "n_predict": 1,
            "cache_prompt": False,
            "pflash": {"mode": "off"},
        }
        return _Completion.model_validate_json(self.post("/completion", body)).timings

    def compress(
        self,
        keep_ratio: float,
        *,
        text: str | None = None,
        question: str | None = None,
        messages: Sequence[Message] | None = None,
        scorer: str | None = None,
    ) -> Compressed:
        """`/pflash/compress` of a text or of messages, for a question; `scorer` None: its own.

        With a question beside the messages, what was kept for another question on the same text is
        not used again.
        """
        wanted = {
            "text": text,
            "question": question,
            "messages": list(messages) if messages else None,
            "keep_ratio": keep_ratio,
            "min_keep_tokens": 0,
            "scorer": scorer,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        return Compressed.model_validate_json(self.post("/pflash/compress", body))

    def tokenize(self, text: str) -> list[int]:
        return _Tokens.model_validate_json(self.post("/tokenize", {"content": text})).tokens

    def detokenize(self, tokens: Sequence[int]) -> str:
        body = {"tokens": list(tokens)}
        return _Content.model_validate_json(self.post("/detokenize", body)).content

    def count(self, text: str) -> int:
        """Tokens of `text` in the server's vocabulary, remembered by text."""
        if text not in self._counts:
            self._counts[text] = len(self.tokenize(text))
        return self._counts[text]

    def _timed(self, path: str, body: Mapping[str, object]) -> tuple[bytes, float, float]:
        """(body of the answer, ms as the client saw it, processor ms of the server)."""
        cpu, started = self.cpu_s(), time.monotonic()
        raw = self.post(path, body)
        wall_ms = (time.monotonic() - started) * 1e3
        return raw, wall_ms, (self.cpu_s() - cpu) * 1e3

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=_REQUEST_LIMIT_S)


@contextmanager
def running(server: Path, model: Path, log: Path, *args: str) -> Iterator[Server]:
    """Starts `server` on `model` with `args`; it is stopped when the block ends.

    Raises `ServerError` with the end of its log when it does not become healthy.
    """
    with running_process(server, model, log, *args, start_limit_s=_START_LIMIT_S) as (
        port,
        process,
    ):
        yield Server(port, process)


def engine_identity(server: Path) -> str:
    """Hash of the server's binary and of the libraries beside it."""
    digest = hashlib.sha256()
    for path in sorted(server.parent.iterdir()):
        if path == server or ".so" in path.name or path.suffix == ".dylib":
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _send(
    connection: http.client.HTTPConnection, path: str, body: Mapping[str, object]
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body).encode(), headers)
    return connection.getresponse()


def _checked(path: str, response: http.client.HTTPResponse) -> bytes:
    content = response.read()
    if response.status != 200:
        said = content.decode(errors="replace")[:500]
        raise ServerError(f"{path} answered {response.status}: {said}")
    return content
