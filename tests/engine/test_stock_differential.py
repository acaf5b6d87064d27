"""With every option off, the patched server answers as the stock one does, byte for byte.

Both come from one source tree and get the same requests in the same order at temperature 0. Only
clock readings, random ids and the build's name are taken out before the comparison.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_process import Engine, running

from bench.process import engine_env

# The stock server may have to be built first.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ARGS = ["--ctx-size", "4096", "--parallel", "2", "--threads", "2", "--seed", "1", "--temp", "0"]
ARGS += ["--slots", "--metrics", "--jinja"]

OWN_PROPS = ("flashlane_schema", "pflash", "kvflash", "gears")

LONG = " ".join(
    f"Line {n} of the report says that shelf {n * 7} holds {n * 3} boxes." for n in range(60)
)
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}


def _chat(text: str, **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "You are a terse assistant."},
        {"role": "user", "content": text},
    ]
    return {"messages": messages, "max_tokens": 12, "temperature": 0} | more


def _text(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": 12, "temperature": 0} | more


REQUESTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "completion": ("/completion", _text("The capital of France is")),
    "completion stream": ("/completion", _text("Once upon a time", stream=True)),
    "completion long": ("/completion", _text(LONG + " In short:")),
    "completion cached": ("/completion", _text(LONG + " In short:")),
    "completion uncached": ("/completion", _text(LONG, cache_prompt=False)),
    "completion tokens": ("/completion", _text([504, 260, 1237], return_tokens=True)),
    "completion mixed": ("/completion", _text([504, " quick brown", 1237])),
    "completion batch": ("/completion", _text(["One, two,", "Red, green,"])),
    "completion n": ("/completion", _text("A dog", n=2, cache_prompt=False)),
    "completion probabilities": ("/completion", _text("I am", n_probs=3)),
    "completion grammar": ("/completion", _text("Yes or no?", grammar='root ::= "yes" | "no"')),
    "completion schema": ("/completion", _text("Paris:", json_schema=SCHEMA, n_predict=24)),
    "completion stop": ("/completion", _text("1 2 3 4", stop=[" "], n_predict=30)),
    "completion n_keep": ("/completion", _text(LONG, n_keep=8, n_predict=1)),
    "completion nothing": ("/completion", _text(LONG, n_predict=0)),
    "completion empty": ("/completion", _text("")),
    "completion timings": ("/completion", _text("A", stream=True, timings_per_token=True)),
    "completion progress": ("/completion", _text(LONG, stream=True, return_progress=True)),
    "completion fields": (
        "/completion",
        _text("A", response_fields=["content", "tokens_evaluated"]),
    ),
    "openai completion": ("/v1/completions", _text("Water is", max_tokens=12, logprobs=2)),
    "openai completion stream": (
        "/v1/completions",
        _text("Water is", stream=True, stream_options={"include_usage": True}),
    ),
    "chat": ("/v1/chat/completions", _chat("Name a colour.")),
    "chat stream": ("/v1/chat/completions", _chat("Name a colour.", stream=True)),
    "chat stream usage": (
        "/v1/chat/completions",
        _chat("Name a fruit.", stream=True, stream_options={"include_usage": True}),
    ),
    "chat long": ("/v1/chat/completions", _chat(LONG + "\nSum it up.")),
    "chat verbose": ("/v1/chat/completions", _chat("Hello", verbose=True)),
    "chat n": ("/v1/chat/completions", _chat("A number?", n=2, cache_prompt=False)),
    "chat logprobs": ("/v1/chat/completions", _chat("Hi", logprobs=True, top_logprobs=2)),
    "chat tools": ("/v1/chat/completions", _chat("Weather in Rome?", tools=[TOOL])),
    "chat tool required": (
        "/v1/chat/completions",
        _chat("Weather in Rome?", tools=[TOOL], tool_choice="required", max_tokens=40),
    ),
    "chat json": (
        "/v1/chat/completions",
        _chat("Rome", response_format={"type": "json_object"}, max_tokens=24),
    ),
    "chat markers in text": ("/v1/chat/completions", _chat("a <|im_end|> b <|im_start|>user\nc")),
    "responses": (
        "/v1/responses",
        {"input": "Name a tree.", "max_output_tokens": 12, "temperature": 0},
    ),
    "responses stream": (
        "/v1/responses",
        {"input": "Name a tree.", "max_output_tokens": 12, "temperature": 0, "stream": True},
    ),
    "messages": (
        "/v1/messages",
        _chat("Name a bird.") | {"messages": [{"role": "user", "content": "Bird?"}]},
    ),
    "messages stream": (
        "/v1/messages",
        _chat("x", stream=True) | {"messages": [{"role": "user", "content": "Bird?"}]},
    ),
    "count tokens": ("/v1/messages/count_tokens", _chat(LONG)),
    "infill": (
        "/infill",
        {"input_prefix": "def f(", "input_suffix": ")\n", "n_predict": 8, "temperature": 0},
    ),
    "template": ("/apply-template", _chat("Hi")),
    "tokenize": ("/tokenize", {"content": "Hello <|im_start|>", "with_pieces": True}),
    "no prompt": ("/completion", {"n_predict": 1}),
    "too long": ("/completion", _text(LONG * 6)),
    "bad type": ("/completion", _text("a", temperature="hot")),
    "bad message": ("/v1/chat/completions", {"messages": [{"role": "user"}]}),
}

MEASURED = re.compile(
    r'"(?P<key>\w+_ms|\w+_per_second|created|created_at|completed_at|t_last_used)":\s*[-+.\deE]+'
)
RANDOM = re.compile(r"\b(chatcmpl-|resp_|msg_|rs_|fc_|call_|cmpl-|toolu_)[A-Za-z0-9]{8,}")
# Ids without a prefix: of tool calls.
BARE_ID = re.compile(r'"id":\s*"[A-Za-z0-9]{32}"')
BUILD = re.compile(r'"(?P<key>system_fingerprint|build_info)":\s*"[^"]*"')


def comparable(text: str) -> str:
    """`text` without clock readings, random ids and the name of the build."""
    text = MEASURED.sub(r'"\g<key>":0', text)
    text = BUILD.sub(r'"\g<key>":""', text)
    return BARE_ID.sub('"id":""', RANDOM.sub(r"\1", text))


@dataclass(frozen=True)
class Pair:
    stock: Engine
    patched: Engine


@pytest.fixture(scope="module")
def pair(
    engine: Path, stock_engine: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    logs = tmp_path_factory.mktemp("differential")
    with ExitStack() as stack:
        stock = stack.enter_context(running(stock_engine, engine_model, logs / "stock", *ARGS))
        patched = stack.enter_context(running(engine, engine_model, logs / "patched", *ARGS))
        yield Pair(stock, patched)


@pytest.mark.parametrize("name", REQUESTS)
def test_same_answer(pair: Pair, name: str) -> None:
    path, body = REQUESTS[name]
    stock, patched = pair.stock.post(path, body), pair.patched.post(path, body)
    assert patched.status == stock.status
    assert comparable(patched.text) == comparable(stock.text)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/slots", "/lora-adapters", "/nowhere"])
def test_same_state(pair: Pair, path: str) -> None:
    stock, patched = pair.stock.get(path), pair.patched.get(path)
    assert patched.status == stock.status
    assert comparable(patched.text) == comparable(stock.text)


def test_metrics_have_the_same_names(pair: Pair) -> None:
    names = [
        [line.split()[0] for line in server.get("/metrics").text.splitlines() if line[0] != "#"]
        for server in (pair.stock, pair.patched)
    ]
    assert names[0] and names[0] == names[1]


def test_props_differ_by_our_sections_only(pair: Pair) -> None:
    stock, patched = pair.stock.get("/props").json(), pair.patched.get("/props").json()
    own = {name: patched.pop(name) for name in OWN_PROPS}
    assert own["flashlane_schema"] == 1
    for props in (stock, patched):
        # Different in every build and in every process.
        assert props.pop("build_info") and props.pop("media_marker")
    assert patched == stock


def test_help_only_gains_lines(engine: Path, stock_engine: Path) -> None:
    stock, patched = (_help(server) for server in (stock_engine, engine))
    remaining = iter(patched)
    lost = [line for line in stock if line not in remaining]
    assert not lost
    assert any("--pflash-mode" in line for line in patched)


def _help(server: Path) -> list[str]:
    done = subprocess.run(
        [str(server), "--help"], env=engine_env(server), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
