// Counts heap allocations by thread, in programs that link this target: it stands in for malloc and its relatives.
#pragma once

// How many allocations the thread of this id has made. 0 for a thread that never made one.
long ptt_allocations(int thread_id);
