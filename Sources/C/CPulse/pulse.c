#include "pulse.h"

#include <dlfcn.h>
#include <pthread.h>

static struct ptt_pulse functions;
static const struct ptt_pulse *loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    void *library = dlopen("libpulse.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
#define LOAD(name) \
    functions.name = (__typeof__(functions.name))dlsym(library, "pa_" #name); \
    if (!functions.name) return;
    LOAD(mainloop_new)
    LOAD(mainloop_free)
    LOAD(mainloop_get_api)
    LOAD(mainloop_prepare)
    LOAD(mainloop_poll)
    LOAD(mainloop_dispatch)
    LOAD(mainloop_wakeup)
    LOAD(context_new)
    LOAD(context_unref)
    LOAD(context_connect)
    LOAD(context_disconnect)
    LOAD(context_errno)
    LOAD(context_get_state)
    LOAD(context_set_state_callback)
    LOAD(context_set_subscribe_callback)
    LOAD(context_subscribe)
    LOAD(context_get_card_info_list)
    LOAD(context_get_source_info_list)
    LOAD(context_get_sink_info_list)
    LOAD(context_set_card_profile_by_index)
    LOAD(context_suspend_source_by_name)
    LOAD(context_suspend_sink_by_name)
    LOAD(operation_unref)
    LOAD(proplist_gets)
    LOAD(strerror)
#undef LOAD
    loaded = &functions;
}

const struct ptt_pulse *ptt_pulse_load(void) {
    pthread_once(&once, load);
    return loaded;
}
