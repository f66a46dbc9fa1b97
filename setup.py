"""Builds gpureduce._core: the C library and its Python glue in one extension module.

Everything else about the package is in pyproject.toml. GPUREDUCE_CFLAGS adds compiler and linker
flags, for sanitizers; the objects stay in GPUREDUCE_OBJECTS, for tests of the C core to link.
"""

import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from glob import glob

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext as setuptools_build_ext

EXTRA = shlex.split(os.environ.get("GPUREDUCE_CFLAGS", ""))


class build_ext(setuptools_build_ext):
    """Compiles the files on all cores, and passes the version of pyproject.toml on to C."""

    def finalize_options(self):
        super().finalize_options()
        self.build_temp = os.environ.get("GPUREDUCE_OBJECTS", self.build_temp)

    def build_extensions(self):
        version = self.distribution.get_version()
        self.compiler.define_macro("GPR_VERSION", f'"{version}"')
        compile_in_turn = self.compiler.compile

        def compile_on_all_cores(sources, *args, **options):
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                each = pool.map(lambda source: compile_in_turn([source], *args, **options), sources)
                return [name for names in each for name in names]

        self.compiler.compile = compile_on_all_cores
        super().build_extensions()


# The loops take longest to compile: first come, first started.
SOURCES = [
    *sorted(glob("csrc/cpu/loops_*.c")),
    *sorted(set(glob("csrc/cpu/*.c")) - set(glob("csrc/cpu/loops_*.c"))),
    *sorted(glob("csrc/lib/*/*.c")),
    *sorted(glob("csrc/dispatch/*.c")),
    *sorted(glob("csrc/python/*.c")),
]

HEADERS = sorted(glob("csrc/*/*.h") + glob("csrc/*/*/*.h"))
# Our own headers are named from csrc: "lib/rules/rules.h".
INCLUDES = ["csrc", "csrc/include"]

core = Extension(
    "gpureduce._core",
    sources=SOURCES,
    # Device code is embedded and tables are included, so an edit there is a reason to build again.
    depends=sorted(
        [*HEADERS, *glob("csrc/registry/*.def"), *glob("csrc/kernels/*/*"), "pyproject.toml"]
    ),
    include_dirs=[
        *(*INCLUDES, "csrc/registry", "csrc/shared", *sorted(glob("csrc/kernels/*/"))),
        *("csrc/vendor", numpy.get_include()),
    ],
    # The last ones hold, whatever CFLAGS say: exact sums are made of additions as they are written.
    # Copies are checked by their arrays' sizes. The third level, which some compilers have by
    # default, checks copies of single elements by a call each, which takes ten times as long.
    extra_compile_args=[
        *("-std=gnu11", "-ffp-contract=off", "-O3", "-fvisibility=hidden", "-pthread"),
        *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
        *EXTRA,
        "-fno-fast-math",
        "-fno-math-errno",
    ],
    extra_link_args=["-pthread", *EXTRA],
    libraries=["dl", "m"],
    language="c",
)

# The emulator stands in for libcuda and NVRTC: a library for the loader, not a module for Python.
emulator = Extension(
    "gpureduce._emulator",
    sources=sorted(glob("csrc/emu/*.c")),
    depends=HEADERS,
    include_dirs=INCLUDES,
    extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden", "-pthread", *EXTRA],
    extra_link_args=["-pthread", *EXTRA],
    libraries=["dl"],
    language="c",
)

setup(ext_modules=[core, emulator], cmdclass={"build_ext": build_ext})
