// TLS over TCP. The stamp of a record is right as far as the kernel has not joined its segment to the next one: GnuTLS reads a record's
// head and body one after the other and no further, and each read has the stamp of the segment that its last byte came in. Segments of
// one socket are joined while nobody reads them, so members of TCP are looked after more often than packets come.
#include "stream.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t stream_stamp;

int open_tcp(void) {
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (tcp < 0) fail("no socket: raise the limit of open files");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)target.port)};
    inet_pton(AF_INET, target.host, &address.sin_addr);
    setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (setsockopt(tcp, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one)) fail("SO_TIMESTAMPNS");
    if (connect(tcp, (struct sockaddr *)&address, sizeof address)) fail("connect");
    fcntl(tcp, F_SETFL, O_NONBLOCK);
    return tcp;
}

static ssize_t pull(gnutls_transport_ptr_t pointer, void *bytes, size_t size) {
    uint8_t control[64];
    struct iovec vector = {bytes, size};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg((int)(intptr_t)pointer, &header, MSG_DONTWAIT);
    for (struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&header) : NULL; c; c = CMSG_NXTHDR(&header, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec time;
            memcpy(&time, CMSG_DATA(c), sizeof time);
            stream_stamp = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
        }
    return got;
}

gnutls_session_t begin_tls(int tcp) {
    static gnutls_certificate_credentials_t credentials;
    gnutls_session_t tls;
    if (!credentials) gnutls_certificate_allocate_credentials(&credentials);
    if (gnutls_init(&tls, GNUTLS_CLIENT) || gnutls_set_default_priority(tls) ||
        gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, credentials))
        fail("TLS");
    gnutls_transport_set_int(tls, tcp);
    gnutls_transport_set_pull_function(tls, pull);
    return tls;
}

bool send_all(gnutls_session_t tls, int tcp, const uint8_t *bytes, size_t length) {
    for (size_t sent = 0; sent < length;) {
        ssize_t done = gnutls_record_send(tls, bytes + sent, length - sent);
        if (done == GNUTLS_E_AGAIN || done == GNUTLS_E_INTERRUPTED) {
            struct pollfd room = {.fd = tcp, .events = POLLOUT};
            poll(&room, 1, 1000);
            continue;
        }
        if (done < 0) return false;
        sent += (size_t)done;
    }
    return true;
}

void inbox_add(struct inbox *inbox, const uint8_t *bytes, size_t length) {
    if (inbox->length + length > inbox->capacity) {
        inbox->capacity = 2 * (inbox->length + length);
        inbox->bytes = realloc(inbox->bytes, inbox->capacity);
    }
    memcpy(inbox->bytes + inbox->length, bytes, length);
    inbox->length += length;
}

void inbox_drop(struct inbox *inbox, size_t length) {
    memmove(inbox->bytes, inbox->bytes + length, inbox->length - length);
    inbox->length -= length;
    if (!inbox->length) free(inbox->bytes), *inbox = (struct inbox){0};
}
