/* Which instruction set the CPU backend uses. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/loops.h"
#include "lib/base/environment.h"
#include "lib/base/status.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* The states of registers that the operating system saves: bits of XCR0. */
enum { SAVES_AVX = 0x06, SAVES_AVX512 = 0xe6 };

static unsigned saved_states(void)
{
    unsigned low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Not by __builtin_cpu_supports: what it reads is filled by the runtime library of the compiler
 * that links, and Zig's leaves it empty. AVX2 without F16C and FMA was hardly ever built, but a
 * hypervisor may hide one of them. */
static void find_features(int *has_avx2, int *has_avx512)
{
    const unsigned avx = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned eax, ebx = 0, ecx = 0, edx;

    *has_avx2 = *has_avx512 = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & avx) != avx) return;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
    const unsigned saved = saved_states();
    *has_avx2 = (ebx & bit_AVX2) != 0 && (saved & SAVES_AVX) == SAVES_AVX;
    *has_avx512 = *has_avx2 && (ebx & avx512) == avx512 && (saved & SAVES_AVX512) == SAVES_AVX512;
}
#endif

enum { MOST_TABLES = 3 };

/* The tables this machine can run, best first; returns how many. */
static int usable_tables(const gpr_loops *tables[MOST_TABLES])
{
    int count = 0;

#if defined(__x86_64__)
    int has_avx2, has_avx512;

    find_features(&has_avx2, &has_avx512);
    if (has_avx512) tables[count++] = &gpr_loops_avx512;
    if (has_avx2) tables[count++] = &gpr_loops_avx2;
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
