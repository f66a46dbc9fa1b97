/* The emulator's options, which docs/emulator.md lists. */
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

emu_settings emu_settings_now = {.seed = 1};

void engine_set(const char *key, const char *value)
{
    emu_settings *s = &emu_settings_now;

    if (strcmp(key, "schedule") == 0) {
        s->schedule = strcmp(value, "reverse") == 0  ? REVERSE
                      : strcmp(value, "random") == 0 ? RANDOM
                                                     : FORWARD;
    }
    if (strcmp(key, "seed") == 0) s->seed = strtoull(value, NULL, 0);
    if (strcmp(key, "limit") == 0) s->limit = strtoull(value, NULL, 0);
    if (strcmp(key, "lockstep") == 0) s->lockstep = strcmp(value, "0") != 0;
    if (strcmp(key, "strict") == 0) s->strict = (unsigned)strtoul(value, NULL, 0);
    if (strcmp(key, "garbage") == 0) {
        s->garbage = strcmp(value, "small") == 0    ? GARBAGE_SMALL
                     : strcmp(value, "zero") == 0   ? GARBAGE_ZERO
                     : strcmp(value, "random") == 0 ? GARBAGE_RANDOM
                                                    : GARBAGE_LARGE;
    }
    if (strcmp(key, "report") == 0) (void)snprintf(s->report, sizeof s->report, "%s", value);
    if (strcmp(key, "overlay") == 0) (void)snprintf(s->overlay, sizeof s->overlay, "%s", value);
    if (strcmp(key, "compiler") == 0) (void)snprintf(s->compiler, sizeof s->compiler, "%s", value);
}
