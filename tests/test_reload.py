"""A config file that changes under a running proxy: what takes effect, and what waits or fails."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

import flashlane.reload
from flashlane.backends.control import Client
from flashlane.config import FlashlaneConfig, load_config, load_litellm
from flashlane.reload import LIVE_KEYS, RESTART_KEYS, Reloader, fingerprint, merge
from flashlane.serve import Proxy, free_port, running_proxy

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = " ".join(f"Item {i} was put on shelf {i * 7 % 13} by the keeper." for i in range(110))
BROAD = f"{DOCUMENT}\n\nSummarise the text above."


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def document(**section: Any) -> dict[str, Any]:
    """The repository's own config with parts of its section replaced."""
    whole: dict[str, Any] = yaml.safe_load((ROOT / "litellm_config.yaml").read_text())
    whole["flashlane"].update(section)
    return whole


def replace_file(path: Path, text: str) -> None:
    """As editors save: a new file takes the name."""
    fresh = path.with_name("fresh.tmp")
    fresh.write_text(text)
    fresh.replace(path)


class Watched:
    """A reloader on a file of its own, and what it has put in force."""

    def __init__(self, path: Path) -> None:
        seen = fingerprint(path)
        self.config = load_config(path)
        self.reloader = Reloader(path, self.config, tuple(load_litellm(path)), seen, self._use)
        self.reloader.start()

    def _use(self, config: FlashlaneConfig) -> None:
        self.config = config

    @property
    def keep_ratio(self) -> float:
        return self.config.policy.keep_ratio

    def comes(self, keep_ratio: float) -> None:
        until(lambda: self.keep_ratio == keep_ratio, f"keep_ratio is {self.keep_ratio}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "litellm_config.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(document(policy={"keep_ratio": 0.5})))
    return path


@pytest.fixture
def watched(path: Path) -> Iterator[Watched]:
    watched = Watched(path)
    yield watched
    watched.reloader.stop()


def policy(keep_ratio: float) -> str:
    return yaml.safe_dump(document(policy={"keep_ratio": keep_ratio}))


def test_every_key_of_the_section_either_changes_at_run_time_or_waits() -> None:
    assert set(FlashlaneConfig.model_fields) <= LIVE_KEYS | RESTART_KEYS
    assert not LIVE_KEYS & RESTART_KEYS


@pytest.mark.parametrize("save", [Path.write_text, replace_file], ids=["in place", "replaced"])
def test_a_saved_file_takes_effect_again_and_again(
    path: Path, watched: Watched, save: Callable[[Path, str], object]
) -> None:
    for number, ratio in enumerate((0.4, 0.3, 0.2), 1):
        save(path, policy(ratio))
        watched.comes(ratio)
        state = watched.reloader.state
        until(lambda n=number: watched.reloader.state.reloads == n, "not counted")  # type: ignore[misc]
        assert not state.error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flashlane: [", "is not valid YAML"),
        ("", "must be a YAML mapping"),
        (yaml.safe_dump(document(policy={"keep_ration": 0.1})), "did you mean 'keep_ratio'"),
        (yaml.safe_dump(document(policy={"keep_ratio": 7})), "flashlane.policy.keep_ratio is 7"),
        (yaml.safe_dump(document(lanes={"local": {"pflash": "gone"}})), "'gone'"),
    ],
    ids=["no yaml", "empty", "unknown key", "bad value", "unknown group"],
)
def test_a_bad_file_changes_nothing_and_says_so(
    path: Path, watched: Watched, caplog: pytest.LogCaptureFixture, text: str, words: str
) -> None:
    before = watched.config
    loaded_at = watched.reloader.state.loaded_at
    path.write_text(text)
    until(lambda: bool(watched.reloader.state.error), "no error")
    assert words in watched.reloader.state.error
    assert any(words in message for message in caplog.messages)
    assert watched.config is before
    assert watched.reloader.state.loaded_at == loaded_at
    path.write_text(policy(0.3))
    watched.comes(0.3)
    until(lambda: not watched.reloader.state.error, "the error stays")
    assert watched.reloader.state.loaded_at > loaded_at


