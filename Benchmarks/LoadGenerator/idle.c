// What members who only stay connected take of a relay: how fast they get in, the memory of each, and the time for all.
//
//   load idle ADDRESS:PORT PID MEMBERS CHANNELS members|pushes SECONDS PENDING
//
// MEMBERS are of each channel, and at most PENDING of all join at a time. The channels come on standard input as for the other kinds.
// "pushes": they want pushes and nothing else. Each key and socket is made before the clock runs. A line of JSON for each step:
//
//   first     all join for the first time, with a full handshake: the relay writes each of them down
//   idle      they stay for SECONDS, with nothing but keep-alives every 25 s
//   full      they have gone, and come back with a full handshake
//   tickets   they have gone, and come back with a ticket and early data
#include "load.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

extern const struct protocol *protocol;
enum { events_max = 256, look_ns = 10000000, parts = 10, settle_s = 3, limit_s = 300, leave_at_once = 100, leave_pause_us = 5000 };

static int epoll, pid;
static uint64_t looked_at;
static int part;

// Takes what came, and looks after a tenth of the members now and then, so that each has its turn ten times a second.
static void turn(int wait_ms) {
    struct epoll_event events[events_max];
    int count = epoll_wait(epoll, events, events_max, wait_ms);
    for (int i = 0; i < count; i++) {
        drain(events[i].data.ptr);
        protocol->tend(events[i].data.ptr);
    }
    uint64_t now = now_monotonic();
    if (now - looked_at < look_ns) return;
    looked_at = now;
    for (int i = part; i < member_count; i += parts)
        if (is_due(&all_members[i], now)) protocol->tend(&all_members[i]);
    part = (part + 1) % parts;
}

static void stay(double seconds) {
    for (uint64_t until = now_monotonic() + (uint64_t)(seconds * 1e9); now_monotonic() < until;) turn(10);
}

struct start { uint64_t time, server; double own; };
static struct start start(void) { return (struct start){now_monotonic(), processor_time(pid), own_processor_seconds()}; }

static void tell(const char *step, const struct start *from, int early, long before) {
    uint64_t time = now_monotonic(), server = processor_time(pid);
    double own = own_processor_seconds(), seconds = (double)(time - from->time) / 1e9;
    if (strcmp(step, "idle")) stay(settle_s);
    long memory = anonymous_kilobytes(pid);
    printf("{\"step\":\"%s\",\"members\":%d,\"seconds\":%.3f,\"server_cores\":%.4f,\"own_cores\":%.4f,\"early\":%d,\"lost\":%d,"
           "\"memory_kb\":%ld,\"member_kb\":%.2f}\n",
           step, member_count, seconds, (double)(server - from->server) / 1e9 / seconds, (own - from->own) / seconds, early, losses,
           memory, (double)(memory - before) / member_count);
    fflush(stdout);
    losses = 0;
}

// All who are not there join, `pending` at a time.
static void join(const char *step, int pending, long before) {
    int first = 0, next = 0, early = 0;
    struct start from = start();
    for (;;) {
        while (first < next && all_members[first].joined) first++;
        if (first == member_count) break;
        int joined = first;
        for (int i = first; i < next; i++) joined += all_members[i].joined;
        while (next < member_count && next - joined < pending) dial_in(&all_members[next++]);
        turn(1);
        if (now_monotonic() - from.time > limit_s * 1000000000ull) fail("members do not get in");
    }
    for (int i = 0; i < member_count; i++) early += absence_of(&all_members[i]).early;
    tell(step, &from, early, before);
}

static void leave(bool keeps_tickets) {
    for (int i = 0; i < member_count; i++) {
        hang_up(&all_members[i], keeps_tickets);
        if (i % leave_at_once == 0) usleep(leave_pause_us);
    }
    sleep(2);
}

int idle(int count, char **arguments) {
    char host[64];
    if (count < 9 || sscanf(arguments[2], "%63[^:]:%d", host, &target.port) != 2)
        fail("usage: load idle ADDRESS:PORT PID MEMBERS CHANNELS members|pushes SECONDS PENDING");
    pid = atoi(arguments[3]);
    int per_channel = atoi(arguments[4]), seconds = atoi(arguments[7]), pending = atoi(arguments[8]);
    bool pushes = !strcmp(arguments[6], "pushes");
    target.channels = atoi(arguments[5]);
    if (per_channel < 1 || target.channels < 1 || seconds < 1 || pending < 1) fail("arguments");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    target.host = host;
    protocol = &relay_protocol;
    read_channels();
    members_return = true;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    member_count = per_channel * target.channels;
    all_members = calloc((size_t)member_count, sizeof *all_members);
    for (int i = 0; i < member_count; i++) {
        struct member *member = &all_members[i];
        // Neighbours are of different channels, as those who come by chance are.
        *member = (struct member){.number = i, .channel = i % target.channels, .push_only = pushes, .udp = open_udp()};
        prepare(member);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = member};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, member->udp, &event)) fail("epoll");
    }
    // Pages of code come and go, whoever is there.
    long before = anonymous_kilobytes(pid);
    join("first", pending, before);
    stay(seconds < 20 ? seconds : 20);
    struct start from = start();
    stay(seconds);
    tell("idle", &from, 0, before);
    leave(false);
    join("full", pending, before);
    for (int without = 1; without;) {
        without = 0;
        for (int i = 0; i < member_count; i++) without += !has_ticket(&all_members[i]);
        turn(10);
    }
    leave(true);
    join("tickets", pending, before);
    leave(true);
    return 0;
}
