"""What kernels use of C's headers, for compilers that have none: NVRTC and the emulator's.

Includes are blanked in device code (:mod:`gpureduce._yours.device_text`); :func:`prelude` declares
what the headers of :data:`KNOWN` declare and kernels use. CUDA's own headers of
:data:`CUDA_HEADERS` are included as they are, from the folders of a toolkit.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .._exceptions import KernelUnavailableError

__all__ = ["CUDA_HEADERS", "KNOWN", "include_folders", "prelude"]

_KNOWN = (
    "algorithm assert.h cassert cfloat climits cmath cstddef cstdint cstdio cstdlib cstring",
    "float.h iostream limits limits.h math.h math_constants.h stddef.h stdint.h stdio.h stdlib.h",
    "string string.h vector cuda.h cuda_runtime.h cuda_runtime_api.h device_functions.h",
    "device_launch_parameters.h sm_20_atomic_functions.h sm_30_intrinsics.h",
)
KNOWN = frozenset(" ".join(_KNOWN).split())
"""Headers of which nothing is missing in device code."""
CUDA_HEADERS = re.compile(r"cooperative_groups(?:/\w+)?\.h")
"""Headers that device code includes."""

_LIMITS = {
    "CHAR_BIT": "8",
    "SCHAR_MAX": "127",
    "SCHAR_MIN": "(-128)",
    "UCHAR_MAX": "255",
    "CHAR_MAX": "127",
    "CHAR_MIN": "(-128)",
    "SHRT_MAX": "32767",
    "SHRT_MIN": "(-32768)",
    "USHRT_MAX": "65535",
    "INT_MAX": "2147483647",
    "INT_MIN": "(-2147483647 - 1)",
    "UINT_MAX": "4294967295u",
    "LONG_MAX": "9223372036854775807l",
    "LONG_MIN": "(-9223372036854775807l - 1)",
    "ULONG_MAX": "18446744073709551615ul",
    "LLONG_MAX": "9223372036854775807ll",
    "LLONG_MIN": "(-9223372036854775807ll - 1)",
    "ULLONG_MAX": "18446744073709551615ull",
    "SIZE_MAX": "18446744073709551615ul",
    "INT8_MAX": "127",
    "INT8_MIN": "(-128)",
    "UINT8_MAX": "255",
    "INT16_MAX": "32767",
    "INT16_MIN": "(-32768)",
    "UINT16_MAX": "65535",
    "INT32_MAX": "2147483647",
    "INT32_MIN": "(-2147483647 - 1)",
    "UINT32_MAX": "4294967295u",
    "INT64_MAX": "9223372036854775807l",
    "INT64_MIN": "(-9223372036854775807l - 1)",
    "UINT64_MAX": "18446744073709551615ul",
    "FLT_MAX": "3.402823466e+38f",
    "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f",
    "DBL_MAX": "1.7976931348623158e+308",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-16",
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "HUGE_VALF": "__int_as_float(0x7f800000)",
    "HUGE_VAL": "__longlong_as_double(0x7ff0000000000000ll)",
    "CUDART_INF_F": "__int_as_float(0x7f800000)",
    "CUDART_NAN_F": "__int_as_float(0x7fffffff)",
    "CUDART_INF": "__longlong_as_double(0x7ff0000000000000ll)",
}
_TYPES = {
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned",
    "uint64_t": "unsigned long",
    "uint": "unsigned",
    "uchar": "unsigned char",
    "ushort": "unsigned short",
}
"""As Linux has them."""
_NUMERIC = {
    "signed char": "SCHAR",
    "unsigned char": "UCHAR",
    "short": "SHRT",
    "unsigned short": "USHRT",
    "int": "INT",
    "unsigned": "UINT",
    "long": "LONG",
    "unsigned long": "ULONG",
    "long long": "LLONG",
    "unsigned long long": "ULLONG",
}


def _std() -> str:
    """``std::min``, ``std::max`` and ``std::numeric_limits``."""
    lines = ["namespace std {", "template <class T> struct numeric_limits;"]
    function = "    __host__ __device__ static constexpr T {}() {{ return {}; }}"
    for c_type, name in _NUMERIC.items():
        low = f"{name}_MIN" if not c_type.startswith("unsigned") else "0"
        lines.append(f"template <> struct numeric_limits<{c_type}> {{ typedef {c_type} T;")
        lines += [
            function.format(word, value)
            for word, value in (("min", low), ("lowest", low), ("max", f"{name}_MAX"))
        ]
        lines.append("};")
    for c_type, name, infinity in (
        ("float", "FLT", "INFINITY"),
        ("double", "DBL", "HUGE_VAL"),
    ):
        lines.append(f"template <> struct numeric_limits<{c_type}> {{ typedef {c_type} T;")
        lines += [
            function.format(word, value)
            for word, value in (
                ("min", f"{name}_MIN"),
                ("lowest", f"-{name}_MAX"),
                ("max", f"{name}_MAX"),
                ("epsilon", f"{name}_EPSILON"),
            )
        ]
        lines.append(f"    __host__ __device__ static T infinity() {{ return {infinity}; }}\n}};")
    for word, test in (("min", "b < a"), ("max", "a < b")):
        lines.append(
            f"template <class T> __host__ __device__ constexpr const T &{word}(const T &a, "
            f"const T &b) {{ return {test} ? b : a; }}"
        )
    return "\n".join([*lines, "}"])


def prelude(text: str) -> str:
    """Declarations of C's headers that a device text uses."""
    words = set(re.findall(r"\w+", text))
    uses_std = bool(re.search(r"\bstd\s*::", text))
    lines = [
        f"#ifndef {name}\n#define {name} {value}\n#endif"
        for name, value in _LIMITS.items()
        if name in words or uses_std
    ]
    lines += [f"typedef {c_type} {name};" for name, c_type in _TYPES.items() if name in words]
    if uses_std:
        lines.append(_std())
    return "".join(f"{line}\n" for line in lines)


def _toolkits() -> Iterator[Path]:
    """Folders of CUDA's headers: of the toolkit, and what pip installed."""
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root:
            yield Path(root) / "include"
    for entry in sys.path:
        for part in ("cu13", "cuda_runtime", "cuda_cccl", "cu12"):
            yield Path(entry) / "nvidia" / part / "include"


def include_folders(file: str, text: str) -> list[Path]:
    """Folders for the headers that a device text includes; none if it includes none.

    Raises
    ------
    KernelUnavailableError
        A header is nowhere; the message names the line that includes it.
    """
    found: list[Path] = []
    for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)", text, re.MULTILINE):
        if not CUDA_HEADERS.fullmatch(match[1]):
            continue
        # Both begin with what CCCL has: an older toolkit has it beside, a newer one in a folder.
        for header in (match[1], "cuda/std/type_traits"):
            folders = (
                folder
                for toolkit in _toolkits()
                for folder in (toolkit, toolkit / "cccl")
                if (folder / header).is_file()
            )
            folder = next(folders, None)
            if folder is None:
                line = text.count("\n", 0, match.start()) + 1
                raise KernelUnavailableError(
                    f"{file}:{line}: {match[1]} is not found, and NVRTC does not carry it: install "
                    "the CUDA toolkit and set CUDA_HOME, or pip install nvidia-cuda-runtime "
                    "nvidia-cuda-cccl"
                )
            if folder not in found:
                found.append(folder)
    return found
