"""What real brokers know of topics, by Kafka's Metadata request: their ids, and the leader epochs of their partitions.

Brokers answer out of what a controller told them last; what their disks say, nobody can ask. Before version 10 (Kafka
2.8) there are no ids. Pure: no socket, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.core.codes import Code
from controller.kafka.protocol.codec import (
    NO_UUID,
    Reader,
    Writer,
    topic_id_of,
)
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
