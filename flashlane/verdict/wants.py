"""What form of answer an ask wants, as far as a verdict needs to know it. Pure, ten languages."""

from __future__ import annotations

from flashlane.verdict.places import fold, is_cjk

_ALL = """list|every|each|all|enumerate|name all|complete list|alle|aller|jede|jeden|
jedes|sämtliche|liste|lister|énumère|chaque|tous les|toutes les|lista|enumera|todos|todas|
cada|elenca|tutti|tutte|ogni|elenco|перечисли|все|всех|каждый|каждую|список|所有|列出|全部|
每个|每一|すべて|全て|列挙|一覧|모든|모두|나열|목록"""
_COUNT = """how many|count|number of|how often|wie viele|wieviele|anzahl|zähle|wie oft|
combien de|combien d|compte|nombre de|cuántos|cuántas|cuenta|número de|quantos|quantas|
conte|quanti|quante|conta|numero di|сколько|посчитай|количество|число|多少个|几个|有几|
数一数|多少|幾つ|いくつ|何個|何人|何件|何回|数えて|몇|세어|개수"""
_MENTION = """mention|mentions|mentioned|contain|contains|appear|appears|occur|occurs|includes|
erwähnt|enthält|vorkommt|kommt|mentionne|mentionné|contient|apparaît|menciona|mencionado|contiene|
aparece|contém|compare|menzionato|menziona|appare|упоминается|содержит|встречается|提到|包含|出现|
含まれ|登場|言及|언급|포함|나오"""
_TIME = """when|what year|which year|what date|which date|wann|in welchem jahr|quand|
en quelle année|à quelle date|cuándo|en qué año|quando|em que ano|in che anno|когда|
в каком году|何时|什么时候|哪一年|哪年|いつ|何年|언제|몇 년"""
_SHARE = """percent|percentage|per cent|prozent|anteil|pourcentage|porcentaje|
percentuale|porcentagem|percentagem|процент|процентов|百分|パーセント|何割|퍼센트|비율"""
_EXCEPT = """not|n't|except|other than|besides|without|nicht|außer|ohne|kein|keine|sauf|
sans|excepto|salvo|sin|exceto|sem|tranne|eccetto|senza|кроме|не|без|除了|以外|不|没有|除く|
ない|제외|않|아닌"""
_QUOTE = """quote|verbatim|word for word|exact wording|exact words|copy|wörtlich|zitiere|zitat|
cite|mot à mot|citation|textualmente|literalmente|cita|citação|alla lettera|
citazione|дословно|процитируй|цитат|原文|逐字|引用|一字一句|그대로|인용"""
_CODE = """patch|diff|refactor|fix|bug|implement|rewrite|behebe|corrige|implémente|implementa|
исправь|реализуй|修复|实现|修正|実装|수정|구현"""
_FORMATS = ("json", "yaml", "csv")
_UNIT_WORDS = """line lines entry entries record records row rows time times item items log
logs file occurrence occurrences list lists zeilen zeile einträge eintrag mal lignes ligne
fois entrées líneas veces entradas linhas vezes registros righe volte voci строк строки раз
записей there total altogether"""
_LINES = frozenset(_UNIT_WORDS.split())
_YES_NO_WORDS = """yes no true false ja nein wahr falsch stimmt oui non vrai faux sí si cierto
falso sim não verdadeiro vero да нет верно неверно правда 是 是的 否 不是 对 不对 有 没有
はい いいえ 正しい 예 네 아니요 아니오 correct incorrect"""
YES_NO = frozenset(_YES_NO_WORDS.split())
_YES_WORDS = """yes true ja wahr oui vrai sí si sim verdadeiro vero да верно 是 是的 对 有
はい 예 네"""
_YES = frozenset(_YES_WORDS.split())
_NEGATIONS = """not|no|never|none|cannot|n't|nicht|kein|keine|keinen|nie|pas|jamais|aucun|
aucune|nunca|jamás|ningún|não|nenhum|mai|nessun|не|нет|никогда|不|没|沒|未|ない|ません|
なかった|않|못|없"""


def _says(words: str, phrases: str) -> bool:
    padded = f" {words} "
    for raw in phrases.replace("\n", "").split("|"):
        phrase = raw.strip()
        if is_cjk(phrase[0]) or phrase == "n't":
            if phrase in padded:
                return True
        elif f" {phrase} " in padded:
            return True
    return False


def _words(text: str) -> str:
    spaced = "".join(c if c.isalnum() or c == "'" else " " for c in fold(text)[:20_000])
    return " ".join(spaced.split())


class Wants:
    """The wishes of one ask; every field errs to the side that is checked harder."""

    def __init__(self, ask: str) -> None:
        words = _words(ask)
        self.all = _says(words, _ALL)
        self.count = _says(words, _COUNT)
        self.mention = _says(words, _MENTION)
        self.time = _says(words, _TIME)
        self.share = _says(words, _SHARE)
        self.excludes = _says(words, _EXCEPT)
        self.quote = _says(words, _QUOTE)
        self.code = _says(words, _CODE)
        self.formats = tuple(name for name in _FORMATS if _says(words, name))


def is_unit_word(word: str) -> bool:
    """Whether a counting ask names with it only what is counted: lines, entries, times."""
    return word in _LINES


def is_negative(text: str) -> bool:
    return _says(_words(text), _NEGATIONS)


def yes_or_no(answer: str) -> bool | None:
    """True or False for a bare yes or no, with a comment behind it or not; None otherwise."""
    words = _words(answer).split()
    if not words or words[0] not in YES_NO:
        return None
    return words[0] in _YES
