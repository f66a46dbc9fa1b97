/* The device code, carried inside the library: every file of csrc/kernels and csrc/shared, and
 * tables of csrc/registry, as the assembler reads them at build time. The files in the tree, the
 * text of kernel_source() and the programs that run are the same bytes. */
#include "lib/driver/sources.h"

#include <stdatomic.h>
#include <string.h>

#include "lib/base/registry.h"
#include "lib/base/status.h"

/* The files that kernels share. Kernel files come from the registry; rows that share a file embed
 * it once (the assembler symbol is weak and the first one wins). */
/* clang-format off */
#define HELPER_FILES(F) \
    F(types) F(vector) F(conversions) F(ordering) F(operators) F(accumulators) F(kernel_traits) \
    F(rows) F(warp) F(block) F(ticket) F(grid_barrier) F(distributed_shared) F(tile) \
    F(thread_accumulator) F(runs) F(async_copy_groups) F(bulk_copies) F(finalize) F(layout) \
    F(fast_axes) F(fast_block) F(fast_columns) F(fast_counted) F(fast_few) F(fast_narrow) \
    F(fast_short) F(fast_strided) \
    F(finalize_rows) F(copy_results) F(exact_superaccumulator_layout) F(exact_rounding) \
    F(exact_interval) F(exact_double_double) F(exact_short_sum) F(exact_single_tile) \
    F(exact_results) F(exact_superaccumulator) F(exact_bins) F(exact_few_terms) \
    F(exact_integer_bins) F(exact_bin_placement) F(exact_adders) F(exact_block) F(exact_any_row) \
    F(exact_again) F(exact_fast) F(exact_limb_partial) F(exact_run) F(exact_strided_tiles) \
    F(exact_column_merge) F(exact_strided) F(exact_rows) F(exact_merge) F(exact_products) \
    F(exact_variance) F(exact_moments) F(exact_moments_strided) F(exact_dot) F(exact_dot_rows)

/* Files of operators, of users' own and logsumexp: programs of the package's kernels do not carry
 * them. */
#define CUSTOM_FILES(F) F(custom_words) F(custom_operator) F(custom_cpu) F(custom_kernels) \
    F(custom_traits)

/* Several reductions in one pass: their programs carry these beside those of `exact`. */
#define SEVERAL_FILES(F) F(several)
#define SEVERAL_SHARED(F) F(several_params)

/* Tables of the registry that kernels read, and files that they share with this library. */
#define TABLES(F) F(dtypes) F(folds)
#define SHARED_FILES(F) \
    F(language) F(dtype_kinds) F(float_formats) F(launch_params) F(packed_accumulators) F(tuning) \
    F(exact_format) F(limbs) F(folds)
#define CUSTOM_SHARED(F) F(custom_params) F(exp_states)
/* clang-format on */

/* Puts a file, found through the build's include path, into .rodata. */
#define EMBED_FILE(symbol, file)               \
    __asm__(".pushsection .rodata\n"           \
            ".ifndef gpr_source_" #symbol "\n" \
            "gpr_source_" #symbol ":\n"        \
            ".incbin \"" file "\"\n"           \
            ".byte 0\n"                        \
            ".endif\n"                         \
            ".popsection\n");                  \
    extern const char gpr_source_##symbol[] __attribute__((visibility("hidden")));
#define EMBED(stem) EMBED_FILE(stem, #stem ".cuh")
#define EMBED_SHARED(stem) EMBED_FILE(shared_##stem, #stem ".h")
#define EMBED_TABLE(stem) EMBED_FILE(table_##stem, #stem ".def")

HELPER_FILES(EMBED)
CUSTOM_FILES(EMBED)
SHARED_FILES(EMBED_SHARED)
CUSTOM_SHARED(EMBED_SHARED)
SEVERAL_FILES(EMBED)
SEVERAL_SHARED(EMBED_SHARED)
TABLES(EMBED_TABLE)
#define GPR_KERNEL(name, file, ...) EMBED(file)
#include "kernels.def"
#undef GPR_KERNEL

#define SOURCE(stem) {#stem ".cuh", gpr_source_##stem},
#define SHARED_SOURCE(stem) {#stem ".h", gpr_source_shared_##stem},
#define TABLE_SOURCE(stem) {#stem ".def", gpr_source_table_##stem},

static const gpr_source helper_sources[] = {TABLES(TABLE_SOURCE) SHARED_FILES(SHARED_SOURCE)
                                                HELPER_FILES(SOURCE)};

static const gpr_source kernel_sources[GPR_KERNEL_COUNT] = {
#define GPR_KERNEL(name, file, ...) SOURCE(file)
#include "kernels.def"
#undef GPR_KERNEL
};

/* Files that the package's kernels do not carry; those of several reductions come first. */
static const gpr_source other_sources[] = {SEVERAL_SHARED(SHARED_SOURCE) SEVERAL_FILES(SOURCE)
                                               CUSTOM_SHARED(SHARED_SOURCE) CUSTOM_FILES(SOURCE)};

