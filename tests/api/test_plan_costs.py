"""Costs of plans: estimated, measured and stored in a file, which is used only if it is valid."""

from __future__ import annotations

from pathlib import Path

import fakes

FILES = "*.costs"

# Stores costs and prints the path of their file.
STORE = """
    from gpureduce import _core
    costs = tuple(2 * each for each in _core.plan_costs(0)["costs"])
    _core.store_costs(0, costs)
    print(_core.plan_costs(0)["path"])
"""

LOOK = """
    from gpureduce import _core
    found = _core.plan_costs(0)
    print(int(found["is_measured"]), found["costs"][3], found["reason"], sep="|")
    works()
"""


def look(tmp_path: Path, **more: str | None) -> tuple[bool, float, str]:
    """In a new process: whether costs are measured, what a round of loads costs, and the reason."""
    measured, load, reason = fakes.run(LOOK, tmp_path, **more).strip().split("|")
    return measured == "1", float(load), reason


def stored(tmp_path: Path) -> Path:
    return Path(fakes.run(STORE, tmp_path).strip())


def test_costs_are_estimates_until_measured_ones_are_stored(tmp_path: Path) -> None:
    measured, load, reason = look(tmp_path)
    assert not measured
    assert "does not exist" in reason
    path = stored(tmp_path)
    assert [path] == list((tmp_path / "cache").glob(FILES))
    assert path.stat().st_mode & 0o777 == 0o600
    assert look(tmp_path) == (True, 2 * load, "")
    lines = path.read_text().splitlines()
    assert lines[0] == "gpureduce plan costs 1"
    assert lines[1].startswith("device ")
    fakes.run("from gpureduce import _core; _core.store_costs(0, None)", tmp_path)
    assert not path.exists()
    assert look(tmp_path)[:2] == (False, load)


def test_a_process_plans_by_costs_that_it_is_given(tmp_path: Path) -> None:
    fakes.run(
        """
        from gpureduce import _core
        works()
        _core.use_costs(0, tuple(3 * each for each in _core.plan_costs(0)["costs"]))
        works()
        _core.use_costs(0, None)
        works()
        with raises(ValueError, "load_ns is 0"):
            _core.use_costs(0, (1, 1, 1, 0.0, 1, 1, 1, 1))
        with raises(ValueError, "merge_ns is nan"):
            _core.store_costs(0, (1, 1, 1, 1, 1, 1, float("nan"), 1))
        with raises(TypeError, "a tuple of 8"):
            _core.use_costs(0, (1.0,))
        with raises(ValueError, "no device"):
            _core.plan_costs(99)
        works()
        """,
        tmp_path,
    )
    assert list((tmp_path / "cache").glob(FILES)) == []


# Stores costs; `path` is their file, `found()` what the library makes of it: it reads the file each
# time, without opening the device.
STORED = """
    import os, pathlib, random
    from gpureduce import _core
    _core.store_costs(0, _core.plan_costs(0)["costs"])
    path = pathlib.Path(_core.plan_costs(0)["path"])
    good = path.read_text()
    found = lambda: _core.plan_costs(0)
    assert found()["is_measured"]
"""


def test_a_damaged_file_is_not_used_and_says_why(tmp_path: Path) -> None:
    fakes.run(
        STORED
        + """
    def with_line(name, line):
        lines = [line if each.startswith(name) else each for each in good.split("\\n")]
        return "\\n".join(lines)

    damaged = {
        "it does not begin with": good[1:],
        "its format is not 1": good.replace("costs 1", "costs 2", 1),
        "line 2 is not 'device ": good.replace("device ", "device another ", 1),
        "line 3 is not 'bytes_per_ns' and a number": good.replace("bytes", "bits", 1),
        "line 6 is not 'load_ns' and a number": with_line("load_ns", "load_ns 1e3"),
        "line 7: block_ns is not from": with_line("block_ns", "block_ns 0.000"),
        "line 10 is not 'partial_ns' and a number": good[: good.rindex("partial")],
        "there are lines after": good + "more\\n",
        "not a text of a few lines": good + "#" * 5000,
    }
    for reason, text in damaged.items():
        path.write_text(text)
        assert not found()["is_measured"]
        assert reason in found()["reason"], (reason, found())
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(300):
        content = bytearray(good.encode())
        for _ in range(rng.randrange(1, 6)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        now = found()
        assert now["is_measured"] == (now["reason"] == ""), (seed, content)
        assert all(0 < cost <= 1e6 for cost in now["costs"]), (seed, content)
    works()
    """,
        tmp_path,
    )


def test_a_file_that_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    fakes.run(
        STORED
        + """
    path.chmod(0o620)
    assert "this user alone can write" in found()["reason"]
    path.chmod(0o600)
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "or is a link" in found()["reason"]
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "not a regular file" in found()["reason"]
    path.unlink()
    elsewhere.rename(path)
    assert found()["is_measured"]
    path.parent.chmod(0o770)
    assert "not this user's alone" in found()["reason"]
    works()
    """,
        tmp_path,
    )


def test_without_a_cache_there_are_no_measured_costs(tmp_path: Path) -> None:
    stored(tmp_path)
    measured, _, reason = look(tmp_path, GPUREDUCE_CACHE_BYTES="0")
    assert not measured
    assert reason == "GPUREDUCE_CACHE_BYTES is 0"
    fakes.run(
        """
        from gpureduce import _core
        with raises(OSError, "GPUREDUCE_CACHE_BYTES is 0"):
            _core.store_costs(0, _core.plan_costs(0)["costs"])
        """,
        tmp_path,
        GPUREDUCE_CACHE_BYTES="0",
    )


def test_clearing_the_cache_keeps_what_was_measured(tmp_path: Path) -> None:
    path = stored(tmp_path)
    left_over = path.with_name(f".{path.name}.1.0")
    left_over.write_bytes(b"")
    fakes.run("gr.clear_cache()", tmp_path)
    assert path.exists()
    assert not left_over.exists()
