/* Programs: a kernel for given types and block size, as machine code. */
#ifndef GPR_LIB_PROGRAM_H
#define GPR_LIB_PROGRAM_H

#include "lib/base/text.h"
#include "lib/driver/nvrtc.h"
#include "lib/rules/rules.h"

/* Everything that decides a program's text. Zero-initialised before it is filled in: traits are
 * compared as bytes. */
typedef struct gpr_kernel_traits {
    int kernel;
    gpr_fold fold;
    /* second: of the other array where there are two; acc: numbers of accumulators of the fold's
     * kind */
    gpr_dtype element, second, compute, acc;
    int skip_nan, integer_bins;
    /* of dot products */
    gpr_products products;
    int conjugates;
    uint32_t block, lanes, per_thread, item, row_elements;
    /* numbers of axes, and whether there is a mask: for the planner's kernels and finalize_rows */
    int kept, reduced, masked;
    /* of the operator's row, where results leave the program; NULL: accumulators do */
    const char *finish;
    /* with finish */
    gpr_dtype result;
    /* with finish: variances are about means that are given, of type `mean` */
    int has_given_mean;
    gpr_dtype mean;
    /* with finish: rows of min and max have one element more */
    int has_start;
    /* with finish: results are copied to those of rows that are the same */
    int copies;
    /* one of the registry's or the planner's strings */
    const char *variant;
} gpr_kernel_traits;

/* Positions of a program's entries; -1: the kernel has none. The first and the next pass share one
 * where partials have the type of elements, as in sums of float32. */
typedef struct gpr_entries {
    int first, next, fill, finish, copy;
} gpr_entries;

/* Which entries a traits's program has. */
gpr_entries gpr_program_entries(const gpr_kernel_traits *traits);

/* Writes the constants of a program, which kernels read in namespace gpr. */
void gpr_write_constants(const gpr_kernel_traits *traits, gpr_text *text);
/* Writes traits of one array as a C++ type: KernelTraits<...>. */
void gpr_write_base(const gpr_kernel_traits *traits, gpr_text *text);

/* Adds the language's options. is_minimal: the program needs nothing of the CUDA runtime's
 * declarations, as our own files do not; without them it compiles 5 to 10 ms sooner. NVRTC is
 * open. */
void gpr_add_language(gpr_translation *translation, int is_minimal);

/* The object of a translation for `target`: from the disk cache, else compiled (and stored) if
 * `use_cache`; always compiled otherwise. *compiled is which. NVRTC is open. */
gpr_status gpr_translate(const gpr_translation *translation, const char *target, int use_cache,
                         gpr_object *object, int *compiled);

/* The object of a traits for compute capability `cc`: from the disk cache, else compiled (and
 * stored) if `use_cache`; always compiled otherwise. *compiled is which. GPR_ERROR_KERNEL: CUB's
 * headers are needed and not there; GPR_ERROR_DEVICE, GPR_ERROR_COMPILE. */
gpr_status gpr_make_object(const gpr_kernel_traits *traits, int cc, int use_cache,
                           gpr_object *object, int *compiled);

/* Compiles a traits, bypassing the cache, and adds the size of its machine code to *bytes. */
gpr_status gpr_add_machine_code(const gpr_kernel_traits *traits, int cc, uint64_t *bytes);

/* GPR_OK if the headers that row `kernel` includes beyond our own are installed. */
gpr_status gpr_kernel_headers(int kernel);

#endif
