// ngtcp2 with its GnuTLS crypto, for the module QUIC.
#pragma once

#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include "versions.h"

// Which of this host's addresses a packet came to, and from which one to send: control messages are read and written
// with macros that Swift does not see.
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

// Room for one control message of either kind.
#define PTT_CONTROL_LENGTH 64

// The Linux layout; <netinet/in.h> shows it only under _GNU_SOURCE.
struct ptt_in6_pktinfo {
    struct in6_addr address;
    unsigned int interface;
};
#define PTT_IPV6_RECVPKTINFO 49
#define PTT_IPV6_PKTINFO 50

// Writes the local address that a received packet was sent to, with `port` (network order); returns its length, 0 if
// the kernel did not say.
static inline socklen_t ptt_packet_destination(struct msghdr *message, in_port_t port, struct sockaddr_storage *result) {
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == PTT_IPV6_PKTINFO &&
            control->cmsg_len >= CMSG_LEN(sizeof(struct ptt_in6_pktinfo))) {
            struct ptt_in6_pktinfo info;
            memcpy(&info, CMSG_DATA(control), sizeof(info));
            struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = info.address};
            if (IN6_IS_ADDR_LINKLOCAL(&info.address)) address.sin6_scope_id = info.interface;
            memcpy(result, &address, sizeof(address));
            return sizeof(address);
        }
        if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_PKTINFO &&
            control->cmsg_len >= CMSG_LEN(sizeof(struct in_pktinfo))) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(control), sizeof(info));
            struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port, .sin_addr = info.ipi_addr};
            memcpy(result, &address, sizeof(address));
            return sizeof(address);
        }
    }
    return 0;
}

// Writes the control message that makes a packet leave from `source` into `control` (PTT_CONTROL_LENGTH bytes);
// returns its length.
static inline size_t ptt_write_packet_source(void *control, const struct sockaddr *source) {
    struct msghdr message = {.msg_control = control, .msg_controllen = PTT_CONTROL_LENGTH};
    memset(control, 0, PTT_CONTROL_LENGTH);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (source->sa_family == AF_INET6) {
        struct sockaddr_in6 address;
        memcpy(&address, source, sizeof(address));
        struct ptt_in6_pktinfo info = {.address = address.sin6_addr, .interface = address.sin6_scope_id};
        header->cmsg_level = IPPROTO_IPV6;
        header->cmsg_type = PTT_IPV6_PKTINFO;
        header->cmsg_len = CMSG_LEN(sizeof(info));
        memcpy(CMSG_DATA(header), &info, sizeof(info));
        return CMSG_SPACE(sizeof(info));
    }
    struct sockaddr_in address;
    memcpy(&address, source, sizeof(address));
    struct in_pktinfo info = {.ipi_spec_dst = address.sin_addr};
    header->cmsg_level = IPPROTO_IP;
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(info));
    memcpy(CMSG_DATA(header), &info, sizeof(info));
    return CMSG_SPACE(sizeof(info));
}
