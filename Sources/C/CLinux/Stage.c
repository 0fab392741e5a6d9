// Memory of many owners, few of whom use theirs at a time: they share addresses, and who is not there is kept without its zeros.
#define _GNU_SOURCE
#include "CLinux.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// The addresses of a place; what does not fit, and what is larger, comes from malloc and stays where it is.
enum { place_bytes = 256 * 1024, places_per_map = 16, larger_from = 64 * 1024 };
enum { places_step = 64 };
// What is kept of who is not there: the words other than 0, by lines, of parts of its place.
enum { line_words = 8, line_bytes = line_words * 8, lines_per_part = 64, group_lines = 8, part_bytes = line_bytes * lines_per_part, parts_per_place = place_bytes / part_bytes };

// Before every piece of memory. `next`, of a free piece: the offset of the next free one, in the order of addresses; 0: there is none.
struct piece {
    uint64_t size;
    uint64_t next;
};
enum { piece_bytes = sizeof(struct piece), smallest = 16 };

struct place {
    uint8_t *base;
    struct ptt_memory *holder;
    // The lines of each part that may have a byte other than 0, while nobody is there.
    uint64_t used[parts_per_place];
};

struct ptt_stage {
    struct place *places;
    size_t count, capacity, next, owners;
    // As many places as this, and one more for so many owners.
    size_t minimum, owners_per_place;
    // Addresses for places that are not made yet.
    uint8_t *spare;
    size_t spares;
};

struct ptt_memory {
    struct ptt_stage *stage;
    // By number: the array may move.
    size_t place;
    uint8_t *base;
    // Offset of the first free piece, of what is not given out, and of what was not since it came.
    uint32_t free, top, most;
    // Of who is not there: the lines of each part up to `top` that are not 0, then for each of these a byte with its words that are not,
    // and then these words.
    uint64_t *kept;
    size_t kept_capacity;
};

static struct piece *piece_at(const struct ptt_memory *memory, uint32_t offset) { return (struct piece *)(memory->base + offset); }
static uint32_t rounded(size_t size) { return (uint32_t)((size < smallest ? smallest : size) + 15) & ~15u; }
static size_t parts_of(const struct ptt_memory *memory) { return (memory->top + part_bytes - 1) / part_bytes; }

struct ptt_stage *ptt_stage_make(size_t minimum, size_t owners_per_place) {
    struct ptt_stage *stage = calloc(1, sizeof *stage);
    if (!stage) return NULL;
    stage->minimum = minimum ? minimum : 1;
    stage->owners_per_place = owners_per_place ? owners_per_place : 1;
    return stage;
}

void ptt_stage_free(struct ptt_stage *stage) {
    if (!stage) return;
    for (size_t i = 0; i < stage->count; i++) munmap(stage->places[i].base, place_bytes);
    if (stage->spares) munmap(stage->spare, stage->spares * place_bytes);
    free(stage->places);
    free(stage);
}

// One more place; 0 if there is no memory for it.
static int add_place(struct ptt_stage *stage) {
    if (stage->count == stage->capacity) {
        struct place *larger = realloc(stage->places, (stage->capacity + places_step) * sizeof *larger);
        if (!larger) return 0;
        stage->places = larger;
        stage->capacity += places_step;
    }
    if (!stage->spares) {
        size_t bytes = (size_t)place_bytes * places_per_map;
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) return 0;
        // Half of a place is never used.
        madvise(map, bytes, MADV_NOHUGEPAGE);
        stage->spare = map;
        stage->spares = places_per_map;
    }
    stage->places[stage->count++] = (struct place){.base = stage->spare};
    stage->spare += place_bytes;
    stage->spares--;
    return 1;
}

struct ptt_memory *ptt_memory_make(struct ptt_stage *stage) {
    struct ptt_memory *memory = calloc(1, sizeof *memory);
    if (!memory) return NULL;
    size_t wanted = stage->minimum + stage->owners / stage->owners_per_place, place;
    if (stage->count < wanted && add_place(stage)) {
        place = stage->count - 1;
    } else if (stage->count) {
        // In turn: who came last is the busiest.
        place = stage->next++ % stage->count;
    } else {
        free(memory);
        return NULL;
    }
    stage->owners++;
    // Offset 0 means "none".
    *memory = (struct ptt_memory){.stage = stage, .place = place, .base = stage->places[place].base, .top = 16, .most = 16};
    return memory;
}

// Lines from `first` to the offset `end` may have a byte other than 0.
static void mark_used(struct place *place, size_t first, size_t end) {
    for (size_t line = first; line * line_bytes < end; line++) place->used[line / lines_per_part] |= 1ull << line % lines_per_part;
}

void ptt_memory_free(struct ptt_memory *memory) {
    if (!memory) return;
    struct place *place = &memory->stage->places[memory->place];
    if (place->holder == memory) {
        place->holder = NULL;
        // Nobody has looked what it has left there.
        mark_used(place, 0, memory->most);
    }
    memory->stage->owners--;
    free(memory->kept);
    free(memory);
}

