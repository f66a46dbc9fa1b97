/* The pool: workers that sleep between jobs, one job at a time.
 *
 * Jobs come in bursts (a chunk of a streamed array after the other), and waking a sleeping thread
 * takes about as long as copying a chunk. So a worker that has run out of tasks looks out for the
 * next job for SPIN_SECONDS before it sleeps, and a caller does the same for its last workers. A
 * job too short to wake a worker for gets those that look out. Where such jobs follow each other
 * soon, they wake one after they have lost as much time as that costs (gpr_threads_are_missed).
 *
 * A job lives in the pool from the moment it opens to the moment its caller has run out of tasks; a
 * worker that wakes in between joins it, one that wakes later finds it closed. So a
 * caller waits only for workers that took a task, never for one that has yet to be scheduled. Tasks
 * are handed out by a counter: which thread runs which task varies, and tasks must not care.
 *
 * A scheduler that fills one processor before it uses the next wakes workers on their caller's,
 * where they only take its time. So a worker that finds itself there moves to another one, and does
 * not look out for jobs before it has. Processors that are set from outside are respected.
 *
 * Workers are detached, block every signal, and hold nothing that a process needs to exit. A fork
 * copies the pool without its workers: the child forgets them and starts its own. If it was forked
 * from within a task, the tasks that its lost workers had taken are run again, which is why a task
 * must bear being run twice. */
#define _GNU_SOURCE /* processors that threads are on */
#include "lib/base/threads.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "gpureduce.h"
#include "lib/base/clock.h"
#include "lib/base/progress.h"

static const double SPIN_SECONDS = 100e-6;
static const double WAKING_SECONDS = 50e-6; /* by the caller, and until the others run */

/* A worker's stack has its tasks' memory. The program's thread-local storage is a part of a stack
 * too: 800 KiB under ThreadSanitizer. From 2 MiB on stacks may become huge pages, resident as a
 * whole. */
enum { MAX_WORKERS = 1023, WORKER_STACK_BYTES = 1536 * 1024 };

typedef struct job {
    gpr_task task;
    void *context;
    uint64_t count;
    _Atomic uint64_t next;
} job;

static struct {
    pthread_mutex_t lock;  /* over everything here but `busy` and `forks` */
    pthread_cond_t opened; /* a job opened: workers wait for it */
    pthread_cond_t left;   /* the last worker left a job: its caller waits for it */
    job job;
    uint32_t workers;            /* threads started */
    uint32_t places;             /* workers that may still join the open job; 0 if none is open */
    atomic_flag busy;            /* a caller holds the pool */
    _Atomic int cpu;             /* that the last caller was on */
    _Atomic uint32_t looking;    /* workers that look out for a job; written with the lock held */
    _Atomic uint32_t joined;     /* workers at work on the job; written with the lock held */
    _Atomic uint64_t generation; /* jobs opened so far: a worker joins each once; likewise */
    _Atomic uint64_t forks;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .opened = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER,
          .busy = ATOMIC_FLAG_INIT};

/* A task that ends the job sets the counter to its end: threads that draw a number after that stop,
 * instead of passing over billions of tasks. */
static void run_tasks(job *work, void *memory)
{
    uint64_t i;

    while ((i = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) < work->count) {
        gpr_note_progress(i, work->count);
        if (!work->task(work->context, i, memory)) atomic_store(&work->next, work->count);
    }
}

/* ---------------------------------------------------------------- processors ----------------- */

/* Processors that a worker may run on. */
typedef struct processors {
    cpu_set_t allowed; /* as the thread that started it had them, or as set from outside later */
    cpu_set_t chosen;  /* the same, or all but one */
    int may_choose;
} processors;

static void find_processors(processors *mine)
{
    mine->may_choose = sched_getaffinity(0, sizeof mine->allowed, &mine->allowed) == 0;
    mine->chosen = mine->allowed;
}

static int is_beside_caller(void)
{
    return sched_getcpu() == atomic_load_explicit(&pool.cpu, memory_order_relaxed);
}

/* Moves to a processor that the caller is not on, if there is one. */
static void leave_caller(processors *mine)
{
    const int cpu = atomic_load_explicit(&pool.cpu, memory_order_relaxed);
    cpu_set_t now, others;

    if (!mine->may_choose || cpu < 0 || sched_getaffinity(0, sizeof now, &now) != 0) return;
    if (!CPU_EQUAL(&now, &mine->chosen)) mine->allowed = mine->chosen = now;
    others = mine->allowed;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) == 0) return;
    mine->may_choose = sched_setaffinity(0, sizeof others, &others) == 0; /* a sandbox may refuse */
    if (mine->may_choose) mine->chosen = others;
}

/* ---------------------------------------------------------------- workers -------------------- */

/* Waits a little for the next job, unless the caller needs this processor. Called with the lock
 * held, which is free meanwhile. */
static void look_out(void)
{
    const uint64_t last = pool.generation;
    const double end = gpr_seconds() + SPIN_SECONDS;

    pool.looking++;
    pthread_mutex_unlock(&pool.lock);
    while (!is_beside_caller() && gpr_seconds() < end &&
           atomic_load_explicit(&pool.generation, memory_order_relaxed) == last)
        gpr_relax();
    pthread_mutex_lock(&pool.lock);
    pool.looking--;
}

/* Waits for a job after number `seen`, with the lock held. Who wakes too late for one looks out for
 * the next: where jobs are shorter than it takes to wake, nobody would ever be in time. */
