/* Fibers. ucontext starts one on its stack; from then on _setjmp and _longjmp go back and forth,
 * which spares the system call that swapcontext makes for the signal mask. Under the address
 * sanitizer swapcontext does it all, as the sanitizer supports that one. */
#undef _FORTIFY_SOURCE /* its longjmp refuses to go to another stack */
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "emu/emu.h"

#if defined(__SANITIZE_ADDRESS__)
#define BY_CONTEXT 1
#else
#define BY_CONTEXT 0
#endif

enum { STACK_BYTES = 64 << 10 };

struct fiber {
    char *stack;
    jmp_buf place;
    ucontext_t context;
    int started, ended;
    void (*function)(void *);
    void *argument;
};

static fiber *current;
#if BY_CONTEXT
static ucontext_t caller;
#else
static jmp_buf caller;
#endif

fiber *fiber_create(void)
{
    fiber *made = calloc(1, sizeof *made);

    if (made == NULL) return NULL;
    made->ended = 1;
    made->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (made->stack != MAP_FAILED) return made;
    free(made);
    return NULL;
}

void fiber_free(fiber *fiber)
{
    if (fiber == NULL) return;
    (void)munmap(fiber->stack, STACK_BYTES);
    free(fiber);
}

void fiber_yield(void)
{
#if BY_CONTEXT
    (void)swapcontext(&current->context, &caller);
#else
    if (_setjmp(current->place) == 0) _longjmp(caller, 1);
#endif
}

/* The first function on a fiber's stack: runs one function after the other. */
static void live(void)
{
    for (;;) {
        current->function(current->argument);
        current->ended = 1;
        fiber_yield();
    }
}

static void start(fiber *fiber)
{
    fiber->started = 1;
    (void)getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, live, 0);
}

void fiber_run(fiber *fiber, void (*function)(void *), void *argument)
{
    const int fresh = !fiber->started;

    if (fresh) start(fiber);
    if (fiber->ended) {
        fiber->function = function;
        fiber->argument = argument;
        fiber->ended = 0;
    }
    current = fiber;
#if BY_CONTEXT
    (void)swapcontext(&caller, &fiber->context);
#else
    if (_setjmp(caller) == 0) {
        if (fresh) (void)setcontext(&fiber->context);
        _longjmp(fiber->place, 1);
    }
#endif
    current = NULL;
}

int fiber_ended(const fiber *fiber)
{
    return fiber->ended;
}

void fiber_abandon(fiber *fiber)
{
    fiber->started = 0;
    fiber->ended = 1;
}

int fiber_owns(uintptr_t address)
{
    return current != NULL && address - (uintptr_t)current->stack < STACK_BYTES;
}
