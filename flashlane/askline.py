"""What one line says: whether it asks or orders something, and what else it stands for."""

from __future__ import annotations

from flashlane import askwords as words

QUESTION_MARKS = "?？؟"
_FOLLOW_UP_CHARS = 80
_MARK_MAX_CHARS = 240
_FENCES = ("```", "~~~", '"""', "'''")
_STARTS_READ = 4
_DECOR = " \t\r\u3000#*_>-•·–—\"'`“”„«»‘’「」『』()[]（）¿¡"


def looks_like_ask(text: str) -> bool:
    """Whether a short text asks or orders something, in one of the languages known here."""
    return any(_line_asks(line) for line in text.casefold().split("\n", 12)[:12])


def is_follow_up(text: str) -> bool:
    """Whether `text` leans on the ask before it: "and the second one?"."""
    folded = text.strip(_DECOR).casefold()
    if not folded or len(folded) > _FOLLOW_UP_CHARS:
        return False
    for start in words.FOLLOW_UPS:
        if folded.startswith(start):
            after = folded[len(start) : len(start) + 1]
            if start[0] >= "\u1100" or not after.isalnum():
                return True
    return False


def mark_of(line: str) -> str:
    """What a line stands for besides words: "rule", "ask" (a tag around one), "material", ""."""
    first = line[0]
    if first not in "`~<>-=*_\"'[|{}" or len(line) > _MARK_MAX_CHARS:
        return ""
    if line.startswith(("```", "~~~", '"""', "'''", ">", "|", "<<<", ">>>", "{", "}")):
        return "material"
    if line.startswith("<|") or (len(line) >= 3 and not line.strip(first) and first in "-=*_"):
        return "rule"
    if line.startswith("-----"):
        return "rule"
    closes = {"<": ">", "[": "]"}.get(first)
    if closes is None or not line.endswith(closes):
        return ""
    name = line[1:-1]
    if closes in name or not name or (first == "[" and " " in name):
        return ""  # text between two tags on one line, or a remark in brackets
    folded = name.casefold()
    return "ask" if any(word in folded for word in words.TAG_WORDS) else "material"


def mark_between(line: str, inside: str) -> tuple[str, str]:
    """A line's mark ("blank", "apart" or "") and the fence or tag that it leaves open."""
    if not line:
        return "blank", inside
    for fence in _FENCES:
        if line.startswith(fence):
            return "apart", "" if inside == fence else inside or fence
    mark = mark_of(line)
    if mark == "material" and line[0] in "<[":
        closing = line.startswith(("</", "[/"))
        return "apart", "" if closing else inside or "tag"
    return ("apart" if mark in ("rule", "ask") else ""), inside


def _line_asks(line: str) -> bool:
    """Whether a case-folded line asks or orders something."""
    if _is_technical(line):
        return False
    line = line.strip(_DECOR)
    if line.startswith("<"):
        line = line[line.find(">") + 1 :].strip(_DECOR)
    if line.endswith(">"):
        at = line.rfind("<")
        line = line[: at if at > 0 else len(line)].strip(_DECOR)
    line = line.lstrip("0123456789.)、 ")
    if not line:
        return False
    if line[-1] in QUESTION_MARKS or "？" in line or "؟" in line or "? " in line:
        return True
    label = line.replace("：", ":", 1)[:32].partition(":")
    if label[0].strip(_DECOR) in words.LABELS and (label[1] or len(line) == len(label[0])):
        return True
    if not line.isascii() and _cjk_asks(line.rstrip(".。!！…~")):
        return True
    return _starts_ask(line)


def _is_technical(line: str) -> bool:
    """A line of code, data or a log: its words are names, whatever they mean."""
    bare = line.strip()
    start, end = bare[:1], bare[-1:]
    if start.isdigit() and sum(map(bare[:32].count, ":-/.")) >= 3:
        return True  # a time stamp
    if start in ("#", "@", "{", "}", "$", "\\"):
        return start != "#" or " " not in bare[:4]
    signs = sum(map(bare.count, ("(", "=", "[", "{", "::", "->", "_")))
    return (end in ";{}:,)]" and signs >= 1) or signs >= 3 or " = " in bare


def _starts_ask(line: str) -> bool:
    prose = line[-1] in ".。" and len(line) > 60
    at = 0
    for _ in range(_STARTS_READ):
        rest = line[at : at + 40].lstrip(_DECOR).replace("’", "'")
        word = rest.split(" ", 1)[0].rstrip(",.:;!")
        if word in words.IMPERATIVES or rest.startswith(words.PHRASES):
            return True
        if not prose and at == 0 and word.split("'")[0] in words.INTERROGATIVES:
            return True
        comma = line.find(", ", at, at + 80) if word in words.PREPOSITIONS else -1
        stops = [p for p in (line.find(s, at) for s in (". ", "! ", ": ", "; ")) if p >= 0]
        following = comma if comma >= 0 else min(stops, default=-1)
        if following < 0:
            break
        at = following + 2
    return line.rstrip(".!").rsplit(" ", 1)[-1] in words.LAST_WORDS


def _cjk_asks(line: str) -> bool:
    if not any(char >= "\u1100" for char in line[:40]):
        return False
    return (
        line.startswith(words.CJK_STARTS)
        or line.endswith(words.CJK_ENDS)
        or any(word in line for word in words.CJK_POLITE)
    )
