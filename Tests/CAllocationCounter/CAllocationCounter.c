#define _GNU_SOURCE
#include "CAllocationCounter.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

// glibc exports its allocator under these names, so that a program may wrap it without a preloaded library.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { SLOTS = 1 << 16 };
static atomic_long counts[SLOTS];
static _Thread_local int own_id;

static void count(void) {
    if (own_id == 0) own_id = gettid();
    atomic_fetch_add_explicit(&counts[own_id % SLOTS], 1, memory_order_relaxed);
}

long ptt_allocations(int thread_id) {
    return atomic_load_explicit(&counts[thread_id % SLOTS], memory_order_relaxed);
}

void *malloc(size_t size) {
    count();
    return __libc_malloc(size);
}
void *calloc(size_t number, size_t size) {
    count();
    return __libc_calloc(number, size);
}
void *realloc(void *old, size_t size) {
    count();
    return __libc_realloc(old, size);
}
void *memalign(size_t alignment, size_t size) {
    count();
    return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    count();
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **result, size_t alignment, size_t size) {
    count();
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL) return ENOMEM;
    *result = memory;
    return 0;
}

static atomic_long locks[SLOTS];
static int (*real_lock)(pthread_mutex_t *);

__attribute__((constructor)) static void find_lock(void) {
    real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
}

long ptt_locks(int thread_id) { return atomic_load_explicit(&locks[thread_id % SLOTS], memory_order_relaxed); }

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    // Before the constructor there is one thread, so nobody to wait for.
    if (real_lock == NULL) return pthread_mutex_trylock(mutex);
    if (own_id == 0) own_id = gettid();
    atomic_fetch_add_explicit(&locks[own_id % SLOTS], 1, memory_order_relaxed);
    return real_lock(mutex);
}
