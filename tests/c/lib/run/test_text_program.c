/* Programs of the caller's own text: errors before NVRTC or the driver is called, and the
 * compiler's messages. tests/c/dispatch/test_faults.c checks that nothing leaks when one of their
 * calls fails. */
#include <string.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"

enum { TEXT_BYTES = 4096, CC = 90, BLOCK = 64 };

static const char *const entries[] = {"gpr::shfl_atomic<First, 64u>", "gpr::fill_identity<First>"};
static char text[TEXT_BYTES];

static void expect_error(gpr_status status, gpr_status expected, const char *words)
{
    CHECK(status == expected, "%d instead of %d", (int)status, (int)expected);
    CHECK(strstr(gpr_last_error()->message, words) != NULL, "no '%s' in: %s", words,
          gpr_last_error()->message);
}

static void test_numbers_of_entries_and_options_are_bounded(void)
{
    const char *options[9] = {NULL}, *several[5] = {NULL};
    gpr_image image;

    for (int i = 0; i < 9; i++) options[i] = "--std=c++17";
    for (int i = 0; i < 5; i++) several[i] = entries[0];
    expect_error(gpr_compile_text("mine.cu", text, several, 0, NULL, 0, CC, &image),
                 GPR_ERROR_VALUE, "a program has 1 to 4 kernels, not 0");
    expect_error(gpr_compile_text("mine.cu", text, several, 5, NULL, 0, CC, &image),
                 GPR_ERROR_VALUE, "a program has 1 to 4 kernels, not 5");
    expect_error(gpr_compile_text("mine.cu", text, entries, 2, options, 9, CC, &image),
                 GPR_ERROR_VALUE, "the compiler takes up to");
    expect_error(gpr_compile_text("mine.cu", text, entries, 2, options, -1, CC, &image),
                 GPR_ERROR_VALUE, "the compiler takes up to");
    CHECK(fake.programs() == 0, "%s", gpr_last_error()->message);
}

static void test_a_text_that_does_not_compile_leaves_the_log(void)
{
    gpr_image image;

    expect_error(gpr_compile_text("mine.cu", "nonsense", entries, 2, NULL, 0, CC, &image),
                 GPR_ERROR_COMPILE, "mine.cu");
    CHECK(strstr(gpr_last_error()->log, "cannot understand the program") != NULL, "%s",
          gpr_last_error()->log);
    CHECK(image.data == NULL && image.symbol_count == 0, "%s", gpr_last_error()->message);
    gpr_free_image(&image); /* of nothing */
    CHECK(fake.programs() == 0, "%s", gpr_last_error()->message);
}

static void test_a_program_that_is_linked_is_code_of_the_linker(void)
{
    const char *options[] = {"--std=c++17", "-dlto"};
    gpr_image image;

    fake.nvrtc_fail("nvrtcGetCUBIN", 1, 11); /* which is not called */
    REQUIRE(gpr_compile_text("mine.cu", text, entries, 2, options, 2, CC, &image) == GPR_OK);
    CHECK(strncmp(image.data, "FAKE sm 90", 10) == 0, "%s", (char *)image.data);
    gpr_free_image(&image);
    for (int i = 0; i < 2; i++) {
        const char *call = i == 0 ? "nvrtcGetLTOIRSize" : "nvrtcGetLTOIR";
        fake.nvrtc_fail(call, 1, 11);
        expect_error(gpr_compile_text("mine.cu", text, entries, 2, options, 2, CC, &image),
                     GPR_ERROR_COMPILE, call);
        CHECK(image.data == NULL, "%s", gpr_last_error()->message);
    }
    fake.nvrtc_fail("nvrtcGetCUBIN", 1, 11);
    expect_error(gpr_compile_text("mine.cu", text, entries, 2, options, 1, CC, &image),
                 GPR_ERROR_COMPILE, "nvrtcGetCUBIN");
    CHECK(fake.programs() == 0, "%s", gpr_last_error()->message);
}

