// The least that any server pays: a process that sends what it gets to everyone of a channel with sendmmsg, and looks at nothing else.
#include "load.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

// What a relay's packet has around its voice: RTP, SFrame and trailer.
enum { overhead = 12 + 11 + 16 + 16, batch = 64 };

int start_reflector(const uint16_t *ports, int per_channel, int channels, uint16_t *port) {
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = 1 << 22, count = per_channel * channels;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (udp < 0 || bind(udp, (struct sockaddr *)&address, length) ||
        getsockname(udp, (struct sockaddr *)&address, &length))
        fail("no socket for the bare loop");
    setsockopt(udp, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    *port = ntohs(address.sin_port);
    int pid = fork();
    if (pid < 0) fail("fork");
    if (pid) return close(udp), pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sockaddr_in *addresses = calloc((size_t)count, sizeof *addresses);
    struct mmsghdr *messages = calloc((size_t)count, sizeof *messages);
    uint8_t packet[2048];
    struct iovec vector = {packet, 0};
    for (int i = 0; i < count; i++) {
        addresses[i] = address;
        addresses[i].sin_port = htons(ports[i]);
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &addresses[i], .msg_namelen = sizeof addresses[i], .msg_iov = &vector, .msg_iovlen = 1};
    }
    for (;;) {
        ssize_t got = recv(udp, packet, sizeof packet, 0);
        int channel = packet[1] | packet[2] << 8;
        if (got < overhead || channel >= channels) continue;
        vector.iov_len = (size_t)got;
        // The first of a channel talks.
        for (int next = channel * per_channel + 1, end = (channel + 1) * per_channel; next < end;) {
            int part = end - next < batch ? end - next : batch;
            int done = sendmmsg(udp, messages + next, (unsigned)part, 0);
            next += done > 0 ? done : 1;
        }
    }
}

static void join(struct member *members, int first, int count) {
    for (int i = first; i < first + count; i++) members[i].joined = true;
}
static void packet(struct member *member, const uint8_t *bytes, size_t length, uint64_t stamped) {
    uint64_t sent;
    if (length < overhead + sizeof sent) return count_bad();
    memcpy(&sent, bytes + overhead, sizeof sent);
    heard(member, sent, stamped);
}
static void nothing(struct member *member) { (void)member; }
static void talk(struct member *talker, size_t length, uint64_t sent) {
    uint8_t bytes[2048] = {0x80, (uint8_t)talker->channel, (uint8_t)(talker->channel >> 8)};
    memcpy(bytes + overhead, &sent, sizeof sent);
    if (send(talker->udp, bytes, overhead + length, 0) < 0) fail("send to the bare loop");
}
const struct protocol bare_protocol = {"bare", join, packet, nothing, nothing, talk, 1 << 20, 50};
