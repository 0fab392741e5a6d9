// Sockets with receive stamps, and what /proc tells of the server.
#include "load.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern const struct protocol *protocol;

_Noreturn void fail(const char *what) {
    fprintf(stderr, "load: %s (%s)\n", what, strerror(errno));
    exit(1);
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
uint64_t now_realtime(void) { return now(CLOCK_REALTIME); }
uint64_t now_monotonic(void) { return now(CLOCK_MONOTONIC); }

int open_udp(void) {
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, size = 1 << 20;
    if (udp < 0) fail("no socket: raise the limit of open files");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)target.port)};
    inet_pton(AF_INET, target.host, &address.sin_addr);
    if (target.port && connect(udp, (struct sockaddr *)&address, sizeof address)) fail("connect");
    if (setsockopt(udp, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one)) fail("SO_TIMESTAMPNS");
    setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    return udp;
}

void drain(struct member *member) {
    enum { batch = 32, largest = 2048 };
    static uint8_t bytes[batch][largest], controls[batch][64];
    static struct iovec vectors[batch];
    static struct mmsghdr messages[batch];
    if (member->udp < 0) return;
    for (;;) {
        for (int i = 0; i < batch; i++) {
            vectors[i] = (struct iovec){bytes[i], largest};
            messages[i].msg_hdr = (struct msghdr){
                .msg_iov = &vectors[i], .msg_iovlen = 1, .msg_control = controls[i], .msg_controllen = 64};
        }
        int count = recvmmsg(member->udp, messages, batch, MSG_DONTWAIT, NULL);
        if (count <= 0) return;
        for (int i = 0; i < count; i++) {
            uint64_t stamped = 0;
            struct msghdr *header = &messages[i].msg_hdr;
            for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                    struct timespec time;
                    memcpy(&time, CMSG_DATA(c), sizeof time);
                    stamped = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
                }
            protocol->packet(member, bytes[i], messages[i].msg_len, stamped);
        }
        if (count < batch) return;
    }
}

// schedstat counts in ns; utime and stime in /proc/PID/stat only in ticks of 10 ms.
uint64_t processor_time(int pid) {
    char path[64], line[128];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks) fail("the server is gone");
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", pid, task->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(line, sizeof line, file)) sum += strtoull(line, NULL, 10);
        fclose(file);
    }
    closedir(tasks);
    return sum;
}

double own_processor_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

long resident_kilobytes(int pid) {
    char path[64];
    long total = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("the server is gone");
    if (fscanf(file, "%ld %ld", &total, &resident) != 2) fail("statm");
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

long anonymous_kilobytes(int pid) {
    char path[64], line[256];
    long kilobytes = -1;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("the server is gone");
    while (kilobytes < 0 && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld kB", &kilobytes);
    fclose(file);
    if (kilobytes < 0) fail("RssAnon");
    return kilobytes;
}
