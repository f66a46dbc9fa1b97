/* What every C test shares: CHECK and REQUIRE, a seed that changes with each run, random numbers,
 * and the closing line.
 *
 * A failed CHECK prints where, what and the seed; GPR_TEST_SEED repeats a run. */
#ifndef GPR_TEST_CHECK_H
#define GPR_TEST_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t check_passed, check_failed, check_seed, check_state;

enum { CHECK_MOST_PRINTED = 20 };

#define CHECK(condition, ...)                                                               \
    do {                                                                                    \
        if (condition) {                                                                    \
            check_passed++;                                                                 \
        } else if (check_failed++ < CHECK_MOST_PRINTED) {                                   \
            printf("%s:%d: failed: %s; seed %" PRIu64 "; ", __FILE__, __LINE__, #condition, \
                   check_seed);                                                             \
            printf("" __VA_ARGS__);                                                         \
            printf("\n");                                                                   \
        }                                                                                   \
    } while (0)

/* Ends the process, mostly a child of the test, if a promise is broken: what follows would make
 * no sense. */
#define REQUIRE(condition)                                                            \
    do {                                                                              \
        if (condition) break;                                                         \
        (void)fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
        exit(1);                                                                      \
    } while (0)

/* The next 64 random bits of a state (splitmix64). */
static inline uint64_t check_draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t check_random(void)
{
    return check_draw(&check_state);
}

/* A number from low to high, both included. */
static inline int64_t check_between(int64_t low, int64_t high)
{
    return low + (int64_t)(check_random() % (uint64_t)(high - low + 1));
}

static inline void check_begin(void)
{
    const char *seed = getenv("GPR_TEST_SEED");
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    check_seed = seed != NULL ? strtoull(seed, NULL, 0)
                              : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    check_state = check_seed;
    printf("seed %" PRIu64 "\n", check_seed);
}

#ifdef GPR_COVERAGE
extern void __gcov_dump(void);
#endif

/* Ends a child that was forked beside other threads at once, without exit handlers, but writes its
 * coverage counters first. */
static inline void check_leave(int status)
{
#ifdef GPR_COVERAGE
    __gcov_dump();
#endif
    _exit(status);
}

/* Prints the closing line; returns main's exit status. */
static inline int check_end(void)
{
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", check_passed, check_failed);
    return check_failed != 0;
}

#endif
