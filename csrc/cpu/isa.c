/* Which instruction set the CPU backend uses. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/loops.h"
#include "lib/base/environment.h"
#include "lib/base/status.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* AVX2 without F16C and FMA was hardly ever built, but a hypervisor may hide one of them. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}
#endif

enum { MOST_TABLES = 3 };

/* The tables this machine can run, best first; returns how many. */
static int usable_tables(const gpr_loops *tables[MOST_TABLES])
{
    int count = 0;

#if defined(__x86_64__)
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();

    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        tables[count++] = &gpr_loops_avx512;
    if (avx2) tables[count++] = &gpr_loops_avx2;
#endif
    tables[count++] = &gpr_loops_baseline;
    return count;
}

/* The usable table called `isa`, the best if isa is NULL; NULL if there is none. */
static const gpr_loops *find_table(const char *isa)
{
    const gpr_loops *tables[MOST_TABLES];
    const int count = usable_tables(tables);

    if (isa == NULL) return tables[0];
    for (int i = 0; i < count; i++)
        if (strcmp(tables[i]->isa, isa) == 0) return tables[i];
    return NULL;
}

static _Atomic(const gpr_loops *) chosen;

const gpr_loops *gpr_cpu_loops(void)
{
    const gpr_loops *table = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (table == NULL) {
        /* Two threads that both get here choose the same. An unknown name in the environment is
         * no reason to fail. */
        table = find_table(gpr_environment("GPUREDUCE_CPU_ISA"));
        if (table == NULL) table = find_table(NULL);
        atomic_store_explicit(&chosen, table, memory_order_relaxed);
    }
    return table;
}

const char *gpr_cpu_isa(void)
{
    return gpr_cpu_loops()->isa;
}

gpr_status gpr_set_cpu_isa(const char *isa)
{
    const gpr_loops *table = find_table(isa);

    if (table == NULL)
        return gpr_fail(GPR_ERROR_VALUE,
                        "the CPU backend cannot use \"%s\" on this machine; its best is \"%s\"",
                        isa, find_table(NULL)->isa);
    atomic_store_explicit(&chosen, table, memory_order_relaxed);
    return GPR_OK;
}
