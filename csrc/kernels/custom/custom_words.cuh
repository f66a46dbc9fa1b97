// What the text of an operator of the user's own finds: integers by their size, limits of types,
// infinity. The text is in namespace yours, where T is the type of elements.
#pragma once

#include "conversions.cuh"
#include "language.h" // words of texts that the library shares

#ifndef INT_MAX
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-LLONG_MAX - 1)
#endif
#ifndef ULLONG_MAX
#define ULLONG_MAX 18446744073709551615ull
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define DBL_MAX 1.7976931348623157e+308
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN (INFINITY - INFINITY)
#endif

namespace yours
{

using int8 = gpr::dt_int8;
using int16 = gpr::dt_int16;
using int32 = gpr::dt_int32;
using int64 = gpr::dt_int64;
using uint8 = gpr::dt_uint8;
using uint16 = gpr::dt_uint16;
using uint32 = gpr::dt_uint32;
using uint64 = gpr::dt_uint64;
using float32 = gpr::dt_float32;
using float64 = gpr::dt_float64;
using complex64 = gpr::dt_complex64;
using complex128 = gpr::dt_complex128;

} // namespace yours
