/* The text of a program that makes several reductions in one pass: traits of each member, those
 * with the same accumulator together, and one instance of kernel `several`. */
#include "lib/driver/several_program.h"

#include <string.h>

#include "lib/rules/plan_several.h"

/* Members that share an accumulator, whose traits are `base`. */
typedef struct group {
    gpr_text base, members;
    int is_bins, is_pair;
} group;

typedef struct several_text {
    gpr_text text, entry;
    group groups[GPR_MOST_SEVERAL];
    int group_count;
    gpr_translation translation;
} several_text;

static void clear(several_text *program)
{
    gpr_text_clear(&program->text);
    gpr_text_clear(&program->entry);
    for (int i = 0; i < GPR_MOST_SEVERAL; i++) {
        gpr_text_clear(&program->groups[i].base);
        gpr_text_clear(&program->groups[i].members);
    }
}

/* The group of members whose accumulator is `base`; a new one if there is none. Takes `base`, which
 * is empty then. */
static group *find_group(several_text *program, gpr_text *base)
{
    for (int i = 0; i < program->group_count; i++) {
        if (strcmp(program->groups[i].base.text, base->text) == 0) {
            gpr_text_clear(base);
            return &program->groups[i];
        }
    }
    group *made = &program->groups[program->group_count++];
    made->base = *base;
    *base = (gpr_text){.text = NULL};
    return made;
}

static gpr_status add_member(const gpr_several_plan *plan, int i, several_text *program)
{
    gpr_text base = {.text = NULL};
    gpr_rule rule;
    int kernel = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_member_rule(plan->dtype, &plan->members[i], &rule, &kernel));
    const gpr_kernel_traits traits = {.kernel = kernel,
                                      .fold = rule.fold,
                                      .element = rule.element,
                                      .compute = rule.compute,
                                      .acc = rule.device_acc,
                                      .skip_nan = rule.skip_nan};
    if (plan->members[i].counts_nan)
        gpr_text_add(&base, "gpr::CountNan<gpr::dt_%s>", gpr_dtype_name(rule.element));
    else
        gpr_write_base(&traits, &base);
    status = gpr_text_status(&base);
    if (status != GPR_OK) goto done;
    group *of = find_group(program, &base);
    of->is_pair = rule.acc_kind == GPR_ACC_EXACT && plan->adds_pairs;
    of->is_bins = rule.acc_kind == GPR_ACC_EXACT && !plan->adds_pairs;
    gpr_text_add(&program->text,
                 "using Member%d = gpr::Member<%d, gpr::%s<%s, gpr::dt_%s, gpr::finish_%s>>;\n", i,
                 i, of->is_pair ? "ResultOfPairs" : "Finished", of->base.text,
                 gpr_dtype_name(rule.result), rule.finish);
    gpr_text_add(&of->members, ", Member%d", i);
    status = gpr_text_status(&of->members);
done:
    if (status != GPR_OK) gpr_text_clear(&base);
    return status;
}

static gpr_status write_text(const gpr_several_plan *plan, several_text *program)
{
    const gpr_kernel_traits constants = {.lanes = 32,
                                         .per_thread = 1,
                                         .item = 1,
                                         .kept = 1,
                                         .reduced = 1,
                                         .integer_bins = plan->integer_bins};
    gpr_text *text = &program->text;
    const char *exact = "void";
    gpr_status status = GPR_OK;

    gpr_write_constants(&constants, text);
    gpr_text_add(text, "#include \"several.cuh\"\n");
    for (int i = 0; i < plan->count; i++)
        if ((plan->in_pass >> i & 1) != 0) GPR_TRY(add_member(plan, i, program));
    for (int i = 0; i < program->group_count; i++) {
        const group *of = &program->groups[i];
        gpr_text_add(text, "using Group%d = gpr::%s<%s%s>;\n", i,
                     of->is_pair ? "SharedPairs" : "Shared", of->base.text, of->members.text);
        if (of->is_bins) exact = "Exact";
        if (of->is_bins) gpr_text_add(text, "using Exact = Group%d;\n", i);
    }
    gpr_text_add(text, "using Traits = gpr::SeveralTraits<gpr::dt_%s, %s",
                 gpr_dtype_name(plan->dtype), exact);
    for (int i = 0; i < program->group_count; i++)
        if (!program->groups[i].is_bins) gpr_text_add(text, ", Group%d", i);
    gpr_text_add(text, ">;\n");
    gpr_text_add(&program->entry, "gpr::several<Traits, %uu, %uu>", plan->block, plan->resident);
    GPR_TRY(gpr_text_status(text));
    status = gpr_text_status(&program->entry);
done:
    return status;
}

gpr_status gpr_make_several_object(const gpr_several_plan *plan, int cc, gpr_object *object,
                                   int *compiled)
{
    several_text program = {.group_count = 0};
    gpr_translation *translation = &program.translation;
    char target[GPR_TARGET_ROOM];
    gpr_status status = GPR_OK;

    *object = (gpr_object){0};
    *compiled = 0;
    if (plan->in_pass == 0)
        return gpr_fail(GPR_ERROR_VALUE, "these reductions have no pass in common");
    GPR_TRY(gpr_nvrtc_target(cc, target)); /* NVRTC is open from here on, and its version known */
    GPR_TRY(write_text(plan, &program));
    translation->text = program.text.text;
    translation->name = "several";
    translation->source_count = gpr_several_sources(translation->sources);
    gpr_several_digest(translation->source_digest);
    translation->entries[translation->entry_count++] = program.entry.text;
    gpr_add_language(translation, 1);
    status = gpr_translate(translation, target, 1, object, compiled);
done:
    clear(&program);
    return status;
}
