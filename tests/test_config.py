"""Config errors are one sentence with the key, the value and what would work."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flashlane.backends.command import server_command
from flashlane.config import ConfigError, backend_for_api_base, load_config

ROOT = Path(__file__).resolve().parent.parent


def load(tmp_path: Path, section: object) -> object:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"model_list": [{"model_name": "local"}], "flashlane": section}))
    return load_config(path)


def backend(**fields: object) -> dict[str, object]:
    return {"backends": {"a": {"model": "smollm2-135m", "port": 1000, **fields}}}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (backend(prot=1), ["flashlane.backends.a.prot", "'port'"]),
        (backend(port=0), ["flashlane.backends.a.port", "0", "greater than or equal to 1"]),
        (backend(host="0.0.0.0"), ["host", "0.0.0.0", "api_key_env", "127.0.0.1"]),
        (backend(args=["--host=0.0.0.0"]), ["args", "--host=0.0.0.0", "leave it out"]),
        (backend(args=["--tools=all"]), ["args", "--tools=all", "leave it out"]),
        (backend(args=["--slot-save-path", "/"]), ["args", "--slot-save-path", "files"]),
        (backend(pflash={"keep_ratio": 2}), ["pflash.keep_ratio", "2", "less than or equal to 1"]),
        (backend(pflash={"mode": "on"}), ["pflash.mode", "'on'", "'off'"]),
        ({"backends": {"a": {"port": 1}}}, ["flashlane.backends.a.model", "missing"]),
        ({"lanes": {"local": {"pflash": "nope"}}}, ["lanes.local.pflash", "nope", "local"]),
        ({"lane": {}}, ["flashlane.lane", "'lanes'"]),
        (
            {"policy": {"verify_kinds": ["retreival"]}},
            ["policy.verify_kinds.0", "'retreival'", "retrieval, quoting", "judgement"],
        ),
        (
            {"policy": {"keep_ratios": {"sumary": 0.4}}},
            ["policy.keep_ratios.sumary is", "'sumary'", "summary"],
        ),
        (
            {"gears": {"choices": [4, 0]}},
            ["gears.choices", "[4, 0]", "each above the one before"],
        ),
    ],
)
def test_errors(tmp_path: Path, section: object, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, section)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_two_backends_on_one_port(tmp_path: Path) -> None:
    two = {"backends": {n: {"model": "m", "port": 1000} for n in "ab"}}
    with pytest.raises(ConfigError, match=r"backends\.b\.port is 1000"):
        load(tmp_path, two)


def test_the_repositorys_own_config() -> None:
    config = load_config(ROOT / "litellm_config.yaml")
    assert backend_for_api_base(config, "http://localhost:18160/v1") == "local"
    assert backend_for_api_base(config, "http://localhost:18161/v1") is None
    command = server_command("local", config.backends["local"], Path("srv"), Path("m.gguf"))
    assert command[command.index("--pflash-mode") + 1] == "auto"
    assert command[command.index("-c") + 1] == "16384"
    assert command[command.index("--host") + 1] == "127.0.0.1"


def test_gears_may_be_chosen_by_the_router(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model_list: []\nflashlane: {gears: {mode: auto, choices: [0, 2]}}\n")
    assert load_config(path).gears.choices == (0, 2)
