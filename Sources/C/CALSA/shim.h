// alsa-lib, for the Audio room.
#pragma once

#include <alsa/asoundlib.h>

// alsa-lib prints its own account of every error; a failed call's result is told in ours. Its handler is variadic.
static inline void ptt_alsa_say_nothing(const char *file, int line, const char *function, int code, const char *format,
                                        ...) {}
static inline void ptt_alsa_silence(void) { snd_lib_error_set_handler(ptt_alsa_say_nothing); }
