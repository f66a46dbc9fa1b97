/* What both engines of the CPU backend share (cpu.c: folds of numbers; composite.c: folds that keep
 * more than a number): how elements reach the loops, and a reduction under way as tasks. Private to
 * csrc/cpu. */
#ifndef GPR_CPU_JOB_H
#define GPR_CPU_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "cpu/loops.h"
#include "lib/base/integers.h"
#include "lib/base/threads.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

enum {
    WAKE_NANOSECONDS = 25000, /* of work that a thread must take over to be worth waking */
    HAND_NANOSECONDS = 8000,  /* the same of one that looks out for work */
    PIECE_BYTES = 256 * 1024, /* of a task: tens of microseconds of work, in the caches */
    STAGE_ELEMENTS = 1024,    /* of a stage: three buffers of it fit the first cache */
    MOST_PARTS = PIECE_BYTES / STAGE_ELEMENTS, /* stages in a piece of a row */
    NARROW_COLUMNS = 64,   /* narrower blocks fold several rows of memory side by side */
    MOST_NUMBER_BYTES = 16 /* of an element, and of the number in an accumulator */
};

/* ---- from elements to loops ---- */

/* How elements reach the loop that folds them. */
typedef struct recipe {
    const gpr_rule *rule;
    const gpr_view *view; /* the array, or its mask */
    gpr_fold fold;        /* of the loop */
    gpr_loop loop;
    gpr_columns_loop combine; /* folds rows of accumulators */
    int replace_nan;          /* first: NaN by `neutral` */
    int convert;              /* first step: from the element to the compute dtype */
    gpr_widening widen;       /* second step, if its loop is not NULL */
    int direct;               /* none of these */
    gpr_dtype loop_dtype;     /* of elements as the loop reads them */
    size_t loop_bytes;        /* of one */
    size_t acc_bytes;         /* of an accumulator */
    gpr_dtype acc;      /* the dtype of the loop's accumulator: of integer sums, with their sign */
    gpr_value identity; /* accumulator */
    gpr_value neutral;  /* element, where a mask or NaN leave something out */
} recipe;

/* For the loop of `fold`, which folds numbers: the rule's own fold, or one of the two that make it
 * up. */
recipe gpr_cpu_recipe(const gpr_rule *rule, const gpr_view *view, gpr_fold fold);

/* For counting the elements that are left of the view: those where `marks`, the view's mask, is
 * true, or, where NaN are left out, those that are no NaN. */
recipe gpr_cpu_count_recipe(const gpr_rule *rule, const gpr_view *view, const gpr_view *marks);

/* As gpr_pack, by vectors where every second element of long runs is read. */
void gpr_cpu_pack(const gpr_view *view, uint64_t first, uint64_t count, const void *neutral,
                  void *destination);

typedef struct stage {
    _Alignas(64) char packed[STAGE_ELEMENTS * MOST_NUMBER_BYTES];
    _Alignas(64) char converted[STAGE_ELEMENTS * MOST_NUMBER_BYTES];
    _Alignas(64) char widened[STAGE_ELEMENTS * MOST_NUMBER_BYTES];
} stage;

/* Memory for a row, or a piece of one, that passes through a stage. */
typedef struct staging {
    stage s;
    gpr_value parts[MOST_PARTS]; /* accumulators of what was in it */
} staging;

/* Converts up to STAGE_ELEMENTS aligned native elements, which may be in s->packed, to the dtype
 * that the loop reads. */
const char *gpr_cpu_prepare(const recipe *how, const char *elements, uint64_t count, stage *s);

/* Replaces elements that are NaN, of any float or complex dtype, by *neutral. */
void gpr_cpu_replace_nan(gpr_dtype dtype, char *elements, uint64_t count, const void *neutral);

/* keep[i] = 0 where element i is NaN, of any float or complex dtype. */
void gpr_cpu_drop_nan(gpr_dtype dtype, const char *elements, uint64_t count, uint8_t *keep);

/* ---- stopping ---- */

/* Whether the caller has interrupted the job. */
typedef struct gpr_cpu_stop {
    int (*interrupted)(void *); /* or NULL */
    void *interrupted_arg;
    pthread_t caller;
    double asked;
    atomic_int stopped;
} gpr_cpu_stop;

/* Begins, on the caller's thread. A structure of zeros is never stopped. */
void gpr_cpu_watch(gpr_cpu_stop *stop, int (*interrupted)(void *), void *interrupted_arg);

/* Checked before every task, and every few thousand elements within one: whether the job was
 * interrupted or has failed. The caller's callback runs on the caller's thread alone; other threads
 * read its result. */
int gpr_cpu_must_stop(gpr_cpu_stop *stop);

/* ---- units of rows ---- */

/* Rows as units: blocks of neighbours, which lie side by side under one index of the axes before
 * them where rows lie crosswise. */
