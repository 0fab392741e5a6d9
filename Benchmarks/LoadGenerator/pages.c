// Members that come and go as pages in browsers do, for a long time, and what a relay keeps of them.
//
//     load pages ADDRESS:PORT PID MEMBERS CHANNELS SECONDS
//
// The members are spread over the channels, which come on standard input. Each joins, stays for some seconds, asks for the floor now and
// then and talks where it is granted, and goes: politely, or as a page that is shut, or by a reset, some in the middle of the handshake.
// At the end of each round all are away for so long that the relay keeps no speech of theirs; then a line of JSON tells its memory and
// descriptors. The first round is for warming up.
#include "web.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern const struct protocol *protocol;
enum { step_us = 4000, first_round_s = 30, round_s = 60, quiet_s = 17, join_limit_s = 60, packet_ms = 20, voice_bytes = 60 };

enum doing { away, joining, listening, asking, talking };
struct visitor {
    enum doing doing;
    // Of what it does now; of its visit; of its next packet.
    uint64_t until, leaves_at, next_packet;
    bool gives_up;
};
static struct visitor *visitors;
static unsigned long joins, given_up, lost, bursts, denials, spoken, heard_count;

static void heard_one(uint64_t sent) { (void)sent, heard_count++; }

static uint64_t in_ms(uint64_t from, int least, int most) {
    return from + (uint64_t)(least + rand() % (most - least)) * 1000000u;
}

static int descriptors(int pid) {
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (!folder) fail("the relay is gone");
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void leave(struct member *member, struct visitor *visitor, uint64_t now) {
    int how = rand() % 10;
    web_leave(member, member->joined && how < 5 ? polite_leave : how < 8 ? shut_leave : reset_leave);
    visitor->doing = away;
    visitor->until = in_ms(now, 200, 3000);
}

static void act(struct member *member, struct visitor *visitor, uint64_t now, bool is_open) {
    if (visitor->doing != away) protocol->tend(member);
    bool is_lost = visitor->doing != away && web_is_lost(member);
    bool goes = visitor->doing != away && (is_lost || !is_open || now >= visitor->leaves_at);
    lost += is_lost;
    if (visitor->doing == talking && goes) web_release_floor(member);
    if (goes) return leave(member, visitor, now);
    switch (visitor->doing) {
    case away:
        if (!is_open || now < visitor->until) return;
        web_connect(member);
        visitor->doing = joining;
        visitor->gives_up = rand() % 20 == 0;
        visitor->until = now + join_limit_s * 1000000000ull;
        visitor->leaves_at = visitor->gives_up ? in_ms(now, 1, 20) : in_ms(now, 3000, 15000);
        given_up += visitor->gives_up;
        return;
    case joining:
        if (!member->joined && now > visitor->until) fail("a member does not get in");
        if (!member->joined) return;
        joins++;
        visitor->doing = listening;
        visitor->until = in_ms(now, 100, 8000);
        return;
    case listening:
        if (now < visitor->until) return;
        web_ask_for_floor(member);
        visitor->doing = asking;
        visitor->until = now + 5000000000u;
        return;
    case asking:
        if (web_has_floor(member)) {
            bursts++;
            visitor->doing = talking;
            visitor->next_packet = now;
            visitor->until = in_ms(now, 500, 3000);
        } else if (web_is_denied(member) || now > visitor->until) {
            denials++;
            visitor->doing = listening;
            visitor->until = in_ms(now, 1000, 6000);
        }
        return;
    case talking:
        if (now >= visitor->until || !web_has_floor(member)) {
            web_release_floor(member);
            visitor->doing = listening;
            visitor->until = in_ms(now, 2000, 8000);
            return;
        }
        for (; visitor->next_packet <= now; visitor->next_packet += packet_ms * 1000000u, spoken++)
            protocol->talk(member, voice_bytes, now_realtime());
        return;
    }
}

static void run(uint64_t until, bool is_open) {
    for (uint64_t now; (now = now_monotonic()) < until; usleep(step_us))
        for (int i = 0; i < member_count; i++) act(&all_members[i], &visitors[i], now, is_open);
}

int pages(int count, char **arguments) {
    static char host[64];
    if (count < 7 || sscanf(arguments[2], "%63[^:]:%d", host, &target.port) != 2)
        fail("usage: load pages ADDRESS:PORT PID MEMBERS CHANNELS SECONDS");
    signal(SIGPIPE, SIG_IGN);
    int pid = atoi(arguments[3]), seconds = atoi(arguments[6]);
    member_count = atoi(arguments[4]);
    target.channels = atoi(arguments[5]);
    if (member_count < 1 || target.channels < 1 || seconds < 1) fail("arguments");
    target.host = host;
    protocol = &web_protocol;
    read_channels();
    on_heard = heard_one;
    floor_may_be_denied = members_return = true;
    srand(20);
    all_members = calloc((size_t)member_count, sizeof *all_members);
    visitors = calloc((size_t)member_count, sizeof *visitors);
    for (int i = 0; i < member_count; i++)
        all_members[i] = (struct member){.number = i, .channel = i % target.channels, .udp = -1};
    uint64_t start = now_monotonic(), end = start + (uint64_t)seconds * 1000000000u;
    for (int round = 0; round < 2 || now_monotonic() < end; round++) {
        run(now_monotonic() + (round ? round_s : first_round_s) * 1000000000ull, true);
        run(now_monotonic() + quiet_s * 1000000000ull, false);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        printf("{\"seconds\":%lu,\"joins\":%lu,\"given_up\":%lu,\"lost\":%lu,\"bursts\":%lu,\"denials\":%lu,\"spoken\":%lu,\"heard\":%lu,"
               "\"memory_kb\":%ld,\"descriptors\":%d}\n", (now_monotonic() - start) / 1000000000u, joins, given_up, lost, bursts, denials, spoken,
               heard_count, resident_kilobytes(pid), descriptors(pid));
        fflush(stdout);
    }
    return 0;
}
