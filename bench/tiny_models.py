"""Models small enough to be made at once: random, the same for the same seed, a byte a token.

Sources of the layout: docs/gguf.md of ggml, and the tensors that llama.cpp's src/models asks for.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Value = str | int | float | bool | Sequence[str] | Sequence[int] | Sequence[float]
Tensor = NDArray[np.float32]

_SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
FIRST_BYTE = len(_SPECIAL)  # token of the byte 0
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_UNKNOWN, _CONTROL, _UNUSED, _BYTE, _NORMAL = 2, 3, 5, 6, 1  # llama.cpp's token types
_WIDTH = 320  # of a vocabulary
_LETTERS = "abcdefghijklmnop"
FIRST_LETTER, LETTERS = FIRST_BYTE + 256, len(_LETTERS)  # tokens that `cycle_pair` goes through
_ALIGNMENT = 32
_KINDS = {str: 8, int: 5, float: 6}  # GGUF's numbers of an array's types

EMBEDDING = 64
_HEADS, _HEAD_SIZE, _FEED_FORWARD = 2, 32, 96
_STATE, _CONV, _RANK = 8, 4, 4
WINDOW = 64


def text(seed: int | str, n: int) -> list[int]:
    """`n` tokens, the same for the same seed; fewer are the beginning of more."""
    draw = random.Random(seed)
    return [FIRST_BYTE + draw.randrange(97, 123) for _ in range(n)]


def written(path: Path, entries: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> Path:
    """A GGUF file; tensors have their last dimension first, as in ggml."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries))
    head += b"".join(_text(key) + _value(value) for key, value in entries.items())
    body = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", 0, len(body))
        body += _padded(tensor.astype("<f4").tobytes())
    path.write_bytes(_padded(head) + body)
    return path


def dense(path: Path, seed: int = 0) -> Path:
    """A llama of two layers."""
    draw = _Draw(seed)
    tensors = draw.ends()
    for layer in range(2):
        tensors |= draw.attention(layer) | draw.feed_forward(layer)
    return written(path, _header("llama", 2), tensors)


def windowed(path: Path, seed: int = 0) -> Path:
    """A gemma3 of four layers, every second of which sees the last `WINDOW` tokens alone."""
    draw = _Draw(seed)
    tensors = draw.ends()
    for layer in range(4):
        tensors |= draw.attention(layer) | draw.feed_forward(layer)
        for norm in ("post_attention_norm", "post_ffw_norm"):
            tensors[f"blk.{layer}.{norm}.weight"] = _ones(EMBEDDING)
        for norm in ("attn_q_norm", "attn_k_norm"):
            tensors[f"blk.{layer}.{norm}.weight"] = _ones(_HEAD_SIZE)
    entries: dict[str, Value] = {
        "gemma3.attention.sliding_window": WINDOW,
        "gemma3.attention.sliding_window_pattern": 2,
    }
    return written(path, _header("gemma3", 4) | entries, tensors)


def recurrent(path: Path, seed: int = 0) -> Path:
    """A mamba of two layers."""
    draw = _Draw(seed)
    tensors = draw.ends()
    for layer in range(2):
        tensors |= draw.mamba(layer)
    return written(path, _header("mamba", 2) | _ssm("mamba"), tensors)


def hybrid(path: Path, seed: int = 0) -> Path:
    """A jamba of three layers, the middle one with attention."""
    draw = _Draw(seed)
    tensors = draw.ends()
    for layer in range(3):
        if layer == 1:
            tensors |= draw.attention(layer)
        else:
            tensors |= draw.mamba(layer)
            for norm, size in (("dt", _RANK), ("b", _STATE), ("c", _STATE)):
                tensors[f"blk.{layer}.ssm_{norm}_norm.weight"] = _ones(size)
        tensors |= draw.feed_forward(layer)
    entries = _header("jamba", 3) | _ssm("jamba") | {"jamba.attention.head_count_kv": [0, 2, 0]}
    return written(path, entries, tensors)


