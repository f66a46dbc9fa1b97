/* The registry's tables, made from csrc/registry, and looking things up in them. */
#include "lib/base/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/status.h"

const gpr_dtype_row gpr_dtype_rows[GPR_DTYPE_COUNT] = {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    [GPR_##ID] = {#name, bytes, kind, fraction, exponent},
#include "dtypes.def"
#undef GPR_DTYPE
};

#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent)                     \
    _Static_assert(sizeof(c_type) == (bytes),                                            \
                   "dtypes.def: " #name " has other storage than it says");              \
    _Static_assert((kind) == GPR_KIND_FLOAT ? 1 + (fraction) + (exponent) == 8 * (bytes) \
                                            : (exponent) == 0,                           \
                   "dtypes.def: " #name " has another format than it says");
#include "dtypes.def"
#undef GPR_DTYPE

enum { GPR_NO_IDENTITY = 0, GPR_IDENTITY = 1 };

const gpr_operator_row gpr_operator_rows[GPR_OP_COUNT] = {
#define GPR_OPERATOR(ID, name, fold, ufunc, finish, identity, summary) \
    [GPR_OP_##ID] = {#name, #ufunc, #finish, summary, GPR_FOLD_##fold, identity},
#include "operators.def"
#undef GPR_OPERATOR
};

enum { GPR_NON_COMMUTATIVE = 0, GPR_COMMUTATIVE = 1 };

const gpr_fold_row gpr_fold_rows[GPR_FOLD_COUNT] = {
#define GPR_FOLD(name, commutative, idempotent, acc_kind, identity) \
    {#name, commutative, idempotent, acc_kind, identity},
#include "folds.def"
#undef GPR_FOLD
};

const gpr_kernel_row gpr_kernel_rows[GPR_KERNEL_COUNT] = {
#define GPR_KERNEL(name, file, family, cover, per_thread, finish, block_rule, block, flags, \
                   min_cc, aliases, summary, removes, pays, source)                         \
    {#name, #file ".cuh", family,  cover,   per_thread, finish, block_rule, block,          \
     flags, min_cc,       aliases, summary, removes,    pays,   source},
#include "kernels.def"
#undef GPR_KERNEL
};

const char *gpr_dtype_name(gpr_dtype dtype)
{
    return dtype >= 0 && dtype < GPR_DTYPE_COUNT ? gpr_dtype_rows[dtype].name : NULL;
}

size_t gpr_dtype_bytes(gpr_dtype dtype)
{
    return dtype >= 0 && dtype < GPR_DTYPE_COUNT ? gpr_dtype_rows[dtype].bytes : 0;
}

gpr_dtype gpr_find_dtype(const char *name)
{
    for (int i = 0; i < GPR_DTYPE_COUNT; i++) {
        if (strcmp(name, gpr_dtype_rows[i].name) == 0) return (gpr_dtype)i;
    }
    return GPR_DTYPE_DEFAULT;
}

const char *gpr_operator_name(gpr_operator op)
{
    return (int)op >= 0 && op < GPR_OP_COUNT ? gpr_operator_rows[op].name : NULL;
}

int gpr_find_operator(const char *name)
{
    for (int i = 0; i < GPR_OP_COUNT; i++) {
        if (strcmp(name, gpr_operator_rows[i].name) == 0) return i;
    }
    return -1;
}

/* ---------------------------------------------------------------- kernels by name ------------ */

enum { NAME_ROOM = 64, NEAR_MATCHES = 3 };

/* Whether the space-separated list has the word. */
static int has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; *at != '\0';) {
        const size_t size = strcspn(at, " ");
        if (size == length && length > 0 && strncmp(at, word, size) == 0) return 1;
        at += size;
        at += strspn(at, " ");
    }
    return 0;
}

/* The cost of replacing one character by another: digits are as far apart as their numbers, so that
 * reduce6 is nearest to reduce7. */
static size_t replacement(char a, char b)
{
    const int is_number = a >= '0' && a <= '9' && b >= '0' && b <= '9';

    return is_number ? (size_t)abs(a - b) : a != b;
}

/* Cost of the insertions, deletions and replacements that turn `a` into the first `b_length`
 * characters of b; SIZE_MAX for names too long to be near anything. */
static size_t edit_distance(const char *a, const char *b, size_t b_length)
{
    size_t row[NAME_ROOM + 1];
    const size_t a_length = strlen(a);

    if (a_length > NAME_ROOM || b_length > NAME_ROOM) return SIZE_MAX;
    for (size_t j = 0; j <= b_length; j++) row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t replace = diagonal + replacement(a[i - 1], b[j - 1]);
            const size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < shift ? replace : shift;
        }
    }
    return row[b_length];
}