static void test_images_that_are_none_and_devices_that_are_not_there_are_refused(void)
{
    char none[] = "none", missing[] = "nothing";
    gpr_image image = {.data = none, .bytes = sizeof none, .symbols = {missing}, .symbol_count = 1};
    gpr_loaded_image *loaded = (gpr_loaded_image *)&image;
    gpr_image compiled;

    CHECK(gpr_load_image(0, &image, &loaded) == GPR_ERROR_CUDA && loaded == NULL, "%s",
          gpr_last_error()->message);
    expect_error(gpr_load_image(77, &image, &loaded), GPR_ERROR_VALUE, "77");
    CHECK(loaded == NULL, "%s", gpr_last_error()->message);
    REQUIRE(gpr_compile_text("mine.cu", text, entries, 2, NULL, 0, CC, &compiled) == GPR_OK);
    char *lowered = compiled.symbols[1];
    compiled.symbols[1] = missing;
    CHECK(gpr_load_image(0, &compiled, &loaded) == GPR_ERROR_CUDA && loaded == NULL, "%s",
          gpr_last_error()->message);
    compiled.symbols[1] = lowered;
    gpr_free_image(&compiled);
    CHECK(fake.live("modules") == 0, "%d", fake.live("modules"));
}

static void test_launches_that_no_gpu_has_are_refused(void)
{
    static const struct {
        gpr_launch launch;
        const char *words;
    } cases[] = {
        {{.symbol = 2, .grid = 1, .block = 1}, "kernel 2 of a program of 2"},
        {{.symbol = -1, .grid = 1, .block = 1}, "kernel -1 of a program of 2"},
        {{.symbol = 0, .grid = 0, .block = 1}, "a launch of 0 blocks of 1 threads"},
        {{.symbol = 0, .grid = 1, .block = 0}, "a launch of 1 blocks of 0 threads"},
        {{.symbol = 0, .grid = 1, .block = 1025}, "a launch of 1 blocks of 1025 threads"},
        {{.symbol = 0, .grid = 1u << 31, .block = 1}, "a launch of 2147483648 blocks"},
        {{.symbol = 0, .grid = 12, .block = 1, .cluster = 8}, "12 blocks in clusters of 8"},
    };
    gpr_loaded_image *loaded = NULL;
    gpr_image image;
    float milliseconds = 0;

    REQUIRE(gpr_compile_text("mine.cu", text, entries, 2, NULL, 0, CC, &image) == GPR_OK);
    REQUIRE(gpr_load_image(0, &image, &loaded) == GPR_OK);
    gpr_free_image(&image);
    const unsigned before = fake.launches();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_error(gpr_run_launches(loaded, &cases[i].launch, 1, NULL, 0, 1, &milliseconds),
                     GPR_ERROR_VALUE, cases[i].words);
        expect_error(gpr_queue_launches(loaded, &cases[i].launch, 1, NULL, 0, NULL, 0),
                     GPR_ERROR_VALUE, cases[i].words);
    }
    const gpr_scratch_pointer behind = {&loaded, 64};
    expect_error(gpr_queue_launches(loaded, NULL, 0, NULL, 64, &behind, 1), GPR_ERROR_VALUE,
                 "byte 64 of scratch of 64");
    /* The driver refuses blocks that are to run together and cannot; the context stays usable. */
    void *data = NULL, *arguments[] = {&data, &data, &data, &data};
    const gpr_launch too_many = {
        .symbol = 0, .grid = 1000, .block = 64, .arguments = arguments, .cooperative = 1};
    expect_error(gpr_run_launches(loaded, &too_many, 1, NULL, 0, 1, &milliseconds), GPR_ERROR_CUDA,
                 "too many blocks in cooperative launch");
    CHECK(gpr_run_launches(loaded, NULL, 0, NULL, 0, 1, &milliseconds) == GPR_OK, "%s",
          gpr_last_error()->message);
    CHECK(fake.launches() == before, "%s", gpr_last_error()->message);
    CHECK(gpr_unload_image(loaded) == GPR_OK, "%s", gpr_last_error()->message);
    CHECK(fake.live("modules") == 0, "%d", fake.live("modules"));
}

