"""The log directories of one broker: each with its file of replicas, as long as it has not failed.

It owns the files and says which directory failed while it was written; what that means for replicas is theirs. A
directory that is broken is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import structlog

from brokerstub.replica_log import ReplicaLog
from brokerstub.replicas import Replica, Taken

FILE: Final = "replicas.jsonl"

log = structlog.get_logger()


class NoLogDirectoryError(OSError):
    """No log directory is left: the process ends, as Kafka's does."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(f"no log directory is left of {', '.join(map(str, paths))}")


class LogDirs:
    """All of them, by their place in `log.dirs`."""

    def __init__(self, paths: Sequence[Path], broken: Iterable[int] = ()) -> None:
        self._paths = paths
        self._logs: dict[int, ReplicaLog] = {}
        for index in range(len(paths)):
            if index not in set(broken):
                self.open(index)
        if not self._logs:
            raise NoLogDirectoryError(paths)

    @property
    def indexes(self) -> range:
        return range(len(self._paths))

    @property
    def broken(self) -> frozenset[int]:
        return frozenset(self.indexes) - self._logs.keys()

    @property
    def found(self) -> list[Replica]:
        """What was on the disks when they were opened."""
        return [replica for one in self._logs.values() for replica in one.found.values()]

    def open(self, index: int) -> list[Replica]:
        """Use a directory from now on; the replicas in it."""
        self._logs[index] = ReplicaLog(self._paths[index] / FILE, index)
        return list(self._logs[index].found.values())

    def fail(self, index: int) -> None:
        """Use it no more. Raises when it was the last one."""
        log.error("log_dir.failed", path=str(self._paths[index]))
        self._logs.pop(index).close()
        if not self._logs:
            raise NoLogDirectoryError(self._paths)

    def write(self, taken: Taken, everything: Callable[[int], Iterable[Replica]]) -> list[int]:
        """Take note of what was taken in; the directories that could not be written."""
        failed = []
        for index in sorted({one.directory for one in (*taken.written, *taken.deleted)}):
            written = [one for one in taken.written if one.directory == index]
            deleted = [one for one in taken.deleted if one.directory == index]
            try:
                self._logs[index].write(written, deleted, lambda index=index: everything(index))  # type: ignore[misc]
            except OSError as error:
                log.error("log_dir.refused", path=str(self._paths[index]), reason=str(error))
                failed.append(index)
        return failed

    def close(self) -> None:
        for one in self._logs.values():
            one.close()
