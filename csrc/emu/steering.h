/* How stand-ins are steered: by a variable of settings, and by one call that is made to fail.
 * For the file that includes it. */
#ifndef GPR_EMU_STEERING_H
#define GPR_EMU_STEERING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEERING_NAME_ROOM = 64 };

/* The C library's, which its headers show to GNU sources alone. */
char *secure_getenv(const char *name);

/* Calls `set` for each item of `variable`, key=value,... */
static inline void steering_read(const char *variable,
                                 void (*set)(const char *key, const char *value))
{
    const char *text = secure_getenv(variable);
    char *copy = text != NULL ? strdup(text) : NULL, *rest = NULL;

    for (char *item = copy != NULL ? strtok_r(copy, ",", &rest) : NULL; item != NULL;
         item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (value == NULL) continue;
        *value = '\0';
        set(item, value + 1);
    }
    free(copy);
}

/* The call that is to fail, and the one that did. The caller holds the stand-in's lock. */
typedef struct steering_fault {
    char function[STEERING_NAME_ROOM], failed[STEERING_NAME_ROOM];
    int countdown, code;
} steering_fault;

/* Makes the nth call from now of `function` ("*": of any) fail with `code`, once. nth 0: none. */
static inline void steering_fail(steering_fault *fault, const char *function, int nth, int code)
{
    (void)snprintf(fault->function, sizeof fault->function, "%s", function);
    fault->countdown = nth;
    fault->code = code;
    fault->failed[0] = '\0';
}

/* Reads FUNCTION:NTH:CODE; 0 if it is something else. */
static inline int steering_parse(const char *text, char function[STEERING_NAME_ROOM], int *nth,
                                 int *code)
{
    const size_t length = strcspn(text, ":");
    char *end = NULL;

    if (text[length] != ':' || length >= STEERING_NAME_ROOM) return 0;
    memcpy(function, text, length);
    function[length] = '\0';
    *nth = (int)strtol(text + length + 1, &end, 10);
    if (*end != ':') return 0;
    *code = (int)strtol(end + 1, NULL, 10);
    return 1;
}

/* Counts a call; not 0: it is to fail with that code. */
static inline int steering_meet(steering_fault *fault, const char *function)
{
    if (fault->countdown == 0) return 0;
    if (strcmp(fault->function, "*") != 0 && strcmp(fault->function, function) != 0) return 0;
    if (--fault->countdown != 0) return 0;
    (void)snprintf(fault->failed, sizeof fault->failed, "%s", function);
    return fault->code;
}

#endif
