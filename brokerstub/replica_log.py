"""The replicas of one broker on disk: a file of JSON lines, the newest line about a replica counts.

Appended to before a request is answered, rewritten when it is opened and when it has grown too long. A line torn by
a crash was never answered for, so it is left out. It must never interpret a replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from brokerstub.identity import write_atomically
from brokerstub.replicas import Key, Replica

#: beyond the replicas there are, so many lines may be out of date before the file is rewritten
STALE_LINES_MAX: Final = 100_000


class _Line(msgspec.Struct):
    """A replica as it now is, or that it is gone (no topic)."""

    topic_id: str
    partition: int
    topic: str | None = None
    log_id: str = ""
    leader_epochs: tuple[int, ...] = ()


class ReplicaLog:
    """The file `replicas.jsonl` of a data directory."""

    def __init__(self, path: Path, stale_lines_max: int = STALE_LINES_MAX) -> None:
        self._path = path
        self._stale_lines_max = stale_lines_max
        self._encoder = msgspec.json.Encoder()
        #: as found when opened
        self.found = _read(path)
        self._rewrite(self.found)

    def close(self) -> None:
        self._file.close()

    def write(self, written: Sequence[Replica], deleted: Sequence[Key], held: Mapping[Key, Replica]) -> None:
        """Take note of replicas made or changed, and deleted; `held` are all there are now."""
        self._lines += len(written) + len(deleted)
        if self._lines > len(held) + self._stale_lines_max:
            self._file.close()
            self._rewrite(held)
        else:
            tombstones = [{"topic_id": topic_id, "partition": partition} for topic_id, partition in deleted]
            rest = memoryview(self._encoder.encode_lines([*written, *tombstones]))
            while rest:
                rest = rest[self._file.write(rest) :]

    def _rewrite(self, held: Mapping[Key, Replica]) -> None:
        write_atomically(self._path, self._encoder.encode_lines(list(held.values())))
        self._lines = len(held)
        self._file = self._path.open("ab", buffering=0)


def _read(path: Path) -> dict[Key, Replica]:
    held: dict[Key, Replica] = {}
    data = path.read_bytes() if path.exists() else b""
    for line in msgspec.json.Decoder(_Line).decode_lines(data[: data.rfind(b"\n") + 1]):
        if line.topic is None:
            held.pop((line.topic_id, line.partition), None)
        else:
            replica = Replica(line.topic, line.topic_id, line.partition, line.log_id, line.leader_epochs)
            held[replica.key] = replica
    return held