def projector(path: Path, text_width: int, seed: int = 0) -> Path:
    """A vision projector, with which llama-server takes images for a model `text_width` wide.

    Source of its names: tools/mtmd/clip-impl.h of llama.cpp.
    """
    side, patch, width, feed_forward = 28, 14, 32, 64
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (width,),
        "v.patch_embd.weight": (width, 3, patch, patch),
        "v.position_embd.weight": ((side // patch) ** 2 + 1, width),
        "v.blk.0.ffn_up.weight": (feed_forward, width),
        "v.blk.0.ffn_down.weight": (width, feed_forward),
        "mm.0.weight": (text_width, width),
        "mm.0.bias": (text_width,),
        "mm.2.weight": (text_width, text_width),
        "mm.2.bias": (text_width,),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        shapes[f"v.blk.0.{name}.weight"] = (width, width)
    for name in ("ln1", "ln2"):
        shapes[f"v.blk.0.{name}.weight"] = (width,)
    entries: dict[str, Value] = {
        "general.architecture": "clip",
        "clip.projector_type": "mlp",
        "clip.has_vision_encoder": True,
        "clip.use_gelu": True,
        "clip.vision.image_size": side,
        "clip.vision.patch_size": patch,
        "clip.vision.embedding_length": width,
        "clip.vision.feed_forward_length": feed_forward,
        "clip.vision.projection_dim": text_width,
        "clip.vision.block_count": 1,
        "clip.vision.attention.head_count": 2,
        "clip.vision.attention.layer_norm_epsilon": 1e-5,
        "clip.vision.image_mean": (0.5, 0.5, 0.5),
        "clip.vision.image_std": (0.5, 0.5, 0.5),
    }
    draw = np.random.default_rng(seed)
    tensors: dict[str, Tensor] = {
        name: (0.02 * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    return written(path, entries, tensors)


def adapter(path: Path, seed: int = 0) -> Path:
    """A LoRA adapter of rank 4 for `dense`, strong enough to change answers."""
    draw = _Draw(seed)
    tensors = {}
    for layer in range(2):
        for part in ("attn_q", "attn_v", "attn_output"):
            name = f"blk.{layer}.{part}.weight"
            tensors[f"{name}.lora_a"] = draw.matrix(4, EMBEDDING)
            tensors[f"{name}.lora_b"] = draw.matrix(EMBEDDING, 4)
    entries: dict[str, Value] = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
    }
    return written(path, entries, tensors)


def cycle_pair(folder: Path) -> tuple[Path, Path]:
    """A target that goes through its letters in a circle, and a DFlash drafter that knows it.

    The target's output shifts its one-hot embedding. Each mask of the drafter attends to the
    token one period before, by the phase of its rotary positions, and repeats it.
    """
    width, head, block = _WIDTH, 64, 16
    after = np.full(width, FIRST_LETTER)
    after[FIRST_LETTER : FIRST_LETTER + LETTERS] = [
        FIRST_LETTER + (i + 1) % LETTERS for i in range(LETTERS)
    ]
    shift = np.zeros((width, width), np.float32)
    shift[after, np.arange(width)] = 1
    one_hot = np.eye(width, dtype=np.float32)
    zeros = np.zeros((width, width), np.float32)
    none: dict[str, Tensor] = {
        "blk.0.attn_norm.weight": _ones(width),
        "blk.0.ffn_norm.weight": _ones(width),
        "blk.0.ffn_gate.weight": zeros[:32],
        "blk.0.ffn_up.weight": zeros[:32],
        "blk.0.ffn_down.weight": zeros[:, :32],
    }

    def entries(arch: str) -> dict[str, Value]:
        return {
            **_vocabulary(arch),
            f"{arch}.context_length": 4096,
            f"{arch}.embedding_length": width,
            f"{arch}.block_count": 1,
            f"{arch}.feed_forward_length": 32,
            f"{arch}.attention.head_count": width // head,
            f"{arch}.attention.head_count_kv": width // head,
            f"{arch}.attention.key_length": head,
            f"{arch}.attention.value_length": head,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
            f"{arch}.rope.freq_base": 10000.0,
        }

    parts = ("attn_q", "attn_k", "attn_v", "attn_output")
    target = written(
        folder / "cycle.gguf",
        entries("llama") | {"llama.rope.dimension_count": head, "llama.vocab_size": width},
        {
            "token_embd.weight": one_hot,
            "output.weight": shift,
            "output_norm.weight": _ones(width),
            **{f"blk.0.{part}.weight": zeros for part in parts},
            **none,
        },
    )
    angles = (LETTERS + 1) * 10000.0 ** (-2 * np.arange(head // 2) / head)
    query = np.tile(np.concatenate([np.cos(angles), -np.sin(angles)]), width // head)
    key = np.tile(np.concatenate([np.ones(head // 2), np.zeros(head // 2)]), width // head)
    drafter = written(
        folder / "cycle-dflash.gguf",
        entries("dflash")
        | {
            "tokenizer.ggml.mask_token_id": width - 1,
            "dflash.block_size": block,
            "dflash.target_layers": [0],
        },
        {
            "fc.weight": one_hot,
            "enc.output_norm.weight": _ones(width),
            "output_norm.weight": _ones(width),
            "blk.0.attn_q.weight": np.tile(query[:, None], (1, width)).astype(np.float32),
            "blk.0.attn_k.weight": np.tile(key[:, None], (1, width)).astype(np.float32),
            "blk.0.attn_v.weight": one_hot,
            "blk.0.attn_output.weight": 4 * one_hot,
            "blk.0.attn_q_norm.weight": 12 * _ones(head),
            "blk.0.attn_k_norm.weight": 12 * _ones(head),
            **none,
        },
    )
    return target, drafter


def drafter(path: Path, changed: Mapping[str, Value | None] | None = None, seed: int = 0) -> Path:
    """A DFlash drafter as wide as the random models, which guesses; None leaves an entry out."""
    draw = _Draw(seed)
    tensors = {
        "fc.weight": draw.matrix(EMBEDDING, EMBEDDING),
        "enc.output_norm.weight": _ones(EMBEDDING),
        "output_norm.weight": _ones(EMBEDDING),
        "blk.0.attn_q_norm.weight": _ones(_HEAD_SIZE),
        "blk.0.attn_k_norm.weight": _ones(_HEAD_SIZE),
        **draw.attention(0),
        **draw.feed_forward(0),
    }
    entries = {
        **_header("dflash", 1),
        "tokenizer.ggml.mask_token_id": _WIDTH - 1,
        "dflash.block_size": 16,
        "dflash.target_layers": [1],
        **(changed or {}),
    }
    return written(path, {k: v for k, v in entries.items() if v is not None}, tensors)


class _Draw:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> Tensor:
        drawn = self._random.standard_normal((rows, columns)) * scale / columns**0.5
        matrix: Tensor = drawn.astype(np.float32)
        return matrix

    def ends(self) -> dict[str, Tensor]:
        return {
            "token_embd.weight": self.matrix(_WIDTH, EMBEDDING, EMBEDDING**0.5),
            "output.weight": self.matrix(_WIDTH, EMBEDDING, 4.0),
            "output_norm.weight": _ones(EMBEDDING),
        }

    def attention(self, layer: int) -> dict[str, Tensor]:
        parts = ("attn_q", "attn_k", "attn_v", "attn_output")
        drawn = {part: self.matrix(EMBEDDING, EMBEDDING, 2.0) for part in parts}
        tensors = {f"blk.{layer}.{part}.weight": tensor for part, tensor in drawn.items()}
        return tensors | {f"blk.{layer}.attn_norm.weight": _ones(EMBEDDING)}

    def feed_forward(self, layer: int) -> dict[str, Tensor]:
        return {
            f"blk.{layer}.ffn_norm.weight": _ones(EMBEDDING),
            f"blk.{layer}.ffn_gate.weight": self.matrix(_FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_up.weight": self.matrix(_FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_down.weight": self.matrix(EMBEDDING, _FEED_FORWARD),
        }

    def mamba(self, layer: int) -> dict[str, Tensor]:
        inner = 2 * EMBEDDING
        steps = np.exp(self._random.uniform(np.log(0.0005), np.log(0.02), inner))
        decay = -np.tile(np.arange(1, _STATE + 1), (inner, 1))
        return {
            f"blk.{layer}.attn_norm.weight": _ones(EMBEDDING),
            f"blk.{layer}.ssm_in.weight": self.matrix(2 * inner, EMBEDDING, 2.0),
            f"blk.{layer}.ssm_conv1d.weight": self.matrix(inner, _CONV),
            f"blk.{layer}.ssm_conv1d.bias": np.zeros(inner, np.float32),
            f"blk.{layer}.ssm_x.weight": self.matrix(_RANK + 2 * _STATE, inner, 2.0),
            f"blk.{layer}.ssm_dt.weight": self.matrix(inner, _RANK, 0.5),
            f"blk.{layer}.ssm_dt.bias": np.log(np.expm1(steps)).astype(np.float32),
            f"blk.{layer}.ssm_a": decay.astype(np.float32),
            f"blk.{layer}.ssm_d": 0.2 * _ones(inner),
            f"blk.{layer}.ssm_out.weight": self.matrix(EMBEDDING, inner, 4.0),
        }


def _header(arch: str, layers: int) -> dict[str, Value]:
    return {
        **_vocabulary(arch),
        f"{arch}.context_length": 8192,
        f"{arch}.embedding_length": EMBEDDING,
        f"{arch}.block_count": layers,
        f"{arch}.feed_forward_length": _FEED_FORWARD,
        f"{arch}.attention.head_count": _HEADS,
        f"{arch}.attention.head_count_kv": _HEADS,
        f"{arch}.attention.key_length": _HEAD_SIZE,
        f"{arch}.attention.value_length": _HEAD_SIZE,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.dimension_count": _HEAD_SIZE,
        f"{arch}.vocab_size": _WIDTH,
    }


def _ssm(arch: str) -> dict[str, Value]:
    return {
        f"{arch}.ssm.conv_kernel": _CONV,
        f"{arch}.ssm.inner_size": 2 * EMBEDDING,
        f"{arch}.ssm.state_size": _STATE,
        f"{arch}.ssm.time_step_rank": _RANK,
    }


def _vocabulary(arch: str) -> dict[str, Value]:
    texts = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *_LETTERS]
    kinds = [_UNKNOWN, *[_CONTROL] * 4, *[_BYTE] * 256, *[_NORMAL] * len(_LETTERS)]
    unused = _WIDTH - len(texts)
    return {
        "general.architecture": arch,
        "general.name": "tiny",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [*texts, *(f"[PAD{i}]" for i in range(unused))],
        "tokenizer.ggml.scores": [0.0] * _WIDTH,
        "tokenizer.ggml.token_type": [*kinds, *[_UNUSED] * unused],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": _TEMPLATE,
    }


def _ones(size: int) -> Tensor:
    return np.ones(size, np.float32)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    head = struct.pack("<IIQ", 9, _KINDS[type(value[0])], len(value))
    return head + b"".join(_item(item) for item in value)


def _item(item: str | int | float) -> bytes:
    if isinstance(item, str):
        return _text(item)
    return struct.pack("<i" if isinstance(item, int) else "<f", item)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