def test_one_bad_key_keeps_back_the_good_ones(path: Path, watched: Watched) -> None:
    path.write_text(yaml.safe_dump(document(policy={"keep_ratio": 0.1}, affinity={"ttl_s": -1})))
    until(lambda: bool(watched.reloader.state.error), "no error")
    assert watched.keep_ratio == 0.5


def test_a_linked_config_map(tmp_path: Path) -> None:
    """As Kubernetes does it: the name leads through `..data` to a folder that is replaced."""
    mount = tmp_path / "mount"
    for number, ratio in ((1, 0.5), (2, 0.25)):
        folder = mount / f"..{number}"
        folder.mkdir(parents=True)
        (folder / "c.yaml").write_text(policy(ratio))
    (mount / "..data").symlink_to("..1")
    (mount / "c.yaml").symlink_to("..data/c.yaml")
    watched = Watched(mount / "c.yaml")
    try:
        (mount / "..new").symlink_to("..2")
        (mount / "..new").replace(mount / "..data")
        shutil.rmtree(mount / "..1")
        watched.comes(0.25)
        (mount / "..2" / "c.yaml").write_text(policy(0.125))
        watched.comes(0.125)
    finally:
        watched.reloader.stop()


def test_a_link_that_is_made_to_point_elsewhere(tmp_path: Path) -> None:
    for name, ratio in (("one", 0.5), ("two", 0.25)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(policy(ratio))
    link = tmp_path / "c.yaml"
    link.symlink_to("one/c.yaml")
    watched = Watched(link)
    try:
        link.unlink()
        link.symlink_to("two/c.yaml")
        watched.comes(0.25)
        (tmp_path / "two" / "c.yaml").write_text(policy(0.125))
        watched.comes(0.125)
    finally:
        watched.reloader.stop()


def test_a_folder_that_goes_and_comes_back(path: Path, watched: Watched) -> None:
    shutil.rmtree(path.parent)
    until(lambda: "cannot be read" in watched.reloader.state.error, "no error")
    assert watched.keep_ratio == 0.5
    path.parent.mkdir()
    path.write_text(policy(0.3))
    watched.comes(0.3)
    until(lambda: not watched.reloader.state.error, "the error stays")
    replace_file(path, policy(0.2))
    watched.comes(0.2)


def test_a_change_between_loading_and_watching_is_not_lost(path: Path) -> None:
    seen = fingerprint(path)
    config = load_config(path)
    path.write_text(policy(0.3))
    applied: list[FlashlaneConfig] = []
    reloader = Reloader(path, config, tuple(load_litellm(path)), seen, applied.append)
    reloader.start()
    until(lambda: bool(applied), "not seen")
    reloader.stop()
    assert applied[0].policy.keep_ratio == 0.3


def test_a_notice_of_the_system_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is made anew until it is seen: the first may come before the watch is set up."""
    monkeypatch.setattr(flashlane.reload, "_LOOK_S", 3600.0)
    for name, ratio in (("one", 0.5), ("two", 0.25)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(policy(ratio))
    link = tmp_path / "c.yaml"
    link.symlink_to("one/c.yaml")

    def point(to: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.symlink_to(f"{to}/c.yaml")
        fresh.replace(link)

    def seen(change: Callable[[int], object]) -> None:
        before = watched.reloader.state.reloads
        for number in range(20):
            change(number)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                if watched.reloader.state.reloads > before:
                    return
                time.sleep(0.05)
        raise AssertionError("no notice was taken")

    watched = Watched(link)
    try:
        seen(lambda n: replace_file(tmp_path / "one" / "c.yaml", policy(0.4 - n / 100)))
        seen(lambda n: point("one" if n % 2 else "two"))
        point("two")
        time.sleep(1.0)
        seen(lambda n: (tmp_path / "two" / "c.yaml").write_text(policy(0.2 - n / 100)))
    finally:
        watched.reloader.stop()


def test_where_the_system_gives_no_notice_looking_must_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*folders: Path, **options: Any) -> Iterator[None]:
        raise OSError("no watches are left")

    monkeypatch.setattr(flashlane.reload, "watch", none_left)
    monkeypatch.setattr(flashlane.reload, "_LOOK_S", 0.1)
    watched = Watched(path)
    try:
        path.write_text(policy(0.3))
        watched.comes(0.3)
    finally:
        watched.reloader.stop()


def test_touching_the_file_is_no_change(path: Path, watched: Watched) -> None:
    os.utime(path)
    watched.reloader.look()
    assert watched.reloader.state.reloads == 0


def test_what_needs_a_restart_is_named_and_stays(
    path: Path, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    changed = document(policy={"keep_ratio": 0.3})
    changed["flashlane"]["backends"]["local"]["slots"] = 7
    changed["flashlane"]["route_log"] = {"sqlite": "/elsewhere.sqlite", "store_text": True}
    changed["model_list"].append({"model_name": "late", "litellm_params": {"model": "x"}})
    changed["flashlane"]["lanes"]["late"] = {"pflash": "local-pflash"}
    path.write_text(yaml.safe_dump(changed))
    watched.comes(0.3)
    until(lambda: watched.reloader.state.reloads == 1, "not counted")
    waiting = watched.reloader.state.waiting
    assert set(waiting) >= {"model_list", "backends.local.slots", "route_log.sqlite"}
    assert any(key.startswith("lanes.late") for key in waiting)
    assert "route_log.store_text" not in waiting
    config = watched.config
    assert config.backends["local"].slots == 2
    assert config.route_log.sqlite is None and config.route_log.store_text
    assert "late" not in config.lanes
    said = next(message for message in caplog.messages if "was read again" in message)
    for key in ("policy.keep_ratio", "route_log.store_text", "restart", "backends.local.slots"):
        assert key in said


def test_lanes_and_sidecar_may_name_what_litellm_runs() -> None:
    old = FlashlaneConfig()
    new = FlashlaneConfig.model_validate(
        {"lanes": {"a": {"pflash": "b"}}, "sidecar": {"mode": "shadow", "model": "c"}}
    )
    assert merge(old, new, {"a", "b", "c"}).config == new
    without = merge(old, new, {"a", "b"})
    assert without.config.lanes == new.lanes and without.config.sidecar == old.sidecar
    assert "sidecar.model" in without.waiting
    assert merge(old, new, {"a", "c"}).config.lanes == {}


def test_reload_false_watches_nothing_and_can_be_set_at_run_time(path: Path) -> None:
    watched = Watched(path)
    thread = watched.reloader._thread
    assert thread is not None
    path.write_text(yaml.safe_dump(document(reload=False)))
    thread.join(timeout=30)
    assert not thread.is_alive() and not watched.config.reload
    again = Watched(path)
    assert again.reloader._thread is None
    again.reloader.stop()


@pytest.fixture(scope="module")
def proxy(config_path: Path) -> Iterator[tuple[Proxy, Path]]:
    text = config_path.read_text()
    with running_proxy(config_path, free_port()) as running:
        client = Client(config_path)
        try:
            yield running, config_path
        finally:
            client.close()
            config_path.write_text(text)


def test_a_running_proxy_decides_by_the_new_policy(proxy: tuple[Proxy, Path]) -> None:
    running, path = proxy
    client = openai.OpenAI(base_url=f"{running.base_url}/v1", api_key=running.key, timeout=300)
    numbers = itertools.count()  # a conversation keeps its ratio: another one each time

    def headers() -> Any:
        return client.chat.completions.with_raw_response.create(
            model="local",
            max_tokens=2,
            messages=[{"role": "user", "content": f"Part {next(numbers)}. {BROAD}"}],
        ).headers

    assert headers()["x-flashlane-keep-ratio"] == "0.4"
    changed = yaml.safe_load(path.read_text())
    changed["flashlane"]["policy"]["keep_ratios"] = {"summary": 0.25}
    replace_file(path, yaml.safe_dump(changed))
    until(lambda: "policy.keep_ratios" in running.log.read_text(), "not read again")
    assert headers()["x-flashlane-keep-ratio"] == "0.25"
    replace_file(path, "flashlane: [")
    until(lambda: "stays as it was" in running.log.read_text(), "not refused")
    assert headers()["x-flashlane-keep-ratio"] == "0.25"
    changed["flashlane"]["policy"]["min_prompt_tokens"] = 100_000
    replace_file(path, yaml.safe_dump(changed))
    until(lambda: "policy.min_prompt_tokens changed" in running.log.read_text(), "not read again")
    assert headers()["x-flashlane-lane"] == "direct"
