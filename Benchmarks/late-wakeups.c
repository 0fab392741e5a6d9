// How late this machine lets a thread of the highest priority wake: what no program can be better than.
//
//     late-wakeups [ordinary]
//
// One thread on each processor sleeps for 2 ms again and again. Every wake-up that is late by 1 ms or more is a line on standard
// output: CLOCK_MONOTONIC when it was due, and how late it was, in ns. A first line tells whether the priority was allowed. With
// `ordinary` it asks for none: what programs without one are late by.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 2000000, LATE_FROM = 1000000, PROCESSORS_MAX = 256, PRIORITY = 60 };

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void *watch(void *processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (long long due = now() + PERIOD;; due += PERIOD) {
        struct timespec until = {due / 1000000000, due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        long long late = now() - due;
        if (late < LATE_FROM) continue;
        printf("%lld %lld\n", due, late);
        due += late;
    }
    return NULL;
}

int main(int count_of_words, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sched_param priority = {PRIORITY};
    int is_ordinary = count_of_words > 1 && strcmp(words[1], "ordinary") == 0;
    printf("%s\n", !is_ordinary && sched_setscheduler(0, SCHED_FIFO, &priority) == 0 ? "real-time" : "ordinary");
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    for (long processor = 1; processor < count && processor < PROCESSORS_MAX; processor++) {
        pthread_t thread;
        pthread_create(&thread, NULL, watch, (void *)processor);
    }
    watch((void *)0);
}
