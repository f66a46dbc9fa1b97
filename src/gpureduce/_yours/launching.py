"""A kernel of the user's own on a GPU, launched as its text says: :class:`LoadedKernel`.

The program is compiled by NVRTC once per device, element type and block size, and stays loaded as
long as the kernel lives.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from .. import _core
from .._emulator_process import EndedBySignalError, module_path, run_worker
from .._exceptions import CudaError, KernelUnavailableError
from .._kernel_names import KernelName
from .._records import DeviceInfo, LastRun, note_run, without_advice
from .._ufuncs import UFUNCS
from .host_headers import include_folders
from .kernel_form import C_TYPES, KernelForm
from .program_text import (
    Places,
    arguments,
    blocks_for,
    does_not_compile,
    dtypes_of,
    fixed_dtypes,
    further_launches,
    identity,
    roles,
    set_value,
    shared_bytes,
    takes_block,
    write,
)
from .targets import (
    MOST_BLOCKS,
    RESIDENT_THREADS,
    cooperative_blocks,
    find_device,
    is_emulated,
)

__all__ = [
    "DEFAULT_BLOCK",
    "LoadedKernel",
    "Programs",
    "compile_for",
    "device_of",
    "lost_context",
    "program_key",
    "run_trial",
    "types_of",
]

DEFAULT_BLOCK = 256
Programs = dict[tuple[int, str, int], Any]
"""Loaded images by device, dtype of the elements, and the block size where a template takes it."""
_TICKET_BYTES = 16
"""Also what outputs are aligned to."""
_MOST_TRIED = 1 << 22
"""Elements of a first launch in another process."""
BREAKS = frozenset(
    f"CUDA_ERROR_{word}"
    for word in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "ILLEGAL_INSTRUCTION",
        "HARDWARE_STACK_ERROR",
        "ASSERT",
    )
)
"""Results after which a context is of no use any more."""
_TRIAL_WORKER = "gpureduce._yours.trial_worker"
_SECONDS_TO_BEGIN = 120
"""For a process until its first launch, and for its end."""


def device_of(form: KernelForm, place: str | None) -> DeviceInfo:
    """The GPU that a call runs on.

    Raises
    ------
    KernelUnavailableError
        There is no GPU, or the CPU was asked for.
    ValueError
        There is no device of that name or number.
    """
    ordinal = _core.read_ordinal(place)
    only = (
        f"kernel '{form.name}' runs on GPUs only; gpureduce.check and gpureduce.explain run it "
        "on any machine"
    )
    if ordinal is None:
        raise KernelUnavailableError(f"{only}: device is 'cpu'")
    if (why := _core.why_no_cuda()) is not None:
        raise KernelUnavailableError(f"{only}: {without_advice(why)}")
    return find_device(ordinal)


class LoadedKernel:
    """A kernel that is loaded on a device, for arrays of one type and length.

    Parameters
    ----------
    form : KernelForm
    programs : dict
        Programs of this kernel that are loaded, which this one is added to.
    device : DeviceInfo
    dtype : str
        Of the elements.
    n : int
        Number of elements, 1 or more.
    block_size, grid_size : int or None
        As the reductions take them.
    trial : float
        Seconds for a first launch in a process of its own; 0: there is none.

    Raises
    ------
    TypeError
        The kernel takes other elements.
    ValueError
        It takes no such length, block size or grid size.
    CudaError
        It does not compile, cannot be loaded, or breaks or does not end in its trial.

    Attributes
    ----------
    n, block, grid
        Elements, threads per block, and blocks of the first launch.
    result
        Dtype of the output.
    image
        What is loaded; launches that are queued need it until the stream has passed them.
    is_new, load_seconds
        Whether it was compiled now, and how long that took.
    """

    def __init__(
        self,
        form: KernelForm,
        programs: Programs,
        device: DeviceInfo,
        dtype: str,
        n: int,
        block_size: int | None,
        grid_size: int | None,
        trial: float = 0,
    ) -> None:
        self._form, self._ordinal, self.n = form, device.ordinal, n
        self.block = block_size or form.block_size or DEFAULT_BLOCK
        self._element, self.result = types_of(form, dtype)
        resident = (
            cooperative_blocks(self.block)
            if form.is_cooperative
            else max(1, RESIDENT_THREADS // self.block)
        )
        self._most = grid_size or device.multiprocessors * resident
        self.grid = blocks_for(form, n, self.block, self._most, grid_size)
        _check_launch(form, n, self.block, self.grid, grid_size)
        if self.grid > MOST_BLOCKS:
            raise ValueError(f"an array of {n:,} elements needs more blocks than a grid has")
        start = time.perf_counter()
        key = program_key(form, self._ordinal, dtype, self.block)
        self.image = programs.get(key)
        self.is_new = self.image is None
        if self.is_new:
            image = compile_for(form, device.compute_capability, dtype, self.block)
            if trial > 0:
                self._try(image, dtype, grid_size, trial)
            # Of threads that load it at the same time, the first one's stays.
            self.image = programs.setdefault(key, _core.load_image(device.ordinal, *image))
        self.load_seconds = time.perf_counter() - start

    def _try(
        self, image: tuple[bytes, tuple[str, ...]], dtype: str, grid_size: int | None, trial: float
    ) -> None:
        """Launch the kernel in a process of its own, over elements that are quickly made."""
        tile = self.block * self._form.elements_per_thread
        most = _MOST_TRIED // tile * tile if not self._form.takes_n else _MOST_TRIED
        case: dict[str, Any] = {"n": min(self.n, most), "block_size": self.block}
        case |= {"grid_size": grid_size, "dtype": dtype, "device": self._ordinal}
        try_in_child(self._form, image, case, trial)

    @property
    def output_count(self) -> int:
        """Values that the first launch stores."""
        return 1 if self._form.finish == "atomic" else self.grid

    @property
    def room_bytes(self) -> int:
        """Device memory that launches need: outputs, twice, and a ticket."""
        return 2 * self._output_bytes + _TICKET_BYTES

    @property
    def _output_bytes(self) -> int:
        bytes_ = self.output_count * np.dtype(self.result).itemsize
        return -(-bytes_ // _TICKET_BYTES) * _TICKET_BYTES

    @contextlib.contextmanager
    def room(self) -> Iterator[int]:
        """Address of that memory."""
        pointer = _core.alloc_device(self._ordinal, self.room_bytes)
        try:
            yield pointer
        finally:
            _core.free_device(self._ordinal, pointer)

    def _steps(self) -> list[tuple[int, int]]:
        """Elements and blocks of each launch: a kernel whose output has the elements' type reduces
        its partials again.
        """
        again = self._element == self.result
        return [
            (self.n, self.grid),
            *further_launches(self._form, again, self.grid, self.block, self._most),
        ]

    @property
    def left(self) -> int:
        """Values that the last launch leaves: partials that are more than one are to be folded."""
        return 1 if self._form.finish != "partials" else self._steps()[-1][1]

    def launches(
        self, elements: int, room: int, last: int | None = None
    ) -> tuple[tuple[Any, ...], int]:
        """Launches over an array in device memory, and where they leave their result.

        That is `last`, where it is given and one value is left; else it is in the room.
        """
        form, source = self._form, elements
        bytes_ = shared_bytes(form, self._element, self.block)
        ticket = room + 2 * self._output_bytes
        made: list[Any] = []
        steps = self._steps()
        for i, (n, grid) in enumerate(steps):
            here, other = (room + (i + turn) % 2 * self._output_bytes for turn in (0, 1))
            if i == len(steps) - 1 and last is not None and self.left == 1:
                here = last
            if form.finish == "atomic":
                made.append(set_value(here, identity(form.op, self.result)))
            elif form.has_scratch:
                made.append(set_value(ticket, np.uint32(0)))
            symbol = 1 if i > 0 and "Next" in form.traits else 0
            given = arguments(roles(form), Places(source, here, other, ticket), n, grid)
            made.append((symbol, grid, self.block, bytes_, given, *form.launch_kind(grid)))
            source = here
        return tuple(made), source

    def fold(self, values: np.ndarray[Any, Any]) -> Any:
        """One value of those that launches left."""
        if values.size == 1:
            return values[0]
        return UFUNCS[self._form.op].reduce(values, dtype=values.dtype)

    def reduce(self, elements: int, stream: Any = None) -> Any:
        """Reduce an array in device memory to a NumPy scalar."""
        start = time.perf_counter()
        with self.room() as room:
            launches, output = self.launches(elements, room)
            with lost_context(self._form):
                _core.run_launches(self.image, launches, stream)
            values = np.empty(self.left, self.result)
            _core.download(self._ordinal, output, values)
        self.note(start, len(launches), {})
        return self.fold(values)

    def note(self, start: float, launches: int, stages: dict[str, float]) -> None:
        """Record a call that began at `start`, for ``gpureduce.last_run``."""
        seconds = time.perf_counter() - start
        if self.is_new:
            stages["compile"] = self.load_seconds
        run = LastRun(
            device=f"cuda:{self._ordinal}",
            kernel=cast(KernelName, self._form.name),  # none of the catalogue's
            variant=self._form.name,
            block_size=self.block,
            grid_size=self.grid,
            launches=launches,
            chunks=1,
            elements=self.n,
            bytes=self.n * np.dtype(self._element).itemsize,
            seconds=seconds,
            stages=stages,
            compiled=int(self.is_new),
            cache_hits=0,
        )
        note_run(run)

    def measure(
        self, elements: int, warmup: int, repeats: int, flush_bytes: int, stream: Any = None
    ) -> list[float]:
        """Device times, in seconds, of reductions of an array in device memory."""
        with self.room() as room:
            launches, _ = self.launches(elements, room)
            times = _core.run_launches(self.image, launches, stream, flush_bytes, warmup + repeats)
        return [1e-3 * time for time in times[warmup:]]


def types_of(form: KernelForm, dtype: str) -> tuple[str, str]:
    """Dtypes of elements and output for an array; a ``TypeError`` if the kernel takes others."""
    known = fixed_dtypes(form)
    if known is not None and dtype != known[0]:
        raise TypeError(
            f"kernel '{form.name}' takes {known[0]}, and the array is {dtype}: convert it by "
            f"astype, or change the kernel"
        )
    if known is None and dtype not in C_TYPES.values():
        raise TypeError(f"kernels of your own take no {dtype}")
    return dtypes_of(form, dtype)


def _check_launch(form: KernelForm, n: int, block: int, grid: int, grid_size: int | None) -> None:
    name, tile = form.name, block * form.elements_per_thread
    if not form.takes_block(block):
        raise ValueError(
            f"kernel '{name}' takes blocks of {form.block_words}, not {block}: leave out the block "
            f"size, or change the number in its text ({form.file}:{form.line})"
        )
    if not 1 <= block <= 1024:
        raise ValueError(f"block sizes are from 1 to 1024, not {block}")
    if grid_size is not None and form.cover != "stride":
        raise ValueError(f"kernel '{name}' does not loop over blocks: it takes no grid_size")
    most, why, line = form.most_elements(grid, block)
    if n > most:
        raise ValueError(
            f"kernel '{name}' takes up to {most:,} elements, since {why} (line {line}), and the "
            f"array has {n:,}"
        )
    if not form.takes_n and (n % tile != 0 or (form.cover == "one" and n != tile)):
        raise ValueError(
            f"kernel '{name}' has no n: it takes whole blocks of {tile:,} elements, and the array "
            f"has {n:,}"
        )
    if form.cover == "one" and not form.loops and n > tile:
        raise ValueError(
            f"kernel '{name}' is one block without a loop: it takes up to {tile:,} elements, and "
            f"the array has {n:,}"
        )


def program_key(form: KernelForm, ordinal: int, dtype: str, block: int) -> tuple[int, str, int]:
    """The key of a program among those that are loaded."""
    return ordinal, dtype, block if takes_block(form) else 0


Image = tuple[bytes, tuple[str, ...]]
"""Machine code, and the names of its kernels."""


def run_trial(
    form: KernelForm,
    images: Sequence[Image],
    cases: Sequence[dict[str, Any]],
    seconds: float,
    before: Sequence[str] = (),
) -> str:
    """Launch a kernel over random elements in a process of its own, and return what that prints.

    Each case is a launch: sizes, a dtype, a device, and ``image``, an index of `images`. It has
    `seconds` to end; before it the process may take as long to begin as machines with much to do
    let it. `before` is the command of a program that runs the process.
    """
    state = base64.b64encode(pickle.dumps((form, *images))).decode()
    request = {"state": state, "cases": list(cases), "seconds": seconds}
    limit = _SECONDS_TO_BEGIN + seconds * len(cases)
    return run_worker(_TRIAL_WORKER, request, os.environ | module_path(), limit, before)


def try_in_child(form: KernelForm, image: Image, case: dict[str, Any], seconds: float) -> None:
    """Launch a kernel in a process of its own, over random elements, before it is launched here.

    What keeps the other process from trying it, such as a lack of memory, is no reason not to
    launch it.
    """
    where = f"kernel '{form.name}', in a first launch by a process of its own,"
    try:
        reply = run_trial(form, [image], [case | {"image": 0}], seconds)
    except EndedBySignalError as error:
        raise CudaError(f"{where} ended it: {error}; gpureduce.check says why") from None
    except (RuntimeError, subprocess.TimeoutExpired):
        return
    answer = json.loads(reply.splitlines()[0]) if reply else {}
    if "hang" in answer:
        raise CudaError(
            f"{where} had not ended after {seconds:g} seconds. That process was ended, and this "
            "one can go on; gpureduce.check says where a kernel hangs"
        )
    said = answer.get("error")
    if said is not None and said["details"][0] in BREAKS:
        raise CudaError(
            f"{where} failed: {said['message']}. This process can go on; gpureduce.check says why",
            *said["details"],
        )


@contextlib.contextmanager
def lost_context(form: KernelForm) -> Iterator[None]:
    """Say of a kernel that breaks what it breaks."""
    try:
        yield
    except CudaError as error:
        if error.name not in BREAKS:
            raise
        raise CudaError(
            f"kernel '{form.name}' failed: {error}. The device's context is lost with all arrays "
            "there, also those of other libraries: start a new process. gpureduce.check says why",
            error.name,
            error.number,
            error.call,
            error.log,
        ) from error


def compile_for(
    form: KernelForm,
    capability: tuple[int, int],
    dtype: str | None,
    block: int,
    *,
    line_info: bool = False,
) -> tuple[bytes, tuple[str, ...]]:
    """Image and symbols of the program for a compute capability; with lines of the file for
    debuggers, if asked.
    """
    emulated = is_emulated()
    program = write(form, dtype, block, emulated=emulated)
    options = ["--std=c++17"] + ["--generate-line-info"] * line_info
    if not emulated:
        folders = include_folders(form.file, form.text)
        options += [f"--include-path={folder}" for folder in folders]
    cc = 10 * capability[0] + capability[1]
    try:
        return _core.compile_text(program.name, program.text, program.entries, tuple(options), cc)
    except CudaError as error:
        raise does_not_compile(form, error) from None
