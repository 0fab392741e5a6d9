#include "CWebPage.h"

// #embed is C23, which this compiler has in earlier dialects as an extension.
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "files.inc"

size_t ptt_page_file_count(void) { return sizeof(files) / sizeof(files[0]); }

struct ptt_page_file ptt_page_file_at(size_t number) { return files[number]; }
