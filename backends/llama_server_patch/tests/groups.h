#pragma once

#include <initializer_list>
#include <string>
#include <utility>

// Runs the group of checks that the first argument names, or all of them. The exit status: 2 for an unknown
// name.
inline int run_groups(int argc, char ** argv, std::initializer_list<std::pair<std::string, void (*)()>> groups) {
    bool any = false;
    for (const auto & [name, test] : groups) {
        if (argc < 2 || name == argv[1]) {
            test();
            any = true;
        }
    }
    return any ? 0 : 2;
}
