#define _GNU_SOURCE
#include "CLinux.h"
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int ptt_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    return recvmmsg(fd, messages, count, flags, NULL);
}

int ptt_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    return sendmmsg(fd, messages, count, flags);
}

int ptt_report_errors(int fd, int family) {
    int on = 1;
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on) < 0) return -1;
    return setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
}

int ptt_next_error(int fd, struct sockaddr_storage *destination, socklen_t *length, void *packet, size_t *count) {
    _Alignas(struct cmsghdr) char control[512];
    struct iovec part_of_packet = {.iov_base = packet, .iov_len = *count};
    struct msghdr message = {
        .msg_name = destination, .msg_namelen = sizeof *destination, .msg_iov = &part_of_packet, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof control};
    ssize_t quoted = recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (quoted < 0) return 0;
    *count = (size_t)quoted;
    *length = message.msg_namelen;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (!(part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_RECVERR)
            && !(part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_RECVERR))
            continue;
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(part), sizeof error);
        if (error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6) return (int)error.ee_errno;
    }
    return -1;
}

int ptt_steer_by_number(
    int fd, unsigned short_offset, unsigned long_offset, unsigned foreign_offset, unsigned count, unsigned otherwise) {
    // Offsets count from the UDP payload. Reading beyond a packet's end gives 0.
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x80, 2, 0),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, short_offset),
        BPF_STMT(BPF_JMP | BPF_JA, 2),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x40, 0, 4),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, long_offset),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, count, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, otherwise),
        BPF_STMT(BPF_RET | BPF_A, 0),
        // Neither a short nor a long header.
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, foreign_offset),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, count),
        BPF_STMT(BPF_RET | BPF_A, 0),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

void ptt_set_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

int ptt_thread_id(void) { return gettid(); }

int ptt_raise_priority(int thread, int niceness) {
    struct sched_param parameters = {.sched_priority = 0};
    // Threads and programs that it starts begin with 0 again.
    if (sched_setscheduler(thread, SCHED_OTHER | SCHED_RESET_ON_FORK, &parameters) != 0) return errno;
    return setpriority(PRIO_PROCESS, (id_t)thread, niceness) == 0 ? 0 : errno;
}

extern void *swift_task_enqueueGlobal_hook;

void ptt_set_global_executor(void *hook) { swift_task_enqueueGlobal_hook = hook; }

int ptt_pidfd_open(int process) {
    return (int)syscall(SYS_pidfd_open, process, 0);
}

void ptt_clear_ambient_capabilities(void) { prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); }

int ptt_spawn_close_from(void *file_actions, int first) {
    return posix_spawn_file_actions_addclosefrom_np(file_actions, first);
}

int ptt_open_network_changes(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return -1;
    struct sockaddr_nl address = {
        .nl_family = AF_NETLINK,
        .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE,
    };
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}
