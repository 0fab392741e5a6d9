// The header of the QUIC packet that was opened last on a thread: the library's callback for that names no connection.
#include "CLinux.h"

static _Thread_local struct ptt_packet_number opened;

void ptt_note_opened(const uint8_t *header, size_t length) {
    // A short header ends with the packet number, whose length is in its first byte (RFC 9000, section 17.3.1).
    size_t count = length > 0 && !(header[0] & 0x80) ? (size_t)(header[0] & 3) + 1 : 0;
    opened = (struct ptt_packet_number){.byte_count = length > count ? (uint8_t)count : 0};
    for (size_t index = length - opened.byte_count; index < length; index++) opened.value = opened.value << 8 | header[index];
}

void ptt_forget_opened(void) { opened.byte_count = 0; }

struct ptt_packet_number ptt_opened(void) { return opened; }
