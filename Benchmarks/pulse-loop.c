// What PulseAudio alone costs: sound from a source to a sink, in packets, without codec, network or jitter buffer.
//
//     pulse-loop SOURCE SINK FRAGMENT_MS PACKET_MS QUEUE_MS
//
// Standard input opens ('1') and shuts ('0') the way, as a press and a release do; the streams run all the time.
#include <pulse/pulseaudio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RATE = 48000, HELD_MAX = RATE, PACKET_MAX = RATE / 10 };

static pa_threaded_mainloop *loop;
static int is_open;
static size_t packet_samples;
static int16_t packet[PACKET_MAX], held[HELD_MAX];  // the packet being filled; what waits for the sink
static size_t packet_count, held_count;

static void context_changed(pa_context *context, void *unused) {
    (void)context, (void)unused;
    pa_threaded_mainloop_signal(loop, 0);
}

static void stream_changed(pa_stream *stream, void *unused) {
    (void)stream, (void)unused;
    pa_threaded_mainloop_signal(loop, 0);
}

static void pass_packet(void) {
    if (is_open && held_count + packet_count <= HELD_MAX) {
        memcpy(held + held_count, packet, packet_count * sizeof *packet);
        held_count += packet_count;
    }
    packet_count = 0;
}

static void captured(pa_stream *source, size_t unused_size, void *unused) {
    (void)unused_size, (void)unused;
    const void *block;
    size_t bytes;
    while (pa_stream_peek(source, &block, &bytes) == 0 && bytes > 0) {
        for (size_t i = 0; block && i < bytes / sizeof(int16_t); i++) {
            packet[packet_count++] = ((const int16_t *)block)[i];
            if (packet_count == packet_samples) pass_packet();
        }
        pa_stream_drop(source);
    }
}

static void wanted(pa_stream *sink, size_t bytes, void *unused) {
    (void)unused;
    void *block;
    if (pa_stream_begin_write(sink, &block, &bytes) != 0 || !block) return;
    size_t samples = bytes / sizeof(int16_t), sounding = samples < held_count ? samples : held_count;
    memcpy(block, held, sounding * sizeof *held);
    memset((int16_t *)block + sounding, 0, (samples - sounding) * sizeof *held);
    held_count -= sounding;
    memmove(held, held + sounding, held_count * sizeof *held);
    pa_stream_write(sink, block, samples * sizeof *held, NULL, 0, PA_SEEK_RELATIVE);
}

int main(int count, char **words) {
    if (count != 6) return fprintf(stderr, "usage: pulse-loop SOURCE SINK FRAGMENT_MS PACKET_MS QUEUE_MS\n"), 2;
    const uint32_t millisecond = RATE / 1000 * sizeof(int16_t);
    packet_samples = (size_t)(atof(words[4]) * RATE / 1000);
    if (packet_samples < 1 || packet_samples > PACKET_MAX) return fprintf(stderr, "PACKET_MS is 1 to 100\n"), 2;
    loop = pa_threaded_mainloop_new();
    pa_context *context = pa_context_new(pa_threaded_mainloop_get_api(loop), "pulse-loop");
    pa_context_set_state_callback(context, context_changed, NULL);
    pa_threaded_mainloop_lock(loop);
    pa_threaded_mainloop_start(loop);
    pa_context_connect(context, NULL, PA_CONTEXT_NOAUTOSPAWN, NULL);
    while (pa_context_get_state(context) != PA_CONTEXT_READY) {
        if (!PA_CONTEXT_IS_GOOD(pa_context_get_state(context))) return fprintf(stderr, "no PulseAudio\n"), 1;
        pa_threaded_mainloop_wait(loop);
    }
    const pa_sample_spec format = {.format = PA_SAMPLE_S16LE, .rate = RATE, .channels = 1};
    const uint32_t queue = (uint32_t)(atof(words[5]) * millisecond), fragment = (uint32_t)(atof(words[3]) * millisecond);
    const pa_buffer_attr sizes = {.maxlength = (uint32_t)-1, .tlength = queue, .prebuf = 0, .minreq = queue / 2, .fragsize = fragment};
    pa_stream *sink = pa_stream_new(context, "ear", &format, NULL), *source = pa_stream_new(context, "mouth", &format, NULL);
    pa_stream_set_state_callback(sink, stream_changed, NULL);
    pa_stream_set_state_callback(source, stream_changed, NULL);
    pa_stream_set_write_callback(sink, wanted, NULL);
    pa_stream_set_read_callback(source, captured, NULL);
    pa_stream_connect_playback(sink, words[2], &sizes, PA_STREAM_ADJUST_LATENCY, NULL, NULL);
    pa_stream_connect_record(source, words[1], &sizes, PA_STREAM_ADJUST_LATENCY);
    while (pa_stream_get_state(sink) != PA_STREAM_READY || pa_stream_get_state(source) != PA_STREAM_READY) {
        if (!PA_STREAM_IS_GOOD(pa_stream_get_state(sink)) || !PA_STREAM_IS_GOOD(pa_stream_get_state(source)))
            return fprintf(stderr, "no such source or sink\n"), 1;
        pa_threaded_mainloop_wait(loop);
    }
    pa_threaded_mainloop_unlock(loop);
    puts("ready");
    fflush(stdout);
    for (char key; read(STDIN_FILENO, &key, 1) == 1;) {
        pa_threaded_mainloop_lock(loop);
        is_open = key == '1';
        if (is_open) packet_count = held_count = 0;
        pa_threaded_mainloop_unlock(loop);
    }
    return 0;
}