/* Plans of kernels with one program; gpr_make_plan, which makes them, has tests of its own. */
static void test_a_kernel_of_the_course_is_planned_for_any_operator(void)
{
    enum { MOST = 0x7fffffff };
    static const struct {
        const char *kernel, *finish;
        uint64_t rows, n;
        uint32_t block, grid;
        gpr_kernel_plan plan;
    } cases[] = {
        {"sequential",
         "passes",
         3,
         1000,
         64,
         0,
         {.block = 64,
          .partials = 48,
          .pass_count = 2,
          .passes = {{1000, 48, 16}, {16, 3, 1}},
          .launch_blocks = MOST,
          .cluster = 1}},
        {"shfl_atomic",
         "atomic",
         1,
         5000,
         0,
         7,
         {.block = 512,
          .pass_count = 1,
          .passes = {{5000, 7, 7}},
          .launch_blocks = MOST,
          .cluster = 1}},
        {"cluster",
         "atomic",
         1,
         50000,
         64,
         12,
         {.block = 64,
          .pass_count = 1,
          .passes = {{50000, 12, 12}},
          .launch_blocks = MOST / 4 * 4,
          .cluster = 4}},
        {"cooperative",
         "ticket",
         50,
         5000,
         512,
         3,
         {.block = 512,
          .partials = 150,
          .tickets = 50,
          .pass_count = 1,
          .passes = {{5000, 150, 3}},
          .launch_blocks = 6, /* of two rows: the fake GPU holds eight */
          .cooperative = 1,
          .cluster = 1}},
        {"last_block_ordered",
         "ticket",
         2,
         5000,
         128,
         4,
         {.block = 128,
          .partials = 8,
          .tickets = 2,
          .pass_count = 1,
          .passes = {{5000, 8, 4}},
          .launch_blocks = MOST,
          .cluster = 1}},
        {"single_warp",
         "passes",
         5,
         99,
         0,
         0,
         {.block = 32,
          .pass_count = 1,
          .passes = {{99, 5, 1}},
          .launch_blocks = MOST,
          .cluster = 1}},
    };
    gpr_kernel_plan plan;
    int kernel = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gpr_kernel_plan *want = &cases[i].plan;
        REQUIRE(gpr_find_kernel(cases[i].kernel, &kernel) == GPR_OK);
        REQUIRE(gpr_plan_kernel(kernel, 0, cases[i].rows, cases[i].n, cases[i].block, cases[i].grid,
                                &plan) == GPR_OK);
        CHECK(strcmp(plan.finish, cases[i].finish) == 0, "%s", plan.finish);
        CHECK(plan.block == want->block && plan.partials == want->partials &&
                  plan.tickets == want->tickets && plan.pass_count == want->pass_count,
              "%s", cases[i].kernel);
        CHECK(plan.launch_blocks == want->launch_blocks && plan.cooperative == want->cooperative &&
                  plan.cluster == want->cluster,
              "%s", cases[i].kernel);
        for (int k = 0; k < want->pass_count; k++)
            CHECK(plan.passes[k].n == want->passes[k].n &&
                      plan.passes[k].grid == want->passes[k].grid &&
                      plan.passes[k].blocks == want->passes[k].blocks,
                  "%s, pass %d", cases[i].kernel, k);
    }
    expect_error(gpr_plan_kernel(-1, 0, 1, 1, 0, 0, &plan), GPR_ERROR_VALUE, "no kernel has");
    REQUIRE(gpr_find_kernel("fast", &kernel) == GPR_OK);
    expect_error(gpr_plan_kernel(kernel, 0, 1, 1, 0, 0, &plan), GPR_ERROR_VALUE,
                 "has several programs");
    REQUIRE(gpr_find_kernel("sequential", &kernel) == GPR_OK);
    expect_error(gpr_plan_kernel(kernel, 0, 1, 1, 96, 0, &plan), GPR_ERROR_VALUE, "power of two");
    expect_error(gpr_plan_kernel(kernel, 0, 1, 1, 0, 3, &plan), GPR_ERROR_VALUE,
                 "takes no grid_size");
    REQUIRE(gpr_find_kernel("cooperative", &kernel) == GPR_OK);
    expect_error(gpr_plan_kernel(kernel, 0, 1, 1, 512, 9, &plan), GPR_ERROR_VALUE,
                 "grid_size is up to 8 in blocks of 512 threads");
    expect_error(gpr_plan_kernel(kernel, 77, 1, 1, 0, 0, &plan), GPR_ERROR_VALUE, "77");
}

