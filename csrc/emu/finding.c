/* Broken rules: the first one of a launch, and the end of the thread that broke it. */
#include <stdarg.h>

#include "emu/emu.h"

const char *thread_name(unsigned index, char room[48])
{
    (void)snprintf(room, 48, "thread %u (warp %u, lane %u)", index, index / WARP_LANES,
                   index % WARP_LANES);
    return room;
}

static void note_finding(engine_launch *launch, const void *pc, const char *what, va_list arguments)
{
    finding *finding = &launch->finding;

    (void)vsnprintf(finding->what, sizeof finding->what, what, arguments);
    finding->pc = pc;
    finding->found = 1;
}

void report_finding(engine_launch *launch, const void *pc, const char *what, ...)
{
    va_list arguments;

    va_start(arguments, what);
    note_finding(launch, pc, what, arguments);
    va_end(arguments);
    for (;;) fiber_yield(); /* nobody comes back here */
}

void report_waiting(engine_launch *launch, emu_thread *thread, const char *what, ...)
{
    va_list arguments;

    if (launch->finding.found) return;
    launch->current = thread;
    va_start(arguments, what);
    note_finding(launch, thread->pc, what, arguments);
    va_end(arguments);
}
