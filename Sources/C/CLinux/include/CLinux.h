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
#include <netinet/udp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

// glibc declares these only under _GNU_SOURCE, which the importer does not set for its own Glibc module.
int ptt_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);
int ptt_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);
// Names the calling thread (15 bytes are kept), as ps -L and gdb show it.
void ptt_set_thread_name(const char *name);

// A descriptor that becomes readable when the child process ends (pidfd_open(2)); -1 and errno when there is none.
int ptt_pidfd_open(int process);

// The calling thread's id, gettid(2).
int ptt_thread_id(void);

// Has the Swift runtime hand jobs of its global executor to `hook` (swift/Runtime/Concurrency.h), a Swift function.
void ptt_set_global_executor(void *hook);
