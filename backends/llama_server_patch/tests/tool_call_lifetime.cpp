// Lifetime of the mapper's "current tool call" pointer (CVE-2026-107183), for AddressSanitizer.
//
// usage: tool_call_lifetime flush|discard|stale|ordinary
//
// Build it together with common/chat-peg-parser.cpp under -fsanitize=address. Each case leaves the
// mapper with a tool call that has just ended, then delivers one more argument node. Strings are longer
// than std::string's inline buffer, so that a write through a dangling pointer touches the heap.

#include "chat-peg-parser.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

using mapper_t = common_chat_peg_mapper;
using builder  = common_chat_peg_builder;

// Private members reached by explicit instantiation: a named call that is still pending at the end of
// the parse cannot be produced through map() alone.
template <auto member> struct reach {
    friend constexpr auto holder_of() { return member; }
};
constexpr auto holder_of();
template struct reach<&mapper_t::pending_tool_call>;

static const std::string long_args = "{\"path\":\"" + std::string(200, 'x') + "\"}";
static const std::string long_id   = "call_" + std::string(120, '1');

struct ast {
    common_peg_ast_arena    arena;
    common_peg_parse_result result;
    std::deque<std::string> texts; // nodes hold views: the text has to stay where it is

    void add(const char * tag, const std::string & text) {
        const std::string & kept = texts.emplace_back(text);
        result.nodes.push_back(arena.add_node("", tag, 0, kept.size(), kept, {}));
    }
};

static int expect(bool ok, const char * what) {
    if (!ok) {
        std::fprintf(stderr, "failed: %s\n", what);
    }
    return ok ? 0 : 1;
}

// The holder is handed to the result at the end of the parse, then the same mapper sees another node.
static int run_flush() {
    common_chat_msg msg;
    mapper_t        mapper(msg);

    ast open;
    open.add(builder::TOOL_OPEN, "<tool_call>");
    open.arena.visit(open.result, [&](const common_peg_ast_node & node) { mapper.map(node); });

    auto & holder     = mapper.*holder_of();
    holder->name      = "read_file_with_a_rather_long_name";
    holder->arguments = long_args;

    mapper.from_ast(common_peg_ast_arena{}, common_peg_parse_result{});

    ast late;
    late.add(builder::TOOL_ARGS, "{\"late\":\"" + std::string(200, 'y') + "\"}");
    mapper.from_ast(late.arena, late.result);

    return expect(msg.tool_calls.size() == 1, "one tool call") ||
           expect(msg.tool_calls[0].arguments == long_args, "arguments of the flushed call are unchanged");
}

// A call that closes without ever getting a name is dropped; what follows must not write into it.
static int run_discard() {
    common_chat_msg msg;
    mapper_t        mapper(msg);

    ast nodes;
    nodes.add(builder::TOOL_OPEN, "<tool_call>");
    nodes.add(builder::TOOL_ID, long_id);
    nodes.add(builder::TOOL_ARGS, long_args);
    nodes.add(builder::TOOL_CLOSE, "</tool_call>");
    nodes.add(builder::TOOL_ID, std::string(100, '2'));
    nodes.add(builder::TOOL_ARGS, long_args);
    nodes.add(builder::TOOL_CLOSE, "</tool_call>");
    mapper.from_ast(nodes.arena, nodes.result);

    return expect(msg.tool_calls.empty(), "a nameless call is discarded");
}

// The call lies in the caller's message; once the parse is over the caller may free it.
static int run_stale() {
    auto     msg = std::make_unique<common_chat_msg>();
    mapper_t mapper(*msg);

    ast nodes;
    nodes.add(builder::TOOL_OPEN, "<tool_call>");
    nodes.add(builder::TOOL_NAME, "read_file");
    nodes.add(builder::TOOL_ARGS, long_args);
    mapper.from_ast(nodes.arena, nodes.result);
    msg->tool_calls = {};

    ast late;
    late.add(builder::TOOL_ARGS, long_args);
    mapper.from_ast(late.arena, late.result);

    return expect(msg->tool_calls.empty(), "no call comes back");
}

// The fix changes nothing for well-formed calls, arguments after the close included.
static int run_ordinary() {
    common_chat_msg msg;
    mapper_t        mapper(msg);

    ast nodes;
    for (const char * name : { "first_tool", "second_tool" }) {
        nodes.add(builder::TOOL_OPEN, "<tool_call>");
        nodes.add(builder::TOOL_ID, long_id);
        nodes.add(builder::TOOL_NAME, name);
        nodes.add(builder::TOOL_CLOSE, "</tool_call>");
        nodes.add(builder::TOOL_ARGS, long_args);
    }
    mapper.from_ast(nodes.arena, nodes.result);

    int failed = expect(msg.tool_calls.size() == 2, "two tool calls");
    for (const auto & call : msg.tool_calls) {
        failed |= expect(call.id == long_id && call.arguments == long_args, "id and arguments arrive");
    }
    return failed;
}

int main(int argc, char ** argv) {
    const char * which = argc == 2 ? argv[1] : "";
    if (!std::strcmp(which, "flush"))    { return run_flush(); }
    if (!std::strcmp(which, "discard"))  { return run_discard(); }
    if (!std::strcmp(which, "stale"))    { return run_stale(); }
    if (!std::strcmp(which, "ordinary")) { return run_ordinary(); }
    std::fprintf(stderr, "usage: tool_call_lifetime flush|discard|stale|ordinary\n");
    return 2;
}
