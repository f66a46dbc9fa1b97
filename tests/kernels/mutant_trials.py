"""Which kernels come to a place in their text, and what is run to catch a mutant there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from emu.cases import FULL
from emu.layouts import GIVEN_MEAN, MADE_FOR
from kernel_text import Definition, definitions_of, includes_of
from mutations import Mutant
from reference import ALL_DTYPES, takes

import gpureduce as gr
from gpureduce import _core

# CUB's kernel is one call of it, and the CPU's loops for operators of users' own are no kernels.
# What logsumexp folds is an operator's text: its results are compared with those of the CPU, which
# has the same text.
NO_KERNELS = ("cub.cuh", "custom_cpu.cuh", "exp_states.h")
SOURCES = {name: text for name, text in _core.sources().items() if not name.endswith(NO_KERNELS)}
KERNELS = {info.name: info for info in gr.kernels() if info.name not in ("cub", "auto")}
OPERATORS_DEF = Path(__file__).parents[2] / "csrc" / "registry" / "operators.def"

# ---------------------------------------------------------------- who comes to a place

DEFINITIONS = [each for file, text in SOURCES.items() for each in definitions_of(file, text)]
BY_NAME: dict[str, list[Definition]] = {}
for each in DEFINITIONS:
    BY_NAME.setdefault(each.name, []).append(each)
INCLUDED = includes_of(SOURCES)
FILL = "fill_identity"
OF_PRODUCTS = ("exact_moments", "exact_moments_strided", "exact_dot")
ALONG_AXES = "exact_dot_rows"
# Kernels of operators of users' own, of one file.
CUSTOM = "custom_kernels"
# Kernels of the course with such operators: what their traits are made of.
CUSTOM_TRAITS = "custom_traits"
TRAITS = {"identity", "lift", "combine", "atomic_combine", "add", "add_tile", "finalize"}
# Kernels whose blocks use places in shared memory round by round.
COPYING = ("async_copy", "bulk_copy")
# Several reductions in one pass.
SEVERAL = "several"
# Results of rows that are the same, of which one was reduced.
COPIES = "copy_results"
# Exact sums by kernels of `fast`, whose programs start at this file.
BY_PAIRS = "exact_fast"


def file_of(entry: str) -> str:
    """The file that has a global function."""
    (file,) = {each.file for each in BY_NAME[entry] if each.is_kernel}
    return file


def entries_of(name: str) -> list[str]:
    """Global functions that a kernel of the registry is launched with."""
    if name == "fast":
        return ["fast_stream", "fast_rows"]
    return [name, FILL] if FILL in SOURCES[file_of(name)] else [name]


# Kernels by what is tried, and the global functions that this comes to. What fast does with layouts
# is tried by kernel.
ENTRIES = {
    **{name: entries_of(name) for name in KERNELS},
    **{name: [name] for name in (*MADE_FOR, *OF_PRODUCTS, ALONG_AXES)},
    CUSTOM: ["custom_rows", "custom_strided", "custom_merge", "custom_facts"],
    CUSTOM_TRAITS: ["custom_clear"],
    SEVERAL: ["several"],
    COPIES: ["copy_results"],
    BY_PAIRS: [
        "fast_stream",
        "fast_short",
        "fast_rows",
        "fast_columns",
        "fast_few",
        "fast_narrow",
        "fast_strided",
    ],
}


def files_of(kernel: str) -> set[str]:
    """The files of which its programs are made."""
    starts = {f"{kernel}.cuh"} if kernel == BY_PAIRS else map(file_of, ENTRIES[kernel])
    return set().union(*(INCLUDED[file] for file in starts))


def reach(kernel: str) -> dict[int, int]:
    """Definitions, by place in DEFINITIONS, that a kernel may reach, and in how many calls.

    A word of what is reached reaches all that files it includes have under that name. Operators are
    reached with their file.
    """
    files = files_of(kernel)
    places = {id(each): place for place, each in enumerate(DEFINITIONS)}
    found: dict[int, int] = {}
    new, known, calls = set(ENTRIES[kernel]), set(), 0
    if kernel == CUSTOM_TRAITS:
        new |= TRAITS
    while new:
        known |= new
        reached = [each for name in new for each in BY_NAME[name] if each.file in files]
        of_files = {each.file for each in reached}
        reached += [
            each
            for each in DEFINITIONS
            if each.name.startswith("operator") and each.file in of_files
        ]
        for each in reached:
            found.setdefault(places[id(each)], calls)
        new = {word for each in reached for word in each.words if word in BY_NAME} - known
        calls += 1
    return found


@cache
def reached() -> dict[str, dict[int, int]]:
    return {name: reach(name) for name in ENTRIES}


def definition_of(mutant: Mutant) -> int:
    """Place in DEFINITIONS of the function that a mutant changes."""
    for place, each in enumerate(DEFINITIONS):
        first, last = each.span
        if each.body and each.file == mutant.file and first <= mutant.start < last:
            return place
    raise ValueError(f"{mutant} is in no function")


def kernels_of(mutant: Mutant) -> list[str]:
    """Kernels that may come to the place: the nearest first, then those that do least."""
    place = definition_of(mutant)
    users = [name for name, found in reached().items() if place in found]
    return sorted(users, key=lambda name: (reached()[name][place], len(reached()[name])))


# ---------------------------------------------------------------- what is run

# Rows of which each warp has one tile: their type, the block's size, and how many blocks a row has.
# Of more than 32 the last one's warps share the partials, of more than it has threads each takes
# several.
TILES = [
    ("float64", 64, [1, 3, 40]),
    ("float32", 256, [1, 1, 2]),
    ("bfloat16", 256, [1, 1, 2]),
    ("float64", 32, [70, 70, 33]),
    ("float16", 96, [1, 2]),
]


Trial = tuple[str, str, int, dict[str, object]]
"""Kernel, dtype, block size, and what to do with them."""

# Of these each warp has several tiles.
RUNS: list[Trial] = [
    ("exact", dtype, block, {"do": "exact_sums.check_runs", "count": 12, "limit": 300.0})
    for dtype, block in (("float64", 256), ("float32", 64), ("bfloat16", 256))
]

# Trials of exact sums that mutants of a file have first.
FIRST: dict[str, list[Trial]] = {
    **{
        file: [
            (
                "exact",
                dtype,
                0,
                {
                    "do": "exact_sums.check_double_double",
                    "rows": 256,
                    "sizes": 5,
                    "many": False,
                    "limit": 600.0,
                },
            )
            for dtype in ("float32", "bfloat16", "float64")
        ]
        for file in ("exact_double_double.cuh", "exact_few_terms.cuh")
    },
    **{
        file: [
            ("exact", dtype, block, {"do": "exact_layouts.check_layouts", "count": 8})
            for dtype, block in (("float32", 0), ("float64", 64), ("bfloat16", 0), ("float16", 96))
        ]
        for file in ("exact_fast.cuh", "exact_any_row.cuh")
    },
    "exact_rows.cuh": [
        ("exact_rows", dtype, 64, {"do": "layouts.check_made_for", "op": op, "limit": 300.0})
        for op, dtype in (("mean", "float64"), ("sum", "bfloat16"), ("sum", "complex64"))
    ]
    + [
        ("exact", dtype, block, {"do": "exact_layouts.check_layouts", "count": 8})
        for dtype, block in (("float64", 64), ("float32", 0))
    ],
    "exact_again.cuh": [
        ("exact", dtype, 0, {"do": "exact_layouts.check_shares", "limit": 600.0})
        for dtype in ("float32", "float64")
    ],
    "exact_adders.cuh": [
        ("exact", "complex64", 0, {"do": "exact_sums.check_nothing_there", "limit": 300.0})
    ],
    "exact_block.cuh": [("exact", "int64", 256, {"do": "exact_layouts.check_layouts", "count": 4})],
    "exact_run.cuh": RUNS,
    "exact_short_sum.cuh": [
        (
            "exact",
            "float64",
            0,
            {"do": "exact_sums.check_lone_outliers", "count": 20, "limit": 300.0},
        )
    ],
    "exact_bins.cuh": [
        (
            "exact",
            "float64",
            32,
            {"do": "exact_sums.check_exact", "count": 4, "fills": 4, "limit": 300.0},
        )
    ],
}
# Trials that mutants of types for integers (IntegerSums, IntegerMoments, IntegerDot) have first.
INTEGERS: list[Trial] = [
    ("exact", dtype, 256, {"do": do, **what})
    for do, what in (
        ("exact_layouts.check_layouts", {"count": 8}),
        ("exact_variances.check_layouts", {"count": 8, "limit": 300.0}),
        ("exact_products.check_kinds", {"limit": 300.0}),
    )
    for dtype in ("int64", "int8")
]
# Files that only programs for GPUs that are slow at float64 use.
SLOW_FLOAT64 = ("exact_integer_bins.cuh",)
# Types and functions that variances about given means alone have, of infinities.
OF_GIVEN_MEANS = ("DistancesAbout", "fold_moments_about", "special_of", "special_apart")
# Types and operators that come to most places.
CASES = [
    ("int32", "sum"),
    ("float64", "min"),
    ("float64", "mean"),
    ("int32", "argmax"),
    ("float64", GIVEN_MEAN),
    ("float64", "argmin"),
    ("float32", "var"),
    ("uint8", "max"),
    ("int8", "sum"),
    ("bool", "any"),
    ("bool", "all"),
    ("uint8", "count_nonzero"),
    ("complex64", "sum"),
]


def folds() -> dict[str, list[str]]:
    """Operators by the fold that they use, from the registry."""
    found: dict[str, list[str]] = {}
    for op, fold in re.findall(
        r"^GPR_OPERATOR\(\w+,\s*(\w+),\s*(\w+)", OPERATORS_DEF.read_text(), re.MULTILINE
    ):
        found.setdefault(fold, []).append(op)
    return found


def cases_of(mutant: Mutant) -> list[tuple[str, str]]:
    """Types and operators to try: those that the function is for, if its parameters say so."""
    function = DEFINITIONS[definition_of(mutant)]
    head = [each.text for each in function.tokens[: function.body]]
    ops = [
        op
        for word in head
        for op in folds().get(word.removeprefix("fold_"), [])
        if word.startswith("fold_")
    ]
    if not ops:
        return CASES
    dtypes = [word.removeprefix("dt_") for word in head if word.removeprefix("dt_") in ALL_DTYPES]
    dtypes += [word for word in ("int", "unsigned", "float", "double") if word in head]
    same = {"int": "int32", "unsigned": "uint32", "float": "float32", "double": "float64"}
    tried = [same.get(each, each) for each in dtypes] + [
        "int32",
        "uint32",
        "float64",
        "uint64",
        "int64",
        "float32",
    ]
    return [
        (dtype, op) for dtype in dict.fromkeys(tried) for op in ops if takes(op, ALL_DTYPES[dtype])
    ]


def in_turn(*kinds: Iterable[Trial]) -> Iterator[Trial]:
    """One of each kind, then another one of each."""
    left = [iter(kind) for kind in kinds]
    while left:
        for kind in tuple(left):
            trial = next(kind, None)
            if trial is None:
                left.remove(kind)
            else:
                yield trial


def trials(mutant: Mutant) -> Iterator[Trial]:
    """Trials of the cases that come to the place, and those of exact sums and products, in turn.

    In exact's own files, and where only exact kernels come, their own trials have the turn; outside
    cases come first, which are quicker.
    """
    kernels = kernels_of(mutant)
    if mutant.function == "custom_fold_vectors":  # which logsumexp alone has
        for dtype in ("float32", "int8", "float64"):
            yield CUSTOM, dtype, 0, {"do": "operators.check_exponentials", "count": 2}
    place = DEFINITIONS[definition_of(mutant)]
    if place.owner in OF_GIVEN_MEANS or place.name in OF_GIVEN_MEANS:
        yield from given_means_to_try()
    if kernels[0] == CUSTOM:
        yield from operators_to_try()
    if kernels[0] in COPYING:
        yield from rounds_to_try(kernels[0])
    if kernels[0] == CUSTOM_TRAITS:
        yield from named_kernels_to_try()
    if kernels[0] == SEVERAL:
        yield from passes_to_try()
    if kernels[0] == COPIES:
        yield from copies_to_try()
        return
    if kernels[0] == ALONG_AXES:
        yield from sums_along_axes_to_try()
    cases, layouts = cases_to_try(mutant, kernels), exact_layouts_to_try(kernels)
    sums, products = exact_sums_to_try(kernels), products_to_try(kernels)
    variances = variances_to_try(kernels)
    name = Path(mutant.file).name
    if not name.startswith("exact") and not all(kernel.startswith("exact") for kernel in kernels):
        yield from cases
        yield from in_turn(random_layouts_to_try(kernels), layouts, sums, products, variances)
    elif name in SLOW_FLOAT64:
        yield from (
            (*case, what | {"slow_float64": True}) for *case, what in in_turn(sums, layouts)
        )
    else:
        if DEFINITIONS[definition_of(mutant)].owner.startswith("Integer"):
            yield from INTEGERS
        yield from FIRST.get(name, [])
        if kernels[0] in OF_PRODUCTS:
            yield from in_turn(
                *((products, variances) if kernels[0] == "exact_dot" else (variances, products))
            )
        yield from in_turn(sums, layouts, products, variances)
        yield from cases


def given_means_to_try() -> Iterator[Trial]:
    """Infinities in rows of one thread, of many, of several blocks, and of a named kernel."""
    for dtype in ("complex64", "float64"):
        yield "fast_strided", dtype, 64, {"do": "means.check_specials", "limit": 300.0}
    for dtype in ("complex64", "float64"):
        for kernel in ("fast_columns", "fast_stream", "finalize_rows"):
            what = {"do": "layouts.check_made_for", "op": GIVEN_MEAN, "limit": 300.0}
            yield kernel, dtype, 64, what
        what = {"do": "layouts.check_layouts", "op": GIVEN_MEAN, "count": 20, "limit": 300.0}
        yield "fast", dtype, 64, what


def rounds_to_try(kernel: str) -> Iterator[Trial]:
    """Arrays of which one block, and three, have so many tiles that each stage is used again."""
    for dtype, block, grid in (("int32", 64, 1), ("float64", 64, 3), ("uint8", 32, 1)):
        elements = 16 * block // ALL_DTYPES[dtype].itemsize * grid
        what = {"sizes": [elements * 13 + 5, 3 * elements], "rows": [], "grid": grid}
        yield kernel, dtype, block, {"do": "cases.check_case", "ops": ["sum"], **what}


def cases_to_try(mutant: Mutant, kernels: list[str]) -> Iterator[Trial]:
    """Each kernel with the types and operators that come to the place."""
    if (
        "fast_columns" in kernels[:1]
    ):  # of its largest blocks a thread's columns go down in several steps
        yield "fast_columns", "float32", 1024, {"do": "layouts.check_made_for", "op": "var"}
        yield "fast_columns", "uint8", 1024, {"do": "layouts.check_made_for", "op": "max"}
    others = (*OF_PRODUCTS, ALONG_AXES, BY_PAIRS, CUSTOM, CUSTOM_TRAITS, SEVERAL, COPIES)
    kernels = [kernel for kernel in kernels if kernel not in others]
    if not kernels:
        return
    cases = cases_of(mutant)
    # The nearest kernels, of which some may not come there after all; the nearest of all in each
    # case; and the rest.
    near = [
        *((kernel, cases[0]) for kernel in kernels[:3]),
        *((kernel, case) for kernel in kernels[:1] for case in cases),
    ]
    rest = [(kernel, case) for case in cases for kernel in kernels]
    for kernel, (dtype, op) in dict.fromkeys([*near, *rest]):
        if op == GIVEN_MEAN and (kernel not in MADE_FOR or kernel.startswith("exact")):
            continue
        for block in (
            (32,) if kernel in KERNELS and KERNELS[kernel].block_rule == "32" else (256, 64)
        ):
            yield kernel, dtype, block, what_to_do(mutant, kernel, op)
    for kernel in (
        kernel for kernel in kernels if kernel in KERNELS and not kernel.startswith("exact")
    ):
        dtype, op = cases_of(mutant)[0]
        yield kernel, dtype, 32, what_to_do(mutant, kernel, op)


def random_layouts_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Random layouts, with masks, for what kernel fast has for layouts."""
    if any(kernel in MADE_FOR and not kernel.startswith("exact") for kernel in kernels):
        for op in ("sum", "var", "argmax", "mean", "min", "minmax", "count_nonzero", "prod"):
            for dtype in ("float32", "int16"):
                yield (
                    "fast",
                    dtype,
                    64,
                    {"do": "layouts.check_layouts", "op": op, "count": 20, "limit": 300.0},
                )


