// Puts listeners on a server, has some talk, and tells what a packet costs the server and how late it comes: a line of JSON.
//
//   load relay|web|mumble|mumble-tcp|bare ADDRESS:PORT PID LISTENERS CHANNELS PACKETS/S VOICE-BYTES SECONDS [together] [first] [talking=N]
//
// LISTENERS are of each channel, one more talks; with talking=N only on the first N channels. PID 0: not known (bare). A relay's channels come on standard input, a line each:
// channel id and token in hexadecimal digits.
//
// It disturbs the server as little as it can: one thread, that takes only time which no server wants (SCHED_IDLE), and neither waits for
// sockets nor is woken by packets. It sleeps to the next of its steps of 2 ms, sends what is due, and looks after a part of the members,
// so that each has its turn every 100 ms (members of TCP every 8 ms: stream.c). How late a packet comes is the kernel's stamp of it at
// the listener's socket less the time that the talker wrote into it.
//
// "first": on a machine that has other work, server and clients go before that (SCHED_RR), the server before the clients all the same.
#include "load.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

const struct protocol *protocol;
struct target target;
struct member *all_members;
int member_count;
bool reports_together, members_return;

enum { step_ns = 2000000, warm_up_s = 3, samples_max = 60000000 };
static uint64_t window_start = UINT64_MAX, window_end = UINT64_MAX, delivered, bad, joined_stamps;
static uint32_t *samples;
static size_t sample_count, sample_capacity;

void (*on_heard)(uint64_t sent);

void heard(struct member *member, uint64_t sent, uint64_t stamped) {
    if (on_heard) return on_heard(sent);
    bool is_joined = member->stamped == stamped;
    member->stamped = stamped;
    if (sent < window_start || sent >= window_end) return;
    delivered++;
    joined_stamps += is_joined;
    uint64_t late = stamped > sent ? stamped - sent : 0;
    if (sample_count < sample_capacity) samples[sample_count++] = late > UINT32_MAX ? UINT32_MAX : (uint32_t)late;
}
void count_bad(void) { bad++; }

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}
static double percentile(double share) {
    if (!sample_count) return 0;
    size_t index = (size_t)(share * (double)sample_count);
    return samples[index < sample_count ? index : sample_count - 1] / 1e3;
}

void read_channels(void) {
    target.keys = calloc((size_t)target.channels, sizeof *target.keys);
    for (int i = 0; i < target.channels; i++) {
        char id[64], token[160];
        if (scanf("%63s %159s", id, token) != 2) fail("standard input must have a line for each channel");
        for (int n = 0; n < 16; n++) sscanf(id + 2 * n, "%2hhx", &target.keys[i].id[n]);
        target.keys[i].token_length = strlen(token) / 2;
        for (size_t n = 0; n < target.keys[i].token_length && n < 64; n++) sscanf(token + 2 * n, "%2hhx", &target.keys[i].token[n]);
    }
}

static void wait_until(uint64_t instant) {
    struct timespec time = {(time_t)(instant / 1000000000u), (long)(instant % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {}
}

const struct protocol *protocol_named(const char *name) {
    const struct protocol *all[] = {&relay_protocol, &web_protocol, &mumble_protocol, &mumble_tcp_protocol, &bare_protocol};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i]->name)) return all[i];
    fail("no such kind of server");
}

