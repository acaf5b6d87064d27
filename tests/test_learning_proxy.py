"""What answers teach, behind the real proxy: two workers, the small model, and tiny drafters.

The config's seed says that the machine reads 10,000 tokens/s, so that nothing is worth compressing
until answers have told better.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bench import tiny_models
from flashlane.gears import GEAR_FIELD
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import free_port, proxy_command
from flashlane.speeds import FILE_NAME, Figures, read_figures

ROOT = Path(__file__).resolve().parent.parent
KEY = "sk-learning"
SEED = 10_000.0
MARGIN_MS = 500.0
DFLASH = ("--spec-type", "draft-dflash", "--spec-draft-n-max", "15", "-md")

# Says in the headers which worker answered.
WITNESS = """
import os
from litellm.integrations.custom_logger import CustomLogger

class Witness(CustomLogger):
    async def async_post_call_response_headers_hook(self, data, user_api_key_dict, response, **_):
        return {"x-worker": str(os.getpid())}

handler = Witness()
"""


def document(number: int) -> str:
    return " ".join(
        f"Item {i} of shed {number} was put on shelf {i * (7 + number) % 13} by the keeper."
        for i in range(90)
    )


def broad(number: int) -> str:
    return f"{document(number)}\n\nSummarise the text above."


def exact(number: int) -> str:
    return f"{document(number)}\n\nCount the items on shelf 3."


@dataclass
class Reply:
    text: str
    headers: httpx.Headers
    timings: dict[str, Any]

    @property
    def lane(self) -> str:
        return self.headers["x-flashlane-lane"]

    @property
    def reasons(self) -> list[str]:
        return self.headers["x-flashlane-reasons"].split(",")

    @property
    def gear(self) -> str | None:
        return self.headers.get("x-flashlane-gear")


@dataclass
class Workers:
    url: str
    config: Path
    state: Path
    routes: Path
    clients: list[httpx.Client] = field(default_factory=list)

    def connection(self, but: str = "") -> httpx.Client:
        """A connection of its own, which any worker may get, or any but one."""
        for _ in range(200):
            client = httpx.Client(
                base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=300
            )
            self.clients.append(client)
            if not but or ask(client, "Say hello.", max_tokens=1).headers["x-worker"] != but:
                return client
        raise AssertionError("every connection went to one worker")

    def figures(self) -> Figures:
        return read_figures(self.state / FILE_NAME)

    def of(self, name: str, engine: str = "local") -> float | None:
        found = [
            mean.value
            for key, mean in self.figures().means.items()
            if key.engine.startswith(f"{engine}/") and (key.name, key.kind) == (name, "")
        ]
        return found[0] if found else None

    def record(self, reply: Reply) -> RouteRecord:
        """The record of one request: it is written after the answer."""
        name = reply.headers["x-litellm-call-id"]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for record in RouteLog(self.routes).records(50):
                if record.request_id == name:
                    return record
            time.sleep(0.05)
        raise AssertionError(f"no route record of request {name}")


def ask(
    client: httpx.Client, said: str | list[dict[str, str]], model: str = "local", **fields: Any
) -> Reply:
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    body = {"model": model, "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    timings = answer.get("timings") or {}
    return Reply(answer["choices"][0]["message"]["content"] or "", reply.headers, timings)


def _config(folder: Path) -> Path:
    document = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    section = document["flashlane"]
    server = os.environ.get("FLASHLANE_TEST_SERVER")
    own = {"server": server} if server else {}
    section["backends"]["local"].update(
        port=free_port(), speeds={"prefill_tokens_per_s": SEED}, threads=2, **own
    )
    for entry in document["model_list"]:
        port = section["backends"]["local"]["port"]
        entry["litellm_params"]["api_base"] = f"http://127.0.0.1:{port}/v1"
    pairs = {
        "circle": tiny_models.cycle_pair(folder),
        "lost": (
            tiny_models.dense(folder / "dense.gguf"),
            tiny_models.drafter(folder / "guess.gguf"),
        ),
    }
    for name, (target, drafter) in pairs.items():
        port = free_port()
        section["backends"][name] = {
            "model": str(target),
            "port": port,
            "context_tokens": 1024,
            "slots": 1,
            "threads": 1,
            "args": [*DFLASH, str(drafter)],
            **own,
        }
        params = {
            "model": f"llamafile/{name}",
            "api_base": f"http://127.0.0.1:{port}/v1",
            "api_key": "none",
        }
        document["model_list"].append({"model_name": name, "litellm_params": params})
    section["gears"] = {"mode": "auto", "choices": [0, 4, 8]}
    section["policy"].update(flip_margin_ms=MARGIN_MS)
    section["route_log"] = {"sqlite": str(folder / "routes.sqlite")}
    document["litellm_settings"]["callbacks"].append("witness.handler")
    (folder / "plugins").symlink_to(ROOT / "plugins")
    (folder / "witness.py").write_text(WITNESS)
    path = folder / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def running(config: Path, state: Path) -> Iterator[Workers]:
    """Two workers of one proxy."""
    port = free_port()
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "TIMEOUT_WORKER_HEALTHCHECK": "120",
        "FLASHLANE_STATE_DIR": str(state),
    }
    log = config.parent / "proxy.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*proxy_command(config, "127.0.0.1", port), "--num_workers", "2"],
            cwd=config.parent,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    workers = Workers(f"http://127.0.0.1:{port}", config, state, config.parent / "routes.sqlite")
    try:
        _wait_ready(workers.url, process, log)
        yield workers
    finally:
        for client in workers.clients:
            client.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health/liveliness", timeout=2).status_code == 200:
                return
        time.sleep(0.3)
    raise RuntimeError(log.read_text(errors="replace")[-2000:])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Config and state folder, which outlive a proxy."""
    folder = tmp_path_factory.mktemp("learning")
    state = tmp_path_factory.mktemp("s")
    return _config(folder), state


