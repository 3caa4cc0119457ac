"""Offsets of many partitions in one file, in Kafka's format of version 0: high watermarks and log starts.

Such a file is written now and then, as a whole. What it says may be old: a high watermark that is too low is learned
again from the leader, a log start from the segments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Kafka's names of these files, in each log directory
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
_VERSION: Final = "0"
_LINE: Final = re.compile(r"(\S+) ([0-9]{1,10}) ([0-9]{1,19})")

#: by topic and number
Offsets = Mapping[tuple[str, int], int]


class DamagedCheckpointError(OSError):
    """Not what is written here: as bad as a disk that cannot be read."""


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
