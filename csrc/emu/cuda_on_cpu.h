// CUDA's functions and types on the CPU, for a kernel's text when g++ compiles it.
//
// A kernel file is compiled as it is. Its loads and stores are ordinary ones, and the compiler
// reports each of them: with -fsanitize=thread it puts a call to __tsan_read4 or the like before
// it, and those functions are here. Barriers, shuffles, atomics and fences are functions here too.
// All of them call the emulator, through gpr_emu_hooks.
//
// A module is self-contained: it needs no symbols of other objects, and all of its own but
// gpr_emu_exports are hidden.
#include "abi.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
// One block runs at a time in this memory; the emulator copies it elsewhere when another block
// runs.
#define __shared__ static __attribute__((aligned(GPR_EMU_SHARED_SPACING)))
#define memcpy __builtin_memcpy

#define GPR_EMU_UNWATCHED __attribute__((noinline, no_sanitize("thread")))
#define GPR_EMU_HERE __builtin_return_address(0)
// An operation of several threads: one in another branch is another one, although it looks alike.
#if defined(__clang__)
#define GPR_EMU_COLLECTIVE GPR_EMU_UNWATCHED __attribute__((nomerge))
#else
#define GPR_EMU_COLLECTIVE GPR_EMU_UNWATCHED
#endif

static const gpr_emu_hooks *gpr_emu;

// ---------------------------------------------------------------- where a thread is -------------

// For kernels these do not change, so that reading them is not an access to watch. The emulator
// writes them, by their other names, before a thread goes on.
extern "C" {
extern const gpr_emu_dim threadIdx, blockIdx, blockDim, gridDim;
gpr_emu_dim gpr_emu_thread_index __asm__("threadIdx");
gpr_emu_dim gpr_emu_block_index __asm__("blockIdx");
gpr_emu_dim gpr_emu_block_dim __asm__("blockDim");
gpr_emu_dim gpr_emu_grid_dim __asm__("gridDim");
extern const unsigned gpr_emu_rank, gpr_emu_size;
unsigned gpr_emu_cluster_place __asm__("gpr_emu_rank");
unsigned gpr_emu_cluster_size __asm__("gpr_emu_size");
}
constexpr int warpSize = 32;

// ---------------------------------------------------------------- plain loads and stores --------

