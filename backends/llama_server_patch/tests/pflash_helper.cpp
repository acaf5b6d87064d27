// Drives pflash_helper from lines of JSON on stdin, and answers each with one line.
//   pflash_helper PROGRAM [ARGUMENT...]
// {"op": "start" | "counters" | "pid" | "sleep", ...}
// {"op": "score", "text" or "text_hex", "question", "spans", "keep_ratio", "timeout_ms", "threads"}
// {"op": "parse", "line_hex", "id", "spans": how many}
// At the end of its input it ends the helper and says how long that took.

#include "pflash-helper.h"

#include "json.h"
#include "log.h"

#include <iostream>

using json  = common_json;
using clock_type = std::chrono::steady_clock;

static double ms_since(clock_type::time_point start) {
    return std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
}

static std::string from_hex(const std::string & hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes.push_back((char) std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

static json to_json(const pflash_helper_result & result) {
    return json { { "scores", result.scores }, { "keep", result.keep }, { "failure", result.failure } };
}

static json score(pflash_helper & helper, const json & op) {
    const std::string text     = op.contains("text_hex") ? from_hex(op.at("text_hex").get<std::string>()) : op.at("text").get<std::string>();
    const std::string question = op.value("question", "which?");
    pflash_helper_request request;
    request.text       = text;
    request.question   = question;
    request.keep_ratio = op.value("keep_ratio", 0.2f);
    for (const auto & span : op.at("spans")) {
        request.spans.push_back({ span.at(size_t(0)).get<size_t>(), span.at(size_t(1)).get<size_t>() });
    }
    const std::chrono::milliseconds timeout(op.value("timeout_ms", 2000));
    const int n_threads = op.value("threads", 1);

    std::vector<pflash_helper_result> results(n_threads);
    std::vector<std::thread> threads;
    const auto start = clock_type::now();
    for (auto & result : results) {
        threads.emplace_back([&] { result = helper.score(request, timeout); });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    json answer = to_json(results.front());
    answer["ms"] = ms_since(start);
    if (n_threads > 1) {
        json all = json::array();
        for (const auto & result : results) {
            all.push_back(to_json(result));
        }
        answer["all"] = all;
    }
    return answer;
}

static json run(pflash_helper & helper, const json & op) {
    const std::string name = op.at("op").get<std::string>();
    if (name == "score") {
        return score(helper, op);
    }
    if (name == "parse") {
        std::string detail;
        const auto line   = from_hex(op.at("line_hex").get<std::string>());
        const auto result = pflash_helper_parse(line, op.at("id").get<uint64_t>(), op.at("spans").get<size_t>(), detail);
        json answer = to_json(result);
        answer["explained"] = !detail.empty();
        return answer;
    }
    if (name == "start") {
        helper.start();
    } else if (name == "sleep") {
        std::this_thread::sleep_for(std::chrono::milliseconds(op.at("ms").get<int>()));
    }
    const auto counters = helper.counters();
    json failures = json::object();
    for (const auto & item : counters.failures) {
        failures[item.first] = item.second;
    }
    return json {
        { "requests", counters.requests }, { "answered", counters.answered }, { "started", counters.started },
        { "restarts", counters.restarts }, { "failures", failures },
    };
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::cerr << "usage: pflash_helper PROGRAM [ARGUMENT...]\n";
        return 2;
    }
    clock_type::time_point start;
    {
        pflash_helper helper(std::vector<std::string>(argv + 1, argv + argc));
        std::string line;
        while (std::getline(std::cin, line)) {
            std::cout << run(helper, json::parse(line)).dump_safe() << std::endl;
        }
        start = clock_type::now();
    }
    std::cout << json { { "end_ms", ms_since(start) } }.dump() << std::endl;
    common_log_flush(common_log_main());
    return 0;
}
