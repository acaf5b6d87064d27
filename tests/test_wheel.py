"""The wheel, in an environment of its own and a LiteLLM config outside this repository.

flashlane comes from the built wheel alone. Its dependencies are borrowed from the environment
that runs the tests, by a path file: installing LiteLLM a second time would take minutes and prove
nothing about the wheel. A path file's folder is searched for modules, but the path files in it
are not read, so the editable install of this checkout stays out of sight; a test checks that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from flashlane.serve import free_port

ROOT = Path(__file__).resolve().parent.parent
_START_LIMIT_S = 120.0
_KEY = "sk-wheel-test"
_CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {model: openai/any, api_key: none, mock_response: "An answer."}
litellm_settings:
  callbacks:
    - flashlane.plugins.smart_router.handler
    - flashlane.plugins.pflash_hook.handler
    - flashlane.plugins.kvflash_hook.handler
  telemetry: false
general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}
"""
_PATHS_SEEN = "import flashlane, flashlane.plugins, flashlane.backends as b; print(b.__file__)"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-build-isolation",
            "--no-deps",
            "--wheel-dir",
            str(folder),
            str(ROOT),
        ],
        check=True,
        capture_output=True,
    )
    return next(folder.glob("flashlane-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


@pytest.fixture(scope="module")
def proxy(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a LiteLLM proxy that runs in the new environment; it has no backend to start."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "config.yaml").write_text(_CONFIG)
    port = free_port()
    log = (folder / "proxy.log").open("w")
    process = subprocess.Popen(
        [
            str(python),
            "-c",
            "import litellm; litellm.run_server()",
            "--config",
            "config.yaml",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "FLASHLANE_STATE_DIR": str(folder / "state"),
            "LITELLM_MASTER_KEY": _KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + _START_LIMIT_S
        while not _ready(url):
            tail = (folder / "proxy.log").read_text()[-2000:]
            assert process.poll() is None, tail
            assert time.monotonic() < deadline, tail
            time.sleep(0.3)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)
        log.close()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False


def test_the_wheel_holds_the_linked_folders_and_nothing_at_top_level(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"flashlane"}
    for folder in ("plugins", "backends"):
        files = (
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )
        assert {f"flashlane/{file}" for file in files} <= names


def test_the_package_comes_from_the_wheel(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(python), "-c", _PATHS_SEEN], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(python.parent.parent))


def test_explain_works_without_a_config(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(python), "-m", "flashlane.cli", "explain", "--json"],
        input='{"model":"local","messages":[{"role":"user","content":"hi"}]}',
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"lane": "direct"' in done.stdout


def test_a_request_takes_a_lane(proxy: str) -> None:
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key=_KEY, max_retries=0)
    reply = client.chat.completions.with_raw_response.create(
        model="chat", messages=[{"role": "user", "content": "hi"}], extra_body={"route": "direct"}
    )
    assert reply.headers["x-flashlane-lane"] == "direct"
    assert "forced" in reply.headers["x-flashlane-reasons"]
    assert reply.parse().choices[0].message.content == "An answer."


def test_the_status_page_comes_with_the_wheel(proxy: str) -> None:
    page = httpx.get(f"{proxy}/flashlane", timeout=30)
    assert (
        page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    )
    for part in ("status.css", "status.js", "view.js", "chart.js"):
        assert httpx.get(f"{proxy}/flashlane/{part}", timeout=30).status_code == 200
    headers = {"Authorization": f"Bearer {_KEY}"}
    shown = httpx.get(f"{proxy}/flashlane/data", headers=headers, timeout=30).json()
    assert shown["scope"] == "all" and shown["backends"] == []


@pytest.mark.parametrize("lane", ["sideways", "pflash"])
def test_a_lane_that_is_not_there_is_refused_with_those_that_are(proxy: str, lane: str) -> None:
    """The second is a lane, but an engine that is not ours has none that compresses."""
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key=_KEY, max_retries=0)
    with pytest.raises(openai.BadRequestError, match="direct"):
        client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "hi"}],
            extra_headers={"x-flashlane-route": lane},
        )
