"""The attention scorer, in a program of its own, on a real model."""

from __future__ import annotations

import base64
import json
import math
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "backends" / "llama_server_patch"
PARTS = ("", "-attention", "-keys", "-load", "-text", "-vectors")
FILES = (
    SOURCES / "src" / "kvflash-match.cpp",
    *(SOURCES / "src" / f"pflash-scorer{part}.cpp" for part in PARTS),
    SOURCES / "tests" / "pflash_scorer.cpp",
)
LIBRARIES = ("llama", "ggml", "ggml-cpu", "ggml-base")

ANSWER = "The password of the north gate is tangerine-44."
QUESTION = "What is the password of the north gate?"
SENTENCES = (
    "The council met on a rainy afternoon to talk about the repair of the old bridge.",
    "Several farmers complained that the price of hay had doubled since the spring.",
    "A travelling circus set up its tents behind the brewery and stayed for nine days.",
    "The teacher asked the children to draw the river as they remembered it.",
    "Nobody could say who had painted the door of the town hall blue.",
    "In the evening the baker swept his floor and put out the lamps one after another.",
)


@dataclass(frozen=True)
class Scorer:
    program: Path
    libraries: Path
    model: Path
    folder: Path

    def run(
        self, *pairs: tuple[bytes | str, str], options: tuple[str, ...] = ()
    ) -> list[dict[str, object]]:
        """What the program says of the model, and of each text with its question."""
        arguments = list(options)
        for number, pair in enumerate(pairs):
            for kind, content in zip(("text", "question"), pair, strict=True):
                path = self.folder / f"{kind}{number}"
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
                arguments.append(str(path))
        done = self.start(self.model, *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, model: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), str(model), *arguments],
            env=os.environ | {"LD_LIBRARY_PATH": str(self.libraries)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def scorer(
    engine: Path,
    engine_source: Path,
    engine_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scorer:
    folder = tmp_path_factory.mktemp("scorer")
    program = folder / "pflash_scorer"
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    command += [f"-I{SOURCES / 'src'}"]
    command += [f"-I{engine_source / part}" for part in ("include", "ggml/include")]
    command += [*map(str, FILES), "-o", str(program), f"-L{engine.parent}"]
    command += [f"-l{name}" for name in LIBRARIES]
    done = subprocess.run(
        [*command, f"-Wl,-rpath-link,{engine.parent}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Scorer(program, engine.parent, engine_model, folder)


def _story(sentences: int, seed: int = 1) -> str:
    chosen = random.Random(seed).choices(SENTENCES, k=sentences)
    return " ".join(chosen)


def _with_answer(before: str, after: str) -> tuple[bytes, int, int]:
    """The text, and where its answer begins and ends."""
    start = len(before.encode())
    return f"{before}{ANSWER}{after}".encode(), start, start + len(ANSWER)


def _checked(text: bytes, result: dict[str, object]) -> tuple[list[int], list[float]]:
    assert "error" not in result, result
    ends, scores = result["token_end"], result["score"]
    assert isinstance(ends, list)
    assert isinstance(scores, list)
    assert len(ends) == len(scores) > 0
    assert ends == sorted(ends)
    assert ends[-1] == len(text)
    return ends, scores


def _best(text: bytes, result: dict[str, object]) -> int:
    """Byte offset of the middle of the token with the highest score."""
    ends, scores = _checked(text, result)
    top = max(range(len(scores)), key=scores.__getitem__)
    return (ends[top - 1] + ends[top]) // 2 if top else ends[0] // 2


def test_sentence_with_the_answer_scores_highest(scorer: Scorer) -> None:
    texts = [
        _with_answer(_story(4) + " ", " " + _story(20, 2)),
        _with_answer(_story(12) + " ", " " + _story(12, 2)),
        _with_answer(_story(20) + " ", " " + _story(4, 2)),
    ]
    _, *results = scorer.run(
        *((text, QUESTION) for text, _, _ in texts), options=("--window", "192")
    )
    for (text, start, end), result in zip(texts, results, strict=True):
        assert result["n_windows"] in {2, 3}
        assert start <= _best(text, result) <= end


def test_every_part_has_a_share_of_each_question(scorer: Scorer) -> None:
    """Mean keys of parts against a question's queries; how well they tell is in docs/kvflash.md."""
    text = _story(24)
    asked = (QUESTION, "Who wrote the number of lamps in pencil?", QUESTION)
    _, first, other, again = scorer.run(
        *((text, question) for question in asked), options=("--parts", "128", "--window", "192")
    )
    shares = first["shares"]
    assert isinstance(shares, list) and len(shares) == -(-len(text) // 128)
    assert all(isinstance(share, float) and math.isfinite(share) for share in shares)
    assert max(shares) > 0 > min(shares)
    assert again["shares"] == shares != other["shares"]


def test_model_is_described(scorer: Scorer) -> None:
    about, _ = scorer.run(("A line.", "What?"))
    narrow, _ = scorer.run(("A line.", "What?"), options=("--window", "128"))
    assert about["n_layers"] == 30
    assert (about["first_layer"], about["last_layer"]) == (14, 15)
    assert about["window"] == 768
    assert about["fingerprint"] != narrow["fingerprint"]
    speed = about["tokens_per_second"]
    assert isinstance(speed, float)
    assert speed > 0


def test_any_bytes_keep_their_offsets(scorer: Scorer) -> None:
    noise = random.Random(3)
    around = _story(3)
    texts = {
        "cjk": _with_answer("北門の暗号は毎朝変わります。" * 8, "議会は橋の修理を話し合った。" * 8),
        "emoji": _with_answer("👩‍👩‍👧 went home 🎪🎠 " * 12, " 🦊🦉🌧️" * 12),
        "base64": _with_answer(
            base64.b64encode(noise.randbytes(400)).decode() + "\n",
            "\n" + base64.b64encode(noise.randbytes(400)).decode(),
        ),
    }
    broken = {
        "invalid": around.encode() + b" \xff\xfe\xc0\xaf\xed\xa0\x80\xf5 cut: \xe2\x82",
        "nul": b"one\0two\0\0three\0" * 20,
        "random": noise.randbytes(500),
        "blanks": b" \t\r\n" * 100,
        "one": b"x",
        "controls": b"<|im_start|>system\nno<|im_end|>\n" * 5,
    }
    pairs = [(text, QUESTION) for text, _, _ in texts.values()]
    pairs += [(text, QUESTION) for text in broken.values()]
    _, *results = scorer.run(*pairs, options=("--window", "512"))
    for (name, (text, start, end)), result in zip(texts.items(), results, strict=False):
        assert start <= _best(text, result) <= end, name
    for text, result in zip(broken.values(), results[len(texts) :], strict=True):
        _checked(text, result)


def test_questions_of_any_kind(scorer: Scorer) -> None:
    text, start, end = _with_answer(_story(5) + " ", " " + _story(5))
    long = "Please be kind and patient with me. " * 3000 + QUESTION
    _, empty, blank, cut, broken = scorer.run(
        (text, ""), (text, " \n\t"), (text, long), (text, "gate\0 password?")
    )
    assert empty == blank == {"error": "no question"}
    assert start <= _best(text, cut) <= end
    _checked(text, broken)


def test_tokens_that_are_known_are_not_made_again(scorer: Scorer, engine_source: Path) -> None:
    text, _, _ = _with_answer(_story(20), _story(20, 2))
    _, made = scorer.run((text, QUESTION))
    _, given = scorer.run((text, QUESTION), options=("--given", str(scorer.model)))
    for figure in ("token_end", "score", "n_windows"):
        assert given[figure] == made[figure]
    strange = engine_source / "models" / "ggml-vocab-gpt-2.gguf"
    refused = scorer.start(scorer.model, "--given", str(strange))
    assert refused.returncode == 1 and "another vocabulary" in refused.stderr


def test_empty_text_has_no_scores(scorer: Scorer) -> None:
    _, result = scorer.run(("", QUESTION))
    assert (result["n_windows"], result["token_end"], result["score"]) == (0, [], [])


def test_long_text_ends_at_its_deadline(scorer: Scorer) -> None:
    text = _story(4000)  # about 60k tokens
    started = time.monotonic()
    _, result = scorer.run((text, QUESTION), options=("--deadline-ms", "3000"))
    assert result == {"error": "timeout"}
    assert time.monotonic() - started < 60


def test_megabytes_without_a_blank_end_at_their_deadline(scorer: Scorer) -> None:
    started = time.monotonic()
    _, *results = scorer.run(
        (b"a" * (4 << 20), QUESTION),
        ("é".encode() * (2 << 20), QUESTION),
        options=("--deadline-ms", "5000"),
    )
    assert results == [{"error": "timeout"}] * 2
    assert time.monotonic() - started < 90


def test_cancelled_call_ends(scorer: Scorer) -> None:
    _, result = scorer.run((_story(40), QUESTION), options=("--cancel",))
    assert result == {"error": "cancelled"}


def test_calls_at_once_take_turns(scorer: Scorer) -> None:
    first = _with_answer(_story(4) + " ", " " + _story(10))
    second = _with_answer(_story(10, 2) + " ", " " + _story(4, 2))
    pairs = [(text, QUESTION) for text, _, _ in (first, second)]
    _, *alone = scorer.run(*pairs)
    _, *together = scorer.run(*pairs, options=("--together",))
    for one, other in zip(alone, together, strict=True):
        assert one["token_end"] == other["token_end"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_waiting_call_ends_at_its_deadline(scorer: Scorer) -> None:
    text = _story(4000)
    pairs = [(text, QUESTION)] * 3
    started = time.monotonic()
    _, *results = scorer.run(*pairs, options=("--together", "--deadline-ms", "2000"))
    assert results == [{"error": "timeout"}] * 3
    assert time.monotonic() - started < 60


def test_file_that_is_no_model_is_refused(scorer: Scorer, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 100)
    for path in (bad, tmp_path / "absent.gguf"):
        done = scorer.start(path)
        assert done.returncode == 1
        assert f"cannot load {path} as a model" in done.stderr
