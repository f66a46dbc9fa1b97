/* What C11 and CUDA C++ spell differently. The files of this folder are both: the library includes
 * them, and every program carries them as text. So a struct, a constant or a format that host and
 * kernels both use is written once, and its size is asserted on both sides.
 *
 * NVRTC has no headers of the C library: nothing is included that a kernel would see. */
#ifndef GPR_SHARED_LANGUAGE_H
#define GPR_SHARED_LANGUAGE_H

#ifdef __cplusplus

typedef unsigned char gpr_u8;
typedef unsigned gpr_u32;
typedef unsigned long long gpr_u64;
typedef long long gpr_i64;

/* An address in device memory. The host does not follow it. */
#define GPR_DEVICE_POINTER(type) type *
/* A function of constants. Kernels evaluate it while they are compiled. */
#define GPR_CONSTANT_FUNCTION __device__ constexpr
/* Where a member begins is asserted by the library alone: NVRTC 13.0 and older have no offsetof.
 * Sizes are asserted on both sides. */
#define GPR_ASSERT_OFFSET(type, member, bytes) static_assert(true, "")
/* A function that kernels call as the host does: one copy per program, its loops as they are. */
#define GPR_SHARED_FUNCTION static __device__ __noinline__
/* A function of a few instructions, which becomes part of its caller. */
#define GPR_SHARED_INLINE static __device__ __forceinline__
#define GPR_NOT_UNROLLED _Pragma("unroll 1")

#else

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t gpr_u8;
typedef uint32_t gpr_u32;
typedef uint64_t gpr_u64;
typedef int64_t gpr_i64;

#define GPR_DEVICE_POINTER(type) uint64_t
#define GPR_CONSTANT_FUNCTION static inline
#define GPR_ASSERT_OFFSET(type, member, bytes) \
    static_assert(offsetof(type, member) == (bytes), #type " has " #member " elsewhere")
#define GPR_SHARED_FUNCTION static inline
#define GPR_SHARED_INLINE static inline
#define GPR_NOT_UNROLLED

#endif

#endif
