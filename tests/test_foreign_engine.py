"""An engine that is not flashlane's: the proxy shortens its prompts through a backend that can."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import yaml

from flashlane.backends.llama_server_patch.build import ensure_engine
from flashlane.config import ConfigError, load_config
from flashlane.models import ensure_model
from flashlane.routelog import RouteLog, RouteRecord
from flashlane.serve import Proxy, free_port, running_proxy

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "engine"))
from engine_process import running  # noqa: E402

DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))


_NUMBERS = itertools.count()


def broad() -> str:
    """Another text each time: what an engine has read already is not worth compressing."""
    return f"Part {next(_NUMBERS)}. {DOCUMENT}\n\nSummarise the text above."


def document_of(port: int, foreign: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    backend = config["flashlane"]["backends"]["local"]
    backend["port"] = port
    if os.environ.get("FLASHLANE_TEST_SERVER"):
        backend["server"] = os.environ["FLASHLANE_TEST_SERVER"]
    config["model_list"] = [
        {
            "model_name": name,
            "litellm_params": {"model": "llamafile/x", "api_base": foreign, "api_key": "none"},
        }
        for name in ("foreign", "foreign-short")
    ]
    config["flashlane"]["lanes"] = {"foreign": {"pflash": "foreign-short"}}
    config["flashlane"]["compressor"] = "local"
    return config


@pytest.fixture(scope="module")
def proxy(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("foreign")
    server = Path(os.environ.get("FLASHLANE_TEST_SERVER") or ensure_engine())
    model = ensure_model("smollm2-135m")
    with running(server, model, folder / "engine.log", "--ctx-size", "8192") as engine:
        (folder / "plugins").symlink_to(ROOT / "plugins")
        path = folder / "litellm_config.yaml"
        path.write_text(yaml.safe_dump(document_of(free_port(), f"{engine.base}/v1")))
        with running_proxy(path, free_port()) as started:
            yield started


@pytest.fixture(scope="module")
def client(proxy: Proxy) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{proxy.base_url}/v1", api_key=proxy.key, max_retries=0, timeout=300
    )


def written_since(state: Path, began: float, api: str) -> RouteRecord:
    """The record of a request that began after `began`; it is written after the answer."""
    for _ in range(100):
        for record in RouteLog(state / "routes.sqlite").records(3):
            if record.time >= began and record.endpoint == api and record.status == "ok":
                return record
        time.sleep(0.1)
    raise AssertionError(f"no record of an answered {api} request")


@pytest.mark.parametrize("api", ["chat", "completion", "messages", "responses"])
def test_the_proxy_shortens_what_a_foreign_engine_reads(
    proxy: Proxy, client: openai.OpenAI, state: Path, api: str
) -> None:
    reply: Any
    began = time.time()
    if api == "chat":
        reply = client.chat.completions.create(
            model="foreign", max_tokens=2, messages=[{"role": "user", "content": broad()}]
        )
        tokens = reply.usage.prompt_tokens
    elif api == "completion":
        reply = client.completions.create(model="foreign", prompt=broad(), max_tokens=2)
        tokens = reply.usage.prompt_tokens
    elif api == "responses":
        reply = client.responses.create(model="foreign", input=broad(), max_output_tokens=8)
        tokens = reply.usage.input_tokens
    else:
        sdk = anthropic.Anthropic(base_url=proxy.base_url, api_key=proxy.key, max_retries=0)
        reply = sdk.messages.create(
            model="foreign", max_tokens=2, messages=[{"role": "user", "content": broad()}]
        )
        tokens = reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)
    assert 300 < tokens < 1300  # of about 1,800
    assert written_since(state, began, api).lane == "pflash"


def test_tools_are_never_shortened(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    reply = client.chat.completions.create(
        model="foreign",
        max_tokens=2,
        messages=[{"role": "user", "content": broad()}],
        tools=[tool],  # type: ignore[list-item]
    )
    assert reply.usage is not None and reply.usage.prompt_tokens > 1500


def test_a_compressor_that_cannot_is_refused(tmp_path: Path) -> None:
    config = document_of(1234, "http://127.0.0.1:9/v1")
    config["flashlane"]["backends"]["local"]["pflash"] = {"mode": "off"}
    path = tmp_path / "litellm_config.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=r"flashlane\.compressor is 'local'.*there is none"):
        load_config(path)
