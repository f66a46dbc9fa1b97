// Loops of the CPU for an operator of the user's own. The compiler of the user's machine compiles
// them with the operator, so that its functions become part of the loops.
//
// A task folds one part of a row, or of several rows that are next to each other in memory, to
// partials; ending a row folds its partials in order. Tasks depend on the array's shape alone, not
// on the number of threads, so results do not either.
#pragma once

#include "custom_operator.cuh"

namespace gpr {

// Values that a run is folded to at once, so that no operation waits for the one before.
constexpr unsigned custom_chains = custom_is_commutative ? 16 : 4;

// Folds a run of contiguous elements, after `value`. Each chain is a contiguous share of the run,
// and they are merged in order. A commutative operator takes neighbouring elements into different
// chains, which the compiler makes vectors of.
static CustomPartial custom_fold_run(const CustomElement *in, uint64 index, long long step,
                                     uint64 count, CustomPartial value)
{
    const uint64 share = count / custom_chains;

    if (share > 0) {
        CustomPartial chain[custom_chains];
        for (unsigned c = 0; c < custom_chains; c++) chain[c] = custom_empty();
        for (uint64 i = 0; i < share; i++) {
            for (unsigned c = 0; c < custom_chains; c++) {
                const uint64 at = custom_is_commutative ? i * custom_chains + c : c * share + i;
                custom_add(chain[c], custom_number(in[at]),
                           index + at * static_cast<uint64>(step));
            }
        }
        for (unsigned c = 0; c < custom_chains; c++) value = custom_combine(value, chain[c]);
    }
    for (uint64 i = share * custom_chains; i < count; i++)
        custom_add(value, custom_number(in[i]), index + i * static_cast<uint64>(step));
    return value;
}

static CustomPartial custom_fold_row(const CustomParams &p, uint64 row, uint64 begin, uint64 end)
{
    CustomPartial value = custom_empty();
    const gpr_axis &inner = p.axes[p.kept + p.reduced - 1];

    if (custom_is_masked || inner.in != static_cast<long long>(sizeof(CustomElement)))
        return custom_fold(p, custom_row(p, row), begin, end, value);
    custom_visit(p, custom_row(p, row), begin, end,
                 [&](const unsigned char *in, const unsigned char *, long long index, uint64 count,
                     const gpr_axis &axis) {
                     value = custom_fold_run(reinterpret_cast<const CustomElement *>(in),
                                             static_cast<uint64>(index), axis.position, count,
                                             value);
                 });
    return value;
}

// Adds the element of each of `width` rows that are side by side in memory.
static void custom_add_columns(const CustomElement *in, uint64 index, unsigned width,
                               CustomPartial *__restrict values)
{
    for (unsigned k = 0; k < width; k++) custom_add(values[k], custom_number(in[k]), index);
}

// Folds elements begin .. end of `width` rows that follow each other along the last kept axis: row
// by row of memory, so that a cache line is read once.
static void custom_fold_columns(const CustomParams &p, uint64 row, unsigned width, uint64 begin,
                                uint64 end, CustomPartial *values)
{
    const gpr_axis &column = p.axes[p.kept - 1];
    const bool is_run =
        !custom_is_masked && column.in == static_cast<long long>(sizeof(CustomElement));

    for (unsigned k = 0; k < width; k++) values[k] = custom_empty();
    custom_visit(p, custom_row(p, row), begin, end,
                 [&](const unsigned char *in, const unsigned char *mask, long long index,
                     uint64 count, const gpr_axis &axis) {
                     for (uint64 i = 0; i < count; i++) {
                         if (is_run)
                             custom_add_columns(reinterpret_cast<const CustomElement *>(in),
                                                static_cast<uint64>(index), width, values);
                         for (unsigned k = 0; k < width && !is_run; k++) {
                             if (custom_keeps(mask + k * column.mask))
                                 custom_add(values[k], custom_load(in + k * column.in),
                                            static_cast<uint64>(index));
                         }
                         in += axis.in;
                         mask += axis.mask;
                         index += axis.position;
                     }
                 });
}

// Task u of p.units: part u % parts of a group of p.lanes rows, which are along the last kept axis.
static int custom_task(void *context, unsigned long unit, void *)
{
    const CustomParams &p = *static_cast<const CustomParams *>(context);
    const uint64 extent = p.axes[p.kept - 1].extent;
    const uint64 groups = (extent + p.lanes - 1) / p.lanes; // along the last kept axis
    const uint64 part = unit % p.parts, group = unit / p.parts;
    const uint64 place = group % groups * p.lanes, row = group / groups * extent + place;
    const uint64 begin = part * p.share, most = p.n - begin;
    const uint64 end = begin + (p.share < most ? p.share : most);
    const uint64 width = extent - place < p.lanes ? extent - place : p.lanes;
    CustomPartial *partials = static_cast<CustomPartial *>(p.partials);
    CustomPartial values[custom_columns];
    const bool across = (p.flags & GPR_CUSTOM_ACROSS) != 0;

    if (across) custom_fold_columns(p, row, static_cast<unsigned>(width), begin, end, values);
    for (uint64 k = 0; k < width; k++) {
        const CustomPartial value = across ? values[k] : custom_fold_row(p, row + k, begin, end);
        if (p.parts > 1) partials[(row + k) * p.parts + part] = value;
        else custom_deliver(p, row + k, value);
    }
    return 1;
}

// Folds the partials of a group of p.lanes rows.
static int custom_end_task(void *context, unsigned long group, void *)
{
    const CustomParams &p = *static_cast<const CustomParams *>(context);
    const CustomPartial *partials = static_cast<const CustomPartial *>(p.partials);
    const uint64 begin = group * p.lanes, left = p.rows - begin;
    const uint64 end = begin + (p.lanes < left ? p.lanes : left);

    for (uint64 row = begin; row < end; row++) {
        CustomPartial value = partials[row * p.parts];
        for (uint64 i = 1; i < p.parts; i++)
            value = custom_combine(value, partials[row * p.parts + i]);
        custom_deliver(p, row, value);
    }
    return 1;
}

// Evaluates combinations in postfix order, for checks of what the operator promises: a step i >= 0
// pushes element i of a row, COMBINE combines the two values on top, EMPTY pushes the value of no
// elements. Returns 0 if the steps leave more or less than one value, or a value of no elements of
// an operator without an identity.
static int custom_evaluate_steps(const unsigned char *in, const long long *steps, uint64 count,
                                 unsigned char *out)
{
    constexpr long long COMBINE = -1, EMPTY = -2;
    constexpr unsigned most = 8;
    CustomPartial stack[most];
    unsigned depth = 0;
    uint64 n = 0;

    for (uint64 i = 0; i < count; i++) {
        if (steps[i] == COMBINE) {
            if (depth < 2) return 0;
            depth--;
            stack[depth - 1] = custom_combine(stack[depth - 1], stack[depth]);
        } else {
            if (depth == most) return 0;
            stack[depth] = custom_empty();
            if (steps[i] != EMPTY) {
                const uint64 index = static_cast<uint64>(steps[i]);
                const CustomNumber x = custom_load(in + index * sizeof(CustomElement));
                stack[depth].state = custom_lift(x, index); // not combined with the identity
                custom_set_count(stack[depth], 1);
                n++;
            }
            depth++;
        }
    }
    if (depth != 1 || (!custom_has_identity && custom_count(stack[0]) == 0)) return 0;
    custom_put<CustomStored>(reinterpret_cast<CustomStored *>(out), custom_result(stack[0], n));
    return 1;
}

} // namespace gpr

// What the library finds in the program.
extern "C" {
__attribute__((visibility("default"))) void custom_facts(gpr_custom_facts *facts)
{
    gpr::custom_tell(facts);
}
__attribute__((visibility("default"))) int custom_fold_task(void *context, unsigned long unit,
                                                            void *memory)
{
    return gpr::custom_task(context, unit, memory);
}
__attribute__((visibility("default"))) int custom_evaluate(const unsigned char *in,
                                                           const long long *steps,
                                                           unsigned long long count,
                                                           unsigned char *out)
{
    return gpr::custom_evaluate_steps(in, steps, count, out);
}
__attribute__((visibility("default"))) int custom_end_task(void *context, unsigned long group,
                                                           void *memory)
{
    return gpr::custom_end_task(context, group, memory);
}
}
