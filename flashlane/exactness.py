"""How exact must the answer be? Read from the instruction spans alone, never from material.

Two word lists per language: phrases that ask for something exact, and phrases that ask for
something broad. One exact phrase outweighs any number of broad ones; neither is unsure, and
unsure counts as exact.
"""

from __future__ import annotations

import re
import unicodedata

from flashlane.decision import Reason, Signals
from flashlane.request import RequestView

_EXACT: dict[str, tuple[str, ...]] = {
    "retrieval": (
        "what is the", "what was the", "what are the", "what were the", "when did", "when was",
        "when is", "where is", "where was", "who is", "who was", "who did", "whose", "which",
        "find", "look up", "how much", "how long", "how old", "how far", "what time", "what date",
        "what does", "what did", "what value", "what number", "extract",
        "wann", "wo ist", "welche", "welcher", "welches", "finde", "wie hoch", "wer ist", "wer hat",
        "quel", "quelle", "quand", "trouve", "où est", "qui a", "combien",
        "cuál", "cuando", "cuándo", "encuentra", "dónde", "quién", "cuánto",
        "qual", "quando", "encontre", "onde", "quem", "quanto", "quale", "trova", "dove", "chi",
        "какой", "какая", "когда", "найди", "где", "кто", "сколько",
        "哪", "多少", "谁", "何时", "什么时候", "找出", "どれ", "いつ", "誰", "いくら", "どこ",
        "언제", "누구", "얼마", "어디", "찾아",
    ),
    "quoting": (
        "quote", "quotes", "verbatim", "word for word", "exact wording", "exact words", "copy",
        "wörtlich", "zitiere", "cite le", "mot à mot", "textualmente", "literalmente",
        "alla lettera", "дословно", "процитируй", "原文", "逐字", "引用", "一字一句", "그대로", "인용",
    ),
    "enumeration": (
        "list", "every", "each", "all of the", "all the", "enumerate", "name all", "complete list",
        "alle", "jede", "jeden", "aufzählen", "liste", "énumère", "chaque", "tous les", "toutes les",
        "lista", "todos los", "todas las", "cada", "todos os", "todas as", "elenca", "tutti", "tutte",
        "перечисли", "каждый", "список", "所有", "列出", "每", "すべて", "全て", "列挙", "모든", "나열",
    ),
    "counting": (
        "how many", "count", "number of", "wie viele", "zähle", "combien de", "compte", "cuántos",
        "cuántas", "cuenta", "quantos", "quantas", "conte", "quanti", "quante", "conta",
        "посчитай", "几个", "几", "数一数", "いくつ", "何個", "数えて", "몇", "세어",
    ),
    "transformation": (
        "translate", "convert", "proofread", "redact", "rewrite", "reformat", "transcribe",
        "correct the", "fix the grammar", "übersetze", "korrigiere", "umwandeln", "traduis",
        "traduire", "corrige", "convertis", "traduce", "traduza", "traduzir", "converta", "traduci",
        "converti", "correggi", "переведи", "исправь", "翻译", "转换", "校对", "翻訳", "校正", "変換",
        "번역", "교정", "변환",
    ),
    "code": (
        "patch", "diff", "refactor", "fix the bug", "fix this bug", "implement", "debug", "compile",
        "unit test", "function that", "regex", "sql",
        "behebe", "implementiere", "corrige le bug", "implémente", "реализуй", "修复", "实现",
        "実装", "修正", "구현", "수정",
    ),
    "schema": ("json", "yaml", "csv", "xml", "schema", "table with", "tabelle", "tableau", "表格"),
    "checking": (
        "is it true", "verify", "check whether", "check if", "does the", "did the", "is there",
        "are there", "was there", "according to", "cite", "citation", "source for", "true or false",
        "stimmt es", "überprüfe", "gibt es", "vérifie", "y a-t-il", "est-il vrai", "verifica",
        "es cierto", "hay", "é verdade", "проверь", "правда ли", "есть ли", "是否", "核实",
        "確認", "本当", "확인", "사실",
    ),
    "precision": (
        "exact", "exactly", "precise", "precisely", "do not omit", "without omitting", "complete",
        "genau", "exakt", "exactement", "précisément", "exactamente", "exatamente", "esattamente",
        "точно", "准确", "精确", "正確", "정확",
    ),
}

