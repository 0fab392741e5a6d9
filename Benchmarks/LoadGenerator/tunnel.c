// Speech over TCP on bad links, packet by packet: one talker and one listener, each in a network namespace of its own.
//
//     load tunnel KIND TALKER-NAMESPACE TALKER'S-ADDRESS:PORT LISTENER-NAMESPACE LISTENER'S-ADDRESS:PORT PACKETS/S VOICE-BYTES BURSTS SECONDS
//
// The addresses are the server's, as each of the two reaches it. A relay's channel comes on standard input. For each burst a line of JSON:
// the packets sent and those that the talker dropped because of their age, and for each packet how long after it was spoken the listener
// could read it, in µs; -1: never. The time is the program's own at the read: the kernel stamps a segment when it comes, not when it
// may be read, which is later while an earlier segment is missing.
#include "web.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct protocol *protocol;
// After a burst for what is late.
enum { wait_s = 4, packets_max = 100000 };

static struct { uint64_t sent; int64_t late; } packets[packets_max];
static int packet_count;

static void heard_one(uint64_t sent) {
    uint64_t at = now_realtime();
    for (int i = packet_count - 1; i >= 0; i--)
        if (packets[i].sent == sent) {
            packets[i].late = (int64_t)(at - sent);
            return;
        }
}

static void enter(const char *namespace) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
    close(space);
}

static void turn(void) {
    for (int i = 0; i < member_count; i++) drain(&all_members[i]), protocol->tend(&all_members[i]);
    usleep(500);
}

int tunnelled(int count, char **arguments) {
    if (count < 11) fail("usage: load tunnel KIND NAMESPACE ADDRESS:PORT NAMESPACE ADDRESS:PORT PACKETS/S VOICE-BYTES BURSTS SECONDS");
    signal(SIGPIPE, SIG_IGN);
    protocol = protocol_named(arguments[2]);
    uint64_t period = 1000000000u / (uint64_t)atoi(arguments[7]);
    size_t voice = (size_t)atoi(arguments[8]);
    int bursts = atoi(arguments[9]), per_burst = atoi(arguments[10]) * atoi(arguments[7]);
    if (per_burst < 1 || per_burst > packets_max || voice < 8 || voice > 1000) fail("arguments");
    target.channels = 1;
    if (protocol == &relay_protocol || protocol == &web_protocol) read_channels();
    on_heard = heard_one;
    member_count = 2;
    all_members = calloc(2, sizeof *all_members);
    for (int i = 0; i < 2; i++) {
        static char host[64];
        struct member *member = &all_members[i];
        *member = (struct member){.number = i, .udp = -1, .talks = i == 0};
        enter(arguments[3 + 2 * i]);
        if (sscanf(arguments[4 + 2 * i], "%63[^:]:%d", host, &target.port) != 2) fail("ADDRESS:PORT");
        target.host = host;
        if (protocol->packet) member->udp = open_udp();
        protocol->join(all_members, i, 1);
    }
    puts("joined");
    fflush(stdout);
    for (int burst = 0; burst < bursts; burst++) {
        uint32_t dropped = protocol == &web_protocol ? web_counts_of(&all_members[0]).dropped : 0;
        packet_count = 0;
        uint64_t asked = now_monotonic();
        protocol->begin(&all_members[0]);
        uint64_t start = now_monotonic();
        while (packet_count < per_burst) {
            if (now_monotonic() >= start + period * (uint64_t)packet_count) {
                uint64_t time = now_realtime();
                packets[packet_count].sent = time;
                packets[packet_count++].late = -1000;
                protocol->talk(&all_members[0], voice, time);
            }
            turn();
        }
        for (uint64_t until = now_monotonic() + wait_s * 1000000000ull; now_monotonic() < until;) turn();
        if (protocol == &web_protocol) dropped = web_counts_of(&all_members[0]).dropped - dropped;
        printf("{\"sent\":%d,\"dropped\":%u,\"granted_us\":%lu,\"late_us\":[", packet_count, dropped, (start - asked) / 1000);
        for (int i = 0; i < packet_count; i++) printf("%s%ld", i ? "," : "", packets[i].late / 1000);
        puts("]}");
        fflush(stdout);
    }
    return 0;
}
