// The stack of another thread, for reports of a debug build.
#define _GNU_SOURCE
#include "CLinux.h"
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { frames_max = 48 };
static void *frames[frames_max];
static int frame_count;
static sem_t taken;

static int stack_signal(void) { return SIGRTMIN + 9; }

static void take(int number) {
    (void)number;
    frame_count = backtrace(frames, frames_max);
    sem_post(&taken);
}

static void prepare(void) {
    // The first call loads a library, which a signal handler must not do.
    frame_count = backtrace(frames, frames_max);
    sem_init(&taken, 0, 0);
    struct sigaction action = {.sa_handler = take, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(stack_signal(), &action, NULL);
}

// The first call prepares the process; each call prepares its thread.
void ptt_prepare_stacks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    // Threads of libdispatch block all signals, and what they start inherits that.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, stack_signal());
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void ptt_print_stack(int thread, int fd) {
    if (tgkill(getpid(), thread, stack_signal()) != 0) return;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 1;
    // A thread that the kernel does not interrupt tells nothing.
    if (sem_timedwait(&taken, &limit) == 0) backtrace_symbols_fd(frames, frame_count, fd);
}
