// What the parts of the load generator share: members, their sockets, and what is measured.
#pragma once
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// One client of the server under test, with a socket of its own as real clients have.
struct member {
    // udp: -1 where all is TCP.
    int number, channel, udp;
    bool talks, joined;
    // It wants pushes and nothing else.
    bool push_only;
    // When it heard something first (CLOCK_MONOTONIC, ns); 0: it has not.
    uint64_t heard_at;
    // The kernel's stamp of what it heard last.
    uint64_t stamped;
    // What the protocol keeps of it: struct quic_member, struct web_member or struct mumble_member.
    void *state;
};

// How to be a client of one kind of server.
struct protocol {
    const char *name;
    // Joins members[first ..< first + count], with members[..< first] already there.
    void (*join)(struct member *members, int first, int count);
    // A UDP packet came; `stamped` is the kernel's time of it (CLOCK_REALTIME, ns). NULL: there is no UDP.
    void (*packet)(struct member *member, const uint8_t *bytes, size_t length, uint64_t stamped);
    // Everything that is due without a packet: acknowledgements, reports, keep-alives, the TCP side.
    void (*tend)(struct member *member);
    // Asks for the floor; returns when it may talk.
    void (*begin)(struct member *talker);
    // Sends one packet of `length` bytes of voice that begin with the time `sent`.
    void (*talk)(struct member *talker, size_t length, uint64_t sent);
    // Members that may join at one time.
    int batch;
    // In so many steps each member is looked after once.
    int steps_per_turn;
};
extern const struct protocol relay_protocol, web_protocol, mumble_protocol, mumble_tcp_protocol, bare_protocol;

// The server under test.
struct target {
    const char *host;
    int port, channels;
    // Of each channel of a relay, from standard input: 16 and at most 64 bytes.
    struct { uint8_t id[16], token[64]; size_t token_length; } *keys;
};
extern struct target target;
extern struct member *all_members;
extern int member_count;
// Members tell that they hear for so long at most, as clients do; one phase for all, or one each.
extern bool reports_together;

// Members of a relay whose connection ends connect again, as clients do; otherwise that ends the run.
extern bool members_return;
// How a member of a relay has returned: its connection ended at `lost_at`, and it was welcomed again at `back_at`, 0: not yet.
struct absence {
    uint64_t lost_at, back_at;
    int attempts;
    bool early;
};
struct absence absence_of(const struct member *member);
// Whether it has what it takes to return with early data.
bool has_ticket(const struct member *member);
// Sends something that a relay which has forgotten it answers with a reset.
void knock(struct member *member);
// A member of a relay gets its key, and nothing is sent; it connects, with what it has to return with; it closes its connection, and keeps
// that or forgets it.
void prepare(struct member *member);
void dial_in(struct member *member);
void hang_up(struct member *member, bool keeps_ticket);
// Whether its connection has something to do by itself.
bool is_due(const struct member *member, uint64_t now);
// Connections that ended without `hang_up`.
extern int losses;
// The floor is asked for again, without waiting; whether it is granted.
void ask_for_floor(struct member *talker);
bool has_floor(const struct member *talker);

// load returning …: see returning.c.
int returning(int count, char **arguments);
// load idle …: see idle.c.
int idle(int count, char **arguments);
// load tunnel …: see tunnel.c.
int tunnelled(int count, char **arguments);
// load pages …: see pages.c.
int pages(int count, char **arguments);
// Reads the channels of a relay from standard input, a line each.
void read_channels(void);
_Noreturn void fail(const char *what);
uint64_t now_realtime(void);
uint64_t now_monotonic(void);
// A non-blocking UDP socket, connected to the server, with kernel receive stamps.
int open_udp(void);
// Takes everything that waits at the member's UDP socket.
void drain(struct member *member);
// The protocol of this name; there is one.
const struct protocol *protocol_named(const char *name);
// A voice packet arrived that was sent at `sent`. It is counted, or `on_heard` has it where that is set.
extern void (*on_heard)(uint64_t sent);
void heard(struct member *member, uint64_t sent, uint64_t stamped);
// Counts a packet that is not what the server should have sent.
void count_bad(void);
// Processor time of all threads of a process, in ns; of this one, in s; resident memory of a process, in kB, and without pages of files.
uint64_t processor_time(int pid);
double own_processor_seconds(void);
long resident_kilobytes(int pid);
long anonymous_kilobytes(int pid);
// bare.c: a process that sends every packet that it gets to all ports of the packet's channel but the first; its id, and where it
// listens. At most 65,536 channels.
int start_reflector(const uint16_t *ports, int per_channel, int channels, uint16_t *port);
