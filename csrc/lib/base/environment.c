/* The environment, for processes that may believe it. */
#define _GNU_SOURCE /* secure_getenv */
#include "lib/base/environment.h"

#include <stdlib.h>

const char *gpr_environment(const char *name)
{
    return secure_getenv(name);
}
