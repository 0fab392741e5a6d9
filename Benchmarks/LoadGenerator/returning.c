// What happens when a relay is started again with thousands of members: when they are all back, and when they have heard a burst.
//
//   load returning ADDRESS:PORT MEMBERS CHANNELS VOICE-BYTES
//
// MEMBERS are of each channel. The channels come on standard input as for the other kinds, then lines that say what is done to the relay:
//
//   gone              it was killed: members find out, as one who speaks or hears does at once
//   ready NS          it listens again since then (CLOCK_MONOTONIC)
//
// Says "joined" when all have joined and have what it takes to return with early data, and in the end a line of JSON.
#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

extern const struct protocol *protocol;
enum { limit_s = 60, look_ns = 5000000, events_max = 256, packet_ns = 20000000, burst_packets = 50 };

static int epoll;
static uint64_t looked_at;

// Takes what came, within a millisecond or so, and does what is due.
static void turn(void) {
    struct epoll_event events[events_max];
    int count = epoll_wait(epoll, events, events_max, 1);
    for (int i = 0; i < count; i++) {
        struct member *member = events[i].data.ptr;
        drain(member);
        protocol->tend(member);
    }
    uint64_t now = now_monotonic();
    if (now - looked_at < look_ns) return;
    looked_at = now;
    for (int i = 0; i < member_count; i++) protocol->tend(&all_members[i]);
}

// The next line of standard input, if one has come.
static bool read_command(char *line, size_t size) {
    static char buffer[4096];
    static size_t length;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!memchr(buffer, '\n', length) && poll(&input, 1, 0) > 0) {
        ssize_t more = read(STDIN_FILENO, buffer + length, sizeof buffer - length);
        if (more > 0) length += (size_t)more;
    }
    char *end = memchr(buffer, '\n', length);
    if (!end || (size_t)(end - buffer) >= size) return false;
    memcpy(line, buffer, (size_t)(end - buffer));
    line[end - buffer] = 0;
    length -= (size_t)(end + 1 - buffer);
    memmove(buffer, end + 1, length);
    return true;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static double since(uint64_t start, uint64_t at) { return at > start ? (double)(at - start) / 1e9 : 0; }

int returning(int count, char **arguments) {
    char host[64];
    if (count < 6 || sscanf(arguments[2], "%63[^:]:%d", host, &target.port) != 2)
        fail("usage: load returning ADDRESS:PORT MEMBERS CHANNELS VOICE-BYTES");
    int per_channel = atoi(arguments[3]);
    size_t voice = (size_t)atoi(arguments[5]);
    target.channels = atoi(arguments[4]);
    if (per_channel < 2 || target.channels < 1 || voice < 8 || voice > 1000) fail("arguments");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    // Lines that come later are read without a buffer of the library's.
    setvbuf(stdin, NULL, _IONBF, 0);
    target.host = host;
    protocol = &relay_protocol;
    read_channels();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    member_count = per_channel * target.channels;
    all_members = calloc((size_t)member_count, sizeof *all_members);
    for (int i = 0; i < member_count; i++) {
        all_members[i] = (struct member){.number = i, .channel = i / per_channel, .talks = i % per_channel == 0};
        all_members[i].udp = open_udp();
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all_members[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, all_members[i].udp, &event)) fail("epoll");
    }
    uint64_t start = now_monotonic();
    for (int i = 0; i < member_count; i += protocol->batch)
        protocol->join(all_members, i, member_count - i < protocol->batch ? member_count - i : protocol->batch);
    double join_seconds = since(start, now_monotonic());
    for (int without = member_count; without > 0;) {
        turn();
        without = 0;
        for (int i = 0; i < member_count; i++) without += !has_ticket(&all_members[i]);
        if (since(start, now_monotonic()) > 10 * limit_s) fail("not every member has a ticket");
    }
    // What is still on its way of who came is none of the return's.
    for (uint64_t until = now_monotonic() + 1000000000u; now_monotonic() < until;) turn();
    members_return = true;
    puts("joined");
    fflush(stdout);

    uint64_t ready = 0, all_back = 0, asked = 0, next_packet = 0, heard_all = 0;
    int packets = 0, back = 0, hearing = 0;
    char line[64];
    for (start = now_monotonic(); !heard_all && since(start, now_monotonic()) < limit_s;) {
        turn();
        while (read_command(line, sizeof line)) {
            if (!strcmp(line, "gone"))
                for (int i = 0; i < member_count; i++) knock(&all_members[i]);
            else
                sscanf(line, "ready %lu", &ready);
        }
        back = hearing = 0;
        for (int i = 0; i < member_count; i++) {
            struct absence absence = absence_of(&all_members[i]);
            back += absence.lost_at && absence.back_at && all_members[i].joined;
            hearing += !all_members[i].talks && all_members[i].heard_at;
        }
        uint64_t now = now_monotonic();
        if (back == member_count && ready && !all_back) {
            all_back = asked = now;
            next_packet = now;
            for (int i = 0; i < member_count; i++)
                if (all_members[i].talks) ask_for_floor(&all_members[i]);
        }
        if (asked && now >= next_packet && packets < burst_packets) {
            next_packet += packet_ns;
            bool granted = true;
            for (int i = 0; i < member_count; i++) granted &= !all_members[i].talks || has_floor(&all_members[i]);
            for (int i = 0; granted && i < member_count; i++)
                if (all_members[i].talks) protocol->talk(&all_members[i], voice, now_realtime());
            packets += granted;
        }
        if (hearing == member_count - target.channels) heard_all = now;
    }

    uint64_t *times = calloc((size_t)member_count, sizeof *times);
    int returned = 0, early = 0, attempts = 0;
    for (int i = 0; i < member_count; i++) {
        struct absence absence = absence_of(&all_members[i]);
        if (absence.back_at) times[returned++] = absence.back_at;
        early += absence.early;
        attempts += absence.attempts;
    }
    qsort(times, (size_t)returned, sizeof *times, compare);
    double median = returned ? since(ready, times[returned / 2]) : 0, p99 = returned ? since(ready, times[returned * 99 / 100]) : 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"members\":%d,\"channels\":%d,\"join_s\":%.2f,\"back\":%d,\"early\":%d,\"attempts\":%d,\"p50_s\":%.3f,\"p99_s\":%.3f,"
           "\"last_s\":%.3f,\"heard\":%d,\"heard_s\":%.3f,\"own_s\":%.2f}\n",
           member_count, target.channels, join_seconds, back, early, attempts, median, p99,
           all_back ? since(ready, times[returned - 1]) : -1, hearing, heard_all ? since(ready, heard_all) : -1,
           (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec);
    return 0;
}