/* How far `name` is from a row's name or nearest alias, which is *nearest, of *length characters; a
 * row whose name contains it is near. */
static size_t distance_to(const gpr_kernel_row *row, const char *name, const char **nearest,
                          size_t *length)
{
    *nearest = row->name;
    *length = strlen(row->name);
    size_t best = edit_distance(name, row->name, *length);

    if (strlen(name) >= 3 && strstr(row->name, name) != NULL && best > 2) best = 2;
    for (const char *at = row->aliases; *at != '\0';) {
        const size_t size = strcspn(at, " ");
        const size_t distance = edit_distance(name, at, size);
        if (distance < best) {
            best = distance;
            *nearest = at;
            *length = size;
        }
        at += size;
        at += strspn(at, " ");
    }
    return best;
}

static gpr_status fail_unknown_kernel(const char *name)
{
    char near[NEAR_MATCHES * (NAME_ROOM + 4) + 1] = "";
    const size_t farthest = strnlen(name, NAME_ROOM) / 3 + 1;
    size_t length = 0;
    int found = 0;

    for (size_t distance = 0; distance <= farthest && found < NEAR_MATCHES; distance++) {
        for (int i = 0; i < GPR_KERNEL_COUNT && found < NEAR_MATCHES; i++) {
            const char *word = NULL;
            size_t size = 0;
            if (distance_to(&gpr_kernel_rows[i], name, &word, &size) != distance) continue;
            length += (size_t)snprintf(near + length, sizeof near - length, "%s'%.*s'",
                                       found > 0 ? ", " : "", (int)size, word);
            found++;
        }
    }
    if (found > 0) {
        return gpr_fail(GPR_ERROR_VALUE, "unknown kernel '%.*s'; did you mean %s?", NAME_ROOM, name,
                        near);
    }
    if (strstr(name, ".cu") != NULL)
        return gpr_fail(GPR_ERROR_VALUE,
                        "unknown kernel '%.*s'; a file is given as gpureduce.Kernel('%.*s')",
                        NAME_ROOM, name, NAME_ROOM, name);
    return gpr_fail(
        GPR_ERROR_VALUE,
        "unknown kernel '%.*s'; gpureduce.kernels() and the command 'gpureduce kernels' "
        "list all names",
        NAME_ROOM, name);
}

gpr_status gpr_find_kernel(const char *name, int *index)
{
    int found = 0;

    while (found < GPR_KERNEL_COUNT && strcmp(name, gpr_kernel_rows[found].name) != 0) found++;
    if (found == GPR_KERNEL_COUNT) { /* aliases last: cutting lists up costs more than comparing */
        found = 0;
        while (found < GPR_KERNEL_COUNT && !has_word(gpr_kernel_rows[found].aliases, name)) found++;
    }
    if (found == GPR_KERNEL_COUNT) return fail_unknown_kernel(name);
    *index = found;
    return GPR_OK;
}

static const char *const family_names[] = {
    [GPR_FAMILY_ATOMIC] = "atomic",   [GPR_FAMILY_TREE] = "tree", [GPR_FAMILY_SHUFFLE] = "shuffle",
    [GPR_FAMILY_BLOCK] = "block",     [GPR_FAMILY_WARP] = "warp", [GPR_FAMILY_LIBRARY] = "library",
    [GPR_FAMILY_PLANNER] = "planner",
};

static const char *const block_rule_names[] = {
    [GPR_BLOCK_POW2] = "power of two",
    [GPR_BLOCK_WARPS] = "multiple of 32",
    [GPR_BLOCK_WARP] = "32",
};

int gpr_kernel_count(void)
{
    return GPR_KERNEL_COUNT;
}

gpr_status gpr_kernel_info_at(int index, gpr_kernel_info *info)
{
    if (index < 0 || index >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", index);

    const gpr_kernel_row *row = &gpr_kernel_rows[index];
    *info = (gpr_kernel_info){
        .name = row->name,
        .aliases = row->aliases,
        .family = family_names[row->family],
        .summary = row->summary,
        .removes = row->removes,
        .pays = row->pays,
        .source = row->source,
        .file = row->file,
        .block_rule = block_rule_names[row->block_rule],
        .block_size = row->block,
        .elements_per_thread = row->per_thread,
        .takes_grid_size = row->cover == GPR_STRIDE,
        .commutative_only = (row->flags & GPR_ORDERED) == 0,
        .deterministic = (row->flags & GPR_VARIES) == 0,
        .min_compute_capability = row->min_cc,
        .is_on_cpu = gpr_is_planned(row),
    };
    return GPR_OK;
}
