// The text core: concrete cases and seeded properties. Exits non-zero at the first breach. Arguments: one
// group to run, and the size of the texts of the group "large" in bytes.

#include "groups.h"
#include "pflash-chars.h"
#include "pflash-text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#define CHECK(condition) do { if (!(condition)) { \
    std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, context.c_str()); std::exit(1); } } while (0)

using strings = std::vector<std::string>;

static std::string context;
static size_t large_bytes = 1 << 16;

static strings spans_of(const std::string & text) {
    strings result;
    for (const auto & span : pflash_spans(text)) {
        result.push_back(text.substr(span.begin, span.end - span.begin));
    }
    return result;
}

static void check_spans(const std::string & text, const strings & expected) {
    const auto spans = spans_of(text);
    context = text + "\n--- is cut into\n";
    for (const auto & span : spans) {
        context += "|" + span;
    }
    CHECK(spans == expected);
}

static std::string random_text(std::mt19937 & random) {
    static const strings parts = {
        "word ", "Another", ". ", "! ", "? ", "\n", "\n\n", "\r\n", "\t", "    ", "e.g. ", "Dr. ", "3.5", "# Head\n", "```\n", "{\"a\": ", "[", "]", "}", ",",
        "},\n", "[1,2,3],", "\"str\"", "今日は。", "！", "漢", "é", "\xF0\x9F\x98\x80", "\xFF", "\xC3", "\xE2\x82", std::string(1, '\0'), "- item\n", "x = f(a,\n", ");\n",
        "2024-01-01 10:00:00 INFO started. Fine\n", std::string(700, 'x'), std::string(650, ' '), "| a | b |\n", "---\n", "Question: ", "<doc>\n", "</doc>\n", "\"", "'",
    };
    std::string text;
    for (size_t n = random() % 60; n > 0; n--) {
        text += parts[random() % parts.size()];
    }
    return text;
}

static size_t content_size(const std::string & text, pflash_range span) {
    while (span.end > span.begin && pflash_is_blank(text[span.end - 1])) {
        span.end--;
    }
    return span.end - span.begin;
}

