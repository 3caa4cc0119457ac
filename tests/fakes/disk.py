"""A disk in memory that dies like a real one, for tests and the simulator. `tests/records/test_disks.py` holds it to a
folder.

The death of a process takes unwritten bytes: `fuse` says how many steps are left until then, a step being a byte
appended or another operation; the one at which it burns out is done in part. The death of the machine
(`lose_power`) may also take, of each file, any part of the tail that was not synced, or leave zeros in its place; and
of files made, truncated and removed in a folder the last ones, in order, since file systems keep a journal of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

from brokerstub.records.batches import Bytes


class DeadError(Exception):
    """The process is no more. Only the test that killed it catches this."""


class SimulatedDisk:
    """One log directory. Give it to the next process after `revive`."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._folders: set[str] = {""}
        #: by folder, what is in it
        self._names: defaultdict[str, dict[str, None]] = defaultdict(dict)
        #: how much of a file is synced
        self._synced: dict[str, int] = {}
        #: by folder, changes that the machine's death may undo: the path (its file syncs a truncation), and how
        self._undo: dict[str, list[tuple[str, bool, Callable[[], None]]]] = {}
        #: None: it never burns out
        self.fuse: int | None = None
        #: steps of all processes
        self.steps = 0

    def revive(self) -> None:
        """Another process uses the disk, after the death of the one before it."""
        self.fuse = None

    def lose_power(self, random: Random) -> None:
        """The machine dies and comes back."""
        self.revive()
        for undo in self._undo.values():
            for _, _, back in reversed(undo[random.randint(0, len(undo)) :]):
                back()
            undo.clear()
        for path, data in self._files.items():
            synced = min(self._synced.get(path, 0), len(data))
            kept = random.randint(synced, len(data))
            zeros = random.choice([0, 0, len(data) - kept])
            data[kept:] = bytes(zeros)
            self._synced[path] = len(data)

    def make_folder(self, folder: str) -> None:
        self._step()
        while folder not in self._folders:
            self._folders.add(folder)
            self._enter(folder)
            folder = _folder_of(folder)

    def remove_folder(self, folder: str) -> None:
        self._step()
        if self.names(folder):
            raise OSError(f"{folder} is not empty")
        self._folders.remove(folder)
        self._leave(folder)

    def names(self, folder: str) -> list[str]:
        if folder not in self._folders:
            raise FileNotFoundError(folder)
        return list(self._names[folder])

    def size(self, path: str) -> int:
        self._check()
        return len(self._file(path))

    def read(self, path: str, position: int, size: int) -> bytes:
        self._check()
        return bytes(self._file(path)[position : position + size])

    def append(self, path: str, data: Bytes) -> None:
        self._check()
        if path not in self._files:
            self._step()
            self._check_folder(path)
            self._files[path] = bytearray()
            self._enter(path)
            self._synced[path] = 0
            self._note(path, lambda: self._forget(path))
        kept = len(data) if self.fuse is None else min(len(data), self.fuse)
        self._files[path] += memoryview(data)[:kept]
        self.steps += kept
        if self.fuse is not None:
            self.fuse -= kept
            if kept < len(data):
                raise DeadError

    def truncate(self, path: str, size: int) -> None:
        self._step()
        file = self._file(path)
        before = bytes(file)

        def back() -> None:
            self._files[path] = bytearray(before)

        if size < len(before):
            self._note(path, back, is_truncation=True)
        del file[size:]
        file += bytes(size - len(file))
        self._synced[path] = min(self._synced[path], size)

    def replace(self, path: str, data: bytes) -> None:
        self._step()
        self._check_folder(path)
        self._files[path] = bytearray(data)
        self._enter(path)
        self._synced[path] = len(data)
        self._undo.pop(_folder_of(path), None)

    def remove(self, path: str) -> None:
        self._step()
        if path in self._files:
            before, synced = self._files.pop(path), self._synced.pop(path)
            self._leave(path)

            def back() -> None:
                self._files[path], self._synced[path] = before, synced
                self._enter(path)

            self._note(path, back)

    def sync(self, path: str) -> None:
        self._step()
        self._synced[path] = len(self._file(path))
        undo = self._undo.get(_folder_of(path), [])
        undo[:] = [one for one in undo if not (one[1] and one[0] == path)]

    def sync_folder(self, folder: str) -> None:
        self._step()
        self.names(folder)
        self._undo.pop(folder, None)

    def close(self) -> None:
        """Nothing is open."""

    def _step(self) -> None:
        """One operation that changes something."""
        self._check()
        self.steps += 1
        if self.fuse is not None:
            self.fuse -= 1

    def _check(self) -> None:
        if self.fuse is not None and self.fuse <= 0:
            raise DeadError

    def _file(self, path: str) -> bytearray:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def _check_folder(self, path: str) -> None:
        if _folder_of(path) not in self._folders:
            raise FileNotFoundError(path)

    def _note(self, path: str, back: Callable[[], None], *, is_truncation: bool = False) -> None:
        self._undo.setdefault(_folder_of(path), []).append((path, is_truncation, back))

    def _enter(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._names[folder][name] = None

    def _leave(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._names[folder].pop(name, None)

    def _forget(self, path: str) -> None:
        self._files.pop(path, None)
        self._synced.pop(path, None)
        self._leave(path)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
