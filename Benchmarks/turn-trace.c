// Notes when a relay's thread waits, receives, decrypts and sends; preloaded into it by Benchmarks/turns.
//
//   gcc -O2 -shared -fPIC -o turn-trace.so turn-trace.c;  TURN_TRACE=FILE LD_PRELOAD=turn-trace.so pttrelay …
//
// Each call's begin and end is a line of FILE when the program ends: nanoseconds, the call's letter, 0 or 1, the thread's number. A note
// takes about 20 ns.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { notes_max = 1000000 };
static struct note { int64_t at; char call, is_end; int thread; } *notes;
static volatile int note_count, thread_count;
static __thread int thread_number;

static void note(char call, int is_end) {
    if (!notes) return;
    if (!thread_number) thread_number = __sync_add_and_fetch(&thread_count, 1);
    int index = __sync_fetch_and_add(&note_count, 1);
    if (index >= notes_max) return;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    notes[index] = (struct note){time.tv_sec * 1000000000ll + time.tv_nsec, call, (char)is_end, thread_number};
}

#define TRACED(type, name, letter, parameters, arguments)                                                                                       \
    type name parameters {                                                                                                                      \
        static type(*next) parameters;                                                                                                          \
        if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                                          \
        note(letter, 0);                                                                                                                        \
        type result = next arguments;                                                                                                           \
        note(letter, 1);                                                                                                                        \
        return result;                                                                                                                          \
    }

TRACED(int, epoll_pwait2, 'e', (int a, struct epoll_event *b, int c, const struct timespec *d, const sigset_t *e), (a, b, c, d, e))
TRACED(int, epoll_wait, 'e', (int a, struct epoll_event *b, int c, int d), (a, b, c, d))
TRACED(int, recvmmsg, 'r', (int a, struct mmsghdr *b, unsigned c, int d, struct timespec *e), (a, b, c, d, e))
TRACED(int, sendmmsg, 's', (int a, struct mmsghdr *b, unsigned c, int d), (a, b, c, d))
TRACED(int, ngtcp2_conn_read_pkt_versioned, 'q', (void *a, void *b, int c, void *d, void *e, size_t f, uint64_t g), (a, b, c, d, e, f, g))
TRACED(ssize_t, ngtcp2_conn_writev_stream_versioned, 'w',
       (void *a, void *b, int c, void *d, void *e, size_t f, void *g, uint32_t h, int64_t i, void *j, size_t k, uint64_t l),
       (a, b, c, d, e, f, g, h, i, j, k, l))

__attribute__((constructor)) static void begin(void) {
    if (getenv("TURN_TRACE")) notes = calloc(notes_max, sizeof *notes);
}

__attribute__((destructor)) static void end(void) {
    FILE *file = notes ? fopen(getenv("TURN_TRACE"), "w") : NULL;
    if (!file) return;
    int count = note_count < notes_max ? note_count : notes_max;
    for (int i = 0; i < count; i++)
        if (notes[i].call) fprintf(file, "%lld %c %d %d\n", (long long)notes[i].at, notes[i].call, notes[i].is_end, notes[i].thread);
    fclose(file);
    notes = NULL;
}

// A service ends without the destructors of libraries.
void _exit(int status) {
    end();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}
