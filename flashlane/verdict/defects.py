"""Answers that are none: empty, refused, cut off, or caught in a loop. Pure."""

from __future__ import annotations

from collections import Counter

from flashlane.decision import Reason
from flashlane.verdict.places import fold

_REFUSALS = """i cannot|i can't|i can not|i could not|i couldn't|i am unable|i'm unable|
i am not able|i'm not able|unable to find|unable to determine|i'm sorry|i am sorry|
i apologize|i don't know|i do not know|i don't have|i do not have|not mentioned|
not provided|not specified|not stated|not given|not found|not included|not contain|
doesn't contain|does not mention|doesn't mention|does not provide|doesn't provide|
does not specify|does not say|doesn't say|does not state|no information|no mention|
not available|cannot be determined|can't be determined|no answer|not enough information|
insufficient information|there is no|there are no|unknown|n/a|as an ai|nicht erwähnt|
nicht angegeben|nicht genannt|nicht enthalten|nicht finden|nicht gefunden|
keine information|keine angabe|keine angaben|es tut mir leid|tut mir leid|ich kann nicht|
ich kann keine|ich weiß nicht|unbekannt|nicht bekannt|geht nicht hervor|lässt sich nicht|
kann nicht beantwort|nicht möglich|enthält keine|je ne peux pas|je ne sais pas|
je suis désolé|désolé|pas mentionné|n'est pas mentionn|ne mentionne pas|pas indiqué|
pas précisé|aucune information|aucune mention|pas d'information|introuvable|
ne contient pas|ne fournit pas|impossible de|ne précise pas|inconnu|no puedo|
no se menciona|no menciona|no se indica|no se especifica|no se proporciona|no encuentro|
no se encuentra|no encontré|no hay información|ninguna información|lo siento|no contiene|
no lo sé|desconocid|no aparece|no está disponible|não posso|não consigo|não é mencionad|
não menciona|não foi mencionad|não há informaç|não encontr|nenhuma informação|desculpe|
não sei|não está disponível|não contém|não especifica|não consta|desconhecid|non posso|
non riesco|non è menzionat|non menziona|non viene menzionat|non è specificat|non specifica|
nessuna informazione|non ci sono informazioni|mi dispiace|non trovo|non ho trovato|
non lo so|non contiene|non è indicat|sconosciut|non è presente|не могу|не удалось|
не упомина|не указан|не найден|нет информации|нет данных|к сожалению|извините|не знаю|
не содержит|неизвестн|не говорится|не сказано|отсутству|无法|沒有提到|没有提到|未提到|
没有提及|未提及|没有说明|未说明|找不到|没有找到|未找到|抱歉|对不起|不知道|没有相关|
没有包含|不包含|没有信息|未知|没有给出|未给出|無法|未提供|没有提供|見つかりません|
見つけられません|記載されていません|記載がありません|記載はありません|言及されていません|
わかりません|分かりません|できません|申し訳|情報がありません|情報はありません|不明|
含まれていません|書かれていません|述べられていません|찾을 수 없|언급되지 않|언급되어 있지|
알 수 없|나와 있지 않|제공되지 않|죄송|정보가 없|모르겠|확인할 수 없|포함되어 있지|
명시되지 않|명시되어 있지|기재되어 있지|답변할 수 없"""
_PHRASES = tuple(piece.strip() for piece in _REFUSALS.replace("\n", "").split("|") if piece.strip())
_WHOLE = frozenset(
    {
        "none",
        "null",
        "nothing",
        "nichts",
        "rien",
        "nada",
        "niente",
        "ничего",
        "无",
        "なし",
        "없음",
        "?",
        "-",
    }
)
_SCANNED_CHARS = 4000
_TAIL_CHARS = 1200
_MAX_PERIOD_CHARS = 300
_LOOPS = 4
_SAME_LINES = 4


def defect(answer: str, finish_reason: str) -> Reason | None:
    """Why the answer is none at all; None for one that can be checked."""
    folded = fold(answer).strip()
    if not any(char.isalnum() for char in folded):
        return Reason("empty_answer", "the answer is empty")
    if finish_reason in ("length", "max_tokens", "incomplete", "max_output_tokens"):
        return Reason("cut_off", f"the answer was cut off (finish_reason {finish_reason!r})")
    if finish_reason not in ("stop", "end_turn", "stop_sequence", "completed", "eos"):
        return Reason("unfinished", f"the answer ended with finish_reason {finish_reason[:40]!r}")
    if loops(folded):
        return Reason("repetition", "the answer repeats itself")
    if folded.strip(" .!\"'*`") in _WHOLE:
        return Reason("refusal", "the answer says that there is none")
    spaced = " ".join(folded[:_SCANNED_CHARS].split())
    for phrase in _PHRASES:
        at = spaced.find(phrase)
        if at >= 0 and not (at and spaced[at - 1].isalnum() and phrase[0] < "\u1100"):
            return Reason("refusal", f"the answer says {phrase!r}: it may have missed the place")
    return None


def loops(text: str) -> bool:
    """Whether `text` ends in the same piece again and again, or holds one line many times."""
    tail = text.rstrip()[-_TAIL_CHARS:]
    for period in range(1, min(_MAX_PERIOD_CHARS, len(tail) // _LOOPS) + 1):
        times = _LOOPS if period >= 8 else -(-32 // period)
        if len(tail) >= period * times and tail.endswith(tail[-period:] * times):
            return any(char.isalnum() for char in tail[-period:]) and not tail[-period:].isdigit()
    lines = Counter(line.strip() for line in text.splitlines() if len(line.strip()) >= 12)
    return any(count >= _SAME_LINES for count in lines.values())
