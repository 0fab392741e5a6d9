// libpulse, loaded only where it is used: it brings about fifteen libraries with it, and most machines need none of them.
#pragma once

#include <pulse/pulseaudio.h>

/// The functions of libpulse.so.0 that are used, with the types of its headers.
struct ptt_pulse {
    __typeof__(&pa_mainloop_new) mainloop_new;
    __typeof__(&pa_mainloop_free) mainloop_free;
    __typeof__(&pa_mainloop_get_api) mainloop_get_api;
    __typeof__(&pa_mainloop_prepare) mainloop_prepare;
    __typeof__(&pa_mainloop_poll) mainloop_poll;
    __typeof__(&pa_mainloop_dispatch) mainloop_dispatch;
    __typeof__(&pa_mainloop_wakeup) mainloop_wakeup;
    __typeof__(&pa_context_new) context_new;
    __typeof__(&pa_context_unref) context_unref;
    __typeof__(&pa_context_connect) context_connect;
    __typeof__(&pa_context_disconnect) context_disconnect;
    __typeof__(&pa_context_errno) context_errno;
    __typeof__(&pa_context_get_state) context_get_state;
    __typeof__(&pa_context_set_state_callback) context_set_state_callback;
    __typeof__(&pa_context_set_subscribe_callback) context_set_subscribe_callback;
    __typeof__(&pa_context_subscribe) context_subscribe;
    __typeof__(&pa_context_get_card_info_list) context_get_card_info_list;
    __typeof__(&pa_context_get_source_info_list) context_get_source_info_list;
    __typeof__(&pa_context_get_sink_info_list) context_get_sink_info_list;
    __typeof__(&pa_context_set_card_profile_by_index) context_set_card_profile_by_index;
    __typeof__(&pa_context_suspend_source_by_name) context_suspend_source_by_name;
    __typeof__(&pa_context_suspend_sink_by_name) context_suspend_sink_by_name;
    __typeof__(&pa_operation_unref) operation_unref;
    __typeof__(&pa_proplist_gets) proplist_gets;
    __typeof__(&pa_strerror) strerror;
};

/// Loads libpulse once and keeps it. NULL: it is not installed, or lacks a function. From any thread; may read the disk.
const struct ptt_pulse *ptt_pulse_load(void);
