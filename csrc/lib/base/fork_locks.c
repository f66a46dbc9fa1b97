/* Locks that fork waits for. */
#include "lib/base/fork_locks.h"

#include <stdatomic.h>
#include <stddef.h>

enum { MOST_LOCKS = 64 };

static _Atomic(pthread_mutex_t *) locks[MOST_LOCKS]; /* filled from the front */
static atomic_int used;
static int held; /* by a fork that is under way: of who holds the first */

static void before_fork(void)
{
    int count = 0;

    while (count < MOST_LOCKS && atomic_load(&locks[count]) != NULL)
        pthread_mutex_lock(atomic_load(&locks[count++]));
    held = count;
}

static void after_fork_in_parent(void)
{
    for (int i = held; i-- > 0;) pthread_mutex_unlock(atomic_load(&locks[i]));
}

/* Waiters may have left any state in a mutex: they are initialised again. */
static void after_fork_in_child(void)
{
    for (int i = 0; i < held; i++) pthread_mutex_init(atomic_load(&locks[i]), NULL);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void gpr_hold_forks_by(pthread_mutex_t *mutexes, int count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int first = atomic_fetch_add(&used, count);

    for (int i = 0; i < count && first + i < MOST_LOCKS; i++)
        atomic_store(&locks[first + i], &mutexes[i]);
    (void)pthread_once(&once, watch_forks);
}
