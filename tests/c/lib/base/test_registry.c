/* The registry's tables agree with what the rest of the library takes for granted, and names are
 * found or explained. */
#include <string.h>

#include "check.h"
#include "lib/base/registry.h"
#include "lib/driver/sources.h"
#include "lib/rules/plan.h"

static void test_names_and_aliases_are_unique(void)
{
    int found = -1;

    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        const gpr_kernel_row *row = &gpr_kernel_rows[i];
        char aliases[256], *rest = NULL;
        CHECK(gpr_find_kernel(row->name, &found) == GPR_OK && found == i, "%s is row %d and %d",
              row->name, i, found);
        (void)snprintf(aliases, sizeof aliases, "%s", row->aliases);
        for (char *alias = strtok_r(aliases, " ", &rest); alias != NULL;
             alias = strtok_r(NULL, " ", &rest)) {
            CHECK(gpr_find_kernel(alias, &found) == GPR_OK && found == i, "%s is row %d and %d",
                  alias, i, found);
        }
    }
    for (int i = 0; i < GPR_DTYPE_COUNT; i++)
        CHECK((int)gpr_find_dtype(gpr_dtype_rows[i].name) == i, "dtype %d", i);
    for (int i = 0; i < GPR_OP_COUNT; i++)
        CHECK(gpr_find_operator(gpr_operator_rows[i].name) == i, "operator %d", i);
}

static void test_every_row_is_whole(void)
{
    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        const gpr_kernel_row *row = &gpr_kernel_rows[i];
        gpr_kernel_info info;
        CHECK(gpr_check_block_size(row, row->block) == GPR_OK, "%s: its own block size", row->name);
        CHECK(row->per_thread >= 1 && row->per_thread <= 64, "%s: %u elements a thread", row->name,
              row->per_thread);
        CHECK((row->finish == GPR_ATOMIC) == ((row->flags & GPR_VARIES) != 0),
              "%s: atomics vary, others do not", row->name);
        CHECK(row->summary[0] != '\0' && row->removes[0] != '\0' && row->pays[0] != '\0' &&
                  row->source[0] != '\0',
              "%s", row->name);
        CHECK(gpr_kernel_info_at(i, &info) == GPR_OK && info.family != NULL &&
                  info.block_rule != NULL,
              "%s", row->name);
        CHECK(info.elements_per_thread == row->per_thread, "%s", row->name);
        CHECK(info.takes_grid_size == (row->cover == GPR_STRIDE), "%s", row->name);
        CHECK(info.commutative_only == ((row->flags & GPR_ORDERED) == 0), "%s", row->name);
        CHECK(info.is_on_cpu ==
                  (i == GPR_KERNEL_auto || i == GPR_KERNEL_exact || i == GPR_KERNEL_fast),
              "%s", row->name);
    }
}

static void test_indices_out_of_range_are_refused(void)
{
    gpr_kernel_info info;
    const char *name = NULL, *text = NULL;
    static const int wrong[] = {-1, GPR_KERNEL_COUNT, 1 << 30, -(1 << 30)};

    for (int i = 0; i < 4; i++) {
        CHECK(gpr_kernel_info_at(wrong[i], &info) == GPR_ERROR_VALUE, "%d", wrong[i]);
        CHECK(gpr_kernel_source(wrong[i]) == NULL, "%d", wrong[i]);
        if (wrong[i] != GPR_KERNEL_COUNT)
            CHECK(gpr_source_at(wrong[i], &name, &text) == GPR_ERROR_VALUE, "%d", wrong[i]);
        CHECK(gpr_dtype_name((gpr_dtype)wrong[i]) == NULL &&
                  gpr_dtype_bytes((gpr_dtype)wrong[i]) == 0,
              "%d", wrong[i]);
        CHECK(gpr_operator_name((gpr_operator)wrong[i]) == NULL, "%d", wrong[i]);
    }
    CHECK(gpr_source_at(gpr_source_count(), &name, &text) == GPR_ERROR_VALUE,
          "the source behind the last");
    CHECK(gpr_find_dtype("") == GPR_DTYPE_DEFAULT &&
              gpr_find_dtype("complex256") == GPR_DTYPE_DEFAULT,
          "no such dtype");
    CHECK(gpr_find_operator("") == -1 && gpr_find_operator("median") == -1, "no such operator");
    CHECK(strcmp(gpr_status_name((gpr_status)999), "unknown status") == 0,
          "a status that does not exist");
}

static void expect_message(const char *name, const char *part)
{
    int index = -1;

    CHECK(gpr_find_kernel(name, &index) == GPR_ERROR_VALUE, "'%.80s' is found", name);
    CHECK(strstr(gpr_last_error()->message, part) != NULL, "'%.80s': %s", name,
          gpr_last_error()->message);
}

static void test_unknown_kernels_are_told_their_near_matches(void)
{
    static char endless[5000];

    expect_message("shfl_atomc", "'shfl_atomic'");
    expect_message("sequentail", "'sequential'");
    expect_message("warp_atomics", "'warp_atomic'"); /* an alias of shfl_atomic */
    expect_message("xor", "'shfl_xor'");
    expect_message("Auto", "'auto'");
    expect_message("", "list all names");
    expect_message(" ", "list all names");
    expect_message("quicksort", "list all names");
    expect_message("reduce0 reduce1", "unknown kernel");
    expect_message("homework.cu", "a file is given as gpureduce.Kernel('homework.cu')");
    memset(endless, 'x', sizeof endless - 1);
    expect_message(endless, "list all names");
    endless[200] = '\0';
    expect_message(endless, "list all names");
}

static void test_block_sizes_follow_the_rules(void)
{
    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        const gpr_kernel_row *row = &gpr_kernel_rows[i];
        for (uint32_t block = 0; block <= 2100; block++) {
            const int power = block != 0 && (block & (block - 1)) == 0,
                      fits = block >= 32 && block <= 1024;
            const int expected = row->block_rule == GPR_BLOCK_POW2    ? fits && power
                                 : row->block_rule == GPR_BLOCK_WARPS ? fits && block % 32 == 0
                                                                      : block == 32;
            CHECK((gpr_check_block_size(row, block) == GPR_OK) == expected, "%s, %u threads",
                  row->name, block);
        }
    }
}

static void test_sources_are_embedded(void)
{
    gpr_source sources[GPR_PROGRAM_SOURCES];
    const char *name = NULL, *text = NULL;

    for (int i = 0; i < gpr_source_count(); i++) {
        CHECK(gpr_source_at(i, &name, &text) == GPR_OK && strchr(name, '.') != NULL &&
                  text[0] != '\0',
              "file %d", i);
        for (int j = 0; j < i; j++) {
            const char *other = NULL;
            CHECK(gpr_source_at(j, &other, &text) == GPR_OK && strcmp(name, other) != 0,
                  "%s occurs twice", name);
        }
    }
    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        const int count = gpr_program_sources(i, sources);
        CHECK(count > 1 && count <= GPR_PROGRAM_SOURCES, "%d files", count);
        CHECK(strcmp(sources[count - 1].name, gpr_kernel_rows[i].file) == 0, "%s",
              sources[count - 1].name);
        CHECK(sources[count - 1].text == gpr_kernel_source(i), "%s", sources[count - 1].name);
    }
}

int main(void)
{
    check_begin();
    test_names_and_aliases_are_unique();
    test_every_row_is_whole();
    test_indices_out_of_range_are_refused();
    test_unknown_kernels_are_told_their_near_matches();
    test_block_sizes_follow_the_rules();
    test_sources_are_embedded();
    return check_end();
}
