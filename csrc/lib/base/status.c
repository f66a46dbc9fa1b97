/* Thread-local failure records. A record is plain memory: recording one cannot fail. */
#include "lib/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local gpr_error error;
static _Thread_local char *error_log; /* owned; error.log points to it */

const gpr_error *gpr_last_error(void)
{
    return &error;
}

/* Bytes of the UTF-8 character that starts at `at`; 0 if none does. */
static int character_bytes(const unsigned char *at)
{
    const int bytes = at[0] < 0x80   ? 1
                      : at[0] < 0xc2 ? 0
                      : at[0] < 0xe0 ? 2
                      : at[0] < 0xf0 ? 3
                      : at[0] < 0xf5 ? 4
                                     : 0;

    for (int i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    /* The second byte's range rules out long forms, surrogates and numbers beyond the last. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f)) return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)) return 0;
    return bytes;
}

/* Names and paths in a message may be no UTF-8, or be cut within a character: bytes that are left
 * over become '?'. */
static void make_utf8(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0';) {
        const int bytes = character_bytes(at);
        if (bytes == 0) *at = '?';
        at += bytes > 0 ? bytes : 1;
    }
}

gpr_status gpr_fail(gpr_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    error.status = status;
    (void)vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    make_utf8(error.message);
    error.call[0] = '\0';
    error.name[0] = '\0';
    error.code = 0;
    gpr_fail_log(NULL);
    return status;
}

gpr_status gpr_fail_call(const char *call, int code, const char *name)
{
    (void)snprintf(error.call, sizeof error.call, "%s", call);
    (void)snprintf(error.name, sizeof error.name, "%s", name != NULL ? name : "");
    error.code = code;
    return error.status;
}

void gpr_fail_log(char *log)
{
    free(error_log);
    error_log = log;
    error.log = log;
}

const char *gpr_status_name(gpr_status status)
{
    switch (status) {
    case GPR_OK: return "GPR_OK";
    case GPR_ERROR_VALUE: return "GPR_ERROR_VALUE";
    case GPR_ERROR_TYPE: return "GPR_ERROR_TYPE";
    case GPR_ERROR_MEMORY: return "GPR_ERROR_MEMORY";
    case GPR_ERROR_CUDA: return "GPR_ERROR_CUDA";
    case GPR_ERROR_COMPILE: return "GPR_ERROR_COMPILE";
    case GPR_ERROR_DEVICE: return "GPR_ERROR_DEVICE";
    case GPR_ERROR_KERNEL: return "GPR_ERROR_KERNEL";
    case GPR_ERROR_INTERRUPTED: return "GPR_ERROR_INTERRUPTED";
    case GPR_ERROR_SYSTEM: return "GPR_ERROR_SYSTEM";
    }
    return "unknown status";
}

#ifndef GPR_VERSION
#error "GPR_VERSION is defined by the build"
#endif

const char *gpr_version(void)
{
    return GPR_VERSION;
}
