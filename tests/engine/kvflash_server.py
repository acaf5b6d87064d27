"""What the tests of KVFlash ask a server for: prompts of tokens, greedy answers, its counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine_process import Engine

KVFLASH = ("--kvflash", "auto", "--metrics")
ALONE = ("--threads", "1")  # tiny models gain nothing by more, and wait for them
# Else a batch of another size gives another token now and then, in a slot as after a restore.
EXACT = (*ALONE, "--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
PAGE = 32
ANSWER = 8

Tokens = list[int]


def ask(server: Engine, prompt: Tokens | str, **fields: Any) -> tuple[Tokens, dict[str, Any]]:
    """The greedy answer, and the timings."""
    body = {
        "prompt": prompt,
        "n_predict": ANSWER,
        "temperature": 0,
        "return_tokens": True,
        "ignore_eos": True,
        **fields,
    }
    reply = server.post("/completion", body)
    assert reply.status == 200, reply.text
    answer = reply.json()
    return answer["tokens"], answer["timings"]


def say(
    server: Engine, mode: str, chat: list[dict[str, str]], **fields: Any
) -> tuple[str, dict[str, Any]]:
    """The greedy answer to a chat with PFlash's `mode`, and the timings."""
    body = {
        "messages": chat,
        "max_tokens": ANSWER,
        "temperature": 0,
        "pflash": {"mode": mode},
        **fields,
    }
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.text
    answer = reply.json()
    return answer["choices"][0]["message"]["content"], answer["timings"]


def pool(server: Engine) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/props").json()["kvflash"]["resident_pool"]
    return found


def until(condition: Callable[[], object], limit_s: float = 10.0) -> bool:
    """Whether it comes true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())
