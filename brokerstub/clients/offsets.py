"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, and where a leader epoch did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from brokerstub.logs import Logs, PartitionLog
from brokerstub.records.errors import RecordsError
from brokerstub.records.replication import Leader
from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.answering import tagged
from controller.kafka.server.listener import Api

LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 2, 23
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
UNSAID: Final = -1


class _Question(NamedTuple):
    """About one partition; `what` is a timestamp or a leader epoch."""

    topic: str
    partition: int
    leader_epoch: int
    what: int


class _Found(NamedTuple):
    partition: int
    code: Code
    timestamp: int = UNSAID
    offset: int = UNSAID
    leader_epoch: int = UNSAID


class OffsetApis:
    """Handlers."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def table(self) -> dict[int, Api]:
        return {
            LIST_OFFSETS: Api(1, 7, 6, self.list_offsets),
            OFFSET_FOR_LEADER_EPOCH: Api(2, 4, 4, self.offset_for_leader_epoch),
        }

    async def list_offsets(self, version: int, reader: Reader, writer: Writer) -> None:
        reader.i32()
        if version >= 2:
            reader.i8()
        topics = reader.array(lambda: _topic(reader, lambda name: _offset_asked(version, name, reader)))
        if version >= 2:
            writer.i32(0)
        writer.array(topics, lambda topic: self._listed(version, *topic, writer)).tags()

    async def offset_for_leader_epoch(self, version: int, reader: Reader, writer: Writer) -> None:
        if version >= 3:
            reader.i32()
        topics = reader.array(lambda: _topic(reader, lambda name: _epoch_asked(name, reader)))
        writer.i32(0).array(topics, lambda topic: self._ended(*topic, writer)).tags()

    def _listed(self, version: int, name: str, questions: list[_Question], writer: Writer) -> None:
        def write(one: _Found) -> None:
            writer.i32(one.partition).i16(one.code).i64(one.timestamp).i64(one.offset)
            if version >= 4:
                writer.i32(one.leader_epoch)
            writer.tags()

        writer.string(name).array([self._found(one) for one in questions], write).tags()

    def _found(self, asked: _Question) -> _Found:
        found = _Found(asked.partition, Code.KAFKA_STORAGE_ERROR)
        try:
            one, leader = self._logs.led(asked.topic, asked.partition, asked.leader_epoch)
            with self._logs.failing(one):
                if asked.what != EARLIEST and not leader.knows_its_end:
                    return _Found(asked.partition, Code.OFFSET_NOT_AVAILABLE)
                offset, timestamp = _place_of(one, leader, asked.what)
                found = _Found(asked.partition, Code.NONE, timestamp, offset, leader.leader_epoch)
        except RecordsError as error:
            return _Found(asked.partition, error.code)
        return found

    def _ended(self, name: str, questions: list[_Question], writer: Writer) -> None:
        def write(one: _Found) -> None:
            writer.i16(one.code).i32(one.partition).i32(one.leader_epoch).i64(one.offset).tags()

        writer.string(name).array([self._end(one) for one in questions], write).tags()

    def _end(self, asked: _Question) -> _Found:
        try:
            one, _ = self._logs.led(asked.topic, asked.partition, asked.leader_epoch)
        except RecordsError as error:
            return _Found(asked.partition, error.code)
        end = one.log.end_of_epoch(asked.what)
        return _Found(asked.partition, Code.NONE, UNSAID, end.offset, end.leader_epoch)


def _place_of(one: PartitionLog, leader: Leader, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp; both -1: there is no record so late."""
    if timestamp == LATEST:
        return leader.high_watermark, UNSAID
    if timestamp == EARLIEST:
        return one.log.start_offset, UNSAID
    since = one.log.max_timestamp if timestamp == MAX_TIMESTAMP else timestamp
    found = one.log.offset_since(since, leader.high_watermark) if since >= 0 else None
    return (UNSAID, UNSAID) if found is None else found


def _topic(reader: Reader, read: Callable[[str], _Question]) -> tuple[str, list[_Question]]:
    name = reader.string()
    return tagged(reader, (name, reader.array(lambda: read(name))))


def _offset_asked(version: int, name: str, reader: Reader) -> _Question:
    number = reader.i32()
    leader_epoch = reader.i32() if version >= 4 else UNSAID
    return tagged(reader, _Question(name, number, leader_epoch, reader.i64()))


def _epoch_asked(name: str, reader: Reader) -> _Question:
    return tagged(reader, _Question(name, reader.i32(), reader.i32(), reader.i32()))
