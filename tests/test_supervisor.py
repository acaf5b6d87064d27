"""The supervisor with real llama-server processes and a real small model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from flashlane.backends.channel import ControlError
from flashlane.backends.control import Client, connect_or_start
from flashlane.serve import free_port

_GRACE_S = 1.0
_LIMIT_S = 30.0


def _named(variable: str) -> Path | None:
    return Path(os.environ[variable]).resolve() if os.environ.get(variable) else None


@pytest.fixture(scope="session")
def server() -> Path:
    from flashlane.backends.llama_server_patch import build

    return _named("FLASHLANE_TEST_SERVER") or build.ensure_engine()


@pytest.fixture(scope="session")
def model() -> Path:
    from flashlane.models import ensure_model

    return _named("FLASHLANE_TEST_MODEL") or ensure_model("smollm2-135m")


@pytest.fixture
def write_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Path, model: Path
) -> Callable[..., Path]:
    """Writes a config with small backends `a` (and `b`); state lies in a folder of the test."""
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path / "state"))

    def write(names: str = "a", budget_mb: int | None = None, **settings: object) -> Path:
        backends = {
            name: {
                "model": str(model),
                "server": str(server),
                "port": free_port(),
                "context_tokens": 1024,
                "slots": 1,
                "threads": 1,
                **settings,
            }
            for name in names
        }
        path = tmp_path / "config.yaml"
        section = {"backends": backends, "memory_budget_mb": budget_mb}
        path.write_text(yaml.safe_dump({"model_list": [], "flashlane": section}))
        return path

    return write


@pytest.fixture
def owned() -> Iterator[Callable[[Path], Client]]:
    """Connects clients, and at the end closes them and waits until nothing of theirs runs."""
    clients: list[Client] = []
    pids: set[int] = set()

    def connect(path: Path) -> Client:
        client = connect_or_start(path, lease_grace_s=_GRACE_S)
        clients.append(client)
        pids.add(client.supervisor_pid())
        return client

    yield connect
    for client in clients:
        client.close(shutdown=client is clients[-1])
    _wait_gone(pids)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_gone(pids: set[int], limit_s: float = _LIMIT_S) -> float:
    begin = time.monotonic()
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() - begin < limit_s, f"still running: {left}"
        time.sleep(0.02)
    return time.monotonic() - begin


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _wait_gone({pid})


def _answers(client: Client, name: str) -> bool:
    url = next(b.base_url for b in client.status() if b.name == name)
    body = {"prompt": "Hello", "n_predict": 2}
    reply = httpx.post(f"{url}/completion", json=body, trust_env=False, timeout=_LIMIT_S)
    return reply.status_code == 200


def _state(client: Client, name: str) -> str:
    return next(b.state for b in client.status() if b.name == name)


def _starts(client: Client, name: str) -> int:
    return next(b.starts for b in client.status() if b.name == name)


def test_lazy_start_and_orderly_end(write_config: Callable[..., Path]) -> None:
    path = write_config()
    client = connect_or_start(path, lease_grace_s=_GRACE_S)
    supervisor = client.supervisor_pid()
    assert _state(client, "a") == "stopped"
    found = client.ensure_sync("a")
    assert client.ensure_sync("a") == found
    assert _answers(client, "a")
    logs = path.parent / "state" / "logs"
    assert {p.stat().st_mode & 0o777 for p in logs.iterdir()} == {0o600}
    run = path.parent / "state" / "run"
    assert run.stat().st_mode & 0o777 == 0o700
    assert next(run.glob("*.sock")).stat().st_mode & 0o777 == 0o600
    client.close(shutdown=True)
    assert not _runs(supervisor)
    assert not _runs(found.pid)
    assert not list(run.glob("*.sock"))


def test_eager_backend_starts_by_itself(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config(start="eager"))
    begin = time.monotonic()
    while _state(client, "a") != "ready":
        assert time.monotonic() - begin < _LIMIT_S
        time.sleep(0.05)


def test_killed_server_is_ready_again_soon(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config())
    first = client.ensure_sync("a")
    _kill(first.pid)
    begin = time.monotonic()
    second = asyncio.run(client.ensure("a"))
    took_s = time.monotonic() - begin
    print(f"ready again after {took_s:.2f} s")
    assert took_s < 10.0
    assert second.pid != first.pid
    assert _answers(client, "a")
    assert _starts(client, "a") == 2


def test_crash_loop_ends_with_a_sentence(write_config: Callable[..., Path]) -> None:
    with _foreground(write_config(), "--crashes", "2") as client:
        for _ in range(2):
            _kill(client.ensure_sync("a").pid)
        with pytest.raises(ControlError, match="ended 2 times within 60 s"):
            client.ensure_sync("a")
        assert _state(client, "a") == "failed"


def test_stopped_backend_starts_again_when_asked(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config())
    pid = client.ensure_sync("a").pid
    client.stop("a")
    assert not _runs(pid)
    assert _state(client, "a") == "stopped"
    assert client.ensure_sync("a").pid != pid


@contextlib.contextmanager
def _foreground(path: Path, *arguments: str) -> Iterator[Client]:
    command = [sys.executable, "-m", "flashlane.backends.supervisor", "--config", str(path)]
    log = path.parent / "foreground.log"
    with log.open("wb") as sink:
        process = subprocess.Popen([*command, *arguments], stdout=sink, stderr=sink)
    try:
        begin = time.monotonic()
        while not list((path.parent / "state" / "run").glob("*.sock")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - begin < _LIMIT_S
            time.sleep(0.02)
        client = connect_or_start(path)
        assert client.supervisor_pid() == process.pid
        yield client
        client.close(shutdown=True)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=_LIMIT_S)


def test_owners_do_not_shut_down_a_supervisor_started_by_hand(
    write_config: Callable[..., Path],
) -> None:
    path = write_config()
    with _foreground(path) as client:
        pid = client.supervisor_pid()
        client.close(shutdown=True)
        assert connect_or_start(path).supervisor_pid() == pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signalled_supervisor_leaves_nothing(
    write_config: Callable[..., Path], number: signal.Signals
) -> None:
    path = write_config()
    with _foreground(path) as client:
        child, supervisor = client.ensure_sync("a").pid, client.supervisor_pid()
        os.kill(supervisor, number)
        _wait_gone({child, supervisor})
        assert not list((path.parent / "state" / "run").glob("*.sock"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start ends them")
def test_killed_supervisor_takes_its_servers_along_and_is_replaced(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config())
    child, supervisor = client.ensure_sync("a").pid, client.supervisor_pid()
    os.kill(supervisor, signal.SIGKILL)
    _wait_gone({child}, 5.0)
    again = asyncio.run(client.ensure("a"))
    assert again.pid != child
    assert client.supervisor_pid() != supervisor
    assert _answers(client, "a")


def test_a_shutdown_reaches_a_supervisor_that_another_owner_started_anew(
    write_config: Callable[..., Path],
) -> None:
    path = write_config()
    first = connect_or_start(path, lease_grace_s=60.0)
    os.kill(first.supervisor_pid(), signal.SIGKILL)
    second = connect_or_start(path, lease_grace_s=60.0)
    pids = {second.supervisor_pid(), second.ensure_sync("a").pid}
    second.close()
    first.close(shutdown=True)
    _wait_gone(pids, 5.0)


def test_a_client_that_never_connected_shuts_nothing_down(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    path = write_config()
    client = owned(path)
    Client(path).close(shutdown=True)
    assert _runs(client.supervisor_pid())


def test_lost_lease_ends_everything(write_config: Callable[..., Path]) -> None:
    path = write_config()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from flashlane.backends.control import connect_or_start\n"
        f"c = connect_or_start(Path(sys.argv[1]), lease_grace_s={_GRACE_S})\n"
        "print(c.supervisor_pid(), c.ensure_sync('a').pid, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout:
        pids = {int(word) for word in owner.stdout.readline().split()}
    assert len(pids) == 2
    owner.kill()
    owner.wait()
    took_s = _wait_gone(pids)
    print(f"all gone {took_s:.2f} s after the owner")
    assert took_s > _GRACE_S / 2


def test_two_owners_share_one_supervisor(write_config: Callable[..., Path]) -> None:
    path = write_config()
    code = (
        "import sys; from pathlib import Path\n"
        "from flashlane.backends.control import connect_or_start\n"
        f"c = connect_or_start(Path(sys.argv[1]), lease_grace_s={_GRACE_S})\n"
        "print(c.supervisor_pid(), c.ensure_sync('a').pid, flush=True)\n"
        "sys.stdin.read(); c.close(shutdown=True)"
    )
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    lines = {owner.stdout.readline() for owner in owners if owner.stdout}
    assert len(lines) == 1
    pids = {int(word) for word in lines.pop().split()}
    assert len(pids) == 2
    for owner in owners[:2]:
        owner.communicate(timeout=_LIMIT_S)
        assert all(_runs(pid) for pid in pids)
    owners[2].communicate(timeout=_LIMIT_S)
    _wait_gone(pids)


def test_budget_stops_the_least_recently_used(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config("abc", budget_mb=200, memory_mb=100))
    a = client.ensure_sync("a").pid
    b = client.ensure_sync("b").pid
    client.ensure_sync("a")
    client.ensure_sync("c")
    assert not _runs(b)
    assert _runs(a)
    assert [s.state for s in client.status()] == ["ready", "stopped", "ready"]


def test_budget_waits_for_a_busy_server(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config("ab", budget_mb=150, memory_mb=100))

    async def scenario() -> None:
        first = await client.ensure("a")
        body = {"prompt": "Hello", "n_predict": 200, "ignore_eos": True}
        async with httpx.AsyncClient(trust_env=False, timeout=_LIMIT_S) as http:
            answer = asyncio.create_task(http.post(f"{first.base_url}/completion", json=body))
            await asyncio.sleep(0.2)
            await client.ensure("b")
            assert (await answer).json()["tokens_predicted"] == 200
        assert not _runs(first.pid)

    asyncio.run(scenario())


def test_server_with_a_key_is_used_with_it(
    write_config: Callable[..., Path],
    owned: Callable[[Path], Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERVER_KEY_OF_TEST", "secret-of-test")
    client = owned(write_config("ab", 150, memory_mb=100, api_key_env="SERVER_KEY_OF_TEST"))
    found = client.ensure_sync("a")
    assert "secret-of-test" not in " ".join(psutil.Process(found.pid).cmdline())
    assert httpx.get(f"{found.base_url}/slots", trust_env=False).status_code == 401
    client.ensure_sync("b")
    assert not _runs(found.pid)


def test_what_cannot_start_says_why(
    write_config: Callable[..., Path], owned: Callable[[Path], Client], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    client = owned(write_config(model=str(broken)))
    with pytest.raises(ControlError, match=r"ended with code 1 while .*a\.log ends"):
        client.ensure_sync("a")
    with pytest.raises(ControlError, match=r"backend 'x' is not in the .*config; it has: a"):
        client.ensure_sync("x")


def test_missing_program_says_what_to_do(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    client = owned(write_config(server="/nowhere/llama-server"))
    with pytest.raises(ControlError, match="flashlane build"):
        client.ensure_sync("a")


def test_taken_port_names_who_has_it(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        client = owned(write_config(port=port))
        with pytest.raises(ControlError, match=rf"port {port} .*pid {os.getpid()}"):
            client.ensure_sync("a")


def test_wrong_config_is_the_error_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHLANE_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "config.yaml"
    path.write_text("flashlane: {bakends: {}}")
    with pytest.raises(ControlError, match="did you mean 'backends'"):
        connect_or_start(path)


def test_changed_config_replaces_a_supervisor_that_nobody_holds(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    first = owned(write_config())
    old = first.supervisor_pid()
    first.close()
    client = owned(write_config("ab"))
    assert client.supervisor_pid() != old
    assert {backend.name for backend in client.status()} == {"a", "b"}


def test_noise_on_the_channel_harms_nobody(
    write_config: Callable[..., Path], owned: Callable[[Path], Client]
) -> None:
    path = write_config()
    client = owned(path)
    address = str(next((path.parent / "state" / "run").glob("*.sock")))
    for noise in (b"\n", b"[]\n", b'{"cmd":"no"}\n', b'{"v":9,"cmd":"status"}\n', b"x" * 100_000):
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(5.0)
            connection.connect(address)
            connection.sendall(noise)
            assert b'"ok":false' in (connection.recv(4096) or b'"ok":false')
    assert _state(client, "a") == "stopped"
