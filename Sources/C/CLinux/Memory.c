// Memory that only the start of a program has used.
#define _GNU_SOURCE
#include "CLinux.h"
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static int has_changed_code(const struct dl_phdr_info *object) {
    for (int index = 0; index < object->dlpi_phnum; index++) {
        if (object->dlpi_phdr[index].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[index].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && entry->d_un.d_val & DF_TEXTREL)) return 1;
    }
    return 0;
}

static int give_back(struct dl_phdr_info *object, size_t size, void *bytes) {
    (void)size;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    // What the dynamic linker has written into code would be lost.
    if (has_changed_code(object)) return 0;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[index];
        if (segment->p_type != PT_LOAD || segment->p_flags & PF_W) continue;
        uintptr_t begin = (object->dlpi_addr + segment->p_vaddr) & ~(page - 1);
        uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz + page - 1) & ~(page - 1);
        int status = madvise((void *)begin, end - begin, MADV_DONTNEED);
        // Locked pages (mlockall) are not given back before they are unlocked.
        if (status != 0 && errno == EINVAL && munlock((void *)begin, end - begin) == 0) {
            status = madvise((void *)begin, end - begin, MADV_DONTNEED);
            mlock2((void *)begin, end - begin, MLOCK_ONFAULT);
        }
        if (status == 0) *(size_t *)bytes += end - begin;
    }
    return 0;
}

size_t ptt_give_back_code(void) {
    size_t bytes = 0;
    dl_iterate_phdr(give_back, &bytes);
    return bytes;
}