static void test_spans() {
    check_spans("", {});
    check_spans(" \n\n ", { " \n\n " });
    check_spans("Dr. Smith met J. K. Rowling at 3.5 p.m. in Rome. He said \"It was good!\" (Was it really so?) It was, e.g. on Am 3. Oktober, z.B. in Berlin. The end is here.",
        { "Dr. Smith met J. K. Rowling at 3.5 p.m. in Rome. ", "He said \"It was good!\" ", "(Was it really so?) ", "It was, e.g. on Am 3. Oktober, z.B. in Berlin. ", "The end is here." });
    check_spans("今日は天気がいいですね。「本当にそうですか？」と彼は言った！価格は３．５円です。", { "今日は天気がいいですね。", "「本当にそうですか？」", "と彼は言った！", "価格は３．５円です。" });
    check_spans("Он жил на ул. Ленина в г. Москве. Потом он уехал.", { "Он жил на ул. Ленина в г. Москве. ", "Потом он уехал." });
    check_spans("A line of wrapped prose that goes on to\nthe next line and holds two sentences. The\nsecond starts there and ends\nhere.\n",
        { "A line of wrapped prose that goes on to\nthe next line and holds two sentences. ", "The\nsecond starts there and ends\nhere.\n" });
    check_spans("job 0001 finished with status 1 after 12 ms\njob 0002 finished with status 0 after 18 ms\njob 0003 finished with status 2 after 15 ms\n",
        { "job 0001 finished with status 1 after 12 ms\n", "job 0002 finished with status 0 after 18 ms\n", "job 0003 finished with status 2 after 15 ms\n" });
    check_spans("# Title\n\nA first sentence here. A second sentence.\n", { "# Title\n\nA first sentence here. ", "A second sentence.\n" });
    check_spans("2024-01-01 10:00:00 ERROR Lost it. Retrying now\n2024-01-01 10:00:01 INFO Found it. Going on\n\tat com.example.Main(Main.java:3)\n",
        { "2024-01-01 10:00:00 ERROR Lost it. Retrying now\n", "2024-01-01 10:00:01 INFO Found it. Going on\n", "\tat com.example.Main(Main.java:3)\n" });
    check_spans("```python\ndef add(first,\n        second):\n    total = first + second\n    return total\n```\n",
        { "```python\ndef add(first,\n        second):\n", "    total = first + second\n", "    return total\n```\n" });
    check_spans("{\"users\": [{\"id\": 1, \"name\": \"Ann of the hill, the elder one\", \"tags\": [\"a\"]}, {\"id\": 2, \"name\": \"Bob of the dale, the younger one\", \"tags\": [\"b\"]},{\"id\": 3, \"name\": \"Cid\"}], \"count\": 3, \"note\": \"a long enough note\"}",
        { "{\"users\": [{\"id\": 1, \"name\": \"Ann of the hill, the elder one\", \"tags\": [\"a\"]}, ", "{\"id\": 2, \"name\": \"Bob of the dale, the younger one\", \"tags\": [\"b\"]},", "{\"id\": 3, \"name\": \"Cid\"}], \"count\": 3, ", "\"note\": \"a long enough note\"}" });
    check_spans("[\n  {\n    \"id\": 1,\n    \"name\": \"Ann\"\n  },\n  {\n    \"id\": 2,\n    \"name\": \"Bob\"\n  },\n  {\n    \"id\": 3,\n    \"name\": \"" + std::string(90, 'c') + "\"\n  }\n]\n",
        { "[\n  {\n    \"id\": 1,\n    \"name\": \"Ann\"\n  },\n", "  {\n    \"id\": 2,\n    \"name\": \"Bob\"\n  },\n", "  {\n    \"id\": 3,\n    \"name\": \"" + std::string(90, 'c') + "\"\n  }\n]\n" });
    std::string numbers = "[";
    for (int i = 0; i < 400; i++) {
        numbers += std::to_string(1000 + i) + ",";
    }
    context = "a long array";
    for (const auto & span : spans_of(numbers + "0]")) {
        CHECK(span.size() <= 140 && (span.back() == ']' || (span.back() == ',' && span.size() >= 120)));
    }
    std::string unbroken = "a";
    for (int i = 0; i < 1000; i++) {
        unbroken += "漢";
    }
    context = "no separator anywhere";
    for (const auto & span : spans_of(unbroken)) {
        CHECK(span.size() % 3 == (span[0] == 'a') && span.size() <= PFLASH_SPAN_MAX_BYTES);
    }
    check_spans("10:00:00.123 Lost the peer. Retrying at once\n10:00:01.456 Found the peer. Going on then\n",
        { "10:00:00.123 Lost the peer. Retrying at once\n", "10:00:01.456 Found the peer. Going on then\n" });
    check_spans("[1] See the first work. It is cited by many.", { "[1] See the first work. ", "It is cited by many." });
    check_spans("name,town,phone,age\nalice,paris,555-1234,33\nbobby,london,555-4321,44\n", { "name,town,phone,age\n", "alice,paris,555-1234,33\n", "bobby,london,555-4321,44\n" });
    // commas without blanks make no table of a long line of prose
    std::string prose;
    for (int i = 0; i < 6; i++) {
        prose += "A sentence,as sloppy people write it, has its commas here. And then there is one that has none of them, however long it goes on and on. ";
    }
    context = "sloppy commas";
    CHECK(spans_of(prose).size() == 12);

    for (int seed = 0; seed < 4000; seed++) {
        std::mt19937 random(seed);
        const std::string text = random_text(random);
        context = "seed " + std::to_string(seed);
        const auto spans = pflash_spans(text);
        size_t at = 0;
        for (size_t s = 0; s < spans.size(); s++) {
            CHECK(spans[s].begin == at && spans[s].end > at);
            at = spans[s].end;
            CHECK(at - spans[s].begin <= PFLASH_SPAN_MAX_BYTES);
            CHECK(at == text.size() || pflash_char_floor(text, at) == at);
            const bool heading = text[std::min(text.size() - 1, text.find_first_not_of(" \t\r\n", spans[s].begin))] == '#';
            if (content_size(text, spans[s]) < PFLASH_SPAN_MIN_BYTES && !heading) {
                CHECK(s == 0 || spans[s].end - spans[s - 1].begin > PFLASH_SPAN_MAX_BYTES);
                CHECK(s + 1 == spans.size() || spans[s + 1].end - spans[s].begin > PFLASH_SPAN_MAX_BYTES);
            }
        }
        CHECK(at == text.size());
        CHECK(pflash_leans(text, spans).size() == spans.size());
        CHECK(pflash_paragraphs(text, spans).size() == spans.size());
    }

    const std::string story = "The lighthouse stands on the northern cliff of the island. It was built in 1871 by two brothers from Bergen.\n\nThis paragraph is about something else entirely, as it seems.";
    context = "leans";
    CHECK((pflash_paragraphs(story, pflash_spans(story)) == std::vector<uint32_t> { 0, 0, 1 }));
    CHECK((pflash_leans(story, pflash_spans(story)) == std::vector<uint8_t> { 0, 1, 0 }));
}

