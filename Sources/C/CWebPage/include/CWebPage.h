// The files of the relay's page, embedded: as Swift array literals they take the compiler a minute.
#pragma once

#include <stddef.h>

struct ptt_page_file {
    const char *name;
    const unsigned char *bytes;
    size_t count;
};

// How many files there are.
size_t ptt_page_file_count(void);
// One of them, by its number.
struct ptt_page_file ptt_page_file_at(size_t number);
