"""A vision projector of random weights, with which llama-server takes images.

Sources: docs/gguf.md of ggml for the layout, tools/mtmd/clip-impl.h of llama.cpp for the names.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from math import prod
from pathlib import Path

_UINT32, _FLOAT, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_F32 = 0
_ALIGNMENT = 32
_SIDE, _PATCH, _WIDTH, _FF = 28, 14, 32, 64

Value = bool | int | float | str | Sequence[float]


def write_projector(target: Path, text_width: int, seed: int = 1) -> None:
    """For a text model whose embeddings are `text_width` wide."""
    positions = (_SIDE // _PATCH) ** 2 + 1
    tensors = {
        "v.class_embd": (_WIDTH,),
        "v.patch_embd.weight": (_PATCH, _PATCH, 3, _WIDTH),
        "v.position_embd.weight": (_WIDTH, positions),
        "mm.0.weight": (_WIDTH, text_width),
        "mm.0.bias": (text_width,),
        "mm.2.weight": (text_width, text_width),
        "mm.2.bias": (text_width,),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        tensors[f"v.blk.0.{name}.weight"] = (_WIDTH, _WIDTH)
    for name in ("ln1", "ln2"):
        tensors[f"v.blk.0.{name}.weight"] = (_WIDTH,)
    tensors["v.blk.0.ffn_up.weight"] = (_WIDTH, _FF)
    tensors["v.blk.0.ffn_down.weight"] = (_FF, _WIDTH)
    fields: dict[str, Value] = {
        "general.architecture": "clip",
        "clip.projector_type": "mlp",
        "clip.has_vision_encoder": True,
        "clip.use_gelu": True,
        "clip.vision.image_size": _SIDE,
        "clip.vision.patch_size": _PATCH,
        "clip.vision.embedding_length": _WIDTH,
        "clip.vision.feed_forward_length": _FF,
        "clip.vision.projection_dim": text_width,
        "clip.vision.block_count": 1,
        "clip.vision.attention.head_count": 2,
        "clip.vision.attention.layer_norm_epsilon": 1e-5,
        "clip.vision.image_mean": (0.5, 0.5, 0.5),
        "clip.vision.image_std": (0.5, 0.5, 0.5),
    }
    draw = random.Random(seed)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    head += b"".join(_text(name) + _value(value) for name, value in fields.items())
    body = b""
    for name, shape in tensors.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += _text(name) + sizes + struct.pack("<IQ", _F32, len(body))
        weights = [draw.gauss(0.0, 0.02) for _ in range(prod(shape))]
        body += _padded(struct.pack(f"<{len(weights)}f", *weights))
    target.write_bytes(_padded(head) + body)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    return struct.pack(f"<IIQ{len(value)}f", _ARRAY, _FLOAT, len(value), *value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
