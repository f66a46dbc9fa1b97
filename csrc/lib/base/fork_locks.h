/* Locks that fork waits for. A child has one thread, and nobody to release what another held. */
#ifndef GPR_LIB_FORK_LOCKS_H
#define GPR_LIB_FORK_LOCKS_H

#include <pthread.h>

/* From now on no process is copied while somebody holds one of the `count` mutexes, so that a child
 * finds them open and what they guard whole. They live as long as the process; who holds one takes
 * no other lock. Once for each: by pthread_once. */
void gpr_hold_forks_by(pthread_mutex_t *mutexes, int count);

#endif
