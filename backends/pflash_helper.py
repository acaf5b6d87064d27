"""Reference helper of PFlash: `python -m flashlane.backends.pflash_helper --model FILE`.

Speaks the protocol of docs/pflash-helper.md on stdin and stdout. A span's score is how much
likelier a small language model finds the question after it (query likelihood against the question
alone; the contrast is LongLLMLingua's, arXiv:2310.06839), together with the words that both share.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flashlane.models import DEFAULT_MODEL, ModelError, find_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = 1
LINE_LIMIT_BYTES = 64 << 20
SPANS_AT_MOST = 400_000  # what fits into an answer's 8 MiB
_TIME_SHARE = 0.6  # of the request's time limit
_BATCH_TOKENS = 512
_BATCH_OUTPUTS = 192
_WARM_UP_TOKENS = 64
_SEQUENCES = 32
_QUESTION_TOKENS = 64  # its last ones
_WINDOW_BYTES = 256  # short spans share a window
_PIECE_BYTES = 1024  # a longer span has several, and the best one counts
_CUE = b"\nQuestion:"
_WORDS_WEIGHT = 4.0  # sharing all words counts like a gain of four standard deviations
_FLAT = 1e-9
_WARNINGS = (3, 4)  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR


class HelperError(Exception):
    """Why a request cannot be answered, in one sentence."""


class Request(BaseModel):
    """One line from the server. Spans are byte ranges [begin, end) of the text."""

    model_config = ConfigDict(strict=True, extra="forbid")

    schema_: Literal[1] = Field(alias="schema")
    id: int = Field(ge=0)
    timeout_ms: int = Field(ge=0)
    keep_ratio: float = Field(gt=0, le=1)
    question: str | None = None
    question_base64: str | None = None
    text: str | None = None
    text_base64: str | None = None
    spans: list[tuple[int, int]] = Field(max_length=SPANS_AT_MOST)


class Numbered(BaseModel):
    """As much of a bad request as an error answer needs."""

    model_config = ConfigDict(strict=True)

    id: int = Field(ge=0)


class Scores(BaseModel):
    schema_: int = Field(default=SCHEMA, serialization_alias="schema")
    id: int
    scores: list[float]


class Failure(BaseModel):
    schema_: int = Field(default=SCHEMA, serialization_alias="schema")
    id: int | None
    error: str


@dataclass(frozen=True)
class Window:
    """Bytes [begin, end) of the text, and the spans that lie in it or that it is a piece of."""

    begin: int
    end: int
    spans: tuple[int, ...]


def windows_of(spans: list[tuple[int, int]]) -> list[Window]:
    """Short neighbours share a window; a long span is cut into pieces."""
    windows: list[Window] = []
    run: list[int] = []

    def close() -> None:
        if run:
            windows.append(Window(spans[run[0]][0], spans[run[-1]][1], tuple(run)))
            run.clear()

    for index, (begin, end) in enumerate(spans):
        if run and (end - spans[run[0]][0] > _WINDOW_BYTES or begin != spans[run[-1]][1]):
            close()
        if end - begin > _PIECE_BYTES:
            close()
            for at in range(begin, end, _PIECE_BYTES):
                windows.append(Window(at, min(at + _PIECE_BYTES, end), (index,)))
        elif end > begin:
            run.append(index)
    close()
    return windows


def words_of(text: str) -> set[str]:
    """Lower-cased words; of scripts that leave no blanks between words, pairs of letters too."""
    found = set()
    for word in re.findall(r"\w+", text.lower()):
        found.add(word)
        if not word.isascii():
            found.update(word[i : i + 2] for i in range(len(word) - 1))
    return found


def shared_words(question: str, texts: list[str]) -> list[float]:
    """Per text: the share of the question's words in it, 0 to 1, weighted by how rare each is
    among the texts; a word that most of them have weighs next to nothing."""
    asked = words_of(question)
    found = [asked & words_of(text) for text in texts]
    counts = Counter(word for words in found for word in words)
    weight = {word: max(math.log((len(texts) + 1) / (counts[word] + 0.5)), 0.0) for word in asked}
    whole = math.fsum(weight.values()) or 1.0
    return [math.fsum(weight[word] for word in words) / whole for words in found]


def order_of(windows: list[Window], lexical: list[float]) -> list[int]:
    """Windows with the most of the question's words first, the others spread over the text, so
    that whatever the time allows to read stands for the whole."""
    best = [max(lexical[span] for span in window.spans) for window in windows]
    spread = sorted(range(len(windows)), key=lambda i: (i * 0x9E3779B1) & 0xFFFFFFFF)
    return sorted(spread, key=lambda i: -best[i])


def combined(gains: list[float | None], lexical: list[float]) -> list[float]:
    """The gain in standard deviations, and the share of words on top; a span that was not read
    has the median gain."""
    known = sorted(gain for gain in gains if gain is not None)
    middle = known[len(known) // 2] if known else 0.0
    values = [middle if gain is None else gain for gain in gains]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    scale = 1 / deviation if deviation > _FLAT else 0.0
    return [
        round((value - mean) * scale + _WORDS_WEIGHT * share, 4)
        for value, share in zip(values, lexical, strict=True)
    ]


class LanguageModel:
    """A GGUF model that says how likely it finds a question after a piece of text."""

    def __init__(self, model: Path, threads: int) -> None:
        """Raises `HelperError` when the file cannot be loaded."""
        import llama_cpp.llama_cpp as api

        self._api = api
        self._log = api.llama_log_callback(_log)  # the library keeps no reference
        api.llama_log_set(self._log, None)
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            os.fsencode(model), api.llama_model_default_params()
        )
        if not self._model:
            raise HelperError(f"{model} cannot be loaded as a model")
        self._vocab = api.llama_model_get_vocab(self._model)
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = _BATCH_TOKENS
        params.n_seq_max = _SEQUENCES
        params.n_outputs_max = _BATCH_OUTPUTS
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise HelperError(f"no context can be made for {model}")
        self._batch = api.llama_batch_init(_BATCH_TOKENS, 0, 1)
        self.tokens_per_s = 0.0
        bos = [api.llama_vocab_bos(self._vocab)] if api.llama_vocab_get_add_bos(self._vocab) else []
        self._start: list[int] = bos
        self._cue = self.tokens(_CUE)
        filler = self.tokens(b"The quick brown fox. " * 100)[:_WARM_UP_TOKENS]
        for _ in range(2):  # the first one reads the file, the second one measures the speed
            self._likelihoods([filler], self.tokens(b" Who?"))

    def tokens(self, text: bytes) -> list[int]:
        """Never control tokens, whatever the text spells."""
        size = len(text) + 8
        found = (self._api.llama_token * size)()
        count = self._api.llama_tokenize(self._vocab, text, len(text), found, size, False, False)
        if count < 0:
            raise HelperError("the text cannot be tokenised")
        return list(found[:count])

    def gains(
        self, question: bytes, pieces: Iterator[bytes], time_is_up: Callable[[float], bool]
    ) -> Iterator[float]:
        """Per piece, in their order: the mean log-likelihood of the question's tokens after it,
        minus the same without it.

        Ends early when `time_is_up(seconds)` says that the next batch would take too long.
        """
        asked = self.tokens(b" " + question.strip())[-_QUESTION_TOKENS:]
        room = _BATCH_TOKENS - len(self._start) - len(self._cue) - len(asked)
        alone: float | None = None
        batch: list[list[int]] = [[]]  # the question without any text
        used = 0

        def run() -> Iterator[float]:
            nonlocal alone, used
            values = self._likelihoods(batch, asked)
            if alone is None:
                alone = values.pop(0)
            batch.clear()
            used = 0
            for value in values:
                yield value - alone

        each = _BATCH_TOKENS - room
        used = each
        if not asked:
            return
        for piece in pieces:
            tokens = self.tokens(piece)[:room]
            full = (
                used + len(tokens) + each > _BATCH_TOKENS
                or (len(batch) + 1) * len(asked) > _BATCH_OUTPUTS
                or len(batch) == _SEQUENCES
            )
            if full:
                if time_is_up(used / self.tokens_per_s):
                    break
                yield from run()
            batch.append(tokens)
            used += len(tokens) + each
        else:
            if len(batch) > (alone is None) and not time_is_up(used / self.tokens_per_s):
                yield from run()
        if alone is None:
            self.tokens_per_s *= 2  # one slow moment must not stand for ever

    def _likelihoods(self, texts: list[list[int]], asked: list[int]) -> list[float]:
        """Mean log-likelihood of `asked` after each text, all in one batch."""
        began = time.monotonic()
        batch, rows = self._batch, []
        at = 0
        for sequence, text in enumerate(texts):
            tokens = [*self._start, *text, *self._cue, *asked]
            first = len(tokens) - len(asked) - 1
            for position, token in enumerate(tokens):
                batch.token[at] = token
                batch.pos[at] = position
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = first <= position < len(tokens) - 1
                if batch.logits[at]:
                    rows.append(at)
                at += 1
        batch.n_tokens = at
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), False)
        if self._api.llama_decode(self._context, batch) != 0:
            raise HelperError("the model could not read the text")
        found = [self._log_likelihood(row, asked[i % len(asked)]) for i, row in enumerate(rows)]
        self.tokens_per_s = at / (time.monotonic() - began)
        size = len(asked)
        return [math.fsum(found[i : i + size]) / size for i in range(0, len(found), size)]

    def _log_likelihood(self, row: int, token: int) -> float:
        import numpy as np

        size = self._api.llama_vocab_n_tokens(self._vocab)
        logits: NDArray[np.float32] = np.ctypeslib.as_array(
            self._api.llama_get_logits_ith(self._context, row), shape=(size,)
        )
        top = logits.max()
        return float(logits[token] - top - math.log(np.exp(logits - top).sum()))


def _log(level: int, text: bytes, _: object) -> None:
    if level in _WARNINGS:
        sys.stderr.write(text.decode("utf-8", "replace"))


def scores(request: Request, model: LanguageModel, began: float) -> list[float]:
    """One finite number per span. `began` is when the request came, on the monotonic clock."""
    text = _bytes_of(request.text, request.text_base64, "text")
    question = _bytes_of(request.question, request.question_base64, "question")
    for begin, end in request.spans:
        if not 0 <= begin <= end <= len(text):
            raise HelperError(f"span [{begin}, {end}] is not a range of {len(text)} bytes")
    if not request.spans:
        return []
    texts = [text[begin:end].decode("utf-8", "replace") for begin, end in request.spans]
    lexical = shared_words(question.decode("utf-8", "replace"), texts)
    windows = windows_of(request.spans)
    order = order_of(windows, lexical)
    deadline = began + request.timeout_ms / 1000 * _TIME_SHARE

    gains: list[float | None] = [None] * len(request.spans)
    pieces = (text[windows[i].begin : windows[i].end] for i in order)
    found = model.gains(question, pieces, lambda needed: time.monotonic() + needed > deadline)
    for index, gain in zip(order, found, strict=False):
        for span in windows[index].spans:
            known = gains[span]
            gains[span] = gain if known is None else max(known, gain)
    return combined(gains, lexical)


def _bytes_of(plain: str | None, coded: str | None, name: str) -> bytes:
    if (plain is None) == (coded is None):
        raise HelperError(f"send either {name} or {name}_base64")
    if plain is not None:
        return plain.encode()
    assert coded is not None
    try:
        return base64.b64decode(coded, validate=True)
    except binascii.Error as error:
        raise HelperError(f"{name}_base64 is not base64: {error}") from error


def lines_of(stream: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of `stream` until it ends; None for one that is longer than the limit."""
    while line := stream.readline(LINE_LIMIT_BYTES + 1):
        if line.endswith(b"\n"):
            yield line
            continue
        if len(line) <= LINE_LIMIT_BYTES:
            return  # cut off: its writer is gone
        while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
            pass
        yield None


