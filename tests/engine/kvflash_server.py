"""What the tests of KVFlash ask a server for: prompts of tokens, greedy answers, its counters."""

from __future__ import annotations

from typing import Any

from engine_process import Engine

KVFLASH = ("--kvflash", "auto", "--metrics")
ALONE = ("--threads", "1")  # tiny models gain nothing by more, and wait for them
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


def pool(server: Engine) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/props").json()["kvflash"]["resident_pool"]
    return found
