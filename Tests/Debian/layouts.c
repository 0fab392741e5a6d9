// What Swift code here takes for granted about C's types and numbers, because a macro does not reach it or bytes are laid out by hand.
// It is compiled for each architecture (compile-c-for-arm64), never run.
#define _GNU_SOURCE
#include <bluetooth/bluetooth.h>
#include <bluetooth/hci.h>
#include <linux/input.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "../../Sources/C/CLinux/include/CLinux.h"

// LEConnection
_Static_assert(HCIGETCONNLIST == 0x800448d4 && HCIGETCONNINFO == 0x800448d5, "numbers of the Bluetooth requests");
_Static_assert(offsetof(struct hci_conn_list_req, conn_num) == 2, "the count behind the adapter");
_Static_assert(offsetof(struct hci_conn_info_req, type) == 6, "the type behind the address");
_Static_assert(offsetof(struct hci_conn_list_req, conn_info) == sizeof(struct hci_conn_list_req), "links behind their head");
_Static_assert(offsetof(struct hci_conn_info_req, conn_info) == sizeof(struct hci_conn_info_req), "the link behind its head");
_Static_assert(offsetof(struct hci_conn_info, handle) == 0, "the handle at the beginning of a link");
_Static_assert(sizeof(le_connection_update_cp) == 14, "a packed command");
// EvdevDevice and its tests
_Static_assert(sizeof(struct input_event) == 24 && EVIOCGRAB == 0x40044590, "events of keys");
// SerialPort's tests
_Static_assert(TIOCSPTLCK == 0x40045431 && TIOCGPTN == 0x80045430, "numbers of pseudo-terminals");
// EventLoop: packed on x86-64 only.
#ifdef __x86_64__
_Static_assert(sizeof(struct epoll_event) == 12, "a packed event");
#else
_Static_assert(sizeof(struct epoll_event) == 16, "an event");
#endif
// UDPSocket, and the shim of ngtcp2
_Static_assert(sizeof(struct in6_pktinfo) == 20 && IPV6_PKTINFO == 50 && IPV6_RECVPKTINFO == 49, "an address in a control message");
_Static_assert(CMSG_SPACE(sizeof(struct in6_pktinfo)) <= 64, "room for a control message");
// SerialLine, which Swift reads from a pipe
_Static_assert(sizeof(struct ptt_serial_line_change) == 24, "a change of a line");
// Everywhere
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");
_Static_assert(sizeof(long) == 8 && sizeof(time_t) == 8 && sizeof(off_t) == 8, "64 bits");
