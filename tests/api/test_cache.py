"""The disk cache from Python: hits need no compiler, and faults of the cache raise no error."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import fakes
import pytest

# Reduces with a few kernels and prints how many programs were compiled and read from the disk.
WORK = """
    compiled = hits = 0
    for kernel in ("auto", "sequential", "shfl_atomic"):
        for dtype in (np.int32, np.float64):
            a = np.arange(1000, dtype=dtype)
            assert gr.sum(a, kernel=kernel, device="cuda") == 499500
            compiled += gr.last_run().compiled
            hits += gr.last_run().cache_hits
    assert nvrtc.fake_nvrtc_compiles() == compiled
    print(compiled, hits)
"""
PROGRAMS = 6


def work(tmp_path: Path, **more: str | None) -> tuple[int, int]:
    """Do the work in a new process; returns programs compiled and read from the disk."""
    compiled, hits = map(int, fakes.run(WORK, tmp_path, **more).split())
    assert compiled + hits == PROGRAMS
    return compiled, hits


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.gpr"))


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert work(tmp_path) == (PROGRAMS, 0)
    assert work(tmp_path) == (0, PROGRAMS)
    assert len(entries(tmp_path)) == PROGRAMS


def test_within_a_process_programs_are_kept_without_the_disk(tmp_path: Path) -> None:
    fakes.run(
        """
        for i in range(3):
            works()
            assert gr.last_run().compiled == (i == 0) and gr.last_run().cache_hits == 0
        assert nvrtc.fake_nvrtc_compiles() == 1
        """,
        tmp_path,
        GPUREDUCE_CACHE_BYTES="0",
    )


@pytest.mark.parametrize(
    "other",
    [{"nvrtc": "version=12080"}, {"cuda": "cc=80"}, {"nvrtc": "archs=75:80"}],
    ids=["NVRTC", "GPU", "target"],
)
def test_another_compiler_or_gpu_is_another_entry(other: dict[str, str], tmp_path: Path) -> None:
    assert work(tmp_path) == (PROGRAMS, 0)
    assert work(tmp_path, **other) == (PROGRAMS, 0)
    assert len(entries(tmp_path)) == 2 * PROGRAMS
    assert work(tmp_path) == (0, PROGRAMS)


# ---------------------------------------------------------------- damage


def flip(path: Path, fraction: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(fraction * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path, fraction: float) -> None:
    os.truncate(path, int(fraction * path.stat().st_size))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has all programs."""
    folder = tmp_path_factory.mktemp("filled")
    assert work(folder) == (PROGRAMS, 0)
    return folder / "cache"


@pytest.mark.parametrize(
    "damage",
    [
        *[lambda path, f=f: flip(path, f) for f in (0, 0.02, 0.05, 0.3, 0.6, 0.9, 1)],
        *[lambda path, f=f: truncate(path, f) for f in (0, 0.01, 0.5, 0.99)],
        lambda path: path.write_bytes(b"x" * 100_000),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        lambda path: shutil.copy(next(p for p in path.parent.iterdir() if p != path), path),
    ],
    ids=lambda _: "",
)
def test_a_damaged_entry_is_compiled_anew(
    damage: Callable[[Path], object], filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "cache")
    damage(entries(tmp_path)[1])
    assert work(tmp_path) == (1, PROGRAMS - 1)
    if not entries(tmp_path)[1].is_dir():
        assert work(tmp_path) == (0, PROGRAMS)  # it was replaced


# ---------------------------------------------------------------- directories


def make_file(cache: Path) -> None:
    cache.write_text("")


def make_link(cache: Path) -> None:
    (cache.parent / "elsewhere").mkdir(mode=0o700)
    cache.symlink_to(cache.parent / "elsewhere")


def make_public(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)


