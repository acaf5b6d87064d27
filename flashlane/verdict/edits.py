"""Whether a unified diff or SEARCH/REPLACE edit applies to a text. Pure.

An edit applies when the lines that it takes away or leaves stand together in the text, at one
place only; blanks at the ends of lines do not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flashlane.decision import Reason

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_SEARCH = re.compile(r"<{5,9} ?SEARCH\b")
_DIVIDER = re.compile(r"={5,9}\s*$")
_REPLACE = re.compile(r">{5,9} ?REPLACE\b")


@dataclass(frozen=True)
class Hunk:
    """Lines that must be there (`old`) and what stands there afterwards (`new`)."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    complaint: str = ""
    creates: bool = False


def edits(answer: str) -> list[Hunk]:
    """The hunks of all diffs and SEARCH/REPLACE blocks of `answer`, in order."""
    lines = answer.splitlines()
    found: list[Hunk] = []
    creates = False
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- "):
            creates = line[4:].strip().startswith("/dev/null")
        header = _HUNK.match(line)
        if header:
            hunk, at = _unified(lines, at, header, creates)
            found.append(hunk)
        elif line.startswith("@@"):
            found.append(Hunk((), (), "a hunk header without line numbers"))
            at += 1
        elif _SEARCH.match(line):
            hunk, at = _replacing(lines, at + 1)
            found.append(hunk)
        else:
            at += 1
    return found


def _unified(
    lines: Sequence[str], at: int, header: re.Match[str], creates: bool
) -> tuple[Hunk, int]:
    want_old = int(header[2] if header[2] is not None else 1)
    want_new = int(header[4] if header[4] is not None else 1)
    old: list[str] = []
    new: list[str] = []
    at += 1
    while at < len(lines) and (len(old) < want_old or len(new) < want_new):
        line = lines[at]
        mark, rest = line[:1], line[1:]
        if mark == "\\":
            at += 1
            continue
        if mark not in ("", " ", "+", "-") or line.startswith("```"):
            break
        if mark != "+":
            old.append(rest)
        if mark != "-":
            new.append(rest)
        at += 1
    following = lines[at] if at < len(lines) else ""
    complaint = ""
    if (len(old), len(new)) != (want_old, want_new) or (
        following.strip() and following[0] in " +-" and not following.startswith(("--- ", "-- "))
    ):
        complaint = "a hunk has other counts of lines than its header says"
    elif old == new:
        complaint = "a hunk changes nothing"
    return Hunk(tuple(old), tuple(new), complaint, creates and not old), at


def _replacing(lines: Sequence[str], at: int) -> tuple[Hunk, int]:
    old: list[str] = []
    new: list[str] = []
    into, state = old, "search"
    while at < len(lines):
        line = lines[at]
        if state == "search" and _DIVIDER.match(line):
            into, state = new, "replace"
        elif _REPLACE.match(line):
            complaint = "" if state == "replace" else "a SEARCH block has no divider"
            if not complaint and old == new:
                complaint = "a SEARCH block changes nothing"
            return Hunk(tuple(old), tuple(new), complaint), at + 1
        else:
            into.append(line)
        at += 1
    return Hunk(tuple(old), tuple(new), "a SEARCH block does not end"), at


def edit_problem(hunks: Sequence[Hunk], original: str) -> Reason | None:
    """Why the hunks do not apply to `original`; None when all do."""
    text = [line.rstrip() for line in original.splitlines()]
    where: dict[str, list[int]] = {}
    for number, line in enumerate(text):
        where.setdefault(line, []).append(number)
    used: list[tuple[int, int]] = []
    for index, hunk in enumerate(hunks, 1):
        if hunk.complaint:
            return Reason("edit_malformed", f"edit {index}: {hunk.complaint}")
        if hunk.creates:
            continue
        old = [line.rstrip() for line in hunk.old]
        if not any(old):
            return Reason("edit_unplaced", f"edit {index} names no line of the text")
        places = _found(text, where, old)
        if not places:
            return Reason("edit_does_not_apply", f"the lines of edit {index} are not in the text")
        if len(places) > 1:
            return Reason("edit_ambiguous", f"the lines of edit {index} stand at several places")
        begin, end = places[0], places[0] + len(old)
        if any(begin < e and b < end for b, e in used):
            return Reason("edit_overlaps", f"edit {index} overlaps an earlier one")
        used.append((begin, end))
    return None


def _found(text: list[str], where: dict[str, list[int]], old: list[str]) -> list[int]:
    """The first two lines numbers where `old` stands; its rarest line leads the way."""
    if any(line not in where for line in old):
        return []
    lead = min(range(len(old)), key=lambda i: len(where[old[i]]))
    found = []
    for number in where[old[lead]]:
        begin = number - lead
        if begin >= 0 and text[begin : begin + len(old)] == old:
            found.append(begin)
            if len(found) == 2:
                break
    return found
