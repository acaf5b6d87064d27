"""The model that scores prompts for PFlash, made once from the catalogue's smallest.

Its published type has no fast matrix product, and the scorer computes no layer above the last one
whose attention it reads. So those layers are left out, and the rest gets the type that is fastest
on this processor.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashlane.bindings import bound_libraries
from flashlane.locking import locked
from flashlane.models import CATALOGUE, ModelError, ensure_model
from flashlane.packages import say
from flashlane.paths import cache_dir

SCORER_MODEL = "smollm2-135m"
ORIGINAL_LAYERS = 30
# pflash-scorer-load.cpp reads layers 14 and 15 of these, and finds their number under this key.
ORIGINAL_LAYERS_KEY = b"flashlane.original_layers"
KEPT_LAYERS = 16

_TIME_LIMIT_S = 600
_INTEGER_8 = ("avx512_vnni", "avx_vnni", "amx_int8")


@dataclass(frozen=True)
class ScorerType:
    """A llama.cpp file type; `ftype` is its number in `enum llama_ftype`."""

    name: str
    ftype: int


F32 = ScorerType("f32", 0)
Q4_0 = ScorerType("q4_0", 2)
Q8_0 = ScorerType("q8_0", 7)
_GGML_TYPE_Q8_0 = 8  # of the token embeddings, which are looked up and never multiplied


def scorer_type(machine: str | None = None, cpu_flags: str | None = None) -> ScorerType:
    """The type whose prefill is fastest on a processor.

    With 8-bit dot products (VNNI, AMX) 4-bit weights win, whose product is repacked for them;
    without, plain floats do: docs/pflash.md.
    """
    machine = platform.machine() if machine is None else machine
    if machine.lower() not in {"x86_64", "amd64"}:
        return Q8_0
    flags = (_cpu_flags() if cpu_flags is None else cpu_flags).split()
    return Q4_0 if any(flag in flags for flag in _INTEGER_8) else F32


def scorer_path() -> Path | None:
    """Where the scorer of this engine and processor lies or would lie; None without bindings."""
    libraries = bound_libraries()
    if libraries is None:
        return None
    engine = libraries.parent.name
    source = CATALOGUE[SCORER_MODEL].sha256[:12]
    kind = f"{KEPT_LAYERS}x{scorer_type().name}"
    return cache_dir() / "models" / f"{SCORER_MODEL}-{source}-scorer-{kind}-{engine}.gguf"


def ensure_scorer(say: Callable[[str], None] = say) -> Path:
    """The scorer's GGUF file, converted first if need be, which takes a few seconds.

    Call it after `ensure_bindings`: the engine's own libraries convert.

    Raises `ModelError`.
    """
    target = scorer_path()
    if target is None:
        raise ModelError("scorer: llama_cpp is not bound to an engine; run flashlane setup")
    if target.is_file():
        return target
    source = ensure_model(SCORER_MODEL, say=say)
    with locked(
        target.with_suffix(".lock"),
        lambda: say("scorer: another process converts it; waiting for it"),
    ):
        if not target.is_file():
            say(f"scorer: converting {SCORER_MODEL} to {scorer_type().name}, once")
            _convert(source, target)
    return target


def _convert(source: Path, target: Path) -> None:
    """In a process of its own: an assertion in the engine must not end set-up."""
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    command = [sys.executable, "-m", "flashlane.scorer", str(source), str(partial)]
    try:
        done = subprocess.run(
            [*command, scorer_type().name],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        partial.unlink(missing_ok=True)
        raise ModelError(f"scorer: not converted within {_TIME_LIMIT_S} s") from error
    if done.returncode or not partial.is_file():
        partial.unlink(missing_ok=True)
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ModelError(f"scorer: {SCORER_MODEL} could not be converted:\n{tail}")
    partial.replace(target)


def _quantize(source: Path, target: Path, kind: ScorerType) -> int:
    """llama_model_quantize on the bound libraries; its status, 0 for success."""
    llama = importlib.import_module("llama_cpp")
    dropped = range(KEPT_LAYERS, ORIGINAL_LAYERS)
    pruned = (ctypes.c_int32 * (len(dropped) + 1))(*dropped, -1)
    overrides = (llama.llama_model_kv_override * 2)()
    overrides[0].tag = llama.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = ORIGINAL_LAYERS_KEY
    overrides[0].value.val_i64 = ORIGINAL_LAYERS  # the second one, all zero, ends the list

    params = llama.llama_model_quantize_default_params()
    params.ftype = kind.ftype
    params.token_embedding_type = _GGML_TYPE_Q8_0
    params.allow_requantize = True
    params.prune_layers = pruned
    params.kv_overrides = overrides
    return int(
        llama.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params))
    )


def _cpu_flags() -> str:
    """Instruction sets of an x86 processor under their names in /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("flags")), "")


def main(arguments: list[str]) -> int:
    """`python -m flashlane.scorer` prints the path; with SOURCE TARGET TYPE it converts."""
    if len(arguments) == 3:
        kind = {known.name: known for known in (F32, Q4_0, Q8_0)}[arguments[2]]
        return _quantize(Path(arguments[0]), Path(arguments[1]), kind)
    try:
        print(ensure_scorer())
    except ModelError as error:
        print(f"flashlane: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
