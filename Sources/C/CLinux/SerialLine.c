// Waiting for a modem line of a serial port. In C, as the thread is ended by pthread_cancel(3): TIOCMIWAIT has no other way out,
// and only C frames may be unwound like that.
#define _GNU_SOURCE
#include "CLinux.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

const unsigned ptt_crtscts = CRTSCTS;

int ptt_serial_lines(int fd, int *lines) { return ioctl(fd, TIOCMGET, lines); }

struct ptt_serial_line {
    int fd, pipe, mask;
    pthread_t thread;
};

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

static void *run(void *argument) {
    const struct ptt_serial_line *line = argument;
    struct ptt_serial_line_change change = {0};
    int64_t before = slept();
    ptt_set_thread_name("serial line");
    do {
        int type;
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
        int result = ioctl(line->fd, TIOCMIWAIT, line->mask);
        int code = errno;
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
        if (result < 0 && code == EINTR) continue;
        int lines = 0;
        if (result >= 0 && (result = ioctl(line->fd, TIOCMGET, &lines)) < 0) code = errno;
        if (result < 0) {
            change.error = code;
        } else {
            change.lines = lines;
        }
        int64_t now = slept();
        change.slept = now - before > 100000000;
        before = now;
        if (!report(line, &change)) return NULL;
    } while (change.error == 0);
    return NULL;
}

struct ptt_serial_line *ptt_serial_line_start(int fd, int pipe, int mask) {
    struct ptt_serial_line *line = malloc(sizeof *line);
    if (!line) return NULL;
    *line = (struct ptt_serial_line){.fd = fd, .pipe = pipe, .mask = mask};
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