#define ONE(name) +1
enum {
    HELPER_COUNT = sizeof helper_sources / sizeof helper_sources[0],
    OTHER_COUNT = sizeof other_sources / sizeof other_sources[0],
    SEVERAL_COUNT = 0 SEVERAL_SHARED(ONE) SEVERAL_FILES(ONE)
};

/* Whether an earlier row has this row's file. */
static int is_repeat(int kernel)
{
    for (int i = 0; i < kernel; i++) {
        if (strcmp(kernel_sources[i].name, kernel_sources[kernel].name) == 0) return 1;
    }
    return 0;
}

int gpr_source_count(void)
{
    int count = HELPER_COUNT + OTHER_COUNT;

    for (int i = 0; i < GPR_KERNEL_COUNT; i++) count += !is_repeat(i);
    return count;
}

gpr_status gpr_source_at(int index, const char **name, const char **text)
{
    const gpr_source *source = NULL;

    if (index >= 0 && index < HELPER_COUNT) {
        source = &helper_sources[index];
    } else if (index >= HELPER_COUNT && index < HELPER_COUNT + OTHER_COUNT) {
        source = &other_sources[index - HELPER_COUNT];
    } else if (index >= HELPER_COUNT + OTHER_COUNT) {
        int seen = HELPER_COUNT + OTHER_COUNT;
        for (int i = 0; i < GPR_KERNEL_COUNT && source == NULL; i++) {
            if (!is_repeat(i) && seen++ == index) source = &kernel_sources[i];
        }
    }
    if (source == NULL) return gpr_fail(GPR_ERROR_VALUE, "no source file has index %d", index);
    *name = source->name;
    *text = source->text;
    return GPR_OK;
}

const char *gpr_kernel_source(int index)
{
    return index >= 0 && index < GPR_KERNEL_COUNT ? kernel_sources[index].text : NULL;
}

int gpr_program_sources(int kernel, gpr_source *sources)
{
    const gpr_source own = kernel_sources[kernel], fast = kernel_sources[GPR_KERNEL_fast];
    int count = HELPER_COUNT;

    memcpy(sources, helper_sources, sizeof helper_sources);
    if (strcmp(own.name, fast.name) != 0) sources[count++] = fast; /* exact sums run its kernels */
    sources[count++] = own;
    return count;
}

int gpr_several_sources(gpr_source *sources)
{
    const int count = gpr_program_sources(GPR_KERNEL_exact, sources);

    memcpy(sources + count, other_sources, SEVERAL_COUNT * sizeof *sources);
    return count + SEVERAL_COUNT;
}

static void hash_sources(const gpr_source *sources, int count, char hex[GPR_SHA256_HEX])
{
    uint8_t digest[GPR_SHA256_BYTES];
    gpr_sha256 hash;

    gpr_sha256_begin(&hash);
    for (int i = 0; i < count; i++) {
        gpr_sha256_add(&hash, sources[i].name, strlen(sources[i].name) + 1);
        gpr_sha256_add(&hash, sources[i].text, strlen(sources[i].text) + 1);
    }
    gpr_sha256_end(&hash, digest);
    gpr_sha256_hex(digest, hex);
}

/* Programs of kernels, by their index, and behind them that of several reductions. */
enum { SEVERAL_PROGRAM = GPR_KERNEL_COUNT, PROGRAM_COUNT };

/* Without a lock, which a child could inherit locked: a thread that comes while another one fills
 * in a digest hashes for itself. */
static void find_digest(int program, char hex[GPR_SHA256_HEX])
{
    enum { ABSENT, BEING_WRITTEN, PRESENT };
    static struct {
        atomic_int state;
        char hex[GPR_SHA256_HEX];
    } known[PROGRAM_COUNT];
    gpr_source sources[GPR_PROGRAM_SOURCES];
    int state = ABSENT;

    if (atomic_load_explicit(&known[program].state, memory_order_acquire) == PRESENT) {
        memcpy(hex, known[program].hex, GPR_SHA256_HEX);
        return;
    }
    const int count = program == SEVERAL_PROGRAM ? gpr_several_sources(sources)
                                                 : gpr_program_sources(program, sources);
    hash_sources(sources, count, hex);
    if (!atomic_compare_exchange_strong(&known[program].state, &state, BEING_WRITTEN)) return;
    memcpy(known[program].hex, hex, GPR_SHA256_HEX);
    atomic_store_explicit(&known[program].state, PRESENT, memory_order_release);
}

void gpr_program_digest(int kernel, char hex[GPR_SHA256_HEX])
{
    find_digest(kernel, hex);
}

void gpr_several_digest(char hex[GPR_SHA256_HEX])
{
    find_digest(SEVERAL_PROGRAM, hex);
}

_Static_assert(HELPER_COUNT + 2 + SEVERAL_COUNT <= GPR_PROGRAM_SOURCES,
               "GPR_PROGRAM_SOURCES is too small");