// Has all threads of a process go before what else the machine does.
static void put_first(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    struct sched_param priority = {.sched_priority = 2};
    if (!tasks) fail(path);
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) > 0 && sched_setscheduler(atoi(entry->d_name), SCHED_RR, &priority)) fail("SCHED_RR");
    closedir(tasks);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "returning")) return returning(count, arguments);
    if (count > 1 && !strcmp(arguments[1], "idle")) return idle(count, arguments);
    if (count > 1 && !strcmp(arguments[1], "tunnel")) return tunnelled(count, arguments);
    if (count > 1 && !strcmp(arguments[1], "pages")) return pages(count, arguments);
    if (count < 9) fail("usage: load relay|web|mumble|mumble-tcp|bare ADDRESS:PORT PID LISTENERS CHANNELS PACKETS/S VOICE-BYTES SECONDS [together] [first] [talking=N]");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    protocol = protocol_named(arguments[1]);
    char host[64] = "127.0.0.1";
    if (sscanf(arguments[2], "%63[^:]:%d", host, &target.port) != 2 && protocol != &bare_protocol) fail("ADDRESS:PORT");
    target.host = host;
    int pid = atoi(arguments[3]), listeners = atoi(arguments[4]), rate = atoi(arguments[6]), seconds = atoi(arguments[8]);
    size_t voice = (size_t)atoi(arguments[7]);
    target.channels = atoi(arguments[5]);
    int talking = target.channels;
    bool goes_first = false;
    for (int i = 9; i < count; i++) {
        if (!strcmp(arguments[i], "together")) reports_together = true;
        else if (!strcmp(arguments[i], "first")) goes_first = true;
        else if (sscanf(arguments[i], "talking=%d", &talking) != 1) fail("arguments");
    }
    if (talking < 1 || talking > target.channels) fail("talking");
    if (listeners < 1 || target.channels < 1 || rate < 1 || voice < 8 || voice > 1000 || seconds < 1) fail("arguments");
    if (protocol == &relay_protocol || protocol == &web_protocol) read_channels();

    int per_channel = listeners + 1;
    member_count = per_channel * target.channels;
    all_members = calloc((size_t)member_count, sizeof *all_members);
    long memory_before = pid ? resident_kilobytes(pid) : 0;
    uint16_t *ports = calloc((size_t)member_count, sizeof *ports);
    for (int i = 0; i < member_count; i++) {
        struct member *member = &all_members[i];
        *member = (struct member){.number = i, .channel = i / per_channel, .udp = -1, .talks = i % per_channel == 0 && i / per_channel < talking};
        if (!protocol->packet) continue;
        if (protocol == &bare_protocol) target.port = 0;
        member->udp = open_udp();
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof own;
        if (protocol == &bare_protocol && bind(member->udp, (struct sockaddr *)&own, length)) fail("bind");
        getsockname(member->udp, (struct sockaddr *)&own, &length);
        ports[i] = ntohs(own.sin_port);
    }
    if (protocol == &bare_protocol) {
        if (target.channels > 65536) fail("the bare loop has at most 65,536 channels");
        uint16_t port;
        pid = start_reflector(ports, per_channel, target.channels, &port);
        memory_before = resident_kilobytes(pid);
        target.port = port;
        for (int i = 0; i < member_count; i++) {
            struct sockaddr_in server = {
                .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            if (connect(all_members[i].udp, (struct sockaddr *)&server, sizeof server)) fail("connect");
        }
    }
    struct sched_param last_of_first = {.sched_priority = 1};
    if (goes_first) {
        if (pid) put_first(pid);
        if (sched_setscheduler(0, SCHED_RR, &last_of_first)) fail("SCHED_RR");
    }
    uint64_t joining = now_monotonic();
    for (int i = 0; i < member_count; i += protocol->batch)
        protocol->join(all_members, i, member_count - i < protocol->batch ? member_count - i : protocol->batch);
    double join_seconds = (double)(now_monotonic() - joining) / 1e9;
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < member_count; i++) drain(&all_members[i]), protocol->tend(&all_members[i]);
        usleep(50000);
    }
    long memory_joined = pid ? resident_kilobytes(pid) : 0;
    for (int i = 0; i < member_count; i++)
        if (all_members[i].talks) protocol->begin(&all_members[i]);

    // As if the clients were on machines of their own: a server's thread that has something to send goes before them.
    struct sched_param none = {0};
    if (!goes_first && sched_setscheduler(0, SCHED_IDLE, &none)) fail("SCHED_IDLE");
    sample_capacity = (size_t)listeners * (size_t)talking * (size_t)rate * (size_t)seconds + 4096;
    if (sample_capacity > samples_max) sample_capacity = samples_max;
    samples = malloc(sample_capacity * sizeof *samples);
    memset(samples, 0, sample_capacity * sizeof *samples);
    uint64_t period = 1000000000u / (uint64_t)rate, start = now_monotonic(), sent = 0, processor = 0, processor_end = 0;
    uint64_t *due = calloc((size_t)target.channels, sizeof *due);
    for (int i = 0; i < talking; i++) due[i] = start + period * (uint64_t)i / (uint64_t)talking;
    double own_before = 0, own_after = 0;
    uint64_t measured_from = start + warm_up_s * 1000000000ull, measured_to = measured_from + (uint64_t)seconds * 1000000000u;
    int next = 0, part = (member_count + protocol->steps_per_turn - 1) / protocol->steps_per_turn;
    for (uint64_t step = start;; step += step_ns) {
        wait_until(step);
        uint64_t now = now_monotonic();
        if (processor == 0 && now >= measured_from) {
            processor = pid ? processor_time(pid) : 1;
            own_before = own_processor_seconds();
            window_start = now_realtime();
        }
        if (now >= measured_to && window_end == UINT64_MAX) {
            window_end = now_realtime();
            processor_end = pid ? processor_time(pid) : 0;
            own_after = own_processor_seconds();
        }
        if (now >= measured_to + 500000000u) break;
        for (int i = 0; i < talking && window_end == UINT64_MAX; i++)
            while (due[i] <= now) {
                struct member *talker = &all_members[i * per_channel];
                uint64_t time = now_realtime();
                protocol->talk(talker, voice, time);
                if (time >= window_start && time < window_end) sent++;
                due[i] += period;
                drain(talker);
                protocol->tend(talker);
            }
        for (int i = 0; i < part; i++, next = (next + 1) % member_count) {
            drain(&all_members[next]);
            protocol->tend(&all_members[next]);
        }
    }
    for (int i = 0; i < member_count; i++) drain(&all_members[i]);
    long memory_after = pid ? resident_kilobytes(pid) : 0;
    uint64_t expected = sent * (uint64_t)listeners;
    double spent = (double)(processor_end - processor) / 1e3;
    if (protocol == &bare_protocol) kill(pid, SIGKILL);
    qsort(samples, sample_count, sizeof *samples, compare);
    printf("{\"kind\":\"%s\",\"listeners\":%d,\"channels\":%d,\"talking\":%d,\"rate\":%d,\"voice\":%zu,\"join_s\":%.2f,\"sent\":%lu,\"expected\":%lu,"
           "\"delivered\":%lu,\"bad\":%lu,\"joined_stamps\":%lu,\"server_us\":%.3f,\"server_cores\":%.3f,\"own_cores\":%.3f,"
           "\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f,\"memory_kb\":[%ld,%ld,%ld],\"member_kb\":%.1f}\n",
           protocol->name, listeners, target.channels, talking, rate, voice, join_seconds, sent, expected, delivered, bad, joined_stamps,
           delivered ? spent / (double)delivered : 0, spent / 1e6 / seconds, (own_after - own_before) / seconds, percentile(0.5),
           percentile(0.99), percentile(1), memory_before, memory_joined, memory_after,
           (double)(memory_joined - memory_before) / member_count);
    return 0;
}
