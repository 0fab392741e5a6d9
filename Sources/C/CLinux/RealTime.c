// Limits and memory of a process with real-time threads; the importer shows neither RLIMIT_* nor MCL_ONFAULT.
#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

int ptt_lock_all_memory(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return errno;
    if (limit.rlim_cur != RLIM_INFINITY) return EPERM;
    return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0 ? 0 : errno;
}

int ptt_limit_real_time(long long microseconds) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_RTTIME, &limit) != 0) return errno;
    rlim_t wanted = (rlim_t)microseconds;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max <= wanted) return 0;
    // The soft limit sends SIGXCPU, which ends the process as the hard one does; so they are one.
    limit.rlim_cur = limit.rlim_max = wanted;
    return setrlimit(RLIMIT_RTTIME, &limit) == 0 ? 0 : errno;
}
