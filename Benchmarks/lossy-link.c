// A link between two network namespaces that delays and loses packets, as `tc netem` does, for kernels without it.
//
//     lossy-link NAMESPACE ADDRESS NAMESPACE ADDRESS      (addresses such as 10.7.0.1)
//
// A TUN interface "link" in each namespace, a point-to-point route to the other address, and this program in between: what it carries
// are IP packets, so each end's TCP deals with the losses itself. Both ends are private to it. A line on standard input sets the link
// from then on, and is answered by a line with the packets carried, lost, and of UDP among those carried, since the line before: three
// numbers for the way from the first namespace, and three for the way back:
//
//     LOSS DELAY-MS UDP        such as "0.03 50 both"; UDP passes: both, up, none ("up": from the first namespace to the second)
//
// Loss hits each packet for itself, in both directions; the delay is that of one direction. Packets keep their order.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, QUEUE = 4096, PRIORITY = 50, UDP = 17 };

struct packet { uint64_t due; size_t length; uint8_t bytes[MTU]; };
// What goes one way: packets on it, oldest first.
struct way { int from, to; struct packet *packets; unsigned first, count; unsigned long carried, lost, udp; int passes_udp; };

static double loss;
static uint64_t delay, seed = 88172645463325252u;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "lossy-link: %s (%s)\n", what, strerror(errno));
    exit(1);
}
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static double draw(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) / (double)(1ull << 53);
}

static void set_address(int control, unsigned long what, struct ifreq *request, const char *address) {
    struct sockaddr_in *to = (struct sockaddr_in *)&request->ifr_addr;
    *to = (struct sockaddr_in){.sin_family = AF_INET};
    if (inet_pton(AF_INET, address, &to->sin_addr) != 1 || ioctl(control, what, request)) fail(address);
}
static int open_end(const char *namespace, const char *own, const char *other) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
    close(space);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    // Several links may end in one namespace: each is named by the other end.
    snprintf(request.ifr_name, sizeof request.ifr_name, "link%u", ntohl(inet_addr(other)) & 0xFFFFFF);
    int end = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK), control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (end < 0 || control < 0 || ioctl(end, TUNSETIFF, &request)) fail("no TUN interface");
    set_address(control, SIOCSIFADDR, &request, own);
    set_address(control, SIOCSIFDSTADDR, &request, other);
    request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_POINTOPOINT;
    if (ioctl(control, SIOCSIFFLAGS, &request)) fail("the interface does not come up");
    close(control);
    return end;
}

static void take(struct way *way) {
    static uint8_t bytes[MTU];
    for (ssize_t got; (got = read(way->from, bytes, sizeof bytes)) > 0;) {
        int is_udp = got > 9 && bytes[0] >> 4 == 4 && bytes[9] == UDP;
        if ((is_udp && !way->passes_udp) || way->count == QUEUE || draw() < loss) {
            way->lost++;
            continue;
        }
        struct packet *packet = &way->packets[(way->first + way->count++) % QUEUE];
        packet->due = now() + delay;
        packet->length = (size_t)got;
        memcpy(packet->bytes, bytes, packet->length);
        way->carried++;
        way->udp += (unsigned)is_udp;
    }
}
// Delivers what is due; when the next one is, or UINT64_MAX.
static uint64_t deliver(struct way *way) {
    for (uint64_t time = now(); way->count; way->first = (way->first + 1) % QUEUE, way->count--) {
        struct packet *packet = &way->packets[way->first];
        if (packet->due > time) return packet->due;
        if (write(way->to, packet->bytes, packet->length) < 0 && errno != EIO) perror("lossy-link");
    }
    return UINT64_MAX;
}

int main(int count, char **arguments) {
    if (count != 5) fail("usage: lossy-link NAMESPACE ADDRESS NAMESPACE ADDRESS");
    prctl(PR_SET_PDEATHSIG, 15);
    int first = open_end(arguments[1], arguments[2], arguments[4]), second = open_end(arguments[3], arguments[4], arguments[2]);
    struct way ways[2] = {{.from = first, .to = second, .passes_udp = 1}, {.from = second, .to = first, .passes_udp = 1}};
    for (int i = 0; i < 2; i++)
        if (!(ways[i].packets = calloc(QUEUE, sizeof *ways[i].packets))) fail("memory");
    // Late wake-ups would be a delay that nobody asked for.
    struct sched_param priority = {.sched_priority = PRIORITY};
    if (sched_setscheduler(0, SCHED_FIFO, &priority)) fprintf(stderr, "lossy-link: no priority: the delay may be longer than asked for\n");
    mlockall(MCL_CURRENT | MCL_FUTURE);
    setvbuf(stdin, NULL, _IONBF, 0);
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t due = deliver(&ways[0]), other = deliver(&ways[1]), time = now();
        if (other < due) due = other;
        uint64_t wait = due > time ? due - time : 0;
        struct timespec until = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        struct pollfd ready[3] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        if (ppoll(ready, 3, due == UINT64_MAX ? NULL : &until, NULL) < 0) continue;
        take(&ways[0]);
        take(&ways[1]);
        if (!ready[2].revents) continue;
        char line[128], udp[16];
        double milliseconds;
        if (!fgets(line, sizeof line, stdin)) return 0;
        if (sscanf(line, "%lf %lf %15s", &loss, &milliseconds, udp) != 3) fail("LOSS DELAY-MS UDP");
        delay = (uint64_t)(milliseconds * 1e6);
        ways[0].passes_udp = strcmp(udp, "none") != 0;
        ways[1].passes_udp = !strcmp(udp, "both");
        for (int i = 0; i < 2; i++) {
            printf("%lu %lu %lu%c", ways[i].carried, ways[i].lost, ways[i].udp, i ? '\n' : ' ');
            ways[i].carried = ways[i].lost = ways[i].udp = 0;
        }
        fflush(stdout);
    }
}