static std::string document(const std::string & sentence, size_t bytes) {
    std::string text;
    for (size_t i = 1; text.size() < bytes; i++) {
        text += sentence + (i % 5 == 0 ? "\n\n" : " ");
    }
    return text.substr(0, text.find_last_not_of(" \n") + 1);
}

static std::string ask_of(const std::string & message) {
    std::string ask;
    for (const auto & range : pflash_find_ask(message)) {
        ask += "<" + message.substr(range.begin, range.end - range.begin) + ">";
    }
    return ask;
}

static void check_ask(const std::string & message, const std::string & expected) {
    const auto ask = ask_of(message);
    context = "found " + ask.substr(0, 2000) + "\nexpected " + expected;
    CHECK(ask == expected);
}

static void check_ask_about(const std::string & message, const std::string & question, size_t more) {
    const auto ask = ask_of(message);
    context = "found " + ask.substr(0, 2000) + "\nexpected " + question;
    CHECK(ask.find(question) != std::string::npos && ask.size() <= question.size() + 2 + more);
}

static void test_ask() {
    struct tongue {
        std::string sentence, question, request;
    };
    const std::vector<tongue> tongues = {
        { "The ship left the harbour of Bergen on a grey morning with forty crates of tea.", "How many crates did the ship carry?", "Summarize the following report:" },
        { "Das Schiff verließ den Hafen von Bergen an einem grauen Morgen mit vierzig Kisten Tee.", "Wie viele Kisten hatte das Schiff geladen?", "Fasse den folgenden Bericht zusammen:" },
        { "Le navire a quitté le port de Bergen un matin gris avec quarante caisses de thé.", "Combien de caisses le navire transportait-il ?", "Résume le texte suivant :" },
        { "El barco dejó el puerto de Bergen una mañana gris con cuarenta cajas de té.", "¿Cuántas cajas llevaba el barco?", "Resume el siguiente informe:" },
        { "O navio deixou o porto de Bergen numa manhã cinzenta com quarenta caixas de chá.", "Quantas caixas levava o navio?", "Resuma o seguinte texto:" },
        { "La nave lasciò il porto di Bergen in una mattina grigia con quaranta casse di tè.", "Quante casse portava la nave?", "Riassumi il seguente testo:" },
        { "Корабль вышел из порта Бергена серым утром с сорока ящиками чая.", "Сколько ящиков было на корабле?", "Перечислите главное в следующем тексте:" },
        { "这艘船在一个灰色的早晨带着四十箱茶叶离开了卑尔根港。", "这艘船运了多少箱茶叶？", "请总结以下内容：" },
        { "船は灰色の朝に四十箱の茶を積んでベルゲンの港を出た。", "船は何箱の茶を運びましたか？", "次の文章を要約してください。" },
        { "배는 잿빛 아침에 차 마흔 상자를 싣고 베르겐 항구를 떠났다.", "배는 차를 몇 상자 실었습니까?", "다음 글을 요약해 주세요:" },
    };
    for (const auto & t : tongues) {
        const auto text = document(t.sentence, 5000);
        check_ask(text + "\n\n" + t.question, "<" + t.question + ">");
        check_ask(t.question + "\n\n" + text, "<" + t.question + ">");
        check_ask(t.request + "\n\n" + text, "<" + t.request + ">");
        check_ask(t.request + "\n\n" + text + "\n\n" + t.question, "<" + t.request + "><" + t.question + ">");
        // not parted by a blank line: a little of the document may come along
        check_ask_about(text + "\n" + t.question, t.question, 120);
        check_ask_about(t.question + "\n" + text, t.question, 120);
        check_ask_about(text + " " + t.question, t.question, 600);
        check_ask("```\n" + text + "\n```\n" + t.request, "<" + t.request + ">");
        check_ask("", "");
        check_ask(t.question, "<" + t.question + ">");
    }
    // requests without any mark that tells, which else would bring the document's last sentences along
    const std::vector<std::pair<size_t, std::string>> requests = {
        { 1, "Nenne den Hafen, aus dem das Schiff kam." }, { 2, "Donne le nom du port de départ du navire." }, { 3, "Dime el puerto del que salió el barco." },
        { 4, "Diga o porto de onde saiu o navio." }, { 5, "Dimmi il porto da cui partì la nave." }, { 6, "Назови порт, из которого вышел корабль." },
        { 7, "请用三个词说明船从哪里出发。" }, { 8, "船が出た港の名前を教えてください。" }, { 9, "배가 떠난 항구의 이름을 알려줘." } };
    for (const auto & [tongue, request] : requests) {
        check_ask(request + "\n\n" + document(tongues[tongue].sentence, 5000), "<" + request + ">");
    }
    const auto text = document(tongues[0].sentence, 6000);
    check_ask("Context: " + text + "\nQuestion: Name the port of departure\nAnswer:", "<Question: Name the port of departure\nAnswer:>");
    check_ask("**Question**\n\nThe port, and the hour.\n\nDocument:\n" + text, "<**Question**\n\nThe port, and the hour.>");
    check_ask("<document>\n" + text + "\n</document>\n\nthe port of departure, please\n\nOne word only.", "<the port of departure, please\n\nOne word only.>");
    check_ask("You get a report.\n\n<report id=\"1\">\n" + text + "\n</report>\n\nDoes it name a port?", "<You get a report.><Does it name a port?>");
    check_ask(text + "\n\n---\n\nport of departure", "<port of departure>");
    check_ask("Hello,\n\nplease find the port in this log.\n\n" + text, "<Hello,\n\nplease find the port in this log.>");
    check_ask(text + "\n\nWhat is the port?\n\nThanks!\n\nBob", "<What is the port?\n\nThanks!\n\nBob>");
    check_ask(text + "\n\nWhat is the port? Answer in one word.", "<What is the port? Answer in one word.>");
    check_ask(text + "\n\nWhat is the port?\n\nAnswer in one word, without any explanation.", "<What is the port?\n\nAnswer in one word, without any explanation.>");
    check_ask_about(text + " Which port did the ship leave? Answer with its name.", "Which port did the ship leave? Answer with its name.", 600);
    std::string unbroken = text;
    unbroken.erase(std::remove(unbroken.begin(), unbroken.end(), '\n'), unbroken.end());
    check_ask(unbroken + " Which port did the ship leave? Answer with its name.", "<Which port did the ship leave? Answer with its name.>");
    check_ask("Which port did the ship leave? Answer with its name. " + unbroken, "<Which port did the ship leave? Answer with its name.>");
    // a long question goes in whole
    std::string question = "Given that the captain had been ill since the spring";
    while (question.size() < 1200) {
        question += ", that the owners had written twice to the harbour master";
    }
    question += ", which of the two mates signed the bill of lading?";
    check_ask(text + "\n\n" + question, "<" + question + ">");
    // questions of the document's own
    std::string interview;
    for (int i = 0; i < 40; i++) {
        interview += "What did you do in the year " + std::to_string(1900 + i) + "?\n\n" + tongues[0].sentence + " " + tongues[0].sentence + "\n\n";
    }
    check_ask(interview + "Summarize the above interview.", "<Summarize the above interview.>");
    check_ask("List the years named below.\n\n" + interview, "<List the years named below.>");
    // nothing tells: what is short at the ends
    check_ask(text + "\n\n" + "The port of departure.", "<The port of departure.>");
    check_ask("The port of departure.\n\n" + text, "<The port of departure.><" + tongues[0].sentence + " " + tongues[0].sentence + ">");

    for (int seed = 0; seed < 3000; seed++) {
        std::mt19937 random(seed);
        std::string message = random_text(random) + random_text(random);
        context = "seed " + std::to_string(seed);
        const auto ask = pflash_find_ask(message);
        size_t at = 0;
        for (const auto & range : ask) {
            CHECK(range.begin >= at && range.end > range.begin && range.end <= message.size());
            CHECK(pflash_char_floor(message, range.begin) == range.begin && pflash_char_floor(message, range.end) == range.end);
            CHECK(range.end - range.begin <= 3100);
            at = range.end;
        }
        CHECK(ask.size() <= 2);
        CHECK(ask.empty() == (message.find_first_not_of(" \t\r\n") == std::string::npos));
    }
}

