// toml++ (a C++ library) for the Settings room: a document is walked in the order of its keys, each with its place in the text.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A place in the text, line and column from 1, columns in code points.
typedef struct ptt_toml_position {
    uint32_t line;
    uint32_t column;
} ptt_toml_position;

/// Called for each part of the document. A value in a table is preceded by its key.
typedef struct ptt_toml_visitor {
    void *context;
    void (*key)(void *context, const char *text, size_t length, ptt_toml_position position);
    void (*begin_table)(void *context, ptt_toml_position position);
    void (*end_table)(void *context);
    void (*begin_array)(void *context, ptt_toml_position position);
    void (*end_array)(void *context);
    void (*string)(void *context, const char *text, size_t length, ptt_toml_position position);
    void (*integer)(void *context, int64_t value, ptt_toml_position position);
    void (*floating)(void *context, double value, ptt_toml_position position);
    void (*boolean)(void *context, bool value, ptt_toml_position position);
    void (*date_or_time)(void *context, ptt_toml_position position);
} ptt_toml_visitor;

/// Why a text is not TOML.
typedef struct ptt_toml_error {
    char message[256];
    ptt_toml_position position;
} ptt_toml_error;

/// Parses `length` bytes and walks the document. False, with `error` filled, when they are not TOML: nothing was walked then.
bool ptt_toml_parse(const char *text, size_t length, const ptt_toml_visitor *visitor, ptt_toml_error *error);

#ifdef __cplusplus
}
#endif
