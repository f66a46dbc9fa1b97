/* The device code that is embedded in the library. */
#ifndef GPR_LIB_SOURCES_H
#define GPR_LIB_SOURCES_H

#include "lib/base/sha256.h"

typedef struct gpr_source {
    const char *name; /* "sequential.cuh" */
    const char *text; /* NUL-terminated, static */
} gpr_source;

enum { GPR_PROGRAM_SOURCES = 80 };

/* The files a program of this kernel may include: the shared helpers, then the kernel's own. Fills
 * at most GPR_PROGRAM_SOURCES entries and returns their number. */
int gpr_program_sources(int kernel, gpr_source *sources);

/* As gpr_program_sources, of a program that makes several reductions in one pass. */
int gpr_several_sources(gpr_source *sources);

/* SHA-256 over the names and texts of the files of a kernel's program, as hexadecimal digits. They
 * never change, so they are read once per process and program: half a megabyte takes milliseconds.
 */
void gpr_program_digest(int kernel, char hex[GPR_SHA256_HEX]);

/* The same of a program that makes several reductions in one pass. */
void gpr_several_digest(char hex[GPR_SHA256_HEX]);

#endif