static size_t best_span(const std::string & text, const std::string & question) {
    const auto spans  = pflash_spans(text);
    const auto scores = pflash_bm25(text, spans, question);
    context = "bm25 of " + question;
    CHECK(scores.size() == spans.size());
    const size_t best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    return scores[best] > 0.0f ? best : spans.size();
}

static void test_bm25() {
    const std::string text =
        "The café on the corner closed its doors early that day.\nThe companies moved their OFFICES to the coast in autumn.\n"
        "Call get_user_name before parseHTTPHeader is opened again.\nВ Москве открылась новая Библиотека имени Пушкина.\n"
        "图书馆在城市的北边，靠近河流。\nΗ ΒΙΒΛΙΟΘΗΚΗ είναι κλειστή σήμερα το απόγευμα.\nMeasured pressure was 101.325 kPa at the station.\n";
    const std::vector<std::pair<std::string, size_t>> cases = {
        { "CAFE?", 0 }, { "Which company has an office?", 1 }, { "get_user_name", 2 }, { "user", 2 }, { "http header", 2 }, { "opening", 2 }, { "библиотека", 3 },
        { "图书馆在哪里？", 4 }, { "βιβλιοθηκη", 5 }, { "101.325", 6 }, { "stations", 6 }, { "nothing here matches: zebra", 7 }, { "", 7 },
    };
    for (const auto & [question, span] : cases) {
        CHECK(best_span(text, question) == span);
    }
    // an identifier counts whole, and characters in their order
    CHECK(best_span("The name we get from the user.\nThe value of get_user_name here.\n", "get_user_name") == 1);
    CHECK(best_span("书馆图很好看，大家喜欢它。图书馆很好看，大家喜欢它。", "图书馆") == 1);
    // the formula, by hand: two spans of 3 and 1 words, the term once in the first
    const std::string two = "alpha beta gamma\nalphabet\n";
    const auto scores = pflash_bm25(two, { { 0, 17 }, { 17, 26 } }, "alpha alpha");
    context = "the formula";
    const double expected = std::log(1.0 + 1.5 / 1.5) * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 3.0 / 2.0));
    CHECK(std::abs(scores[0] - expected) < 1e-6 && scores[1] == 0.0f);

    for (int seed = 0; seed < 1000; seed++) {
        std::mt19937 random(seed);
        const auto noise = random_text(random);
        for (float score : pflash_bm25(noise, pflash_spans(noise), random_text(random))) {
            CHECK(score >= 0.0f && std::isfinite(score));
        }
    }
}

