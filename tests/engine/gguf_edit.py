"""Small changes to a GGUF file's vocabulary, byte for byte in place.

Source of the layout: docs/gguf.md of ggml.
"""

from __future__ import annotations

import struct
from pathlib import Path

_INT32, _STRING, _ARRAY = 5, 8, 9
_UNUSED = 5  # of llama.cpp's token types: a token without text


def renamed_token(source: Path, target: Path, token: int) -> None:
    """A copy in which the last byte of one token's text differs: another vocabulary, as long."""
    data = bytearray(source.read_bytes())
    at, n = _array(data, "tokenizer.ggml.tokens", _STRING)
    assert token < n
    for _ in range(token):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    end = at + 8 + struct.unpack_from("<Q", data, at)[0]
    data[end - 1] = ord("q") if data[end - 1] != ord("q") else ord("x")
    target.write_bytes(data)


def unused_token(source: Path, target: Path, token: int) -> None:
    """A copy in which `token` has no text."""
    data = bytearray(source.read_bytes())
    at, n = _array(data, "tokenizer.ggml.token_type", _INT32)
    assert token < n
    struct.pack_into("<i", data, at + 4 * token, _UNUSED)
    target.write_bytes(data)


def _array(data: bytes | bytearray, key: str, kind: int) -> tuple[int, int]:
    """Where the array of `key` begins, and its length."""
    name = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", _ARRAY, kind)
    at = data.index(name) + len(name)
    return at + 8, struct.unpack_from("<Q", data, at)[0]