static void wait_for_job(uint64_t seen, processors *mine)
{
    while (pool.places == 0 || pool.generation == seen) {
        pthread_cond_wait(&pool.opened, &pool.lock);
        if (is_beside_caller()) {
            pthread_mutex_unlock(&pool.lock);
            leave_caller(mine);
            pthread_mutex_lock(&pool.lock);
        }
        if (pool.places == 0) look_out();
    }
}

static void *serve(void *unused)
{
    /* allocated: a frame of this size would be a mistake anywhere else */
    void *memory = __builtin_alloca_with_align(GPR_TASK_MEMORY, GPR_TASK_ALIGNMENT * CHAR_BIT);
    uint64_t seen = 0;
    processors mine;

    (void)unused;
    find_processors(&mine);
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        wait_for_job(seen, &mine);
        seen = pool.generation;
        pool.places--;
        pool.joined++;
        pthread_mutex_unlock(&pool.lock);
        run_tasks(&pool.job, memory);
        pthread_mutex_lock(&pool.lock);
        if (--pool.joined == 0) pthread_cond_signal(&pool.left);
        look_out();
    }
    return NULL;
}

/* Starts workers until there are `wanted`, or the system has no more; called with the lock held. */
static void start_workers(uint32_t wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    if (pool.workers >= wanted || pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    sigfillset(&all);
    /* Signals belong to the program's own threads. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t thread;

        if (pthread_create(&thread, &attributes, serve, NULL) != 0) break;
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* ---------------------------------------------------------------- fork ----------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* This thread held the lock when the process was copied, but waiters may have left any state in it
 * and in the conditions: all three are initialised again. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.opened, NULL);
    pthread_cond_init(&pool.left, NULL);
    pool.workers = pool.places = 0;
    pool.joined = pool.looking = 0;
    atomic_flag_clear(&pool.busy);
    atomic_fetch_add(&pool.forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---------------------------------------------------------------- the public part ------------ */

uint32_t gpr_thread_count(void)
{
    gpr_limits limits;

    gpr_get_limits(&limits);
    return limits.cpu_threads > 0 ? limits.cpu_threads : 1;
}

uint32_t gpr_threads_at_hand(void)
{
    return 1 + atomic_load_explicit(&pool.looking, memory_order_relaxed);
}

/* What calls have lost that followed each other so soon that workers would have been looking out.
 * Threads that race here lose some of it. */
int gpr_threads_are_missed(double seconds)
{
    static _Atomic double last, lost;
    const double now = gpr_seconds(), gap = now - last;

    if (gap < seconds / 2) return 0; /* the same call asks once more */
    lost = gap < SPIN_SECONDS + 2 * seconds ? lost + seconds : 0;
    last = now;
    if (lost < WAKING_SECONDS) return 0;
    lost = 0;
    return 1;
}

static void run_alone(uint64_t count, gpr_task task, void *context, void *memory)
{
    for (uint64_t i = 0; i < count; i++) {
        gpr_note_progress(i, count);
        if (!task(context, i, memory)) return;
    }
}

/* Opens a job for up to `wanted` workers and returns how many there are to join it. */
static uint32_t open_job(uint64_t count, gpr_task task, void *context, uint32_t wanted)
{
    uint32_t places, woken;

    pthread_mutex_lock(&pool.lock);
    start_workers(wanted);
    places = pool.workers < wanted ? pool.workers : wanted;
    woken = places > pool.looking ? places - pool.looking : 0;
    pool.job.task = task;
    pool.job.context = context;
    pool.job.count = count;
    atomic_store_explicit(&pool.job.next, 0, memory_order_relaxed);
    pool.places = places;
    atomic_store_explicit(&pool.cpu, sched_getcpu(), memory_order_relaxed);
    pool.generation++;
    if (places == pool.workers && woken > 0)
        pthread_cond_broadcast(&pool.opened);
    else
        for (uint32_t i = 0; i < woken; i++) pthread_cond_signal(&pool.opened);
    pthread_mutex_unlock(&pool.lock);
    return places;
}

static void close_job(void)
{
    const double end = gpr_seconds() + SPIN_SECONDS;

    pthread_mutex_lock(&pool.lock);
    pool.places = 0;
    pthread_mutex_unlock(&pool.lock);
    while (atomic_load_explicit(&pool.joined, memory_order_relaxed) > 0 && gpr_seconds() < end)
        gpr_relax();
    /* also orders the workers' stores before the caller's loads */
    pthread_mutex_lock(&pool.lock);
    while (pool.joined > 0) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

uint32_t gpr_parallel_for(uint64_t count, gpr_task task, void *context, void *memory)
{
    return gpr_parallel_for_at_most(count, UINT32_MAX, task, context, memory);
}

uint32_t gpr_parallel_for_at_most(uint64_t count, uint32_t most, gpr_task task, void *context,
                                  void *memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint32_t threads = count > 1 ? gpr_thread_count() : 1;
    uint64_t wanted = (threads < most ? threads : most) - 1, forks;
    uint32_t places;

    if (wanted > count - 1) wanted = count - 1;
    if (wanted > MAX_WORKERS) wanted = MAX_WORKERS;
    if (count <= 1 || wanted == 0 ||
        atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
        run_alone(count, task, context, memory);
        return 1;
    }
    pthread_once(&once, watch_forks);
    forks = atomic_load(&pool.forks);
    places = open_job(count, task, context, (uint32_t)wanted);
    run_tasks(&pool.job, memory);
    if (forks != atomic_load(&pool.forks)) {
        /* A task forked, and this is the child: the pool is new, and tasks of this job are lost. */
        run_alone(count, task, context, memory);
        return 1;
    }
    close_job();
    atomic_flag_clear_explicit(&pool.busy, memory_order_release);
    return places + 1;
}
