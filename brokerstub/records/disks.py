"""The disk as a log needs it, and a folder of this machine as one.

Paths are relative, with `/`. A write that fails raises OSError, and how much of it was done is not known. Written data
survive the death of this process. Synced data also survive that of the machine, if their folder was synced since the
file was made or removed.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from brokerstub.records.batches import Bytes
from controller.base.files import write_atomically

#: open at a time, in one folder: far fewer than partitions have segments
FILES_OPEN_MAX: Final = 256


class Disk(Protocol):
    """One log directory."""

    def make_folder(self, folder: str) -> None:
        """Also its parents; it may be there."""

    def remove_folder(self, folder: str) -> None:
        """An empty one."""

    def names(self, folder: str) -> list[str]:
        """Of files and folders in it, in no order."""

    def size(self, path: str) -> int:
        """In bytes."""

    def read(self, path: str, position: int, size: int) -> bytes:
        """Fewer bytes only where the file ends."""

    def append(self, path: str, data: Bytes) -> None:
        """At its end; a file that is not there is made."""

    def truncate(self, path: str, size: int) -> None:
        """Keep its first bytes."""

    def replace(self, path: str, data: bytes) -> None:
        """Replaces a small file as a whole, synced: after any death it is the old one or the new one."""

    def remove(self, path: str) -> None:
        """A file; it may be gone."""

    def sync(self, path: str) -> None:
        """The content of the file will survive the death of the machine."""

    def sync_folder(self, folder: str) -> None:
        """Which files there are will survive the death of the machine."""

    def close(self) -> None:
        """Closes the open files; a file is opened again when it is needed."""


class FolderDisk:
    """A folder. Files stay open until others were used more recently."""

    def __init__(self, root: Path, files_open_max: int = FILES_OPEN_MAX) -> None:
        self._root = root
        self._files_open_max = files_open_max
        self._open: OrderedDict[str, int] = OrderedDict()

    def close(self) -> None:
        """Let go of all files; they are opened again when they are needed."""
        while self._open:
            os.close(self._open.popitem()[1])

    def make_folder(self, folder: str) -> None:
        (self._root / folder).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, folder: str) -> None:
        (self._root / folder).rmdir()

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self._root / folder).iterdir()]

    def size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def read(self, path: str, position: int, size: int) -> bytes:
        return os.pread(self._file(path), size, position)

    def append(self, path: str, data: Bytes) -> None:
        file, rest = self._file(path, os.O_CREAT), memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]

    def truncate(self, path: str, size: int) -> None:
        os.ftruncate(self._file(path), size)

    def replace(self, path: str, data: bytes) -> None:
        self._forget(path)
        write_atomically(self._root / path, data)

    def remove(self, path: str) -> None:
        self._forget(path)
        (self._root / path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        os.fdatasync(self._file(path))

    def sync_folder(self, folder: str) -> None:
        file = os.open(self._root / folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def _file(self, path: str, more: int = 0) -> int:
        file = self._open.get(path)
        if file is None:
            while len(self._open) >= self._files_open_max:
                os.close(self._open.popitem(last=False)[1])
            file = self._open[path] = os.open(self._root / path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | more, 0o600)
        else:
            self._open.move_to_end(path)
        return file

    def _forget(self, path: str) -> None:
        if (file := self._open.pop(path, None)) is not None:
            os.close(file)
