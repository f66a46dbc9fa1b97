/* Locks that fork waits for: a child has one thread, and none that could release a lock of
 * another. */
#ifndef GPR_LIB_FORK_LOCKS_H
#define GPR_LIB_FORK_LOCKS_H

#include <pthread.h>

/* From now on no process is copied while somebody holds one of the `count` mutexes, so that in a
 * child they are unlocked and the data that they guard are consistent. They live as long as the
 * process; a thread that holds one takes no other lock. Once for each: by pthread_once. */
void gpr_hold_forks_by(pthread_mutex_t *mutexes, int count);

#endif
