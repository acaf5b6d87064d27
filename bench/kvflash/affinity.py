"""Two backends behind the proxy: do turns land where their prefix is, and what does a kill lose."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import yaml

from bench.haystacks import haystack
from bench.kvflash.context import Context
from bench.kvflash.miss import SMALL
from bench.results import ROOT
from bench.server import Message
from bench.store import Json, Record
from flashlane.backends.control import Client
from flashlane.config import load_config
from flashlane.routelog import RouteLog
from flashlane.serve import Proxy, free_port, running_proxy

CHATS, TURNS, TURNS_AFTER = 8, 5, 2
_BACKENDS = ("left", "right")
_OPENING_CHARS = 1600
_ASK_CHARS = 160
_ANSWER_TOKENS = 8
_AT_A_TIME = 4
_REQUEST_LIMIT_S = 600.0
_RECORD_LIMIT_S = 30.0
_BUSY_LIMIT_S = 60.0
_STATE = "FLASHLANE_STATE_DIR"


@dataclass(frozen=True)
class Sent:
    """One request. `home`: the deployment that answered the chat's turn before; empty at first.

    `killed`: sent when one backend was about to be killed, or later.
    """

    chat: int
    turn: int
    killed: bool
    answered: bool
    deployment: str
    home: str

    @property
    def landed(self) -> bool:
        return self.deployment == self.home


def measure(context: Context) -> list[Sent]:
    """One run is measured as a whole: an interrupted one begins again."""
    turns = min(TURNS, context.options.quick or TURNS)
    key = context.key("affinity", SMALL, code=_code(), turns=turns, chats=CHATS)

    def hold() -> Record:
        found: list[Json] = [asdict(sent) for sent in _run(context, turns)]
        return {"sent": found}

    sent = context.store.case(key, hold)["sent"]
    assert isinstance(sent, list)
    return [Sent(**entry) for entry in sent if isinstance(entry, dict)]  # type: ignore[arg-type]


def landed(rows: Sequence[Sent]) -> float | None:
    """Share of the turns after a chat's first, before the kill."""
    later = [row for row in rows if row.home and not row.killed]
    return sum(row.landed for row in later) / len(later) if later else None


def lost(rows: Sequence[Sent]) -> float | None:
    """Share of the requests from the kill on."""
    after = [row for row in rows if row.killed]
    return sum(not row.answered for row in after) / len(after) if after else None


def summary(rows: Sequence[Sent]) -> list[Json]:
    found: list[Json] = []
    for killed in (False, True):
        these = [row for row in rows if row.killed == killed]
        if these:
            entry: Record = {
                "stage": "from the kill on" if killed else "before",
                "requests": len(these),
                "answered": sum(row.answered for row in these),
                "later_turns": sum(bool(row.home) for row in these),
                "landed": sum(bool(row.home) and row.landed for row in these),
            }
            by_backend = Counter(row.deployment for row in these)
            found.append(entry | {name: by_backend[name] for name in _BACKENDS})
    return found


class _Chat:
    """A conversation that grows by a question and an answer each turn; every second one streams."""

    def __init__(self, proxy: Proxy, routes: Path, number: int) -> None:
        self._proxy = proxy
        self._routes = routes
        self._number = number
        self._turn = 0
        opening = _text(f"chat/{number}", _OPENING_CHARS)
        self._messages: list[Message] = [{"role": "system", "content": f"Log {number}.\n{opening}"}]
        self.home = ""

    def ask(self, chars: int, *, killed: bool = False) -> Sent:
        """One more turn. A request that is lost leaves the chat as it was."""
        text = _text(f"ask/{self._number}/{self._turn}", chars)
        messages = [*self._messages, {"role": "user", "content": f"{text}\nGo on."}]
        request_id, answer = self._answer(messages)
        deployment = _deployment(self._routes, request_id) if request_id else ""
        done = Sent(self._number, self._turn, killed, answer is not None, deployment, self.home)
        if answer is not None:
            self._messages = [*messages, {"role": "assistant", "content": answer}]
            self._turn += 1
            self.home = deployment
        return done

    def _answer(self, messages: Sequence[Message]) -> tuple[str, str | None]:
        """(request's id, answer); None for a request that is lost."""
        stream = bool(self._number % 2)
        body = {
            "model": "local",
            "messages": list(messages),
            "max_tokens": _ANSWER_TOKENS,
            "temperature": 0,
            "stream": stream,
            "route": "direct",
        }
        try:
            reply = httpx.post(
                f"{self._proxy.base_url}/v1/chat/completions",
                headers={"Authorization": f"Bearer {self._proxy.key}"},
                json=body,
                timeout=_REQUEST_LIMIT_S,
            )
        except httpx.HTTPError:
            return "", None
        request_id = reply.headers.get("x-litellm-call-id", "")
        if reply.status_code != 200:
            return request_id, None
        return request_id, (streamed(reply.text) if stream else whole(reply.text))


