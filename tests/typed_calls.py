"""What type checkers make of calls: mypy reads this file, nothing runs it."""

from typing import Any, assert_type, cast

import numpy as np
from numpy.typing import NDArray

import gpureduce as gr


class OnDevice:
    """An array of a library that has arrays on GPUs."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise NotImplementedError


def scalars(a: NDArray[np.float32], n: NDArray[np.int16], some: list[int]) -> None:
    assert_type(gr.sum(a), np.float32)
    assert_type(gr.mean(a, where=a > 0), np.float32)
    assert_type(gr.sum(n), np.number[Any])
    assert_type(gr.sum(a, dtype=np.float64, device="cpu"), np.number[Any])
    assert_type(gr.nanprod(some), np.number[Any])
    assert_type(gr.min(n), np.int16)
    assert_type(gr.bitwise_xor(n, initial=3), np.int16)
    assert_type(gr.ptp(a), np.float32)
    assert_type(gr.any(n), np.bool)
    assert_type(gr.argmax(a), np.intp)
    assert_type(gr.count_nonzero(some), np.intp)
    assert_type(gr.std(n, ddof=1), np.inexact[Any])
    assert_type(gr.minmax(a), gr.MinMax)
    assert_type(gr.dot(a, a), np.float32)
    assert_type(gr.dot(a, some, dtype=np.float64), np.float64)
    assert_type(gr.dot(a, some), Any)
    assert_type(gr.dot(a, a, dtype="float64", device="cpu"), Any)


def arrays(a: NDArray[np.float32], out: NDArray[np.float64]) -> None:
    assert_type(gr.sum(a, out=out), NDArray[np.float64])
    assert_type(gr.nanvar(a, axis=0, out=out), NDArray[np.float64])
    assert_type(gr.max(a, keepdims=True), NDArray[Any])
    assert_type(gr.argmin(a, keepdims=True), NDArray[np.intp])
    assert_type(gr.sum(a, axis=0), Any)


def structured(a: NDArray[np.void]) -> None:
    """Their fields are not in their types."""
    assert_type(gr.sum(a), Any)
    assert_type(gr.mean(a, axis=0), Any)
    assert_type(gr.argmax(a), Any)
    assert_type(gr.count_nonzero(a), Any)
    assert_type(gr.max(a), np.void)


def device_arrays(a: OnDevice, out: OnDevice) -> None:
    assert_type(gr.sum(a), OnDevice)
    assert_type(gr.var(a, axis=0, correction=1, stream=7), OnDevice)
    assert_type(gr.nanmax(a, axis=(0, 1), out=out), OnDevice)
    assert_type(gr.count_nonzero(a), OnDevice)


def kernels(a: NDArray[np.float32], named: gr.KernelName, text: str) -> None:
    """Names that the registry has pass, as do those that the package returns."""
    gr.sum(a, kernel="reduce3")
    gr.max(a, kernel=named)
    gr.dot(a, a, kernel="exact")
    gr.benchmark("shfl_atomic", a, kernel=None)
    gr.benchmark(gr.sum, a, kernel="auto")
    gr.compare(a, "auto")
    gr.compare(a, ["reduce0", "auto"])
    gr.compare(a, [info.name for info in gr.kernels()])
    gr.explain(("reduce0", "reduce1"))
    gr.kernel_source("interleaved_modulo")
    for info in gr.kernels():
        gr.mean(a, kernel=info.name)
    gr.mean(a, kernel=cast(gr.KernelName, text))  # of a file or a command line, say
    run = gr.last_run()
    if run is not None:
        gr.sum(a, kernel=run.kernel)
    mine = gr.Kernel(text)
    gr.sum(a, kernel=mine)
    gr.explain([mine, "sequential"])
    gr.check(mine)


def unknown_kernels(a: NDArray[np.float32], text: str) -> None:
    gr.sum(a, kernel="typo")  # type: ignore[call-overload]
    gr.sum(a, kernel=text)  # type: ignore[call-overload]
    gr.argmax(a, kernel="reduce7")  # type: ignore[call-overload]
    gr.dot(a, a, kernel="reduce0")  # type: ignore[call-overload]
    gr.benchmark("typo", a)  # type: ignore[arg-type]
    gr.benchmark(gr.sum, a, kernel="typo")  # type: ignore[arg-type]
    gr.compare(a, "typo")  # type: ignore[arg-type]
    gr.compare(a, ["auto", "typo"])  # type: ignore[list-item]
    gr.explain("typo")  # type: ignore[call-overload]
    gr.explain(["typo"])  # type: ignore[list-item]
    gr.kernel_source("typo")  # type: ignore[arg-type]


def refused(a: NDArray[np.float32]) -> None:
    gr.min(a, dtype=np.float32)  # type: ignore[call-overload]
    gr.any(a, initial=True)  # type: ignore[call-overload]
    gr.argmin(a, axis=(0, 1))  # type: ignore[call-overload]
    gr.sum(a, kernal="auto")  # type: ignore[call-overload]
    gr.dot(a, a, out=a)  # type: ignore[call-overload]
    gr.count_nonzero(a, out=a)  # type: ignore[call-overload]
