#include "pflash-ask-words.h"
#include "pflash-chars.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t MAX_OPENING_BYTES = 48;
constexpr size_t MAX_LABEL_BYTES   = 40;

using word_list = std::vector<std::string>;

// Words separated by '|', folded as the text is that they are compared with.
word_list words_of(std::string_view list) {
    word_list words;
    while (!list.empty()) {
        const size_t bar = std::min(list.find('|'), list.size());
        words.push_back(pflash_folded(list.substr(0, bar)));
        list.remove_prefix(std::min(bar + 1, list.size()));
    }
    return words;
}

// The words' last letter is no boundary where the script has no blanks.
bool ends_word(std::string_view text, size_t at) {
    if (at >= text.size()) {
        return true;
    }
    const uint32_t after = pflash_char_at(text, at).code;
    return !pflash_is_word(after) || pflash_is_unspaced(pflash_char_before(text, at).code);
}

bool starts_with_any(std::string_view text, const word_list & words) {
    return std::any_of(words.begin(), words.end(), [&](const std::string & word) {
        return pflash_starts_with(text, word) && ends_word(text, word.size());
    });
}

bool holds_any(std::string_view text, const word_list & words) {
    return std::any_of(words.begin(), words.end(), [&](const std::string & word) {
        const size_t at = text.find(word);
        return at != std::string_view::npos && (at == 0 || pflash_is_unspaced(pflash_char_at(word, 0).code) || !pflash_is_word(pflash_char_before(text, at).code));
    });
}

std::string_view without_marks(std::string_view text) {
    while (!text.empty() && !pflash_is_word(pflash_char_at(text, 0).code)) {
        text.remove_prefix(pflash_char_at(text, 0).size);
    }
    return text;
}

// Folded, from the first letter on; a list's number is left out.
std::string opening_of(std::string_view sentence) {
    sentence = without_marks(sentence.substr(0, pflash_char_floor(sentence, 4 * MAX_OPENING_BYTES)));
    size_t digits = 0;
    while (digits < sentence.size() && pflash_is_digit((uint8_t) sentence[digits])) {
        digits++;
    }
    sentence = without_marks(sentence.substr(digits));
    return pflash_folded(sentence.substr(0, pflash_char_floor(sentence, MAX_OPENING_BYTES)));
}

} // namespace

pflash_label pflash_label_of(std::string_view line) {
    static const auto labels = [] {
        std::unordered_map<std::string, pflash_label> map;
        for (const auto & word : words_of(
            "question|questions|q|query|task|tasks|instruction|instructions|rule|rules|guidelines|constraints|prompt|ask|request|user question|my question|frage|fragen|aufgabe|anweisung|anweisungen|regeln|vorgaben|auftrag|"
            "tâche|consigne|consignes|règles|demande|pregunta|preguntas|tarea|instrucción|instrucciones|reglas|pergunta|perguntas|tarefa|instrução|instruções|regras|"
            "domanda|domande|compito|istruzione|istruzioni|regole|вопрос|вопросы|задание|задача|инструкция|правила|问题|問題|提问|任务|任務|指令|请求|要求|规则|規則|"
            "質問|設問|指示|依頼|タスク|ルール|질문|문제|과제|지시|요청|규칙")) {
            map[word] = PFLASH_LABEL_ASK;
        }
        for (const auto & word : words_of(
            "document|documents|doc|text|context|article|passage|passages|content|log|logs|transcript|data|input|source|code|report|email|story|"
            "dokument|dokumente|kontext|artikel|inhalt|daten|quelle|texte|contexte|article|données|texto|contexto|artículo|documento|datos|artigo|"
            "dados|testo|contesto|articolo|dati|документ|текст|контекст|статья|данные|文档|文本|文章|上下文|原文|材料|资料|文書|本文|記事|資料|문서|본문|지문|기사|자료")) {
            map[word] = PFLASH_LABEL_DOCUMENT;
        }
        for (const auto & word : words_of(
            "answer|answers|a|response|output|your answer|final answer|antwort|réponse|respuesta|resposta|risposta|ответ|答案|回答|答え|解答|답변|답|정답")) {
            map[word] = PFLASH_LABEL_ANSWER;
        }
        return map;
    }();
    const auto label = line.substr(0, pflash_char_floor(line, MAX_LABEL_BYTES));
    const size_t ascii = label.find(':'), wide = label.find("："), bracket = label.find("】");
    const size_t colon = std::min(ascii, std::min(wide, bracket));
    if (colon == std::string_view::npos && (line.size() > label.size() || std::string_view("#*[_").find(line.empty() ? ' ' : line[0]) == std::string_view::npos)) {
        return PFLASH_LABEL_NONE;
    }
    auto name = pflash_folded(without_marks(label.substr(0, colon)));
    while (!name.empty() && (!pflash_is_word(pflash_char_before(name, name.size()).code) || pflash_is_digit((uint8_t) name.back()))) {
        name.resize(name.size() - pflash_char_before(name, name.size()).size);
    }
    const auto found = labels.find(name);
    return found == labels.end() ? PFLASH_LABEL_NONE : found->second;
}