def what_to_do(mutant: Mutant, kernel: str, op: str) -> dict[str, object]:
    """The part of a task that differs between kernels with names of their own and those of fast's
    for layouts, and where accumulators are filled.
    """
    if kernel in MADE_FOR:
        return {"do": "layouts.check_made_for", "op": op}
    what = {
        "do": "cases.check_case",
        "ops": [op],
        "sizes": [33, 5001, 300],
        "rows": [(33, 70), (3, 9), (1000, 2)],
    }
    if mutant.function == FILL:
        what["rows"] = [(33, 70), FULL]
    return what


def copies_to_try() -> Iterator[Trial]:
    """Results of rows that are the same along any axes, one or two a row; and more than there are
    threads.
    """
    for op, dtype, n in (
        ("max", "int32", 0), ("minmax", "int16", 0), ("sum", "float64", 0), ("max", "int8", 20),
    ):  # fmt: skip
        what = {"do": "layouts.check_same_rows", "op": op, "n": n, "count": 6, "limit": 300.0}
        yield "fast", dtype, 64, what


def passes_to_try() -> Iterator[Trial]:
    """Several reductions in one pass: folds alone, exact sums, pieces of host arrays."""
    folds = ["min", "max", "argmax", "minmax", "count_nonzero", "any"]
    sums = ["sum", "mean", "nansum", "nanmean", "min", "argmin"]
    counted = ["nanmean", "max"]  # whose divisor is a count
    tuples = (("int32", folds), ("float32", counted), ("float32", sums), ("float64", sums))
    for dtype, ops in (*tuples, ("int16", folds)):
        for block in (64, 256):
            yield (
                SEVERAL,
                dtype,
                block,
                {"do": "several.check_device_arrays", "ops": ops, "count": 4, "limit": 300.0},
            )
    for dtype in ("float32", "int16"):
        yield SEVERAL, dtype, 0, {"do": "several.check_host_arrays", "count": 6, "limit": 300.0}