@pytest.fixture(scope="module")
def workers(place: tuple[Path, Path]) -> Iterator[Workers]:
    with running(*place) as started:
        yield started


def test_speeds_are_learned_and_change_the_lane_for_all_workers(workers: Workers) -> None:
    one = workers.connection()
    first = ask(one, broad(0))
    assert (first.lane, first.reasons[-1]) == ("direct", "no_saving"), "by the seed"
    replies = [ask(one, broad(100 + number)) for number in range(16)]
    lanes = [reply.lane for reply in replies]
    assert lanes[-1] == "pflash", lanes
    assert lanes == sorted(lanes), "from direct to pflash, once"
    time.sleep(1)
    learned = workers.of("prefill")
    assert learned is not None and learned < SEED / 4
    estimate = workers.of("tokens_per_estimate")
    assert estimate is not None and estimate != 1.0
    assert workers.of("answer_tokens") is not None

    worker = replies[-1].headers["x-worker"]
    elsewhere = ask(workers.connection(but=worker), broad(200))
    assert elsewhere.lane == "pflash"
    assert elsewhere.headers["x-worker"] != worker
    mine, theirs = (workers.record(reply).predicted_direct_ms for reply in (replies[-1], elsewhere))
    assert mine and theirs == pytest.approx(mine, rel=0.5), "the seed says a tenth of it"


def test_a_prefix_that_another_request_left_changes_the_lane(workers: Workers) -> None:
    client = workers.connection()
    assert ask(client, broad(300)).lane == "pflash"
    assert ask(client, exact(301)).lane == "direct"
    again = ask(client, broad(301))
    assert (again.lane, again.reasons[-1]) == ("direct", "no_saving"), "its text is read already"
    record = workers.record(again)
    assert record.cached_tokens and record.prompt_tokens
    assert record.cached_tokens > 0.9 * record.prompt_tokens
    fresh = workers.record(ask(client, broad(302)))
    assert fresh.lane == "pflash", "another text is not"


def lost_for_nothing(records: list[RouteRecord]) -> list[tuple[str, str, str]]:
    """Flips of a conversation that neither the ask asks for nor the margin pays for."""
    found = []
    for before, after in pairwise(records):
        flip = before.lane != after.lane
        if flip and not (after.exact and after.lane == "direct"):
            found.append((before.lane, after.lane, after.reasons))
    return found


def test_no_flip_loses_a_prefix_for_nothing(workers: Workers) -> None:
    """Each turn on a connection of its own: any worker may get it."""
    again, count, child = "Summarise it once more.", "Count the items.", "Summarise it for a child."
    chats = {
        "exact first": [exact(400), "Summarise the text.", again, count, child],
        "broad first": [broad(401), again, child, count, "Summarise the text."],
    }
    for name, asks in chats.items():
        messages: list[dict[str, str]] = []
        records = []
        for text in asks:
            messages.append({"role": "user", "content": text})
            reply = ask(workers.connection(), messages, max_tokens=12)
            messages.append({"role": "assistant", "content": reply.text})
            records.append(workers.record(reply))
            time.sleep(0.6)
        lanes = [record.lane for record in records]
        assert not lost_for_nothing(records), (name, [(r.lane, r.reasons) for r in records])
        if name == "exact first":
            assert lanes == ["direct"] * len(lanes)
            assert all("stays" in r.reasons or r.exact or "no_saving" in r.reasons for r in records)
        else:
            assert lanes == ["pflash", "pflash", "pflash", "direct", "direct"]
            assert len({record.keep_ratio for record in records[:3]}) == 1
        for before, record in pairwise(records):
            if before.lane == record.lane:
                assert record.cached_tokens and before.prompt_tokens
                assert record.cached_tokens >= 0.8 * before.prompt_tokens, (name, record)