extern "C" {
// Accesses that are not aligned have the same functions, by other names: each function takes its
// time in every program that is compiled.
#define GPR_EMU_WATCH(bytes)                                                                \
    GPR_EMU_UNWATCHED void __tsan_read##bytes(void *p)                                      \
    {                                                                                       \
        gpr_emu->access(p, bytes, GPR_EMU_LOAD, GPR_EMU_HERE);                              \
    }                                                                                       \
    GPR_EMU_UNWATCHED void __tsan_write##bytes(void *p)                                     \
    {                                                                                       \
        gpr_emu->access(p, bytes, GPR_EMU_STORE, GPR_EMU_HERE);                             \
    }                                                                                       \
    __attribute__((alias("__tsan_read" #bytes))) void __tsan_unaligned_read##bytes(void *); \
    __attribute__((alias("__tsan_write" #bytes))) void __tsan_unaligned_write##bytes(void *);
GPR_EMU_WATCH(1)
GPR_EMU_WATCH(2)
GPR_EMU_WATCH(4)
GPR_EMU_WATCH(8)
GPR_EMU_WATCH(16)
#undef GPR_EMU_WATCH

// Structures that are copied whole and are of no such size.
GPR_EMU_UNWATCHED void __tsan_read_range(void *p, unsigned long bytes)
{
    for (unsigned long i = 0; i < bytes; i += 4) {
        gpr_emu->access(static_cast<char *>(p) + i, bytes - i < 4 ? 1 : 4, GPR_EMU_LOAD,
                        GPR_EMU_HERE);
    }
}
GPR_EMU_UNWATCHED void __tsan_write_range(void *p, unsigned long bytes)
{
    for (unsigned long i = 0; i < bytes; i += 4) {
        gpr_emu->access(static_cast<char *>(p) + i, bytes - i < 4 ? 1 : 4, GPR_EMU_STORE,
                        GPR_EMU_HERE);
    }
}

// Calls that the compiler also makes and that report no access to memory.
GPR_EMU_UNWATCHED void __tsan_init()
{
}
GPR_EMU_UNWATCHED void __tsan_func_entry(void *)
{
}
GPR_EMU_UNWATCHED void __tsan_func_exit()
{
}
}

// ---------------------------------------------------------------- barriers and fences -----------

// The function is there to be called: its return address is the kernel's position. The compiler
// keeps nothing of memory in registers across it.
GPR_EMU_COLLECTIVE inline unsigned gpr_emu_block(int op, unsigned predicate)
{
    const unsigned result = gpr_emu->block_op(op, predicate, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
    return result;
}

GPR_EMU_COLLECTIVE inline unsigned gpr_emu_warp(int op, unsigned mask, unsigned value,
                                                unsigned argument, unsigned width)
{
    const unsigned result = gpr_emu->warp_op(op, mask, value, argument, width, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
    return result;
}

GPR_EMU_COLLECTIVE inline unsigned gpr_emu_active()
{
    const unsigned result = gpr_emu->active_lanes(GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
    return result;
}

GPR_EMU_UNWATCHED inline void gpr_emu_fence(int scope)
{
    gpr_emu->fence(scope, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}

__forceinline__ void __syncthreads()
{
    gpr_emu_block(GPR_EMU_BARRIER, 0);
}
__forceinline__ int __syncthreads_count(int p)
{
    return static_cast<int>(gpr_emu_block(GPR_EMU_BARRIER_COUNT, p != 0));
}
__forceinline__ int __syncthreads_and(int p)
{
    return static_cast<int>(gpr_emu_block(GPR_EMU_BARRIER_AND, p != 0));
}
__forceinline__ int __syncthreads_or(int p)
{
    return static_cast<int>(gpr_emu_block(GPR_EMU_BARRIER_OR, p != 0));
}
__forceinline__ void __syncwarp(unsigned mask = ~0u)
{
    gpr_emu_warp(GPR_EMU_WARP_BARRIER, mask, 0, 0, 32);
}
__forceinline__ void __threadfence_block()
{
    gpr_emu_fence(GPR_EMU_FENCE_BLOCK);
}
__forceinline__ void __threadfence()
{
    gpr_emu_fence(GPR_EMU_FENCE_DEVICE);
}
__forceinline__ void __threadfence_system()
{
    gpr_emu_fence(GPR_EMU_FENCE_DEVICE);
}

// ---------------------------------------------------------------- several blocks ---------------

__forceinline__ unsigned gpr_emu_cluster_rank()
{
    return gpr_emu_rank;
}
__forceinline__ unsigned gpr_emu_cluster_blocks()
{
    return gpr_emu_size;
}
__forceinline__ void gpr_emu_cluster_barrier()
{
    gpr_emu_block(GPR_EMU_CLUSTER_BARRIER, 0);
}
// The variable is where another block's shared memory is kept while this one runs.
GPR_EMU_UNWATCHED inline const void *gpr_emu_shared_of(const void *mine, unsigned rank)
{
    return gpr_emu->shared_of(mine, rank, GPR_EMU_HERE);
}
// What a thread calls that reads a word again and again until another block changes it.
GPR_EMU_UNWATCHED inline void gpr_emu_wait_for_change(const unsigned *word, unsigned seen)
{
    gpr_emu->wait_for_change(word, seen, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}

// ---------------------------------------------------------------- asynchronous copies ----------

// CUDA's primitives: 4, 8 or 16 bytes.
GPR_EMU_UNWATCHED inline void __pipeline_memcpy_async(void *to, const void *from,
                                                      unsigned long bytes)
{
    gpr_emu->copy_async(to, from, static_cast<unsigned>(bytes), GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}
GPR_EMU_UNWATCHED inline void __pipeline_commit()
{
    gpr_emu->end_group();
}
GPR_EMU_UNWATCHED inline void __pipeline_wait_prior(unsigned long newest)
{
    gpr_emu->wait_groups(static_cast<unsigned>(newest), GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}

// Barriers of shared memory and the copies that arrive there: for these CUDA has instructions, and
// no functions without its library.
GPR_EMU_UNWATCHED inline void gpr_emu_mbarrier_init(void *barrier, unsigned arrivals)
{
    gpr_emu->mbarrier_init(barrier, arrivals, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}
GPR_EMU_UNWATCHED inline void gpr_emu_mbarrier_publish()
{
    gpr_emu->mbarrier_publish(GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}
GPR_EMU_UNWATCHED inline void gpr_emu_mbarrier_arrive(void *barrier, unsigned bytes)
{
    gpr_emu->mbarrier_arrive(barrier, bytes, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}
GPR_EMU_UNWATCHED inline void gpr_emu_mbarrier_wait(void *barrier, unsigned parity)
{
    gpr_emu->mbarrier_wait(barrier, parity, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}
GPR_EMU_UNWATCHED inline void gpr_emu_bulk_copy(void *to, const void *from, unsigned bytes,
                                                void *barrier)
{
    gpr_emu->copy_bulk(to, from, bytes, barrier, GPR_EMU_HERE);
    __asm__ volatile("" ::: "memory");
}

// ---------------------------------------------------------------- warps -------------------------

// A value of 4 or 8 bytes goes as one or two words, as on the GPU.
template <class T>
__forceinline__ T gpr_emu_shuffle(int op, unsigned mask, T value, unsigned argument, int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    unsigned word[sizeof(T) / 4];
    memcpy(word, &value, sizeof value);
    for (unsigned i = 0; i < sizeof(T) / 4; i++) {
        word[i] = gpr_emu_warp(op, mask, word[i], argument, static_cast<unsigned>(width));
    }
    memcpy(&value, word, sizeof value);
    return value;
}

template <class T> __forceinline__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return gpr_emu_shuffle(GPR_EMU_SHUFFLE_INDEX, mask, value, static_cast<unsigned>(lane), width);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return gpr_emu_shuffle(GPR_EMU_SHUFFLE_UP, mask, value, delta, width);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return gpr_emu_shuffle(GPR_EMU_SHUFFLE_DOWN, mask, value, delta, width);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    return gpr_emu_shuffle(GPR_EMU_SHUFFLE_XOR, mask, value, static_cast<unsigned>(lanes), width);
}

__forceinline__ unsigned __activemask()
{
    return gpr_emu_active();
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int p)
{
    return gpr_emu_warp(GPR_EMU_BALLOT, mask, p != 0, 0, 32);
}
__forceinline__ int __any_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, p) != 0;
}
__forceinline__ int __all_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, !p) == 0; // of lanes that have not returned
}

#define GPR_EMU_REDUCE(name, type, op)                                                         \
    __forceinline__ type name(unsigned mask, type value)                                       \
    {                                                                                          \
        return static_cast<type>(gpr_emu_warp(op, mask, static_cast<unsigned>(value), 0, 32)); \
    }
GPR_EMU_REDUCE(__reduce_add_sync, unsigned, GPR_EMU_REDUCE_ADD)
GPR_EMU_REDUCE(__reduce_add_sync, int, GPR_EMU_REDUCE_ADD)
GPR_EMU_REDUCE(__reduce_min_sync, unsigned, GPR_EMU_REDUCE_MIN_UNSIGNED)
GPR_EMU_REDUCE(__reduce_min_sync, int, GPR_EMU_REDUCE_MIN_SIGNED)
GPR_EMU_REDUCE(__reduce_max_sync, unsigned, GPR_EMU_REDUCE_MAX_UNSIGNED)
GPR_EMU_REDUCE(__reduce_max_sync, int, GPR_EMU_REDUCE_MAX_SIGNED)
GPR_EMU_REDUCE(__reduce_and_sync, unsigned, GPR_EMU_REDUCE_AND)
GPR_EMU_REDUCE(__reduce_or_sync, unsigned, GPR_EMU_REDUCE_OR)
GPR_EMU_REDUCE(__reduce_xor_sync, unsigned, GPR_EMU_REDUCE_XOR)
#undef GPR_EMU_REDUCE

// ---------------------------------------------------------------- arithmetic --------------------

inline int __popc(unsigned value)
{
    int count = 0; // by hand: the compiler's own may be a function of a library
    for (; value != 0; value &= value - 1) count++;
    return count;
}

inline double sqrt(double value)
{
    return __builtin_sqrt(value);
}

// Functions of the mathematical library, which programs are linked with.
#define GPR_EMU_FUNCTION(name)             \
    __forceinline__ double name(double x)  \
    {                                      \
        return __builtin_##name(x);        \
    }                                      \
    __forceinline__ float name(float x)    \
    {                                      \
        return __builtin_##name##f(x);     \
    }                                      \
    __forceinline__ float name##f(float x) \
    {                                      \
        return __builtin_##name##f(x);     \
    }
GPR_EMU_FUNCTION(exp)
GPR_EMU_FUNCTION(exp2)
GPR_EMU_FUNCTION(expm1)
GPR_EMU_FUNCTION(log)
GPR_EMU_FUNCTION(log2)
GPR_EMU_FUNCTION(log10)
GPR_EMU_FUNCTION(log1p)
GPR_EMU_FUNCTION(sin)
GPR_EMU_FUNCTION(cos)
GPR_EMU_FUNCTION(tan)
GPR_EMU_FUNCTION(tanh)
GPR_EMU_FUNCTION(cbrt)
GPR_EMU_FUNCTION(floor)
GPR_EMU_FUNCTION(ceil)
GPR_EMU_FUNCTION(trunc)
GPR_EMU_FUNCTION(rint)
GPR_EMU_FUNCTION(round)
#undef GPR_EMU_FUNCTION

__forceinline__ double ldexp(double x, int exponent)
{
    return __builtin_ldexp(x, exponent);
}

__forceinline__ double pow(double x, double y)
{
    return __builtin_pow(x, y);
}

__forceinline__ float powf(float x, float y)
{
    return __builtin_powf(x, y);
}

__forceinline__ double __dmul_rn(double a, double b)
{
    return a * b; // nothing is contracted here
}

// a * b + c, rounded once. The compiler's own may be a function of a library.
__forceinline__ double __fma_rn(double a, double b, double c)
{
#if defined(__x86_64__)
    __asm__("vfmadd231sd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
#else
    return __builtin_fma(a, b, c);
#endif
}

__forceinline__ float __fmaf_rn(float a, float b, float c)
{
#if defined(__x86_64__)
    __asm__("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
#else
    return __builtin_fmaf(a, b, c);
#endif
}

// a + b rounded up or down: from the sum rounded to nearest and its error (Knuth's two-sum).
template <class F, class Bits> __forceinline__ F gpr_emu_add(F a, F b, bool up)
{
    const F infinity = static_cast<F>(__builtin_inf());
    const F sum = a + b, of_b = sum - a, of_a = sum - of_b;
    const F error = (a - of_a) + (b - of_b);
    const bool overflowed = sum == (up ? -infinity : infinity) && a != sum && b != sum;

    if (sum == 0) { // a difference of 0 has the sign of the direction
        const bool is_negative = __builtin_signbit(a) && __builtin_signbit(b);
        const bool is_positive = !__builtin_signbit(a) && !__builtin_signbit(b);
        return is_positive || (up && !is_negative) ? F(0) : -F(0);
    }
    if (!overflowed && !(up ? error > 0 : error < 0)) return sum;
    Bits bits; // of the next number
    memcpy(&bits, &sum, sizeof bits);
    bits += (sum > 0) == up ? 1 : -1;
    F next;
    memcpy(&next, &bits, sizeof next);
    return next;
}

__forceinline__ double __dadd_ru(double a, double b)
{
    return gpr_emu_add<double, long long>(a, b, true);
}

__forceinline__ double __dadd_rd(double a, double b)
{
    return gpr_emu_add<double, long long>(a, b, false);
}

__forceinline__ float __fadd_ru(float a, float b)
{
    return gpr_emu_add<float, int>(a, b, true);
}

__forceinline__ float __fadd_rd(float a, float b)
{
    return gpr_emu_add<float, int>(a, b, false);
}

// The upper halves of products of 128 bits.
__forceinline__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

__forceinline__ long long __mul64hi(long long a, long long b)
{
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}

// ---------------------------------------------------------------- atomics -----------------------

template <class T> struct gpr_emu_as {
    using type = T;
};

template <class T, class... Types> constexpr bool gpr_emu_is_one_of = false;
template <class T, class... Types> constexpr bool gpr_emu_is_one_of<T, T, Types...> = true;
template <class T, class First, class... Types>
constexpr bool gpr_emu_is_one_of<T, First, Types...> = gpr_emu_is_one_of<T, Types...>;
// Types of CUDA's own functions: what a GPU's compiler refuses is refused here, too.
template <class T>
constexpr bool gpr_emu_is_added =
    gpr_emu_is_one_of<T, int, unsigned, unsigned long long, float, double>;
template <class T>
constexpr bool gpr_emu_is_swapped = gpr_emu_is_one_of<T, int, unsigned, unsigned long long, float>;
template <class T>
constexpr bool gpr_emu_is_ordered =
    gpr_emu_is_one_of<T, int, unsigned, long long, unsigned long long>;
template <class T> constexpr bool gpr_emu_is_counted = gpr_emu_is_one_of<T, unsigned>;
template <class T> constexpr bool gpr_emu_is_subtracted = gpr_emu_is_one_of<T, int, unsigned>;
#define GPR_EMU_LOOP ": for other types, compare and swap the bits in a loop, by atomicCAS"

// No other thread runs between the hook and the end of the function.
#define GPR_EMU_ATOMIC_FUNCTION(name, types, words, result)                                     \
    template <class T> GPR_EMU_UNWATCHED T name(T *address, typename gpr_emu_as<T>::type value) \
    {                                                                                           \
        static_assert(gpr_emu_is_##types<T>, #name " takes " words GPR_EMU_LOOP);               \
        gpr_emu->access(address, sizeof(T), GPR_EMU_ATOMIC, GPR_EMU_HERE);                      \
        const T old = *address;                                                                 \
        *address = result;                                                                      \
        return old;                                                                             \
    }
#define GPR_EMU_ADDED "int, unsigned, unsigned long long, float and double"
#define GPR_EMU_ORDERED "int, unsigned, long long and unsigned long long"
GPR_EMU_ATOMIC_FUNCTION(atomicAdd, added, GPR_EMU_ADDED, static_cast<T>(old + value))
GPR_EMU_ATOMIC_FUNCTION(atomicMin, ordered, GPR_EMU_ORDERED, old < value ? old : value)
GPR_EMU_ATOMIC_FUNCTION(atomicMax, ordered, GPR_EMU_ORDERED, old > value ? old : value)
GPR_EMU_ATOMIC_FUNCTION(atomicAnd, ordered, GPR_EMU_ORDERED, old &value)
GPR_EMU_ATOMIC_FUNCTION(atomicOr, ordered, GPR_EMU_ORDERED, old | value)
GPR_EMU_ATOMIC_FUNCTION(atomicXor, ordered, GPR_EMU_ORDERED, old ^ value)
GPR_EMU_ATOMIC_FUNCTION(atomicExch, swapped, "int, unsigned, unsigned long long and float", value)
// Counts up to `value` and then starts again at 0.
GPR_EMU_ATOMIC_FUNCTION(atomicInc, counted, "unsigned",
                        old >= value ? T(0) : static_cast<T>(old + 1))
GPR_EMU_ATOMIC_FUNCTION(atomicDec, counted, "unsigned",
                        old == 0 || old > value ? value : static_cast<T>(old - 1))
GPR_EMU_ATOMIC_FUNCTION(atomicSub, subtracted, "int and unsigned", static_cast<T>(old - value))
#undef GPR_EMU_ATOMIC_FUNCTION
#undef GPR_EMU_ADDED
#undef GPR_EMU_ORDERED
#undef GPR_EMU_LOOP

template <class T>
GPR_EMU_UNWATCHED T atomicCAS(T *address, typename gpr_emu_as<T>::type believed,
                              typename gpr_emu_as<T>::type value)
{
    static_assert(gpr_emu_is_one_of<T, int, unsigned, unsigned long long>,
                  "atomicCAS takes int, unsigned and unsigned long long: the bits of other types, "
                  "as by __float_as_int");
    gpr_emu->access(address, sizeof(T), GPR_EMU_ATOMIC, GPR_EMU_HERE);
    const T old = *address;
    if (old == believed) *address = value;
    return old;
}

// ---------------------------------------------------------------- entries -----------------------

template <unsigned... I> struct gpr_emu_places {};
template <unsigned N, unsigned... I> struct gpr_emu_count : gpr_emu_count<N - 1, N - 1, I...> {};
template <unsigned... I> struct gpr_emu_count<0, I...> {
    using places = gpr_emu_places<I...>;
};

// Calls a kernel with arguments in memory, as cuLaunchKernel gets them.
template <auto KERNEL> struct gpr_emu_call;
template <class... A, void (*KERNEL)(A...)> struct gpr_emu_call<KERNEL> {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned bytes[] = {sizeof(A)...};
    template <unsigned... I>
    GPR_EMU_UNWATCHED static void call(void *const *arguments, gpr_emu_places<I...>)
    {
        KERNEL(*static_cast<A *>(arguments[I])...);
    }
    static void run(void *const *arguments)
    {
        call(arguments, typename gpr_emu_count<count>::places{});
    }
};

// GPR_EMU_ENTRIES(GPR_EMU_ENTRY((gpr::kernel<Traits, 256u>)), ...) ends a program.
#define GPR_EMU_BARE(...) __VA_ARGS__
#define GPR_EMU_TEXT(...) #__VA_ARGS__
#define GPR_EMU_ENTRY(expression)                                         \
    {GPR_EMU_TEXT expression, gpr_emu_call<GPR_EMU_BARE expression>::run, \
     gpr_emu_call<GPR_EMU_BARE expression>::count, gpr_emu_call<GPR_EMU_BARE expression>::bytes}
#define GPR_EMU_ENTRIES(...)                                        \
    static const gpr_emu_entry gpr_emu_entries[] = {__VA_ARGS__};   \
    extern "C" __attribute__((visibility("default")))               \
    const gpr_emu_module gpr_emu_exports = {GPR_EMU_ABI,            \
                                            &gpr_emu,               \
                                            &gpr_emu_thread_index,  \
                                            &gpr_emu_block_index,   \
                                            &gpr_emu_block_dim,     \
                                            &gpr_emu_grid_dim,      \
                                            &gpr_emu_cluster_place, \
                                            &gpr_emu_cluster_size,  \
                                            gpr_emu_entries,        \
                                            sizeof gpr_emu_entries / sizeof gpr_emu_entries[0]};