def variances_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact variances of every layout, if the kernel for no runs comes to the place."""
    if "exact_moments_strided" not in kernels:
        return
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 96, {"do": "exact_variances.check_kinds"}  # a hang is soon found
        yield (
            "exact",
            dtype,
            64,
            {"do": "exact_variances.check_layouts", "count": 4, "limit": 300.0},
        )
    for dtype in ("float64", "complex128"):
        yield "exact", dtype, 32, {"do": "exact_variances.check_intervals", "limit": 300.0}
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 32, {"do": "exact_variances.check_limbs", "stride": 2, "limit": 300.0}
    for dtype in ("complex128", "int64", "int8"):
        yield (
            "exact",
            dtype,
            256,
            {"do": "exact_variances.check_layouts", "count": 8, "limit": 300.0},
        )


def products_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Dot products and variances at the edges of bins and beyond, if a kernel comes there."""
    if not set(OF_PRODUCTS) & set(kernels):
        return
    if "exact_dot" in kernels:
        for dtype in ("float32", "complex64", "int64"):
            yield "exact", dtype, 32, {"do": "exact_products.check_kinds", "limit": 300.0}
        for dtype in ("float64", "float32", "float16"):
            for block in (256, 32):  # one warp fills bins, which takes long
                yield "exact", dtype, block, {"do": "exact_products.check_dot", "count": 8}
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 32, {"do": "exact_products.check_edges", "stride": 1, "limit": 300.0}
    for dtype in ("float64", "float32", "float16"):
        for block in (256, 32):
            yield "exact", dtype, block, {"do": "exact_products.check_variances", "count": 8}
        yield (
            "exact",
            dtype,
            32,
            {"do": "exact_products.check_exponents", "stride": 3, "limit": 300.0},
        )
    for dtype in ("float32", "int64", "complex64"):
        yield "exact", dtype, 32, {"do": "exact_products.check_variance_kinds", "limit": 300.0}


