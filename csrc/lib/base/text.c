/* Text that grows as it is written: see text.h. */
#include "lib/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/status.h"

enum { LEAST_ROOM = 256 }; /* bytes */

/* Makes room for `more` characters and the NUL behind them. */
static int has_room(gpr_text *text, size_t more)
{
    size_t room = text->room > 0 ? text->room : LEAST_ROOM;
    char *grown = NULL;

    while (room - text->length <= more) room *= 2;
    if (room == text->room) return 1;
    grown = malloc(room);
    if (grown == NULL) return 0;
    if (text->length > 0) memcpy(grown, text->text, text->length + 1);
    free(text->text);
    text->text = grown;
    text->room = room;
    return 1;
}

void gpr_text_add(gpr_text *text, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    const int more = vsnprintf(NULL, 0, format, arguments);
    text->has_failed = text->has_failed || more < 0 || !has_room(text, (size_t)more);
    if (!text->has_failed) {
        (void)vsnprintf(text->text + text->length, text->room - text->length, format, again);
        text->length += (size_t)more;
    }
    va_end(again);
    va_end(arguments);
}

gpr_status gpr_text_status(const gpr_text *text)
{
    return text->has_failed ? gpr_fail(GPR_ERROR_MEMORY, "out of memory") : GPR_OK;
}

void gpr_text_clear(gpr_text *text)
{
    free(text->text);
    *text = (gpr_text){0};
}
