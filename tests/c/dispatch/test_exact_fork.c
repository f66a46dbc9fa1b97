/* States of exact sums in the children of a process whose threads update them: no child waits for a
 * lock whose thread does not exist in the child, and none reads half an update. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gpureduce.h"

enum { STATES = 5, FORKS = 400, LONGEST_SECONDS = 20, UPDATE = 3 };
static const double values[UPDATE] = {1, 2, 4};
static const double total = 7;

static gpr_exact *states[STATES];
static atomic_int stop;

static void *update_often(void *argument)
{
    (void)argument;
    for (unsigned i = 0; !atomic_load(&stop); i++)
        if (gpr_exact_update_array(states[i % STATES], values, UPDATE) != GPR_OK) return states;
    return NULL;
}

/* Whether every state holds whole updates. */
static int are_whole(void)
{
    for (int i = 0; i < STATES; i++) {
        double result = -1;
        const uint64_t before = gpr_exact_count(states[i]);
        const gpr_status status = gpr_exact_result(states[i], GPR_FLOAT64, &result);
        if (status != GPR_OK || before % UPDATE != 0 || result != (double)(before / UPDATE) * total)
            return 0;
    }
    return 1;
}

int main(void)
{
    pthread_t threads[2];
    void *failed = NULL;

    check_begin();
    for (int i = 0; i < STATES; i++)
        CHECK(gpr_exact_create(GPR_FLOAT64, &states[i]) == GPR_OK, "create");
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, update_often, NULL) == 0, "thread");
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            (void)alarm(LONGEST_SECONDS); /* a child that hangs dies */
            if (!are_whole()) check_leave(1);
            if (gpr_exact_update_array(states[0], values, UPDATE) != GPR_OK) check_leave(2);
            check_leave(are_whole() ? 0 : 3);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d ended with %d", i, status);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], &failed);
        CHECK(failed == NULL, "an update failed");
    }
    CHECK(are_whole() && gpr_exact_count(states[0]) > 0, "the parent's states");
    for (int i = 0; i < STATES; i++) gpr_exact_destroy(states[i]);
    return check_end();
}
