/* The pool: every task runs once with any number of threads and callers, also after fork and
 * within one. */
#define _GNU_SOURCE /* processors that threads are on */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gpureduce.h"
#include "lib/base/threads.h"

enum { MOST_TASKS = 5000 };

/* The thread sanitizer ends a child that starts threads, unless this option is set. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

typedef struct counts {
    _Atomic uint32_t runs[MOST_TASKS];
    uint64_t plain[MOST_TASKS]; /* written without atomics: a race detector watches */
} counts;

static int count_task(void *context, uint64_t index, void *memory)
{
    counts *c = context;

    (void)memory;
    atomic_fetch_add(&c->runs[index], 1);
    c->plain[index] = index * index;
    return 1;
}

static void set_threads(uint32_t threads)
{
    gpr_limits limits;

    gpr_get_limits(&limits);
    limits.cpu_threads = threads;
    CHECK(gpr_set_limits(&limits) == GPR_OK, "%u threads", threads);
    CHECK(gpr_thread_count() == threads, "%u threads", threads);
}

/* Runs `count` tasks; returns how many did not run exactly once. Allocates nothing: in the child of
 * a process that another thread forks, a sanitizer's allocator may be locked for good. */
static uint64_t run_counted(uint64_t count)
{
    static _Thread_local counts own;
    counts *c = &own;
    uint64_t wrong = 0;

    memset(c, 0, sizeof *c);
    const uint32_t threads = gpr_parallel_for(count, count_task, c, NULL);
    if (threads < 1 || threads > gpr_thread_count()) wrong++;
    for (uint64_t i = 0; i < MOST_TASKS; i++)
        wrong += c->runs[i] != (i < count) || (i < count && c->plain[i] != i * i);
    return wrong;
}

static void test_counts(void)
{
    static const uint32_t threads[] = {1, 2, 3, 8, 2, 1, 16};

    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        set_threads(threads[t]);
        for (uint64_t count = 0; count < 20; count++)
            CHECK(run_counted(count) == 0, "%" PRIu64 " tasks", count);
        for (int k = 0; k < 100; k++)
            CHECK(run_counted((uint64_t)check_between(0, MOST_TASKS)) == 0, "many tasks");
    }
}

static int progress_task(void *shares, uint64_t index, void *memory)
{
    (void)memory;
    ((double *)shares)[index] = gpr_progress();
    return 1;
}

static void test_progress_is_the_share_of_tasks_that_have_begun(void)
{
    static const uint32_t threads[] = {1, 8};
    enum { COUNT = 64 };
    double shares[COUNT];

    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        set_threads(threads[t]);
        (void)gpr_parallel_for(COUNT, progress_task, shares, NULL);
        for (int i = 0; i < COUNT; i++)
            CHECK(shares[i] == (double)i / COUNT, "task %d saw %g", i, shares[i]);
    }
}

/* Ends the job after its first few tasks. */
static int last_task(void *ran, uint64_t index, void *memory)
{
    (void)memory;
    atomic_fetch_add((_Atomic uint64_t *)ran, 1);
    return index < 10;
}

static void test_a_task_ends_its_job(void)
{
    static const uint32_t threads[] = {1, 8};

    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        _Atomic uint64_t ran = 0;

        set_threads(threads[t]);
        /* that many tasks would pass for years, also if each did nothing */
        (void)gpr_parallel_for(UINT64_C(1) << 62, last_task, (void *)&ran, NULL);
        CHECK(ran >= 11 && ran <= 11 + threads[t], "%" PRIu64 " tasks ran", (uint64_t)ran);
    }
}

/* A worker's memory is its own, and has the size that was asked for. */
static int memory_task(void *own, uint64_t index, void *memory)
{
    unsigned char *bytes = memory;
    int is_own = (uintptr_t)memory % GPR_TASK_ALIGNMENT == 0;

    memset(bytes, (int)(index % 251), GPR_TASK_MEMORY);
    for (int i = 0; i < GPR_TASK_MEMORY; i++) is_own &= bytes[i] == index % 251;
    ((uint8_t *)own)[index] = (uint8_t)is_own;
    return 1;
}

static void test_tasks_have_memory_of_their_own(void)
{
    enum { COUNT = 64 };
    static _Alignas(GPR_TASK_ALIGNMENT) char memory[GPR_TASK_MEMORY];
    uint8_t own[COUNT] = {0};

    set_threads(8);
    (void)gpr_parallel_for(COUNT, memory_task, own, memory);
    for (int i = 0; i < COUNT; i++) CHECK(own[i], "task %d", i);
}

static void *call_often(void *failures)
{
    for (int k = 0; k < 200; k++) *(uint64_t *)failures += run_counted(64);
    return NULL;
}

static void test_many_callers(void)
{
    enum { CALLERS = 6 };
    pthread_t callers[CALLERS];
    uint64_t failures[CALLERS] = {0};

    set_threads(4);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&callers[i], NULL, call_often, &failures[i]) == 0, "create");
    for (int i = 0; i < CALLERS; i++) {
        (void)pthread_join(callers[i], NULL);
        CHECK(failures[i] == 0, "caller %d", i);
    }
}

/* Other threads of this process. */
static int find_others(pid_t *threads, int most)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    CHECK(folder != NULL, "threads of this process");
    while (folder != NULL && count < most && (entry = readdir(folder)) != NULL) {
        const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);

        if (thread > 0 && thread != getpid()) threads[count++] = thread;
    }
    if (folder != NULL) (void)closedir(folder);
    return count;
}

/* Jobs of a thread that is on one processor, with pauses in which workers go to sleep. */
static void run_with_pauses(void)
{
    for (int i = 0; i < 60; i++) {
        CHECK(run_counted(1000) == 0, "job %d", i);
        usleep(300);
    }
}