typedef struct gpr_cpu_units {
    uint64_t width;  /* rows side by side: the extent of the last outer axis, or all rows */
    uint64_t rows;   /* most of a unit */
    uint64_t blocks; /* units of width */
    uint64_t count;
} gpr_cpu_units;

/* Cuts a view of one row or more. */
gpr_cpu_units gpr_cpu_cut_units(const gpr_view *view, uint64_t most_rows);

/* As gpr_cpu_cut_units, of any neighbours, wherever they lie. */
gpr_cpu_units gpr_cpu_cut_rows(const gpr_view *view, uint64_t most_rows);

/* First row of a unit, and its number of rows. */
uint64_t gpr_cpu_unit_row(const gpr_cpu_units *units, uint64_t unit, uint64_t *rows);

/* ---- tasks ---- */

/* Memory of tasks on the caller's thread, whose stack is the caller's, and may be small: up to
 * GPR_TASK_MEMORY bytes, aligned to GPR_TASK_ALIGNMENT; NULL if there are none.
 * GPR_ERROR_MEMORY. */
gpr_status gpr_cpu_take_memory(size_t bytes, void **memory);

void gpr_cpu_give_memory(void *memory);

/* How many threads are worth waking, this one included, for work that takes one thread so long. */
uint32_t gpr_cpu_threads_for(double nanoseconds);

/* The same at this moment: threads that look out for work need not be woken, and short calls that
 * follow each other soon are worth waking one together. Results must not depend on it. */
uint32_t gpr_cpu_threads_now(double nanoseconds);

/* Runs tasks that need `bytes` of memory each, by as many threads as are worth waking for work that
 * takes one thread so long. Sets *threads to the number of threads that could take part.
 * GPR_ERROR_MEMORY. */
gpr_status gpr_cpu_run_tasks(double nanoseconds, uint64_t count, gpr_task task, void *work,
                             size_t bytes, uint32_t *threads);

/* The time in which one thread reads a view's elements, `passes` times through a stage. */
double gpr_cpu_nanoseconds_to_read(const gpr_view *view, int stages);

/* ---- a job ---- */

enum { MOST_RECIPES = 2 };

typedef struct job {
    gpr_cpu_units units; /* of rows that lie crosswise or in layers, or of one row each */
    const gpr_view *view;
    uint64_t repeats;         /* elements of a row that each of the view's stands for */
    recipe how[MOST_RECIPES]; /* a range, or a sum and a count, by two loops, all else by one */
    int recipes;
    char *result;
    size_t result_bytes;
    uint64_t output_stride;            /* bytes from a row's first result to its second */
    uint64_t per_task;                 /* rows or units of a task */
    uint64_t length;                   /* elements of a piece of a row */
    uint64_t pieces;                   /* of a row, or of a unit */
    uint64_t first;                    /* piece of those that are folded now */
    uint64_t done;                     /* pieces that were folded before there were tasks */
    void *partials;                    /* accumulators of pieces */
    _Atomic uint8_t *decided;          /* any and all in pieces: rows whose result is known */
    _Atomic uint64_t *ends;            /* positions in pieces: of each unit the first piece that is
                                          known to end the search of all rows; NULL: is not kept */
    uint64_t copies;                   /* columns: rows folded side by side */
    int columns_direct;                /* columns: memory is what the loop reads */
    int columns_wide;                  /* columns: units reach over two outer axes */
    int in_layers;                     /* rows lie in layers, which are read one after the other */
    int into_results;                  /* columns: accumulators of a unit are results */
    double nanoseconds;                /* of one thread; 0: what its elements take as a rule */
    int watches_range;                 /* products whose factors may leave the range of doubles */
    atomic_int left_range;             /* whether any did */
    gpr_task task;                     /* that is watched */
    const struct composite *composite; /* of composite.c */
    gpr_cpu_stop stop;
} job;

/* Whether one element can decide a row; whether this accumulator is decided. */
static inline int gpr_cpu_may_stop_early(gpr_fold fold)
{
    return fold == GPR_FOLD_any || fold == GPR_FOLD_all;
}

static inline int gpr_cpu_is_decided(const recipe *how, gpr_value value)
{
    return (how->fold == GPR_FOLD_any) == (value.bytes[0] != 0);
}

/* ---- folding (fold.c) ---- */

/* Whether a loop reads rows where they are. Folding them needs no memory, then. */
static inline int gpr_cpu_is_direct(const recipe *how)
{
    return how->view->rows_contiguous && how->direct;
}

/* Elements of the runs of memory that rows with gaps are made of, if loops read them where they are
 * and they are long enough; else 0. */
uint64_t gpr_cpu_run_of(const recipe *how);

/* Whether rows have such a run in each layer of memory, a layer being a step of their first axis:
 * between the runs of a row are those of other rows. */
int gpr_cpu_lies_in_layers(const recipe *how);

/* Whether such rows are read layer by layer. Row by row, main memory brings in what is behind each
 * run, and again for the next row; runs are short beside that. */
int gpr_cpu_reads_layers(const recipe *how);