_BROAD: dict[str, tuple[str, ...]] = {
    "summary": (
        "summarise", "summarize", "summary", "sum up", "overview", "tldr", "tl;dr", "the gist",
        "main points", "main ideas", "key points", "key ideas", "main idea", "in short", "recap",
        "what is this about", "what is this text about", "what is it about", "abstract of",
        "zusammenfassen", "zusammenfassung", "fasse", "überblick", "worum geht",
        "résume", "résumé", "résumer", "aperçu", "de quoi parle",
        "resume", "resumen", "resumir", "resumo", "de qué trata", "do que trata",
        "riassumi", "riassunto", "di cosa parla", "кратко", "резюме", "суммируй", "о чём", "о чем",
        "总结", "概述", "摘要", "概括", "要約", "まとめ", "概要", "요약", "개요",
    ),
    "explanation": (
        "explain", "describe", "discuss", "erkläre", "beschreibe", "explique", "décris", "explica",
        "describe", "descreva", "spiega", "descrivi", "объясни", "опиши", "解释", "描述", "説明", "설명",
    ),
    "comparison": (
        "compare", "contrast", "vergleiche", "comparer", "compara", "confronta", "сравни",
        "比较", "比較", "비교",
    ),
    "brainstorm": (
        "brainstorm", "suggest", "ideas for", "think of", "inspire", "creative", "schlage",
        "ideen", "propose", "suggère", "sugiere", "sugira", "suggerisci", "предложи",
        "建议", "アイデア", "提案", "제안", "아이디어",
    ),
    "judgement": (
        "your opinion", "what do you think", "review of", "assess", "evaluate", "critique", "mood",
        "tone of", "bewerte", "meinung", "évalue", "ton avis", "evalúa", "opinión", "avalie",
        "opinião", "valuta", "opinione", "оцени", "мнение", "评价", "看法", "評価", "意見", "평가", "의견",
    ),
}

_TOPIC_QUESTIONS = (
    "what is this about", "what is this text about", "what is it about",
    "what are the main points", "what are the main ideas", "what are the key points",
    "what are the key ideas", "what is the gist", "what is the main idea", "what is the mood",
)
"""Questions that begin like a look-up and ask for a summary."""

_CJK_START = "\u1100"
"""Scripts from here on are written without spaces: their phrases match anywhere."""


def exactness(view: RequestView) -> Signals:
    """Signals of one request; the body's structure decides first, then the words of the ask."""
    if view.structure:
        fields = ", ".join(view.structure)
        return Signals(
            True, "structure", (Reason("structure", f"the request carries {fields}"),)
        )
    if view.multimodal:
        return Signals(
            True, "multimodal", (Reason("multimodal", "the request carries images or files"),)
        )
    if view.token_prompt:
        return Signals(
            True, "token_prompt", (Reason("token_prompt", "the prompt is a list of token ids"),)
        )
    words = _normalise(view.ask)
    for question in _TOPIC_QUESTIONS:
        words = words.replace(f" {question} ", " summary ")
    hit = _first(words, _EXACT)
    if hit:
        kind, phrase = hit
        return Signals(
            True, kind, (Reason("exact_ask", f"the ask says {phrase!r} ({kind})"),)
        )
    hit = _first(words, _BROAD)
    if hit:
        kind, phrase = hit
        return Signals(
            False, kind, (Reason("broad_ask", f"the ask says {phrase!r} ({kind})"),)
        )
    text = "the ask says neither" if view.ask else "no ask was found beside the material"
    return Signals(True, "unsure", (Reason("unsure", f"{text}: unsure counts as exact"),))


def _normalise(text: str) -> str:
    """Lower case, punctuation to single spaces, padded, so that ' word ' finds whole words."""
    folded = unicodedata.normalize("NFC", text).casefold().replace("\u2019", "'")
    return " " + re.sub(r"[^\w;'-]+", " ", folded).strip() + " "


def _first(words: str, table: dict[str, tuple[str, ...]]) -> tuple[str, str] | None:
    for kind, phrases in table.items():
        for phrase in phrases:
            needle = phrase.casefold()
            if needle[0] >= _CJK_START:
                if needle in words:
                    return kind, phrase
            elif f" {needle} " in words:
                return kind, phrase
    return None