/* Workers leave their caller's processor, keep to those they may use, and stay where they are put
 * from outside. */
static void test_workers_use_other_processors(void)
{
    enum { MOST = 64 };
    cpu_set_t all, first, some;
    pid_t threads[MOST];
    int cpu = 0;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "processors");
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    set_threads(3);
    CHECK(run_counted(1000) == 0, "workers start");
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0, "the caller's processor");
    run_with_pauses();
    const int count = find_others(threads, MOST);
    CHECK(count >= 2, "%d workers", count);
    for (int i = 0; i < count; i++) {
        cpu_set_t allowed;

        CHECK(sched_getaffinity(threads[i], sizeof some, &some) == 0, "worker %d", i);
        CPU_AND(&allowed, &some, &all);
        CHECK(CPU_COUNT(&some) > 0 && CPU_EQUAL(&allowed, &some), "worker %d's processors", i);
        CHECK(sched_setaffinity(threads[i], sizeof first, &first) == 0, "worker %d is put", i);
    }
    run_with_pauses();
    for (int i = 0; i < count; i++) {
        CHECK(sched_getaffinity(threads[i], sizeof some, &some) == 0, "worker %d", i);
        CHECK(CPU_EQUAL(&some, &first), "worker %d stays", i);
        CHECK(sched_setaffinity(threads[i], sizeof all, &all) == 0, "worker %d is free", i);
    }
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0, "the caller is free");
    run_with_pauses();
}

/* Workers are at hand after a job, until they sleep. */
static void test_workers_look_out_for_a_while(void)
{
    uint32_t most = 1;

    set_threads(3);
    for (int i = 0; i < 100000 && most == 1; i++) {
        CHECK(run_counted(100) == 0, "job %d", i);
        if (gpr_threads_at_hand() > most) most = gpr_threads_at_hand();
    }
    CHECK(most > 1, "a worker is at hand");
    for (int i = 0; i < 10000 && gpr_threads_at_hand() > 1; i++) usleep(1000);
    CHECK(gpr_threads_at_hand() == 1, "all workers sleep");
    CHECK(run_counted(1000) == 0, "a job that wakes them");
}

/* Threads are missed by calls that follow each other soon, and by no others. */
static void test_threads_are_missed_by_bursts(void)
{
    const double seconds = 20e-6;
    int missed = 0, calls = 0;

    for (int i = 0; i < 20; i++) {
        usleep(1000);
        missed += gpr_threads_are_missed(seconds);
    }
    CHECK(missed == 0, "%d calls that are apart", missed);
    for (; calls < 1000000 && missed == 0; calls++) missed += gpr_threads_are_missed(seconds);
    CHECK(missed == 1 && calls > 2, "after %d calls", calls);
}

static void expect_child(pid_t child)
{
    int status = -1;

    CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
}

static void test_fork(void)
{
    for (int k = 0; k < 10; k++) {
        pid_t child;

        set_threads(4);
        CHECK(run_counted(1000) == 0, "before fork");
        child = fork();
        if (child == 0) check_leave(run_counted(1000) == 0 && run_counted(7) == 0 ? 0 : 1);
        CHECK(run_counted(1000) == 0, "after fork");
        expect_child(child);
    }
}

/* Forks while another thread keeps the pool busy. */
static void test_fork_beside_a_job(void)
{
    uint64_t failures = 0;
    pthread_t caller;

    set_threads(3);
    CHECK(pthread_create(&caller, NULL, call_often, &failures) == 0, "create");
    for (int k = 0; k < 10; k++) {
        const pid_t child = fork();

        if (child == 0) check_leave(run_counted(500) == 0 ? 0 : 1);
        expect_child(child);
    }
    (void)pthread_join(caller, NULL);
    CHECK(failures == 0, "the busy caller");
}

/* A task that forks, as a signal handler's code might: the child finishes the job alone. */
static pthread_t forker;
static _Atomic int forked;
static pid_t forked_child;
static pid_t original;

static int fork_task(void *context, uint64_t index, void *memory)
{
    int first = 0;

    (void)memory;
    /* The workers hold still, so that the caller surely gets a task. */
    while (!pthread_equal(pthread_self(), forker) && !forked) usleep(10);
    if (pthread_equal(pthread_self(), forker) &&
        atomic_compare_exchange_strong(&forked, &first, 1)) {
        const pid_t child = fork();
        if (child != 0) forked_child = child;
    }
    atomic_fetch_or(&((counts *)context)->runs[index], 1);
    return 1;
}

static void test_fork_in_a_task(void)
{
    counts *c = calloc(1, sizeof *c);
    uint64_t missing = 0;

    set_threads(3);
    original = getpid();
    forker = pthread_self();
    forked = 0;
    (void)gpr_parallel_for(MOST_TASKS, fork_task, c, NULL);
    for (int i = 0; i < MOST_TASKS; i++) missing += c->runs[i] == 0;
    if (getpid() != original) check_leave(missing != 0 || run_counted(100) != 0);
    CHECK(missing == 0, "tasks of the parent");
    expect_child(forked_child);
    free(c);
}

int main(void)
{
    check_begin();
    test_counts();
    test_progress_is_the_share_of_tasks_that_have_begun();
    test_a_task_ends_its_job();
    test_tasks_have_memory_of_their_own();
    test_many_callers();
    test_workers_use_other_processors();
    test_workers_look_out_for_a_while();
    test_threads_are_missed_by_bursts();
    test_fork();
    test_fork_beside_a_job();
    test_fork_in_a_task();
    return check_end();
}