/* Work that has no record of its own hides the record of the call before. */
static void test_the_last_run_is_forgotten_until_the_next_call(void)
{
    const int32_t values[3] = {1, 2, 3};
    const int64_t shape = 3;
    int64_t sum = 0;
    gpr_request request = {.op = GPR_OP_SUM,
                           .dtype = GPR_INT32,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 1,
                           .reduced = 1,
                           .shape = &shape,
                           .data = values,
                           .kernel = -1,
                           .device = GPR_DEVICE_CPU,
                           .result = &sum};

    gpr_forget_run();
    CHECK(gpr_last_run() == NULL, "%s", gpr_last_error()->message);
    CHECK(gpr_reduce(&request) == GPR_OK && sum == 6, "%s", gpr_last_error()->message);
    CHECK(gpr_last_run() != NULL, "%s", gpr_last_error()->message);
    gpr_forget_run();
    CHECK(gpr_last_run() == NULL, "%s", gpr_last_error()->message);
}

/* The text of a program tells how its blocks are launched. */
static void test_a_written_program_says_how_it_is_launched(void)
{
    static const struct {
        const char *kernel, *words;
    } cases[] = {{"cooperative", "// launch: cooperative\n"},
                 {"cluster", "// launch: clusters of 8\n"}};
    char written[TEXT_BYTES];
    int kernel = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE(gpr_find_kernel(cases[i].kernel, &kernel) == GPR_OK);
        CHECK(gpr_write_program(kernel, GPR_OP_SUM, GPR_INT32, BLOCK, written, TEXT_BYTES) ==
                  GPR_OK,
              "%s", gpr_last_error()->message);
        CHECK(strstr(written, cases[i].words) != NULL, "%s", written);
    }
}

/* All programs of exact sums compile at once or one by one; floats have more than integers. */
static void test_programs_of_exact_sums_are_compiled_by_their_number(void)
{
    static const gpr_dtype dtypes[] = {GPR_FLOAT32, GPR_INT32};
    int counts[2], kernel = 0;
    uint64_t one = 0, all = 0;

    REQUIRE(gpr_find_kernel("exact", &kernel) == GPR_OK);
    for (int i = 0; i < 2; i++) {
        const int before = fake.compiles();
        CHECK(gpr_compile_program(kernel, GPR_OP_SUM, dtypes[i], GPR_DTYPE_DEFAULT, 0, -1, CC,
                                  &all) == GPR_OK,
              "%s", gpr_last_error()->message);
        counts[i] = fake.compiles() - before;
        CHECK(gpr_compile_program(kernel, GPR_OP_SUM, dtypes[i], GPR_DTYPE_DEFAULT, 0, 3, CC,
                                  &one) == GPR_OK,
              "%s", gpr_last_error()->message);
        CHECK(fake.compiles() == before + counts[i] + 1 && one > 0 && one < all, "%d programs",
              counts[i]);
    }
    CHECK(counts[0] > counts[1] && counts[1] > 1, "%d and %d programs", counts[0], counts[1]);
}

int main(void)
{
    int kernel = 0;

    check_begin();
    load_fakes();
    REQUIRE(gpr_find_kernel("shfl_atomic", &kernel) == GPR_OK);
    REQUIRE(gpr_write_program(kernel, GPR_OP_SUM, GPR_INT32, BLOCK, text, TEXT_BYTES) == GPR_OK);
    test_numbers_of_entries_and_options_are_bounded();
    test_a_text_that_does_not_compile_leaves_the_log();
    test_a_program_that_is_linked_is_code_of_the_linker();
    test_images_that_are_none_and_devices_that_are_not_there_are_refused();
    test_launches_that_no_gpu_has_are_refused();
    test_a_kernel_of_the_course_is_planned_for_any_operator();
    test_a_written_program_says_how_it_is_launched();
    test_programs_of_exact_sums_are_compiled_by_their_number();
    test_the_last_run_is_forgotten_until_the_next_call();
    CHECK(fake.violation()[0] == '\0', "%s", fake.violation());
    return check_end();
}
