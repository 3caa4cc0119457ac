"""The log directories of one broker: each with its file of replicas, as long as it has not failed, and its checkpoints.

The module owns the files and reports a directory that failed while it was written; `replicas.py` decides the effect on
replicas. A broken directory is neither read nor written. The file of replicas holds JSON lines, and the newest line
about a replica counts. It is appended to before a request is answered, and rewritten when it is opened and when it has
grown too long. A line torn by a crash belongs to no answered request, so it is left out.

A checkpoint holds the high watermarks of many partitions, in Kafka's format of version 0. It is written now and then,
as a whole, so it may be old: a high watermark that is too low is learned again from the leader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from brokerstub.replicas import Replica, RequestEffects, SetAside
from controller.base.files import write_atomically
from controller.core.model import TopicIdPartition

#: since it was rewritten last, so many lines may be added before it is again
LINES_ADDED_MAX: Final = 100_000


class DamagedLogError(OSError):
    """Not this module's format: as bad as a disk that cannot be read."""


class _Line(msgspec.Struct, omit_defaults=True):
    """A replica as it now is, or that it is gone (no topic)."""

    topic_id: str
    partition: int
    topic: str | None = None
    log_id: str = ""
    leader_epochs: tuple[int, ...] = ()
    stray: SetAside | None = None


class ReplicaLog:
    """The file `replicas.jsonl` of the log directory with this index."""

    def __init__(self, path: Path, index: int = 0, lines_added_max: int = LINES_ADDED_MAX) -> None:
        self._path = path
        self._lines_added_max = lines_added_max
        self._encoder = msgspec.json.Encoder()
        #: as found when opened
        self.found = _read(path, index)
        self._rewrite(self.found.values())

    def close(self) -> None:
        self._file.close()

    def write(
        self, written: Sequence[Replica], deleted: Sequence[Replica], everything: Callable[[], Iterable[Replica]]
    ) -> None:
        """Records replicas made or changed, and deleted. `everything` returns all replicas of the directory."""
        self._added += len(written) + len(deleted)
        if self._added > self._lines_added_max:
            self._file.close()
            self._rewrite(everything())
        else:
            tombstones = [_Line(one.topic_id, one.partition) for one in deleted]
            rest = memoryview(self._encoder.encode_lines([*map(_line_of, written), *tombstones]))
            while rest:
                rest = rest[self._file.write(rest) :]

    def _rewrite(self, everything: Iterable[Replica]) -> None:
        write_atomically(self._path, self._encoder.encode_lines([_line_of(one) for one in everything]))
        self._added = 0
        self._file: Any = self._path.open("ab", buffering=0)


def _line_of(replica: Replica) -> _Line:
    """The directory is where the line is."""
    return _Line(
        replica.topic_id, replica.partition, replica.topic, replica.log_id, replica.leader_epochs, replica.stray
    )


def _read(path: Path, index: int) -> dict[TopicIdPartition, Replica]:
    found: dict[TopicIdPartition, Replica] = {}
    data = path.read_bytes() if path.exists() else b""
    try:
        lines = msgspec.json.Decoder(_Line).decode_lines(data[: data.rfind(b"\n") + 1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedLogError(f"{path}: {error}: move it away, and this directory starts without replicas") from None
    for line in lines:
        if line.topic is None:
            found.pop((line.topic_id, line.partition), None)
        else:
            replica = Replica(
                line.topic, line.topic_id, line.partition, line.log_id, line.leader_epochs, index, line.stray
            )
            found[replica.key] = replica
    return found


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
        """Returns the replicas that were on the disks when they were opened."""
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

    def write(self, taken: RequestEffects, everything: Callable[[int], Iterable[Replica]]) -> list[int]:
        """Records the changes of a request. Returns the directories that could not be written."""
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


#: Kafka's name of this file, in each log directory
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_VERSION: Final = "0"
_LINE: Final = re.compile(r"(\S+) ([0-9]{1,10}) ([0-9]{1,19})")

#: by topic and number
Offsets = Mapping[tuple[str, int], int]


class DamagedCheckpointError(OSError):
    """Not the format written here: as bad as a disk that cannot be read."""


def encode_offsets(offsets: Offsets) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_offsets(data: bytes) -> dict[tuple[str, int], int]:
    try:
        version, count, *lines = data.decode("ascii").splitlines()
    except ValueError:
        raise DamagedCheckpointError("no version and count: remove the file, and offsets are learned again") from None
    found = [match for line in lines if (match := _LINE.fullmatch(line))]
    if version != _VERSION or count != str(len(lines)) or len(found) != len(lines):
        raise DamagedCheckpointError(
            f"version {version!r}, {count!r} lines said and {len(found)} of {len(lines)} understood: remove the file,"
            " and offsets are learned again"
        )
    return {(match[1], int(match[2])): int(match[3]) for match in found}
