#include "CBuild.h"

#ifndef PTTD_COMMIT
#define PTTD_COMMIT ""
#endif

const char *ptt_build_commit(void) { return PTTD_COMMIT; }