// ---- Who is there, and who is not ----

// Marks the lines that lie in free pieces altogether: nobody misses them.
static void mark_free(const struct ptt_memory *memory, uint64_t *marks) {
    for (uint32_t at = memory->free; at; at = (uint32_t)piece_at(memory, at)->next) {
        size_t first = (at + piece_bytes + line_bytes - 1) / line_bytes, end = (at + piece_bytes + piece_at(memory, at)->size) / line_bytes;
        for (size_t line = first; line < end; line++) {
            if (line % lines_per_part == 0 && line + lines_per_part <= end) {
                marks[line / lines_per_part] = UINT64_MAX;
                line += lines_per_part - 1;
            } else {
                marks[line / lines_per_part] |= 1ull << line % lines_per_part;
            }
        }
    }
}

// Whether `bytes`, a multiple of 64, are all 0. The compiler makes wide instructions of it.
static inline int is_zero(const uint8_t *at, size_t bytes) {
    const uint64_t *words = (const uint64_t *)at;
    uint64_t any[8] = {0};
    for (size_t i = 0; i < bytes / 8; i += 8)
        for (size_t j = 0; j < 8; j++) any[j] |= words[i + j];
    return (any[0] | any[1] | any[2] | any[3] | any[4] | any[5] | any[6] | any[7]) == 0;
}

// The lines of a part with a byte other than 0, of those wanted. Most stand together, and most of a part is 0.
static uint64_t used_lines(const uint8_t *part, uint64_t wanted) {
    uint64_t used = 0;
    for (int first = 0; first < lines_per_part; first += group_lines) {
        if (!(wanted >> first & ((1u << group_lines) - 1)) || is_zero(part + first * line_bytes, group_lines * line_bytes)) continue;
        for (int line = first; line < first + group_lines; line++)
            used |= (uint64_t)!is_zero(part + line * line_bytes, line_bytes) << line;
    }
    return used & wanted;
}

// The first line of a part that is marked.
static uint64_t *line_at(const struct ptt_memory *memory, size_t part, uint64_t marks) {
    return (uint64_t *)(memory->base + part * part_bytes + (size_t)__builtin_ctzll(marks) * line_bytes);
}

static uint8_t used_words(const uint64_t *line) {
    unsigned used = 0;
    for (int i = 0; i < line_words; i++) used |= (unsigned)(line[i] != 0) << i;
    return (uint8_t)used;
}

static void leave(struct ptt_memory *memory, struct place *place) {
    uint64_t *lines = place->used;
    size_t parts = parts_of(memory), count = 0, line_count = (memory->top + line_bytes - 1) / line_bytes;
    uint64_t kept[parts_per_place] = {0};
    uint8_t words[parts_per_place * lines_per_part];
    size_t word_count = 0;
    // What is in the last line behind the end was given back.
    memset(memory->base + memory->top, 0, (line_bytes - memory->top % line_bytes) % line_bytes);
    mark_free(memory, kept);
    for (size_t part = 0; part < parts; part++) {
        size_t left = line_count - part * lines_per_part;
        uint64_t all = left < lines_per_part ? (1ull << left) - 1 : UINT64_MAX, given_back = kept[part] & all;
        kept[part] = used_lines(memory->base + part * part_bytes, all & ~given_back);
        for (uint64_t rest = kept[part]; rest; rest &= rest - 1) {
            words[count] = used_words(line_at(memory, part, rest));
            word_count += (size_t)__builtin_popcount(words[count++]);
        }
        lines[part] = (lines[part] & ~all) | kept[part] | given_back;
    }
    // Pieces that were given out and given back behind the end.
    mark_used(place, line_count, memory->most);
    memory->most = memory->top;
    size_t needed = (parts + (count + 7) / 8 + word_count) * sizeof *kept;
    // The room is kept for the next time, unless it is much more than is needed.
    if (memory->kept_capacity < needed || memory->kept_capacity > needed + needed / 8 + 512) {
        free(memory->kept);
        memory->kept_capacity = (needed + 127) / 128 * 128;
        memory->kept = malloc(memory->kept_capacity);
        // As with Swift's own objects, there is no way to go on.
        if (!memory->kept) abort();
    }
    memcpy(memory->kept, kept, parts * sizeof *kept);
    memcpy(memory->kept + parts, words, count);
    uint64_t *to = memory->kept + parts + (count + 7) / 8;
    size_t number = 0;
    for (size_t part = 0; part < parts; part++)
        for (uint64_t rest = kept[part]; rest; rest &= rest - 1, number++) {
            const uint64_t *line = line_at(memory, part, rest);
            for (unsigned left = words[number]; left; left &= left - 1) *to++ = line[__builtin_ctz(left)];
        }
}