def gears(client: httpx.Client, model: str, count: int, **fields: Any) -> list[Reply]:
    return [
        ask(client, f"abcdefgh {n}", model, max_tokens=40, ignore_eos=True, **fields)
        for n in range(count)
    ]


def test_a_drafter_that_loses_is_switched_off(workers: Workers) -> None:
    client = workers.connection()
    gears(client, "lost", 1)  # starts it; what it drafts is asked meanwhile
    time.sleep(0.5)
    replies = gears(client, "lost", 4)
    assert replies[0].gear == "4", replies[0].headers
    assert replies[0].timings["draft_n"] > 0
    assert [reply.gear for reply in replies[1:]] == ["0"] * 3
    assert not replies[-1].timings.get("draft_n")
    record = workers.record(replies[-1])
    assert record.gear == 0 and "gear" in record.reasons.split(",")


def test_a_clients_own_gear_wins_within_what_the_engine_gives(workers: Workers) -> None:
    client = workers.connection()
    gears(client, "circle", 1)
    time.sleep(0.5)
    (chosen,) = gears(client, "circle", 1)
    assert chosen.gear == "4" and chosen.timings["draft_n_accepted"] > 8
    (asked,) = gears(client, "circle", 1, **{GEAR_FIELD: 2})
    assert asked.gear == "2" and "gear_asked" in asked.reasons
    (much,) = gears(client, "circle", 1, **{GEAR_FIELD: 99})
    assert much.gear == "15"
    rounds = [
        reply.timings["draft_n"] / (40 - reply.timings["draft_n_accepted"])
        for reply in (asked, chosen, much)
    ]
    assert rounds[0] <= 2.0 < rounds[1] <= 4.0 < rounds[2], "the engine was told"
    (none,) = gears(client, "circle", 1, **{GEAR_FIELD: 0})
    assert none.gear == "0" and not none.timings.get("draft_n")
    known = [key for key in workers.figures().means if key.engine.startswith("circle/")]
    assert {key.gear for key in known if key.name == "acceptance"} >= {4, 2, 15}


def test_a_backend_without_a_drafter_gets_no_gear(workers: Workers) -> None:
    reply = ask(workers.connection(), "Say hello.")
    assert reply.gear is None and workers.record(reply).gear is None


def test_explain_shows_what_was_read_and_what_it_costs(workers: Workers) -> None:
    def explain(*args: str) -> str:
        messages = [{"role": "user", "content": broad(500)}]
        return subprocess.run(
            [sys.executable, "-m", "flashlane.cli", "explain", "-c", str(workers.config), *args],
            input=json.dumps({"model": "local", "messages": messages}),
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "FLASHLANE_STATE_DIR": str(workers.state)},
        ).stdout

    shown = explain()
    for words in (
        "lane        pflash (model group local-pflash)",
        "ask         Summarise the text above. (in messages[0])",
        "exact       no (summary, ",
        "keep ratio  0.4",
        "gear        the engine decides",
        "cost        pflash: about ",
        " prefill",
        "speeds      learned from answers",
        "[pays]",
    ):
        assert words in shown, shown
    found = json.loads(explain("--json"))
    record = workers.record(ask(workers.connection(), broad(501)))
    assert record.predicted_direct_ms == pytest.approx(found["costs_ms"]["direct"], rel=0.3)
    for lane, parts in found["cost_parts"].items():
        summed = sum(parts[part] for part in parts if part.endswith("_ms"))
        assert summed == pytest.approx(found["costs_ms"][lane], abs=0.3)


def test_what_was_learned_outlives_the_proxy(place: tuple[Path, Path], workers: Workers) -> None:
    """Last in this file: a second proxy begins where the first ended."""
    config, state = place
    before = read_figures(state / FILE_NAME).means
    with running(config, state) as again:
        reply = ask(again.connection(), broad(600))
        assert reply.lane == "pflash", "at once, whatever the seed says"
        record = again.record(reply)
        assert record.predicted_direct_ms and record.predicted_direct_ms > 500
        time.sleep(1)
        after = again.figures().means
    assert all(after[key].samples >= mean.samples for key, mean in before.items())
    assert sum(m.samples for m in after.values()) > sum(m.samples for m in before.values())
