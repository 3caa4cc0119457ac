"""A command as a process of its own: how long it takes, and how much memory it and its children have at most."""

from __future__ import annotations

import itertools
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_LOOK_EVERY_S: Final = 0.1
_SHARE: Final = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE | re.ASCII)
_CPU_LOOKS: Final = 5  # the CPU time is looked at as much more seldom


class Spent(NamedTuple):
    """`cpu_s`: of the process and its descendants, which says more than the clock on a machine that is busy. `peak_mb`:
    resident, of all of them together, at the worst moment that was seen; shared memory counts once. `driver_mb`: the
    same of the process and its JVM, without Python's workers."""

    s: float
    cpu_s: float
    peak_mb: float
    driver_mb: float


def run_unwatched(command: Sequence[str]) -> Spent:
    """How long it takes while its memory is not watched, which holds it up; `peak_mb` is of a second run."""
    start, cpu_s = time.perf_counter(), children_cpu_s()
    subprocess.run(command, capture_output=True, check=True)
    took_s, cpu_s = time.perf_counter() - start, children_cpu_s() - cpu_s
    return run(command)._replace(s=took_s, cpu_s=cpu_s)


def run(command: Sequence[str]) -> Spent:
    """Raises CalledProcessError when it fails."""
    start, cpu_s, ended = time.perf_counter(), children_cpu_s(), threading.Event()
    peak_kb = driver_kb = 0
    seen_s = 0.0  # a JVM that its parent does not wait for is not among the children that ended
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:

        def look() -> None:
            nonlocal peak_kb, driver_kb, seen_s
            for number in itertools.count():
                if ended.wait(_LOOK_EVERY_S):
                    return
                all_kb, own_kb = _resident_kb(process.pid)
                peak_kb, driver_kb = max(peak_kb, all_kb), max(driver_kb, own_kb)
                if number % _CPU_LOOKS == 0:
                    seen_s = max(seen_s, family_cpu_s(process.pid))

        looking = threading.Thread(target=look)
        looking.start()
        said, complaint = process.communicate()
        took_s = time.perf_counter() - start
        ended.set()
        looking.join()
    if process.returncode:
        sys.stderr.write(complaint.decode("utf-8", "replace"))
        raise subprocess.CalledProcessError(process.returncode, command, said, complaint)
    return Spent(took_s, max(children_cpu_s() - cpu_s, seen_s), peak_kb / 1_024, driver_kb / 1_024)


def children_cpu_s() -> float:
    """Of all descendants that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def family_cpu_s(root: int) -> float:
    """Of a process and all that it started, whether that lives or has ended."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # user, system, and the same of children that ended
    return sum(spent for pid, spent in ticks.items() if _descends(pid, root, parents)) / os.sysconf("SC_CLK_TCK")


def _resident_kb(root: int) -> tuple[int, int]:
    """Of all of them, and of the process and its JVM; shared memory counts once. A process that ends while it is looked
    at counts no more."""
    parents, names = dict[int, int](), dict[int, str]()
    total = drivers = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(fields[1])
        with suppress(FileNotFoundError, ProcessLookupError):
            names[int(folder.name)] = (folder / "comm").read_text().strip()
    for pid in parents:
        if _descends(pid, root, parents):
            try:
                shares = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            found = _SHARE.search(shares)
            size = 0 if found is None else int(found[1])  # one that has ended has none
            total += size
            drivers += size if pid == root or names.get(pid) == "java" else 0
    return total, drivers


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid and pid != root:
        pid = parents.get(pid, 0)
    return pid == root
