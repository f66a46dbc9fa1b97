/* How much of the calling thread's request has begun, for the request's interrupt callback to
 * show: see gpr_progress. */
#ifndef GPR_LIB_PROGRESS_H
#define GPR_LIB_PROGRESS_H

#include <stdint.h>

/* Notes that `begun` of `total` equal parts have begun. total is not 0. The calling thread alone
 * sees the note. */
void gpr_note_progress(uint64_t begun, uint64_t total);

#endif
