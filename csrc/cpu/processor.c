/* What the loops know of the processor. */
#include "cpu/loops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int gpr_cpu_prefetches_runs = 1;

/* Before there are threads, which then read it without synchronization. */
static __attribute__((constructor)) void choose_prefetching(void)
{
#if defined(__x86_64__)
    unsigned eax, ebx = 0, ecx = 0, edx = 0;

    gpr_cpu_prefetches_runs =
        !(__get_cpuid(0, &eax, &ebx, &ecx, &edx) && ebx == signature_AMD_ebx &&
          ecx == signature_AMD_ecx && edx == signature_AMD_edx);
#endif
}
