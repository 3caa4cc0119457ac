"""Protocol levels (`inter.broker.protocol.version`): the versions in which brokers of each level are told and asked.

No other module knows a version number by its level. Brokers of every level are asked for topic ids (from version 10,
Kafka 2.8) and leader epochs by Kafka's Metadata request. They answer from the last metadata of a controller; no request
returns the content of their disks. Pure: no socket, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from controller.core.codes import Code
from controller.kafka.protocol.codec import NO_UUID, Reader, Writer, topic_id_of
from controller.wire import bodies

#: the first version with topic ids, and the last one without, which every broker since 2.4 serves
WITH_IDS: Final = 10
WITHOUT_IDS: Final = 9


def metadata_body(names: Sequence[str], version: int) -> bytes:
    """About these topics, and make none that is not there."""
    body = Writer(flexible=True)

    def topic(name: str) -> None:
        body.raw(NO_UUID if version >= WITH_IDS else b"").string(name).tags()

    return body.array(names, topic).i8(0).i8(0).i8(0).tags().message()


def described_in(reader: Reader, version: int) -> bodies.DescribeTopicsAnswer:
    """After the answer's header. A topic that the broker does not know, or does not show, is left out."""
    reader.i32()  # throttled for so long

    def broker() -> None:
        _ = reader.i32(), reader.string(), reader.i32(), reader.nullable_string()
        reader.tags()

    reader.array(broker)
    _ = reader.nullable_string(), reader.i32()  # cluster, controller
    topics = [one for one in reader.array(lambda: _topic(reader, version)) if one is not None]
    reader.i32()
    reader.tags()
    reader.end()
    return bodies.DescribeTopicsAnswer(topics=topics)


def _topic(reader: Reader, version: int) -> bodies.DescribedTopic | None:
    code, name = reader.i16(), reader.string()
    topic_id = topic_id_of(reader.uuid()) if version >= WITH_IDS else ""
    reader.boolean()
    epochs = reader.array(lambda: _partition(reader))
    reader.i32()
    reader.tags()
    if code not in (Code.NONE, Code.LEADER_NOT_AVAILABLE):
        return None
    return bodies.DescribedTopic(name, [bodies.DescribedId(topic_id, told=True, held=False, leader_epochs=epochs)])


def _partition(reader: Reader) -> bodies.KnownEpoch:
    reader.i16()
    number, _, epoch = reader.i32(), reader.i32(), reader.i32()
    _ = reader.ids(), reader.ids(), reader.ids()
    reader.tags()
    return bodies.KnownEpoch(number, epoch)


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
