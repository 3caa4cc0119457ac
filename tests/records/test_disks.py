"""A disk: a folder of this machine and the simulated one pass alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerstub.records.disks import Disk, FolderDisk
from tests.fakes.disk import DeadError, SimulatedDisk

PATHS = st.sampled_from(["a/x", "a/y", "a/z", "b/x", "no/x"])
STEPS = st.one_of(
    st.tuples(st.just("append"), PATHS, st.binary(max_size=20)),
    st.tuples(st.just("truncate"), PATHS, st.integers(0, 20)),
    st.tuples(st.just("replace"), PATHS, st.binary(max_size=20)),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("sync"), PATHS),
    st.tuples(st.just("size"), PATHS),
    st.tuples(st.just("read"), PATHS, st.integers(0, 30), st.integers(0, 30)),
    st.tuples(st.just("names"), st.sampled_from(["", "a", "b", "no"])),
    st.tuples(st.just("sync_folder"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("make_folder"), st.sampled_from(["a", "b", "c", "c/d"])),
    st.tuples(st.just("remove_folder"), st.sampled_from(["a", "b", "c"])),
)


def done(disk: Disk, step: tuple[object, ...]) -> object:
    """Returns the result of a step, or whether it is refused."""
    name, *arguments = step
    try:
        found = getattr(disk, str(name))(*arguments)
    except OSError:
        return OSError
    return sorted(found) if name == "names" else found


@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_the_simulated_disk_behaves_as_a_folder(steps: list[tuple[object, ...]], files_open_max: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, simulated = FolderDisk(Path(folder), files_open_max), SimulatedDisk()
        for step in [("make_folder", "a"), ("make_folder", "b"), *steps]:
            assert done(real, step) == done(simulated, step), step
        real.close()


def test_the_death_of_the_machine_takes_at_most_unsynced_bytes() -> None:
    kept, names = set(), set()
    for seed in range(200):
        disk = SimulatedDisk()
        disk.make_folder("a")
        disk.append("a/x", b"12345")
        disk.sync("a/x")
        disk.sync_folder("a")
        disk.append("a/x", b"678")
        disk.append("a/y", b"")
        disk.remove("a/x") if seed % 2 else disk.append("a/z", b"")
        disk.lose_power(Random(seed))
        names.add(frozenset(disk.names("a")))
        if "x" in disk.names("a"):
            kept.add(disk.read("a/x", 0, 10))
    whole = b"12345678"
    assert kept == {whole[:size] for size in range(5, 9)} | {whole[:size].ljust(8, b"\0") for size in range(5, 8)}
    assert names == {frozenset(one) for one in ("x", "xy", "y", "xyz")}, "in order: z is never there without y"


def test_a_fuse_stops_in_the_middle_of_a_write() -> None:
    disk = SimulatedDisk()
    disk.make_folder("a")
    disk.append("a/x", b"12")
    disk.fuse = 3
    with pytest.raises(DeadError):
        disk.append("a/x", b"34567")
    for step in (("size", "a/x"), ("append", "a/x", b"8"), ("remove", "a/x")):
        with pytest.raises(DeadError):
            done(disk, step)
    disk.revive()
    assert disk.read("a/x", 0, 10) == b"12345"


def test_a_folder_keeps_few_files_open(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path, files_open_max=2)
    for index in range(10):
        disk.append(f"f{index}", b"x")
    files = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink() and one.exists()]
    assert sum(one.is_relative_to(tmp_path) for one in files) == 2
    for index in range(10):
        disk.append(f"f{index}", b"y")
        assert disk.read(f"f{index}", 0, 5) == b"xy"
    disk.close()