def answer(line: bytes | None, model: LanguageModel) -> Scores | Failure:
    """The answer to one line, whatever it holds."""
    began = time.monotonic()
    if line is None:
        return Failure(id=None, error=f"the line is longer than {LINE_LIMIT_BYTES} bytes")
    try:
        request = Request.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        return Failure(id=_id_of(line), error=f"{where}: {first['msg']}")
    try:
        return Scores(id=request.id, scores=scores(request, model, began))
    except HelperError as error:
        return Failure(id=request.id, error=str(error))


def _id_of(line: bytes) -> int | None:
    try:
        return Numbered.model_validate_json(line).id
    except ValidationError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="pflash_helper", description=__doc__)
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="GGUF file, or the name of a model that is fetched already (default: %(default)s)",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()

    # Only answers may reach stdout, whatever a library prints.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        path = find_model(options.model)
        if path is None:
            raise HelperError(f"--model {options.model}: no such file, and not fetched yet")
        model = LanguageModel(path, options.threads)
    except (HelperError, ModelError) as error:
        sys.exit(f"pflash_helper: {error}")
    print(f"{path.name}: {model.tokens_per_s:.0f} tokens/s", file=sys.stderr, flush=True)
    for line in lines_of(sys.stdin.buffer):
        reply = answer(line, model).model_dump_json(by_alias=True)
        try:
            sink.write(reply.encode() + b"\n")
            sink.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody is left to answer, and flushing at exit would fail again


if __name__ == "__main__":
    main()