static void come(struct ptt_memory *memory, struct place *place) {
    if (!memory->kept) return;
    size_t parts = parts_of(memory), count = 0;
    for (size_t part = 0; part < parts; part++) count += (size_t)__builtin_popcountll(memory->kept[part]);
    const uint8_t *words = (const uint8_t *)(memory->kept + parts);
    const uint64_t *from = memory->kept + parts + (count + 7) / 8;
    for (size_t part = 0; part < parts; part++) {
        for (uint64_t rest = place->used[part] & ~memory->kept[part]; rest; rest &= rest - 1) memset(line_at(memory, part, rest), 0, line_bytes);
        for (uint64_t rest = memory->kept[part]; rest; rest &= rest - 1, words++) {
            uint64_t *line = line_at(memory, part, rest);
            for (int i = 0; i < line_words; i++) line[i] = *words >> i & 1 ? *from++ : 0;
        }
    }
}

int ptt_memory_is_there(const struct ptt_memory *memory) { return memory->stage->places[memory->place].holder == memory; }

void ptt_memory_enter(struct ptt_memory *memory) {
    struct place *place = &memory->stage->places[memory->place];
    if (place->holder == memory) return;
    if (place->holder) leave(place->holder, place);
    come(memory, place);
    place->holder = memory;
}

void ptt_memory_leave(struct ptt_memory *memory) {
    struct place *place = &memory->stage->places[memory->place];
    if (place->holder != memory) return;
    leave(memory, place);
    place->holder = NULL;
}

size_t ptt_memory_kept(const struct ptt_memory *memory) { return memory->kept_capacity; }

// ---- The allocator ----

static void *take(struct ptt_memory *memory, uint32_t size) {
    uint32_t best = 0, before_best = 0;
    for (uint32_t at = memory->free, before = 0; at; before = at, at = (uint32_t)piece_at(memory, at)->next) {
        uint64_t room = piece_at(memory, at)->size;
        if (room < size || (best && room >= piece_at(memory, best)->size)) continue;
        best = at, before_best = before;
        if (room == size) break;
    }
    if (!best) {
        if (memory->top + piece_bytes + size > place_bytes) return NULL;
        struct piece *piece = piece_at(memory, memory->top);
        *piece = (struct piece){size, 0};
        memory->top += piece_bytes + size;
        if (memory->most < memory->top) memory->most = memory->top;
        return piece + 1;
    }
    struct piece *piece = piece_at(memory, best);
    uint32_t next = (uint32_t)piece->next;
    if (piece->size >= size + piece_bytes + smallest) {
        uint32_t rest = best + piece_bytes + size;
        *piece_at(memory, rest) = (struct piece){piece->size - size - piece_bytes, next};
        piece->size = size;
        next = rest;
    }
    if (before_best)
        piece_at(memory, before_best)->next = next;
    else
        memory->free = next;
    return piece + 1;
}

void *ptt_memory_malloc(size_t size, void *user) {
    void *pointer = size < larger_from ? take(user, rounded(size)) : NULL;
    return pointer ? pointer : malloc(size);
}

void *ptt_memory_calloc(size_t count, size_t size, void *user) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) return NULL;
    void *pointer = all < larger_from ? take(user, rounded(all)) : NULL;
    return pointer ? memset(pointer, 0, all) : calloc(count, size);
}

static int is_in(const struct ptt_memory *memory, const void *pointer) {
    return (uintptr_t)pointer - (uintptr_t)memory->base < place_bytes;
}

void ptt_memory_release(void *pointer, void *user) {
    struct ptt_memory *memory = user;
    if (!pointer) return;
    if (!is_in(memory, pointer)) {
        free(pointer);
        return;
    }
    uint32_t at = (uint32_t)((uint8_t *)pointer - memory->base) - piece_bytes, before = 0, before_that = 0, next = memory->free;
    while (next && next < at) before_that = before, before = next, next = (uint32_t)piece_at(memory, next)->next;
    struct piece *piece = piece_at(memory, at);
    piece->next = next;
    if (next && at + piece_bytes + piece->size == next) {
        piece->size += piece_bytes + piece_at(memory, next)->size;
        piece->next = piece_at(memory, next)->next;
    }
    if (before && before + piece_bytes + piece_at(memory, before)->size == at) {
        piece_at(memory, before)->size += piece_bytes + piece->size;
        piece_at(memory, before)->next = piece->next;
        at = before;
        before = before_that;
        piece = piece_at(memory, at);
    }
    // The last one goes to what was never given out.
    uint32_t link = at;
    if (at + piece_bytes + piece->size == memory->top) {
        memory->top = at;
        link = 0;
    }
    if (before)
        piece_at(memory, before)->next = link;
    else
        memory->free = link;
}

void *ptt_memory_realloc(void *pointer, size_t size, void *user) {
    struct ptt_memory *memory = user;
    if (!pointer) return ptt_memory_malloc(size, user);
    if (!is_in(memory, pointer)) return realloc(pointer, size);
    size_t had = ((struct piece *)pointer - 1)->size;
    if (size <= had) return pointer;
    void *larger = ptt_memory_malloc(size, user);
    if (!larger) return NULL;
    memcpy(larger, pointer, had);
    ptt_memory_release(pointer, user);
    return larger;
}
