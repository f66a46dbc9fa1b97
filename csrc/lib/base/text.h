/* Text that grows as it is written. */
#ifndef GPR_LIB_TEXT_H
#define GPR_LIB_TEXT_H

#include "gpureduce.h"

/* Zero-initialised: nothing is written. A write that finds no memory adds nothing, and neither does
 * any write after it; gpr_text_status returns whether there was one. */
typedef struct gpr_text {
    char *text; /* NUL-terminated, malloc'ed; NULL before the first write */
    size_t length, room;
    int has_failed;
} gpr_text;

/* Adds to the text as printf would print. */
void gpr_text_add(gpr_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* GPR_ERROR_MEMORY if a write has failed. */
gpr_status gpr_text_status(const gpr_text *text);

void gpr_text_clear(gpr_text *text);

#endif