static void check_literals(const std::string & question, const strings & expected) {
    context = question + " ->";
    const auto literals = pflash_literals(question);
    for (const auto & literal : literals) {
        context += " [" + literal + "]";
    }
    CHECK(literals == expected);
}

static std::vector<std::vector<uint32_t>> holders(const std::string & text, const strings & literals) {
    context = text;
    return pflash_literal_spans(text, pflash_spans(text), literals);
}

static void test_literals() {
    check_literals("What is it about, and who isn't there? I can't tell, it's 5 or 12.", {});
    check_literals("Is order ABC-123 of 2024 worth 1,250.50 at 12:30?", { "ABC-123", "2024", "1,250.50", "12:30" });
    check_literals("Why does get_user fail in src/main.cpp, module os.path with parseJson?", { "get_user", "src/main.cpp", "os.path", "parseJson" });
    check_literals("Find \"red door\", 'blue hat', `x`, `run()`, «la porte», “the end”, „das Tor“ and 「赤い扉」.", { "red door", "blue hat", "run()", "run", "la porte", "the end", "das Tor", "赤い扉" });
    check_literals("Does NASA or the U of GitHub use --verbose on the 21st?", { "NASA", "GitHub", "--verbose" });
    check_literals("WHAT DOES THE REPORT SAY ABOUT IT", {});
    check_literals("订单ABC-123的状态是什么？", { "ABC-123" });

    using found = std::vector<std::vector<uint32_t>>;
    const std::string text = "The code 123 was changed.\nThe code 1234 was changed.\nIt costs 5,123 or 123.5 here.\nOrder abc-123 has left us.\nWHO said so on that day?\nwho said so on that day?\n";
    CHECK(holders(text, { "123" }) == (found { { 0, 3 } }));
    CHECK(holders(text, { "ABC-123" }) == (found { { 3 } }));
    CHECK(holders(text, { "WHO", "123.5", "nowhere" }) == (found { { 4 }, { 2 }, {} }));
    CHECK(holders("订单ABC-123的状态是这样的，很好。订单ABC-1234的状态不是这样的。", { "ABC-123" }) == (found { { 0 } }));
    CHECK(holders("", { "x1" }) == found { {} });
    CHECK(holders("abc", {}).empty());
    // across the border of two spans
    CHECK(pflash_literal_spans("one two three", { { 0, 6 }, { 6, 13 } }, { "two three" }) == (found { { 0, 1 } }));

    context = "names";
    CHECK((pflash_names("Ada Lovelace met Charles Babbage in London in 1833, knew K. P. Stone's mill and get_name().", "Who met whom in London?") ==
        strings { "Ada Lovelace", "Lovelace", "Charles Babbage", "Babbage", "K. P. Stone", "Stone", "1833", "get_name" }));
    CHECK((pflash_names("The Mill of Ада Лавлейс is old.", "") == strings { "The Mill", "Mill", "Ада Лавлейс", "Лавлейс" }));
    CHECK(pflash_names("Nothing here is named. ", "").empty());
    CHECK(pflash_names("", "").empty());

    // against a plain search
    for (int seed = 0; seed < 3000; seed++) {
        std::mt19937 random(seed);
        std::string noise;
        strings literals;
        for (size_t n = random() % 200; n > 0; n--) {
            noise += "ab 1"[random() % 4];
        }
        for (int l = 0; l < 5; l++) {
            std::string literal;
            for (size_t n = random() % 4; n > 0; n--) {
                literal += "ab1 "[random() % 4];
            }
            literal = "ab1"[random() % 3] + literal + "ab1"[random() % 3];
            literals.push_back(literal);
        }
        const auto spans = pflash_spans(noise);
        const auto held = pflash_literal_spans(noise, spans, literals);
        context = "seed " + std::to_string(seed);
        for (size_t l = 0; l < literals.size(); l++) {
            std::vector<uint32_t> expected;
            for (size_t at = noise.find(literals[l]); at != std::string::npos; at = noise.find(literals[l], at + 1)) {
                const size_t end = at + literals[l].size();
                if ((at > 0 && noise[at - 1] != ' ') || (end < noise.size() && noise[end] != ' ')) {
                    continue;
                }
                for (uint32_t s = 0; s < spans.size(); s++) {
                    if (spans[s].begin < end && spans[s].end > at && (expected.empty() || expected.back() < s)) {
                        expected.push_back(s);
                    }
                }
            }
            CHECK(held[l] == expected);
        }
        for (const auto & literal : pflash_literals(random_text(random))) {
            CHECK(literal.size() >= 2 && literal.size() <= 128);
        }
    }
}

