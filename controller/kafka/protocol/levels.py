"""Protocol levels (`inter.broker.protocol.version`): in which versions brokers of each expect to be told.

A table and how a level is written. Nothing else knows a version number by its level.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from controller.kafka.protocol.metadata import WITH_IDS, WITHOUT_IDS

METADATA: Final = 3
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
#: the first protocol level of each triple of versions: LeaderAndIsr, StopReplica, UpdateMetadata
_LEVELS: Final = (
    ((2, 4), (4, 2, 6)),
    ((2, 6), (4, 3, 6)),
    ((2, 8), (5, 3, 7)),
    ((3, 2), (6, 3, 7)),
    ((3, 4), (7, 4, 8)),
)
LEVEL_MAX: Final = (3, 9)


class Level(msgspec.Struct, frozen=True):
    """A protocol level (`inter.broker.protocol.version`) and the versions that brokers expect at it."""

    name: str
    leader_and_isr: int
    stop_replica: int
    update_metadata: int

    def version_of(self, key: int) -> int:
        return {
            METADATA: WITH_IDS if self.leader_and_isr >= 5 else WITHOUT_IDS,
            LEADER_AND_ISR: self.leader_and_isr,
            STOP_REPLICA: self.stop_replica,
            UPDATE_METADATA: self.update_metadata,
        }[key]


def level_for(name: str) -> Level:
    """Kafka's own writing: 2.6, 3.9, or 3.9-IV0. ValueError for a level that ZooKeeper mode never had."""
    found = re.fullmatch(r"(\d+)\.(\d+)(-IV\d+)?", name)
    number = (0, 0) if found is None else (int(found[1]), int(found[2]))
    if not _LEVELS[0][0] <= number <= LEVEL_MAX:
        raise ValueError(f"{name!r} is no protocol level from 2.4 to 3.9; write what the brokers have as inter.broker")
    versions = next(versions for first, versions in reversed(_LEVELS) if first <= number)
    return Level(name, *versions)
