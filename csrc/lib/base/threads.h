/* A pool of worker threads for the CPU backend and the staging copy. How many of them a reduction
 * is worth is decided in cpu/job.c. */
#ifndef GPR_LIB_THREADS_H
#define GPR_LIB_THREADS_H

#include <stdint.h>

enum { GPR_TASK_MEMORY = 256 * 1024, GPR_TASK_ALIGNMENT = 64 }; /* bytes */

/* A task has `memory` of its own, GPR_TASK_MEMORY bytes at most and aligned to GPR_TASK_ALIGNMENT,
 * for data that a caller's small stack has no room for. Returns 0 if no task that has not begun
 * needs to run any more. */
typedef int (*gpr_task)(void *context, uint64_t index, void *memory);

/* Runs task(context, i, memory) for every i < count, unless one of them ends the job, and returns
 * when all that began are done. The calling thread takes part, with `memory`, which may be NULL if
 * tasks need none; workers are started at first use and sleep in between. Safe from many threads at
 * once (a caller that finds the pool busy, or that cannot start workers, does its tasks alone) and
 * after fork. A task must not call this, and must bear being run twice (a child forked by a task
 * runs the job's tasks again). Returns the number of threads that could take part, the caller
 * included. */
uint32_t gpr_parallel_for(uint64_t count, gpr_task task, void *context, void *memory);

/* As above, by no more than `most` threads: those that are worth waking. */
uint32_t gpr_parallel_for_at_most(uint64_t count, uint32_t most, gpr_task task, void *context,
                                  void *memory);

/* Threads gpr_parallel_for would use: gpr_limits.cpu_threads. */
uint32_t gpr_thread_count(void);

/* Threads, the caller included, that would take part at once: workers that look out for a job need
 * not be woken. */
uint32_t gpr_threads_at_hand(void);

/* Notes that a call would end so many seconds sooner with more threads. Returns whether it and the
 * calls before it, if they follow each other soon, have lost as much time as waking a worker
 * costs. */
int gpr_threads_are_missed(double seconds);

#endif