bool pflash_opens_request(std::string_view sentence) {
    static const auto openings = words_of(
        "summarize|summarise|explain|describe|translate|extract|answer|identify|compare|please|tell|give|write|list|rewrite|analyze|analyse|"
        "find|fix|convert|classify|determine|provide|return|respond|reply|create|generate|review|count|calculate|compute|outline|evaluate|"
        "discuss|quote|name|show|state|decide|check|refactor|debug|implement|complete|output|can you|could you|would you|will you|i want|"
        "i need|i would like|i'd like|help me|use the|use only|you are|you will|your task|read the|read this|let me know|based on the text|"
        "based on the document|based on the above|given the|given this|do not|don't|only answer|keep your|be brief|"
        "fasse|fass|erkläre|erklär|beschreibe|übersetze|nenne|liste|finde|gib|schreibe|beantworte|vergleiche|bitte|sag|sage|lies|analysiere|"
        "bewerte|extrahiere|erstelle|zeige|ermittle|antworte|kannst du|können sie|könnten sie|ich möchte|ich brauche|du bist|prüfe|berechne|zähle|"
        "résume|résumez|explique|expliquez|décris|décrivez|traduis|traduisez|donne|donnez|listez|trouve|trouvez|extrais|extrayez|réponds|répondez|"
        "comparez|écris|écrivez|identifie|identifiez|analysez|rédige|rédigez|peux-tu|pouvez-vous|s'il te|s'il vous|veuillez|dis-moi|lis|lisez|"
        "resume|resuma|explica|traduce|traduzca|dame|enumera|encuentra|extrae|responde|responda|compara|escribe|escriba|identifica|analiza|"
        "indica|dime|por favor|puedes|podrías|lee|necesito|quiero|descreva|traduza|liste|encontre|extraia|escreva|identifique|analise|diga|"
        "você pode|pode|leia|preciso|quero|riassumi|spiega|descrivi|traduci|dammi|elenca|trova|estrai|rispondi|confronta|scrivi|analizza|"
        "dimmi|per favore|puoi|leggi|vorrei|перечисли|перечислите|объясни|объясните|опиши|опишите|переведи|переведите|дай|дайте|назови|"
        "назовите|найди|найдите|извлеки|извлеките|ответь|ответьте|сравни|сравните|напиши|напишите|определи|определите|проанализируй|"
        "проанализируйте|укажи|укажите|кратко|резюмируй|резюмируйте|пожалуйста|скажи|скажите|прочитай|прочитайте|"
        "请|請|总结|總結|概括|翻译|翻譯|解释|解釋|列出|回答|告诉我|帮我|根据以上|根据上述|根据上面|根据文档");
    static const auto anywhere = words_of("ください|下さい|なさい|教えて|てほしい|주세요|하세요|하시오|십시오|해줘|알려줘|요약해|설명해|번역해|답해");
    return starts_with_any(opening_of(sentence), openings) || holds_any(sentence.substr(0, pflash_char_floor(sentence, 600)), anywhere);
}

bool pflash_opens_question(std::string_view sentence) {
    static const auto openings = words_of(
        "what|who|whom|whose|when|where|why|how|which|is|are|was|were|do|does|did|can|could|would|will|should|has|have|had|in what|in which|at what|"
        "on what|to what|from which|wer|wen|wem|wessen|was|wann|wo|wie|warum|wieso|weshalb|welche|welcher|welches|welchen|wohin|woher|wieviel|ist|sind|"
        "quel|quelle|quels|quelles|qui|que|quand|où|comment|pourquoi|combien|est-ce|qu'est-ce|qué|quién|quiénes|cuándo|dónde|cómo|por qué|cuánto|"
        "cuántos|cuántas|cuál|cuáles|quem|quando|onde|como|por que|quanto|quantos|quantas|qual|quais|o que|che|chi|dove|come|perché|quanti|quante|"
        "quale|quali|cosa|кто|что|когда|где|почему|зачем|как|какой|какая|какое|какие|сколько|куда|откуда|чей|谁|誰|什么|什麼|哪|为什么|為什麼|"
        "怎么|怎麼|如何|多少|几|何|いつ|どこ|なぜ|どう|どの|どれ|누가|누구|무엇|언제|어디|왜|어떻게|어떤|몇");
    return starts_with_any(opening_of(sentence), openings);
}

bool pflash_points_at_text(std::string_view text) {
    static const auto words = words_of(
        "above|below|following|the text|this text|the document|this document|the passage|the article|this article|the log|these logs|the code|this code|the context|"
        "oben|unten|folgend|nachfolgend|den text|dem text|dokument|ci-dessus|ci-dessous|suivant|le texte|siguiente|anterior|el texto|seguinte|"
        "acima|abaixo|o texto|seguente|sopra|sotto|il testo|выше|ниже|следующ|тексте|以上|以下|上面|下面|上述|下列|上記|下記|本文|위의|아래|다음");
    return holds_any(pflash_folded(text), words);
}
