// Waiting for a modem line of a serial port. In C, as the thread is ended by pthread_cancel(3): TIOCMIWAIT has no other way out,
// and only C frames may be unwound like that.
#define _GNU_SOURCE
#include "CLinux.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

const unsigned ptt_crtscts = CRTSCTS;

int ptt_serial_lines(int fd, int *lines) { return ioctl(fd, TIOCMGET, lines); }

// TIOCMIWAIT counts changes from the moment it is entered, so that one between two waits, a bounce or a release, would never be told.
// From a change on the line is therefore read every 10 ms, until it has rested for 50 ms; while it rests nothing is polled.
static const struct timespec pause_between_readings = {.tv_nsec = 10000000};
enum { READINGS_AT_REST = 5 };

struct ptt_serial_line {
    int fd, pipe, mask, rest;
    struct ptt_serial_line_calls calls;
    pthread_t thread;
};

static int kernel_wait(int fd, int mask) { return ioctl(fd, TIOCMIWAIT, mask); }

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// How long the machine has slept in all: the monotonic clock stands still meanwhile.
static int64_t slept(void) { return nanoseconds(CLOCK_BOOTTIME) - nanoseconds(CLOCK_MONOTONIC); }

static int report(const struct ptt_serial_line *line, struct ptt_serial_line_change *change) {
    change->nanoseconds = nanoseconds(CLOCK_MONOTONIC);
    ssize_t written;
    do written = write(line->pipe, change, sizeof *change);
    while (written < 0 && errno == EINTR);
    return written == sizeof *change;
}

// Waits for a change, and may be ended meanwhile. Returns 0 or errno.
static int await(const struct ptt_serial_line *line) {
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    int code = line->calls.wait(line->fd, line->mask) < 0 ? errno : 0;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return code;
}

static void *run(void *argument) {
    const struct ptt_serial_line *line = argument;
    struct ptt_serial_line_change change = {0};
    int64_t before = slept();
    int lines = 0, readings = 0;
    ptt_set_thread_name("serial line");
    int code = line->calls.lines(line->fd, &lines) < 0 ? errno : 0;
    // How the line is found is no change.
    int told = lines & line->mask;
    while (code == 0) {
        int rests = told == line->rest && readings == 0;
        if (!rests) {
            nanosleep(&pause_between_readings, NULL);
        } else if ((code = await(line)) == EINTR) {
            code = 0;
            continue;
        }
        if (code != 0 || (code = line->calls.lines(line->fd, &lines) < 0 ? errno : 0) != 0) break;
        int state = lines & line->mask;
        int64_t now = slept();
        change.slept = now - before > 100000000;
        before = now;
        if (rests || state != told) {
            readings = READINGS_AT_REST;
        } else if (readings > 0) {
            readings--;
        }
        if (state == told && !change.slept) continue;
        // Whether what was pressed before the machine slept is a press since, nobody knows: it counts as released.
        change.lines = change.slept && !rests ? line->rest : state;
        told = state;
        if (!report(line, &change)) return NULL;
    }
    change.error = code;
    change.slept = 0;
    report(line, &change);
    return NULL;
}

struct ptt_serial_line *ptt_serial_line_start(
    int fd, int pipe, int mask, int rest, const struct ptt_serial_line_calls *calls) {
    struct ptt_serial_line *line = malloc(sizeof *line);
    if (!line) return NULL;
    *line = (struct ptt_serial_line){
        .fd = fd, .pipe = pipe, .mask = mask, .rest = rest, .calls = {.wait = kernel_wait, .lines = ptt_serial_lines}};
    if (calls) line->calls = *calls;
    int code = pthread_create(&line->thread, NULL, run, line);
    if (code != 0) {
        free(line);
        errno = code;
        return NULL;
    }
    return line;
}

void ptt_serial_line_stop(struct ptt_serial_line *line) {
    pthread_cancel(line->thread);
    pthread_join(line->thread, NULL);
    free(line);
}
