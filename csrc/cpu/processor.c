/* What the loops know of the processor. */
#include "cpu/loops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int gpr_cpu_prefetches_runs = 1;

#if defined(__x86_64__)
/* Whether the processor is one of AMD's before Zen 5. */
static int is_older_amd(void)
{
    enum { FAMILY_OF_ZEN_5 = 0x1a, EXTENDED_FAMILY = 0xf };
    unsigned eax, ebx = 0, ecx = 0, edx = 0;

    if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx) || ebx != signature_AMD_ebx ||
        ecx != signature_AMD_ecx || edx != signature_AMD_edx)
        return 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 1;
    const unsigned base = eax >> 8 & 0xf, more = eax >> 20 & 0xff;

    return base + (base == EXTENDED_FAMILY ? more : 0) < FAMILY_OF_ZEN_5;
}
#endif

/* Before there are threads, which then read it without synchronization. */
static __attribute__((constructor)) void choose_prefetching(void)
{
#if defined(__x86_64__)
    gpr_cpu_prefetches_runs = !is_older_amd();
#endif
}