def sums_along_axes_to_try() -> Iterator[Trial]:
    """Exact sums of products, squares and magnitudes along axes."""
    for dtype in ("float32", "int16", "complex64", "float64"):
        yield "exact", dtype, 0, {"do": "exact_axes.check_random", "count": 12, "limit": 600.0}


def operators_to_try() -> Iterator[Trial]:
    """Operators of users' own: random layouts, long rows, masks, chunks of host arrays."""
    for op in ("run", "total", "hash", "largest", "affine"):
        for what in (
            {"do": "operators.check_random", "count": 6},
            {"do": "operators.check_tiles"},
            {"do": "operators.check_masks"},
            {"do": "operators.check_chunks"},
        ):
            yield "custom", "", 0, {**what, "op": op, "limit": 300.0}


def named_kernels_to_try() -> Iterator[Trial]:
    """Kernels of the course with operators of users' own: each way to load and to finish."""
    for kernel, op in (
        ("sequential", "largest"),
        ("shfl_two_pass_vec", "largest"),
        ("shared_atomic", "total"),
        ("last_block_ordered", "affine"),
        ("warp_registers", "run"),
    ):
        what = {"do": "operators.check_named", "op": op, "count": 9, "most": 900}
        yield kernel, "", 0, {**what, "limit": 300.0}