def whole(text: str) -> str | None:
    """The answer in a body; None where it holds none."""
    choices = json.loads(text).get("choices")
    return (choices[0]["message"].get("content") or "") if choices else None


def streamed(text: str) -> str | None:
    """The answer in a stream of events; None where it broke off or tells of an error."""
    found: list[str] = []
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not data:
            continue
        if data == "[DONE]":
            return "".join(found)
        chunk = json.loads(data)
        if "error" in chunk:
            return None
        found += [choice["delta"].get("content") or "" for choice in chunk.get("choices", [])]
    return None


def _run(context: Context, turns: int) -> list[Sent]:
    found: list[Sent] = []
    with (
        tempfile.TemporaryDirectory(prefix="affinity-") as name,
        _state(Path(name) / "state"),
    ):
        folder = Path(name)
        routes = folder / "routes.sqlite"
        config = _config(context, folder, routes)
        with running_proxy(config, free_port()) as proxy:
            chats = [_Chat(proxy, routes, number) for number in range(CHATS)]
            for _ in context.cases("affinity", range(turns), limit=False):
                found += [chat.ask(_ASK_CHARS) for chat in chats]
            found += _killed(config, chats)
            for _ in range(TURNS_AFTER):
                found += [chat.ask(_ASK_CHARS, killed=True) for chat in chats]
    return found


def _killed(config: Path, chats: Sequence[_Chat]) -> list[Sent]:
    """Chats ask at once, and the backend that most of them are at is killed while it works."""
    ((victim, _),) = Counter(chat.home for chat in chats if chat.home).most_common(1)
    # Long asks: the kill finds them in their prefill.
    asking = sorted(chats, key=lambda chat: chat.home != victim)[:_AT_A_TIME]
    lease = Client(config)
    try:
        pid = next(status.pid for status in lease.status() if status.name == victim)
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            ends = [pool.submit(chat.ask, 4 * _OPENING_CHARS, killed=True) for chat in asking]
            _wait_busy(config, victim)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            return [end.result() for end in ends]
    finally:
        lease.close()


def _wait_busy(config: Path, name: str) -> None:
    """Until the backend works on a request, or for a minute."""
    url = f"{load_config(config).backends[name].base_url}/slots"
    deadline = time.monotonic() + _BUSY_LIMIT_S
    while time.monotonic() < deadline:
        slots = httpx.get(url, timeout=_BUSY_LIMIT_S).json()
        if any(slot["is_processing"] for slot in slots):
            return
        time.sleep(0.05)


def _config(context: Context, folder: Path, routes: Path) -> Path:
    """The repository's own config with two backends of the small model, on free ports."""
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    backends = document["flashlane"]["backends"]
    backend = {
        **backends.pop("local"),
        "model": str(context.model(SMALL)),
        "server": str(context.options.server),
        "threads": context.options.threads or 1,  # two servers: more threads wait for each other
        "start": "eager",
        "kvflash": {"budget": "auto"},
    }
    entries, document["model_list"] = document["model_list"], []
    for name in _BACKENDS:
        port = free_port()
        backends[name] = {**backend, "port": port}
        for entry in entries:
            params = {**entry["litellm_params"], "api_base": f"http://127.0.0.1:{port}/v1"}
            document["model_list"].append({**entry, "litellm_params": params})
    document["flashlane"]["route_log"] = {"sqlite": str(routes)}
    (folder / "plugins").symlink_to(ROOT / "plugins")
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _deployment(routes: Path, request_id: str) -> str:
    """Where a request was answered, by its record, which comes after the answer; empty for none."""
    log = RouteLog(routes)
    deadline = time.monotonic() + _RECORD_LIMIT_S
    while time.monotonic() < deadline:
        for record in log.records():
            if record.request_id == request_id:
                return record.deployment
        time.sleep(0.1)
    return ""


def _text(seed: str, chars: int) -> str:
    units = haystack("logs", chars, "reported", seed, len)
    return "".join(units)[:chars]


@contextmanager
def _state(folder: Path) -> Iterator[None]:
    """A state folder of this run's own: the user's key and logs are left alone."""
    before = os.environ.get(_STATE)
    os.environ[_STATE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STATE]
        else:
            os.environ[_STATE] = before


def _code() -> str:
    """Hash of the router and its hooks, which decide here and are no part of the engine."""
    digest = hashlib.sha256()
    for folder in ("flashlane", "plugins"):
        for path in sorted((ROOT / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
