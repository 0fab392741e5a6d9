// Counts heap allocations and locked mutexes by thread, in programs that link this target: it stands in for malloc and its relatives
// and for pthread_mutex_lock.
#pragma once

// How many allocations the thread of this id has made. 0 for a thread that never made one.
long ptt_allocations(int thread_id);

// How many mutexes the thread of this id has locked.
long ptt_locks(int thread_id);
