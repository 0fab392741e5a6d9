// Linux system calls and constants that Swift's Glibc module does not show.
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
// fd_set's member has another name under _GNU_SOURCE; the importer, which reads <sys/select.h> without it, refuses a
// program that sees both.
#include <features.h>
#undef __USE_XOPEN
#include <sys/select.h>
#define __USE_XOPEN 1
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

// glibc declares these only under _GNU_SOURCE, which the importer does not set for its own Glibc module.
int ptt_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);
int ptt_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);
// Makes a UDP socket queue ICMP errors (IP_RECVERR, ip(7)), of IPv4 and of IPv6. When one comes, the socket reports EPOLLERR, and the next
// sendmsg(2) or recvmsg(2) fails with the error and does nothing else. 0, or -1 and errno.
int ptt_report_errors(int fd, int family);
// Takes the next of the queued errors: its errno value, where the packet was sent, and its beginning: as much as the host quotes, and at
// most `*count` bytes. 0: there is none; -1: it is an error of this machine.
int ptt_next_error(int fd, struct sockaddr_storage *destination, socklen_t *length, void *packet, size_t *count);
// Has the kernel give a packet for the UDP sockets that share fd's address (SO_REUSEPORT) to the one whose number, in the order they
// were bound, the packet names in 16 bits, most significant first: at `short_offset` when its first bit is 0, at `long_offset` when its
// first two are 1. Those that name none of the `count` go to number `otherwise` or, with UINT_MAX, by the hash of their addresses, as
// all would without this. A packet that begins with the bits 10 goes to the remainder of the 32-bit number at `foreign_offset`, divided
// by `count`. 0, or -1 and errno.
int ptt_steer_by_number(
    int fd, unsigned short_offset, unsigned long_offset, unsigned foreign_offset, unsigned count, unsigned otherwise);
// Names the calling thread (15 bytes are kept), as ps -L and gdb show it.
void ptt_set_thread_name(const char *name);

// A netlink socket (rtnetlink(7)) that becomes readable when an interface, an address or a route of this machine changes;
// -1 and errno when there is none.
int ptt_open_network_changes(void);

// A descriptor that becomes readable when the child process ends (pidfd_open(2)); -1 and errno when there is none.
int ptt_pidfd_open(int process);

// Has posix_spawn(3) close every descriptor from `first` on; 0, or an errno value.
int ptt_spawn_close_from(void *file_actions, int first);

// Keeps the programs that the calling thread starts from getting capabilities that this one was given (PR_CAP_AMBIENT_CLEAR_ALL); this one
// keeps them.
void ptt_clear_ambient_capabilities(void);

// The calling thread's id, gettid(2).
int ptt_thread_id(void);

// Gives an ordinary thread of this process a niceness below 0, so that it runs before others (setpriority(2), RLIMIT_NICE). What it starts gets
// none of that. 0, or an errno.
int ptt_raise_priority(int thread, int niceness);

// For reports of a debug build: the stack of a thread of this process, written to `fd`, a line for each frame. Interrupts the thread
// by a signal, which `ptt_prepare_stacks` takes for that. One caller at a time.
void ptt_prepare_stacks(void);
void ptt_print_stack(int thread, int fd);

// Keeps all memory of the process resident from its first use on; 0, or an errno: EPERM also under a limit (RLIMIT_MEMLOCK),
// for then the allocation that exceeds it would fail.
int ptt_lock_all_memory(void);

// Takes the pages of code and constants, of the program and its libraries, out of the process: what is used again comes back from
// the page cache, and what only the start has used does not. Returns how many bytes of them there are.
size_t ptt_give_back_code(void);

// Memory of many owners, each of which uses its own rarely: for a library that reserves much and writes little of it, and takes an allocator
// as an argument. An owner's memory has addresses that stay, which it shares with others. Who is to be used enters; who was there leaves,
// and only what is not 0 of it is kept meanwhile. One thread at a time uses a stage and the memories of it.
struct ptt_stage;
struct ptt_memory;
// The stage has `minimum` places for those who are there, and one more for so many owners. NULL: there is no memory. The stage is freed
// after the memories of it.
struct ptt_stage *ptt_stage_make(size_t minimum, size_t owners_per_place);
void ptt_stage_free(struct ptt_stage *stage);
struct ptt_memory *ptt_memory_make(struct ptt_stage *stage);
// What came from it may not be used any more.
void ptt_memory_free(struct ptt_memory *memory);
// Whatever was allocated may be used until another memory of the stage enters.
void ptt_memory_enter(struct ptt_memory *memory);
// It need not leave by itself; for tests.
void ptt_memory_leave(struct ptt_memory *memory);
int ptt_memory_is_there(const struct ptt_memory *memory);
// Bytes that are held for what is kept.
size_t ptt_memory_kept(const struct ptt_memory *memory);
// The allocator, with the memory as its `user`, which has entered.
void *ptt_memory_malloc(size_t size, void *user);
void *ptt_memory_calloc(size_t count, size_t size, void *user);
void *ptt_memory_realloc(void *pointer, size_t size, void *user);
void ptt_memory_release(void *pointer, void *user);

// The number of a packet with a short header, as it was sent: so many low bytes of it; none: there is no such packet.
struct ptt_packet_number {
    uint32_t value;
    uint8_t byte_count;
};
// Notes the number of a QUIC packet that this thread has opened, from its header without protection.
void ptt_note_opened(const uint8_t *header, size_t length);
void ptt_forget_opened(void);
// That of the last one since it forgot them.
struct ptt_packet_number ptt_opened(void);

// Sets RLIMIT_RTTIME to at most so many microseconds of processor without a pause in real-time threads, as rtkit asks; 0, or an
// errno. A thread that comes near it is made an ordinary one (SIGXCPU is taken for that), before the limit ends the process.
int ptt_limit_real_time(long long microseconds);

// The calling thread takes that signal itself, which a thread with blocked signals would leave to another: to be called by every
// thread that may become a real-time one.
void ptt_unblock_real_time_signal(void);

// Has the Swift runtime hand jobs of its global executor to `hook` (swift/Runtime/Concurrency.h), a Swift function.
void ptt_set_global_executor(void *hook);

// CRTSCTS of <termios.h>, which the importer does not show, and TIOCMGET of <sys/ioctl.h>: 0, or -1 with errno.
extern const unsigned ptt_crtscts;
int ptt_serial_lines(int fd, int *lines);

// What a modem line of a serial port did. Written whole into the pipe of ptt_serial_line_start.
struct ptt_serial_line_change {
    // CLOCK_MONOTONIC.
    int64_t nanoseconds;
    // TIOCM_* bits of the mask that are on; the last ones when there is an error.
    int32_t lines;
    // errno of the call that ended the thread, else 0.
    int32_t error;
    // The machine slept since the last one: what happened meanwhile is not known.
    int32_t slept;
    int32_t reserved;
};

// What the thread asks the kernel: TIOCMIWAIT and TIOCMGET. Each returns 0, or -1 with errno.
struct ptt_serial_line_calls {
    int (*wait)(int fd, int mask);
    int (*lines)(int fd, int *lines);
};

// Has a thread wait for changes of the lines in `mask` (TIOCM_*) and write each into `pipe`. `rest`: those of them that are on
// while nothing is pressed. `calls`: NULL for the kernel's. NULL: no thread, see errno.
struct ptt_serial_line;
struct ptt_serial_line *ptt_serial_line_start(
    int fd, int pipe, int mask, int rest, const struct ptt_serial_line_calls *calls);
// Ends the thread and waits for it; both descriptors stay the caller's.
void ptt_serial_line_stop(struct ptt_serial_line *line);
