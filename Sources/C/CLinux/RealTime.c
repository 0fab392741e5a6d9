// Limits and memory of a process with real-time threads; the importer shows neither RLIMIT_* nor MCL_ONFAULT.
#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

int ptt_lock_all_memory(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return errno;
    if (limit.rlim_cur != RLIM_INFINITY) return EPERM;
    return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0 ? 0 : errno;
}

static struct rlimit real_time_limit;

// The thread that computed for too long goes on as an ordinary one. The kernel sends the signal to the thread that ran when the
// limit was reached, and has raised the soft limit by a second, which is put back for the others. What rtkit has set, that children
// are ordinary, only root may undo.
static void demote(int number) {
    (void)number;
    int kept = errno;
    struct sched_param ordinary = {0};
    syscall(SYS_sched_setscheduler, 0, SCHED_OTHER | SCHED_RESET_ON_FORK, &ordinary);
    syscall(SYS_prlimit64, 0, RLIMIT_RTTIME, &real_time_limit, NULL);
    errno = kept;
}

int ptt_limit_real_time(long long microseconds) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_RTTIME, &limit) != 0) return errno;
    rlim_t wanted = (rlim_t)microseconds;
    if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted) limit.rlim_max = wanted;
    // The hard limit kills the process; three quarters of it cost a thread its priority, no more.
    limit.rlim_cur = limit.rlim_max / 4 * 3;
    real_time_limit = limit;
    struct sigaction action = {.sa_handler = demote, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGXCPU, &action, NULL) != 0) return errno;
    return setrlimit(RLIMIT_RTTIME, &limit) == 0 ? 0 : errno;
}

void ptt_unblock_real_time_signal(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGXCPU);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}