@pytest.mark.parametrize("prepare", [make_file, make_link, make_public])
def test_a_directory_that_cannot_be_trusted_is_not_used(
    prepare: Callable[[Path], None], tmp_path: Path
) -> None:
    prepare(tmp_path / "cache")
    for _ in range(2):
        assert work(tmp_path) == (PROGRAMS, 0)
    fakes.run("assert gr.cache_info().directory == '' and gr.cache_info().reason", tmp_path)
    assert [p for p in tmp_path.rglob("*") if "gpr" in p.name] == []


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    for place in ("/proc/nowhere", "/dev/null/x", "/" + "x" * 5000):
        assert work(tmp_path, GPUREDUCE_CACHE_DIR=place) == (PROGRAMS, 0)
    if os.geteuid() != 0:
        (tmp_path / "cache").mkdir(mode=0o500)
        assert work(tmp_path) == (PROGRAMS, 0)


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    full = "import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))"
    out = fakes.run(f"\n    {full}{WORK}    print(gr.cache_info().faults)", tmp_path)
    assert out.split() == [str(PROGRAMS), "0", str(PROGRAMS)]
    assert [p.name for p in (tmp_path / "cache").iterdir()] == []
    assert work(tmp_path) == (PROGRAMS, 0)
    assert work(tmp_path) == (0, PROGRAMS)


# ---------------------------------------------------------------- size, switch, clearing


def test_the_least_recently_used_entries_make_way(tmp_path: Path) -> None:
    assert work(tmp_path) == (PROGRAMS, 0)
    paths = entries(tmp_path)
    for age, path in enumerate(paths):
        os.utime(path, (1e9 - age, 1e9 - age))
    room = sum(p.stat().st_size for p in paths)
    fakes.run(
        """
        gr.sum(np.ones(1000, np.float32), kernel="sequential", device="cuda")
        assert gr.cache_info().bytes <= gr.cache_info().limit_bytes
        """,
        tmp_path,
        GPUREDUCE_CACHE_BYTES=str(room),
    )
    kept = [path.exists() for path in paths]
    assert kept[0]
    assert not kept[-1]
    assert kept == sorted(kept, reverse=True), "an older entry outlived a younger one"


def test_zero_bytes_is_off(tmp_path: Path) -> None:
    for _ in range(2):
        assert work(tmp_path, GPUREDUCE_CACHE_BYTES="0") == (PROGRAMS, 0)
    assert not (tmp_path / "cache").exists()
    out = fakes.run("print(gr.cache_info().reason)", tmp_path, GPUREDUCE_CACHE_BYTES="0")
    assert "GPUREDUCE_CACHE_BYTES" in out


def test_clearing_removes_entries_and_loaded_programs(tmp_path: Path) -> None:
    fakes.run(
        """
        works()
        assert gr.cache_info().entries == 1 and cuda.fake_live(b"modules") == 1
        gr.clear_cache()
        assert gr.cache_info().entries == 0 and cuda.fake_live(b"modules") == 1
        works()
        assert nvrtc.fake_nvrtc_compiles() == 1
        gr.clear_cache(loaded=True)
        assert cuda.fake_live(b"modules") == 0
        works()
        assert nvrtc.fake_nvrtc_compiles() == 2 and gr.cache_info().entries == 1
        """,
        tmp_path,
    )


def test_clearing_while_threads_work_is_safe(tmp_path: Path) -> None:
    fakes.run(
        """
        cuda.fake_set_delays(5, 300)
        stop, failures = threading.Event(), []

        def work():
            while not stop.is_set():
                try:
                    works()
                except BaseException as error:
                    failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(20):
            gr.clear_cache(loaded=True)
            time.sleep(0.01)
        stop.set()
        for t in threads:
            t.join()
        assert failures == []
        """,
        tmp_path,
    )


def test_processes_that_start_at_once_share_a_cache(tmp_path: Path) -> None:
    env = fakes.environment(tmp_path)
    processes = [fakes.start(WORK, env) for _ in range(5)]
    for process in processes:
        assert sum(map(int, fakes.finish(process).split())) == PROGRAMS
    assert len(entries(tmp_path)) == PROGRAMS
    assert [p.name for p in (tmp_path / "cache").iterdir() if p.suffix != ".gpr"] == []
    assert work(tmp_path) == (0, PROGRAMS)


def test_a_process_killed_at_any_moment_leaves_a_usable_cache(tmp_path: Path) -> None:
    env = fakes.environment(tmp_path)
    script = """
        print("ready", flush=True)
        while True:
            gr.clear_cache(loaded=True)
            works()
    """
    for delay in (0.001, 0.013, 0.05):
        process = fakes.start(script, env)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        signal.sigtimedwait([], delay)
        process.kill()
        process.communicate()
        compiled, hits = work(tmp_path)
        assert compiled + hits == PROGRAMS
        shutil.rmtree(tmp_path / "cache")
