"""The replicas in one log directory: a file of JSON lines, the newest line about a replica counts.

Appended to before a request is answered, rewritten when it is opened and when it has grown too long. A line torn by
a crash was never answered for, so it is left out. It must never interpret a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from brokerstub.identity import write_atomically
from brokerstub.replicas import Key, Replica, SetAside

#: since it was rewritten last, so many lines may be added before it is again
LINES_ADDED_MAX: Final = 100_000


class DamagedLogError(OSError):
    """Not what this module writes: as bad as a disk that cannot be read."""


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
        """Take note of replicas made or changed, and deleted; `everything` is what the directory has now."""
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


def _read(path: Path, index: int) -> dict[Key, Replica]:
    found: dict[Key, Replica] = {}
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
