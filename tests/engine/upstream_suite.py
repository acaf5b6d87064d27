"""Runs llama.cpp's own server tests against one binary and reports which of them pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

from bench.process import engine_env
from flashlane.serve import free_port

# Left out: what needs a model of another kind (a projector) or looks for models over the network.
_LEFT_OUT = ("test_vision_api.py", "test_router.py")
_SUITE_LIMIT_S = 1800


def prepare(source: Path, work: Path) -> Path:
    """Copies the suite and the files it reads into `work`, keeping upstream's relative paths.

    Returns the folder to run it in.
    """
    tests = work / "tools" / "server" / "tests"
    shutil.copytree(source / "tools/server/tests", tests)
    shutil.copytree(source / "models/templates", work / "models/templates")
    (work / "tools/mtmd").mkdir()
    shutil.copy(source / "tools/mtmd/test-1.jpeg", work / "tools/mtmd")
    shutil.copy(Path(__file__).with_name("upstream_conftest.py"), tests / "conftest.py")
    # utils.py imports it at its top; nothing may be downloaded.
    (tests / "wget.py").write_text(
        "def download(*args, **kwargs):\n    raise OSError('no downloads in this run')\n",
        encoding="utf-8",
    )
    return tests


def outcomes(
    server: Path, model: Path, tests: Path, selection: Iterable[str] = ()
) -> dict[str, str]:
    """Runs the suite in `tests` (or only `selection`, names as returned) against `server`.

    Returns test name -> "passed", "failed" or "skipped".
    """
    report = tests / f"report-{free_port()}.xml"
    ignored = [f"--ignore=unit/{name}" for name in _LEFT_OUT]
    env = engine_env(server) | {
        "LLAMA_SERVER_BIN_PATH": str(server),
        "LOCAL_MODEL": str(model),
        "PORT": str(free_port()),
        "PYTHONPATH": str(tests),
    }
    chosen = list(selection) or ["unit"]
    command = [sys.executable, "-m", "pytest", *chosen, *ignored, "-q", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={report}"]
    with (tests / "suite.log").open("ab") as log:
        subprocess.run(
            command, cwd=tests, env=env, stdout=log, stderr=log, timeout=_SUITE_LIMIT_S, check=False
        )
    if not report.exists():
        tail = (tests / "suite.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"upstream's tests did not run to their end:\n{tail}")
    return dict(_outcome(case) for case in ElementTree.parse(report).iter("testcase"))


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    path = case.get("classname", "").replace(".", os.sep)
    name = f"{path}.py::{case.get('name')}"
    if case.find("failure") is not None or case.find("error") is not None:
        return name, "failed"
    return name, "skipped" if case.find("skipped") is not None else "passed"
