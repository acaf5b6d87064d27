"""How much memory a llama-server will take, from the header of its GGUF file."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import BinaryIO

from flashlane.config import BackendConfig

_MIB = 2**20
_KV_BYTES_PER_VALUE = 2  # llama-server's default cache type, f16
_RUNTIME_BYTES = 160 * _MIB  # graph buffers, logits, the process itself
_MAX_KEYS = 65_536
_MAX_STRING_BYTES = 1 << 24
_MAX_ITEMS = 1 << 24
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
            10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip

Value = int | float | str | list[int]


def memory_bytes(backend: BackendConfig, model: Path) -> int:
    """`memory_mb` where given; else weights + KV cache of all slots + a fixed share.

    KV cache: tokens x layers x KV heads x (key length + value length) x 2 bytes. Hybrid and
    sliding-window models take less. A header that cannot be read counts as no KV cache.
    """
    if backend.memory_mb is not None:
        return backend.memory_mb * _MIB
    try:
        per_token = kv_bytes_per_token(read_header(model))
    except (OSError, ValueError, struct.error):
        per_token = 0
    tokens = backend.context_tokens * backend.slots
    return _weights_bytes(model) + tokens * per_token + _RUNTIME_BYTES


def kv_bytes_per_token(header: dict[str, Value]) -> int:
    """Bytes that one token takes in the KV cache; 0 where the header does not say."""
    architecture = header.get("general.architecture")

    def number(key: str) -> int:
        value = header.get(f"{architecture}.{key}")
        return value if isinstance(value, int) else 0

    layers, heads = number("block_count"), number("attention.head_count")
    kv_heads = header.get(f"{architecture}.attention.head_count_kv", heads)
    head_length = number("embedding_length") // heads if heads else 0
    key_length = number("attention.key_length") or head_length
    value_length = number("attention.value_length") or head_length
    total_heads = sum(kv_heads) if isinstance(kv_heads, list) else layers * int(kv_heads)
    return total_heads * (key_length + value_length) * _KV_BYTES_PER_VALUE


def read_header(model: Path) -> dict[str, Value]:
    """Scalars and number arrays of a GGUF header. Raises ValueError, OSError or struct.error.

    Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    with model.open("rb") as file:
        magic, version, _, keys = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF" or version not in (2, 3) or keys > _MAX_KEYS:
            raise ValueError("not a GGUF file that this reads")
        header: dict[str, Value] = {}
        for _ in range(keys):
            key = _text(file)
            header[key] = _value(file, _scalar(file, "<I"))
        return header


def _value(file: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _scalar(file, _format(kind))
    item, count = _scalar(file, "<I"), _scalar(file, "<Q")
    if count > _MAX_ITEMS:
        raise ValueError("array too long")
    if item == _STRING:
        for _ in range(count):
            _skip(file, _scalar(file, "<Q"))
        return []
    size = struct.calcsize(_format(item))
    data = file.read(count * size)
    if item in (6, 12):
        return []
    return [int(number) for (number,) in struct.iter_unpack(_format(item), data)]


def _format(kind: int) -> str:
    if kind not in _FORMATS:
        raise ValueError(f"value type {kind} is not known")
    return _FORMATS[kind]


def _scalar(file: BinaryIO, form: str) -> int:
    number: int = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return number


def _text(file: BinaryIO) -> str:
    length = _scalar(file, "<Q")
    if length > _MAX_STRING_BYTES:
        raise ValueError("string too long")
    return file.read(length).decode("utf-8", "replace")


def _skip(file: BinaryIO, length: int) -> None:
    if length > _MAX_STRING_BYTES:
        raise ValueError("string too long")
    file.seek(length, 1)


def _weights_bytes(model: Path) -> int:
    """Size of the file, or of all parts where the model is split into several."""
    part = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", model.name)
    parts = model.parent.glob(f"*-of-{part[2]}.gguf") if part else [model]
    stem = f"{part[1]}-" if part else ""
    return sum(path.stat().st_size for path in parts if path.name.startswith(stem))
