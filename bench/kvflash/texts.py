"""The words of a trace: letters for a model made here, generated code, logs and JSON for others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeAlias

from bench import tiny_models
from bench.haystacks import haystack
from bench.kvflash.traces import Piece
from bench.server import Server

Words: TypeAlias = "Callable[[str, int], list[int]]"

_KINDS = ("code", "logs", "json")
_CHUNK_TOKENS = 1024


def letters(seed: str, n: int) -> list[int]:
    """Of a model of `bench.tiny_models`."""
    return tiny_models.text(seed, n)


class Generated:
    """Texts in the vocabulary of `server`. Fewer tokens are the beginning of more: a text is made
    in chunks, each tokenised by itself."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._made: dict[str, list[int]] = {}

    def __call__(self, seed: str, n: int) -> list[int]:
        tokens = self._made.setdefault(seed, [])
        for number, kind in enumerate(cycle(_KINDS)):
            if len(tokens) >= n:
                return tokens[:n]
            # A text that was made before goes on with the chunk after its last.
            if number * _CHUNK_TOKENS >= len(tokens):
                tokens += self._chunk(kind, f"{seed}/{number}")
        raise AssertionError("kinds go round for ever")

    def _chunk(self, kind: str, seed: str) -> list[int]:
        """`_CHUNK_TOKENS` tokens, from anywhere: texts of one kind begin alike."""
        units = haystack(kind, 2 * _CHUNK_TOKENS, "reported", seed, self._server.count)
        tokens = self._server.tokenize("".join(units))
        start = random.Random(seed).randrange(len(tokens) - _CHUNK_TOKENS)
        return tokens[start : start + _CHUNK_TOKENS]


def tokens_of(pieces: Sequence[Piece], words: Words) -> list[int]:
    return [token for piece in pieces for token in words(piece.seed, piece.tokens)]