// Texts at which something that is not linear would not end.
static void test_large() {
    const strings units = { "x", " ", "[", "{\"a\":[", "<a", "<a>\n", "(\n", ".", "?!", "\"", "'", "a a ", "aB", "漢", "\xFF", "\n", "```\n", "1,", "- \n", "e.g.", "a = (\n", "{\"a\":[\n" };
    for (const auto & unit : units) {
        std::string text;
        while (text.size() < large_bytes) {
            text += unit;
        }
        context = "much of " + unit;
        const auto spans = pflash_spans(text);
        CHECK(spans.back().end == text.size());
        CHECK(pflash_leans(text, spans).size() == spans.size());
        CHECK(pflash_find_ask(text).size() <= 2);
        CHECK(pflash_bm25(text, spans, text.substr(0, 4096)).size() == spans.size());
        strings literals = pflash_literals(text.substr(0, 1 << 16));
        literals.push_back(text.substr(0, 128));
        CHECK(pflash_literal_spans(text, spans, literals).size() == literals.size());
    }
}

int main(int argc, char ** argv) {
    large_bytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : large_bytes;
    return run_groups(argc, argv, {
        { "spans", test_spans }, { "ask", test_ask }, { "bm25", test_bm25 }, { "literals", test_literals },
        { "large", test_large } });
}
