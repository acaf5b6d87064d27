"""`make demo`: a proxy of its own, six requests, one table, and everything stopped again."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console
from rich.table import Table

from flashlane.config import ConfigError
from flashlane.flight import Flight
from flashlane.serve import Proxy, ServeError, free_port, raise_on_terminate, running_proxy

_TIMEOUT_S = 600.0
_REPORT = " ".join(
    f"On day {day} the harbour took in {day * 7 % 23} ships, and the keeper wrote that the wind "
    f"came from the {['north', 'south', 'east', 'west'][day % 4]}."
    for day in range(1, 61)
)
_REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("short chat", {"content": "Say hello in one sentence."}),
    ("long, broad", {"content": f"{_REPORT}\n\nSummarise the text above in one sentence."}),
    ("long, exact", {"content": f"{_REPORT}\n\nHow many ships came on day 9?"}),
    ("forced lane", {"content": f"{_REPORT}\n\nHow many ships came on day 9?", "route": "pflash"}),
    ("streamed", {"content": f"{_REPORT}\n\nDescribe the mood of the text above.", "stream": True}),
    ("bad lane", {"content": "Say hello.", "route": "warp"}),
)


def main() -> None:
    config = Path("litellm_config.yaml").resolve()
    raise_on_terminate()
    console = Console(highlight=False, width=132 if not sys.stdout.isatty() else None)
    try:
        with tempfile.TemporaryDirectory() as folder:
            console.print("starting the proxy on free ports; the first answer loads the model …")
            with running_proxy(_on_free_ports(config, Path(folder)), free_port()) as proxy:
                console.print(_table(proxy))
        console.print("stopped; `make serve` starts it for good")
    except (ConfigError, ServeError, RuntimeError) as error:
        sys.exit(f"flashlane: {error}")


def _on_free_ports(config: Path, folder: Path) -> Path:
    """A copy of the config that disturbs no proxy already running here."""
    document = yaml.safe_load(config.read_text())
    for backend in document["flashlane"]["backends"].values():
        old, backend["port"] = backend["port"], free_port()
        for entry in document["model_list"]:
            base = entry["litellm_params"].get("api_base", "")
            entry["litellm_params"]["api_base"] = base.replace(f":{old}/", f":{backend['port']}/")
    (folder / "plugins").symlink_to(config.parent / "plugins")
    path = folder / config.name
    path.write_text(yaml.safe_dump(document))
    return path


def _table(proxy: Proxy) -> Table:
    table = Table(
        "request",
        "lane",
        "because",
        "prompt tokens",
        "kept",
        "TTFT s",
        "answer",
        box=None,
        pad_edge=False,
    )
    for name, body in _REQUESTS:
        table.add_row(name, *_row(proxy, dict(body)))
    return table


def _row(proxy: Proxy, body: dict[str, Any]) -> tuple[str, ...]:
    content = body.pop("content")
    request = {
        "model": "local",
        "max_tokens": 24,
        "temperature": 0,
        "messages": [{"role": "user", "content": content}],
        **body,
    }
    flight = Flight("demo", "demo", "", "chat", "local", bool(body.get("stream")))
    answer = ""
    url = f"{proxy.base_url}/v1/chat/completions"
    headers = {"Authorization": f"Bearer {proxy.key}"}
    started = time.monotonic()
    with httpx.stream("POST", url, json=request, headers=headers, timeout=_TIMEOUT_S) as reply:
        if reply.status_code != 200:
            reply.read()
            message = reply.json()["error"]["message"]
            return "-", f"HTTP {reply.status_code}", "-", "-", "-", message
        if flight.stream:
            for line in reply.iter_lines():
                flight.see_chunk(line)
                answer += _delta(line)
        else:
            reply.read()
            flight.see_payload(reply.json())
            answer = reply.json()["choices"][0]["message"]["content"]
        pflash: Mapping[str, Any] = flight.timings.get("pflash") or {}
        first = flight.first_chunk
        ttft_s = first - started if first else flight.timings.get("prompt_ms", 0.0) / 1000
        return (
            reply.headers.get("x-flashlane-lane", "?"),
            reply.headers.get("x-flashlane-reasons", "?"),
            str(pflash.get("original_tokens", "?")),
            str(pflash.get("kept_tokens", "?")),
            f"{ttft_s:.1f}",
            " ".join(answer.split()[:8]),
        )


def _delta(line: str) -> str:
    if not line.startswith("data:") or line.strip() == "data: [DONE]":
        return ""
    choices = json.loads(line[5:]).get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")


if __name__ == "__main__":
    main()
