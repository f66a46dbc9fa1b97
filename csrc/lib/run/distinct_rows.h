/* Results on a device of rows that are the same, as along kept axes that were broadcast: one of
 * these rows is reduced, and its result copied. */
#ifndef GPR_LIB_DISTINCT_ROWS_H
#define GPR_LIB_DISTINCT_ROWS_H

#include "lib/rules/resolved.h"
#include "shared/launch_params.h"

/* A call's distinct rows, and where their results go. */
typedef struct gpr_distinct_rows {
    gpr_resolved call;   /* of these rows, whose results go to their places */
    const gpr_view *all; /* all rows */
    gpr_copy_params copies;
} gpr_distinct_rows;

/* Fills in *distinct and returns 1 where that takes less time than reading all rows. Else 0, and
 * *distinct holds nothing: also for kernels of the course, which read what they are given. */
int gpr_find_distinct_rows(const gpr_resolved *call, gpr_distinct_rows *distinct);

#endif
