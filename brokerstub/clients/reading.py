"""Reading for clients: Fetch (the records below the high watermark, at once or when there are enough), ListOffsets and
OffsetForLeaderEpoch (where a partition begins and ends, and where a leader epoch did).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

import msgspec

from brokerstub.logs import Logs, PartitionLog
from brokerstub.records.errors import RecordsError
from brokerstub.records.replication import Leader
from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, WireError, Writer, tagged
from controller.kafka.server.listener import Api

FETCH: Final = 1
CONSUMER: Final = -1
#: of one answer, even if the client would take more; the first batch may be larger
ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
WAIT_MAX_MS: Final = 30_000
UNSAID: Final = -1


class _PartitionFetch(NamedTuple):
    """The request about one partition."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class _Read(msgspec.Struct):
    """The answer about one partition."""

    partition: int
    code: Code
    high_watermark: int = -1
    start_offset: int = -1
    data: bytes = b""


class ReadingApis:
    """Handlers. Each request is whole: no fetch session is given (session id 0)."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def table(self) -> dict[int, Api]:
        return {FETCH: Api(4, 12, 12, self.fetch)}

    async def fetch(self, version: int, reader: Reader, writer: Writer) -> None:
        if reader.i32() != CONSUMER:
            raise WireError("followers of a stub broker fetch by HTTP")
        wait_ms, min_bytes, max_bytes = reader.i32(), reader.i32(), reader.i32()
        reader.i8()  # isolation: without transactions both are the same
        session_id = 0
        if version >= 7:
            session_id, _ = reader.i32(), reader.i32()
        topics = reader.array(lambda: _topic(version, reader))
        if session_id != 0:
            writer.i32(0).i16(Code.FETCH_SESSION_ID_NOT_FOUND).i32(0).array((), writer.string).tags()
            return
        fetches = [fetch for topic in topics for fetch in topic[1]]
        reads = await self._read_when_enough(fetches, wait_ms, min_bytes, min(max_bytes, ANSWER_MAX_BYTES))
        writer.i32(0)
        if version >= 7:
            writer.i16(Code.NONE).i32(0)
        found = iter(reads)
        writer.array(topics, lambda topic: _write_topic(version, topic[0], [next(found) for _ in topic[1]], writer))
        writer.tags()

    async def _read_when_enough(
        self, fetches: list[_PartitionFetch], wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[_Read]:
        moved, loop = asyncio.Event(), asyncio.get_running_loop()
        deadline = loop.time() + min(max(wait_ms, 0), WAIT_MAX_MS) / 1_000
        with ExitStack() as watches:
            for fetch in fetches:
                with suppress(RecordsError):
                    watches.enter_context(self._logs.of(fetch.topic, fetch.partition).watched_by(moved))
            while True:
                moved.clear()
                reads = self._read_all(fetches, max_bytes)
                is_enough = sum(len(one.data) for one in reads) >= min_bytes
                if is_enough or any(one.code is not Code.NONE for one in reads) or loop.time() >= deadline:
                    return reads
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await moved.wait()

    def _read_all(self, fetches: list[_PartitionFetch], max_bytes: int) -> list[_Read]:
        reads, left = [], max_bytes
        for fetch in fetches:
            read = self._read(fetch, min(left, fetch.max_bytes))
            left = max(0, left - len(read.data))
            reads.append(read)
        return reads

    def _read(self, fetch: _PartitionFetch, max_bytes: int) -> _Read:
        read = _Read(fetch.partition, Code.KAFKA_STORAGE_ERROR)
        try:
            one, leader = self._logs.led(fetch.topic, fetch.partition, fetch.leader_epoch)
            with self._logs.failing(one):
                # the first batch comes whole, so that a consumer gets on; where no room is left, none comes
                data = leader.read(fetch.offset, max_bytes) if max_bytes > 0 else b""
                read = _Read(fetch.partition, Code.NONE, leader.high_watermark, one.log.start_offset, data)
        except RecordsError as error:
            read.code = error.code
        return read


def _topic(version: int, reader: Reader) -> tuple[str, list[_PartitionFetch]]:
    name = reader.string()
    return tagged(reader, (name, reader.array(lambda: _partition_fetch(version, name, reader))))


def _partition_fetch(version: int, name: str, reader: Reader) -> _PartitionFetch:
    number = reader.i32()
    leader_epoch = reader.i32() if version >= 9 else UNSAID
    offset = reader.i64()
    if version >= 12:
        reader.i32()  # the epoch of its last record: asked by OffsetForLeaderEpoch here
    if version >= 5:
        reader.i64()
    return tagged(reader, _PartitionFetch(name, number, leader_epoch, offset, reader.i32()))


def _write_topic(version: int, name: str, reads: list[_Read], writer: Writer) -> None:
    writer.string(name).array(reads, lambda one: _write_read(version, one, writer)).tags()


def _write_read(version: int, one: _Read, writer: Writer) -> None:
    # transactions hold no record back
    writer.i32(one.partition).i16(one.code).i64(one.high_watermark).i64(one.high_watermark)
    if version >= 5:
        writer.i64(one.start_offset)
    writer.array((), writer.i32)
    if version >= 11:
        writer.i32(UNSAID)  # no other replica is to be preferred
    writer.data(one.data).tags()


LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 2, 23
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


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
        topics = reader.array(lambda: _offsets_topic(reader, lambda name: _offset_asked(version, name, reader)))
        if version >= 2:
            writer.i32(0)
        writer.array(topics, lambda topic: self._listed(version, *topic, writer)).tags()

    async def offset_for_leader_epoch(self, version: int, reader: Reader, writer: Writer) -> None:
        if version >= 3:
            reader.i32()
        topics = reader.array(lambda: _offsets_topic(reader, lambda name: _epoch_asked(name, reader)))
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


def _offsets_topic(reader: Reader, read: Callable[[str], _Question]) -> tuple[str, list[_Question]]:
    name = reader.string()
    return tagged(reader, (name, reader.array(lambda: read(name))))


def _offset_asked(version: int, name: str, reader: Reader) -> _Question:
    number = reader.i32()
    leader_epoch = reader.i32() if version >= 4 else UNSAID
    return tagged(reader, _Question(name, number, leader_epoch, reader.i64()))


def _epoch_asked(name: str, reader: Reader) -> _Question:
    return tagged(reader, _Question(name, reader.i32(), reader.i32(), reader.i32()))