/* Whether every second element of a row is one of the array's, and loops read the others, too. */
int gpr_cpu_reads_every_second(const recipe *how);

/* Folds elements [first, first + count) of a row, count > 0, of one piece if not direct. */
gpr_value gpr_cpu_fold_run(const recipe *how, uint64_t row, uint64_t first, uint64_t count,
                           staging *in);

/* Folds `count` whole rows to an accumulator each. */
void gpr_cpu_fold_rows(const recipe *how, uint64_t row, uint64_t count, char *accumulators,
                       staging *in);

/* How many rows of memory of `width` elements, of n, are folded side by side where rows lie
 * crosswise. */
uint64_t gpr_cpu_copies(uint64_t width, uint64_t n);

/* Folds positions [first, end) of `width` rows that lie crosswise, neighbours under one index of
 * the axes before theirs, to an accumulator each. There is room for work->copies times as many. The
 * stage is not used if loops read the columns where they are. */
void gpr_cpu_fold_columns(const job *work, const recipe *how, uint64_t row, uint64_t width,
                          uint64_t first, uint64_t end, char *accumulators, stage *s);

/* Folds elements [first, end) of `rows` rows that are runs, neighbours under one index of the axes
 * before theirs, to an accumulator each: run after run of all rows, in memory's order where they
 * lie in layers. There is room for GPR_COLUMN_BLOCK accumulators in `some`. */
void gpr_cpu_fold_layers(const recipe *how, uint64_t row, uint64_t rows, uint64_t first,
                         uint64_t end, char *accumulators, char *some);

/* Cuts rows that lie in layers into units that have long runs of memory in each. */
gpr_cpu_units gpr_cpu_cut_layers(const recipe *how);

/* Whether neighbouring rows are nearer in memory than neighbouring elements of a row, of axes that
 * are not broadcast. */
int gpr_cpu_lies_crosswise(const gpr_view *view);

/* Makes a view of several rows of one element each a view of one row of columns, many of which a
 * loop folds at once. 0, and nothing done, if the rows have more elements. */
int gpr_cpu_lay_crosswise(const gpr_view *view, gpr_view *columns);

/* Bytes of arrays of which elements come from main memory, unless another core has just read them,
 * and of those of which hardly any are left in a cache. */
enum { GPR_BEYOND_CACHES = 16 << 20, GPR_FAR_BEYOND_CACHES = 40 << 20 };

/* Whether an array has more bytes. */
int gpr_cpu_has_bytes(const gpr_view *view, uint64_t bytes);

/* GPR_FROM_MEMORY and GPR_FAR_FROM_CACHES, or either, or 0. */
int gpr_cpu_source_of(const gpr_view *view);

/* Whether loops can read such rows where they are: neighbours are adjacent, aligned, unmasked,
 * in native byte order. */
int gpr_cpu_columns_in_place(const gpr_view *view);

/* Whether such rows are so few beside each other that those of several indices of the axis before
 * theirs should be packed side by side; and how many rows all indices of that axis have. */
int gpr_cpu_columns_are_narrow(const gpr_view *view);
uint64_t gpr_cpu_wide_columns(const gpr_view *view);

/* A view of positions of the last inner axis by `width` such rows in the order of memory, still
 * to be located. */
void gpr_cpu_make_tile(const gpr_view *view, uint64_t width, gpr_view *tile);

/* Sets tile->data and tile->mask to the element at (row, position) of the view. */
void gpr_cpu_locate(const gpr_view *view, uint64_t row, uint64_t position, gpr_view *tile);

/* What folding a job's elements takes one thread. */
double gpr_cpu_job_nanoseconds(const job *work);

/* Notes whether numbers left the range of doubles since flags were lowered, in a job that watches
 * the range, and lowers the flags. */
void gpr_cpu_note_range(job *work);

/* Runs the job's tasks, which need `bytes` of memory each, by as many threads as its work is worth;
 * in an environment of their own where the job watches the range. *threads is how many could take
 * part. GPR_ERROR_MEMORY. */
gpr_status gpr_cpu_run_job(uint64_t count, gpr_task task, job *work, size_t bytes,
                           uint32_t *threads);

/* ---- exact_add.c ---- */

/* What an exact sum of a view's elements takes one thread. */
double gpr_cpu_exact_nanoseconds(const gpr_view *view, gpr_acc_kind kind);

/* ---- composite.c ---- */

/* Reduces by a rule whose accumulators are found numbers, moments or tallies. The job has its
 * view, result and callback. */
gpr_status gpr_cpu_reduce_composite(job *work, gpr_run *run);

/* Whether rows have one element each, of which no mask leaves any out, and a divisor of 1: their
 * variances, about themselves, are stored then. */
int gpr_cpu_varies_singly(const job *work);

/* As gpr_cpu_reduce_composite, for one row in memory that the loops read as a whole. 0, and nothing
 * done, for other rows. */
int gpr_cpu_reduce_small(job *work);

#endif
