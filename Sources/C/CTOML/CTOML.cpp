#include "CTOML.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

// What the library holds for impossible must not end the daemon: toml++ 3.3 asserts on some malformed keys.
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : throw std::logic_error("malformed here or further on"))
#include <toml++/toml.h>
#include <utility>
#include <vector>

namespace {

ptt_toml_position position(const toml::source_region &region) { return {region.begin.line, region.begin.column}; }

void walk(const toml::node &node, const ptt_toml_visitor &v);

void walk_table(const toml::table &table, const ptt_toml_visitor &v) {
    v.begin_table(v.context, position(table.source()));
    // toml++ keeps keys sorted; settings want them as written.
    std::vector<std::pair<const toml::key *, const toml::node *>> entries;
    for (auto &&[key, node] : table) entries.emplace_back(&key, &node);
    std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) {
        const auto x = a.first->source().begin, y = b.first->source().begin;
        return x.line != y.line ? x.line < y.line : x.column < y.column;
    });
    for (const auto &[key, node] : entries) {
        v.key(v.context, key->str().data(), key->str().size(), position(key->source()));
        walk(*node, v);
    }
    v.end_table(v.context);
}

void walk(const toml::node &node, const ptt_toml_visitor &v) {
    const auto at = position(node.source());
    switch (node.type()) {
    case toml::node_type::table: walk_table(*node.as_table(), v); break;
    case toml::node_type::array:
        v.begin_array(v.context, at);
        for (const auto &element : *node.as_array()) walk(element, v);
        v.end_array(v.context);
        break;
    case toml::node_type::string: {
        const auto &text = node.as_string()->get();
        v.string(v.context, text.data(), text.size(), at);
        break;
    }
    case toml::node_type::integer: v.integer(v.context, node.as_integer()->get(), at); break;
    case toml::node_type::floating_point: v.floating(v.context, node.as_floating_point()->get(), at); break;
    case toml::node_type::boolean: v.boolean(v.context, node.as_boolean()->get(), at); break;
    default: v.date_or_time(v.context, at); break;
    }
}

void fill(ptt_toml_error *error, std::string_view message, ptt_toml_position at) {
    const auto count = std::min(message.size(), sizeof error->message - 1);
    std::memcpy(error->message, message.data(), count);
    error->message[count] = 0;
    error->position = at;
}

} // namespace

bool ptt_toml_parse(const char *text, size_t length, const ptt_toml_visitor *visitor, ptt_toml_error *error) {
    toml::table document;
    // No exception may cross into Swift.
    try {
        document = toml::parse(std::string_view(text, length));
    } catch (const toml::parse_error &e) {
        fill(error, e.description(), position(e.source()));
        return false;
    } catch (const std::exception &e) {
        fill(error, e.what(), {1, 1});
        return false;
    }
    walk_table(document, *visitor);
    return true;
}
