// libFuzzer as a library (llvm.org/docs/LibFuzzer.html, "Using libFuzzer as a library"): the caller has its own main.
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*callback)(const uint8_t *data, size_t size));