def exact_layouts_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact sums of every layout, if a kernel of theirs comes to the place."""
    if {"exact_rows", "exact_strided", BY_PAIRS} & set(kernels):
        for dtype in ("float32", "float64", "bfloat16"):
            yield "exact", dtype, 64, {"do": "exact_layouts.check_kinds"}
            yield "exact", dtype, 256, {"do": "exact_layouts.check_layouts", "count": 4}
        for dtype in ("float64", "float32"):
            yield "exact", dtype, 0, {"do": "exact_sums.check_rows"}
    if "exact_rows" in kernels:
        yield (
            "exact",
            "float32",
            0,
            {"do": "exact_sums.check_double_double", "rows": 64, "sizes": 4, "limit": 300.0},
        )
    if "exact_strided" in kernels:
        for dtype in ("float32", "float64"):
            yield (
                "exact",
                dtype,
                32,
                {"do": "exact_layouts.check_strided", "stride": 8, "limit": 300.0},
            )
        yield from columns_to_try()


def columns_to_try() -> Iterator[Trial]:
    """Exact sums of rows across memory."""
    for dtype, block in (("float32", 32), ("float64", 64), ("complex64", 32)):
        yield (
            "exact",
            dtype,
            block,
            {"do": "exact_layouts.check_columns", "count": 6, "limit": 300.0},
        )


def exact_sums_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact sums of data at the edges of bins, and beyond, if their kernel comes to the place: rows
    of a tile per warp first, which are quick.
    """
    if "exact" in kernels:
        for dtype, block, blocks in TILES:
            what = {
                "do": "exact_tiles.check_tiles",
                "blocks": blocks,
                "count": 6,
                "only_sums": True,
            }
            yield "exact", dtype, block, what
        for dtype in ("float64", "float32"):
            yield (
                "exact",
                dtype,
                0,
                {"do": "exact_sums.check_lone_outliers", "count": 20, "limit": 300.0},
            )
        yield from RUNS
        for dtype in ("float32", "float64", "bfloat16"):
            yield "exact", dtype, 32, {"do": "exact_sums.check_edges", "stride": 1}
        yield "exact", "float64", 32, {"do": "exact_sums.check_spills", "count": 2, "limit": 300.0}
        for dtype in ("float64", "bfloat16"):
            yield "exact", dtype, 0, {"do": "exact_sums.check_outliers", "limit": 300.0}
        for dtype in ("float64", "float32", "float16"):
            for block in (32, 256):
                yield "exact", dtype, block, {"do": "exact_sums.check_exact", "count": 6}
        yield "exact", "float16", 0, {"do": "exact_sums.check_spills_to_the_end", "limit": 300.0}
