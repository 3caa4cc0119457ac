"""The bytes that clients of simulated brokers send and receive: one batch of one partition, and Kafka's requests for
it.

The format of a batch is implemented here a second time, independently of the code under test. `test_records.py`
compares it with another codec.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from controller.kafka.protocol.codec import Reader, Writer
from tests.faults.checker.records import NAME_ENDS

#: attributes, number of the last record, first and last timestamp, producer id, producer epoch, sequence, records
_COVERED: Final = Struct(">hiqqqhii")
#: offset, length, leader epoch, format, checksum
_BEFORE: Final = Struct(">qiibI")
_AFTER_LENGTH: Final = 9
FORMAT: Final = 2
ANY_EPOCH: Final = -1
#: of an answer to Fetch
MAX_BYTES: Final = 1 << 20


class Producer(NamedTuple):
    """-1 twice: not idempotent."""

    producer_id: int = -1
    sequence: int = -1


class Place(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class Answered(NamedTuple):
    """To Produce."""

    code: int
    offset: int


class Given(NamedTuple):
    """To Fetch."""

    code: int
    data: bytes


def batch_of(name: str, count: int, now_ms: int, producer: Producer) -> bytes:
    """The first record has the name for its value, the others have no more than the mark at its end."""
    records = b"".join(_record(number, name.encode() if number == 0 else b"") for number in range(count))
    epoch = -1 if producer.producer_id < 0 else 0
    covered = _COVERED.pack(0, count - 1, now_ms, now_ms, producer.producer_id, epoch, producer.sequence, count)
    covered += records
    return _BEFORE.pack(0, _AFTER_LENGTH + len(covered), ANY_EPOCH, FORMAT, crc32c(covered)) + covered


def _record(number: int, value: bytes) -> bytes:
    """Lengths below 64 are one byte, twice their value."""
    value += NAME_ENDS
    body = bytes((0, 0, 2 * number, 1, 2 * len(value))) + value + b"\0"
    if len(body) >= 64:
        raise ValueError(f"{value!r} is too long for the places that are read here")
    return bytes((2 * len(body),)) + body


def to_produce(place: Place, acks: int, timeout_ms: int, batch: bytes) -> bytes:
    """Version 9."""
    writer = Writer(flexible=True)
    writer.string(None).i16(acks).i32(timeout_ms)
    writer.array((place,), lambda one: _topic(writer, one, lambda: writer.data(batch))).tags()
    return writer.message()


def to_fetch(place: Place, offset: int, wait_ms: int) -> bytes:
    """Version 12."""
    writer = Writer(flexible=True)

    def wanted() -> None:
        writer.i32(ANY_EPOCH).i64(offset).i32(ANY_EPOCH).i64(-1).i32(MAX_BYTES)

    writer.i32(-1).i32(wait_ms).i32(1).i32(MAX_BYTES).i8(0).i32(0).i32(-1)
    writer.array((place,), lambda one: _topic(writer, one, wanted))
    writer.array((), writer.string).string("").tags()
    return writer.message()


def _topic(writer: Writer, place: Place, write: object) -> None:
    def partition(number: int) -> None:
        writer.i32(number)
        write()  # type: ignore[operator]
        writer.tags()

    writer.string(place.topic).array((place.partition,), partition).tags()


def produced_in(body: bytes) -> tuple[Place, int, bytes]:
    """Return the partition, the acks and the batch of a Produce request."""
    reader = Reader(body, flexible=True)
    reader.nullable_string()
    acks, _ = reader.i16(), reader.i32()
    place, batch = reader.array(lambda: _asked(reader))[0]
    return place, acks, batch


def _asked(reader: Reader) -> tuple[Place, bytes]:
    topic = reader.string()

    def partition() -> tuple[int, bytes]:
        number, data = reader.i32(), reader.data()
        reader.tags()
        return number, data

    (number, data) = reader.array(partition)[0]
    reader.tags()
    return Place(topic, number), data


def fetched_in(body: bytes) -> Place:
    """Where a request to Fetch reads."""
    reader = Reader(body, flexible=True)
    reader.take(4 + 4 + 4 + 4 + 1 + 4 + 4)
    reader.varint()
    topic = reader.string()
    reader.varint()
    return Place(topic, reader.i32())


def answer_to_produce(answer: bytes) -> Answered:
    reader = Reader(answer, flexible=True)
    reader.varint()
    reader.string()
    reader.varint()
    reader.i32()
    return Answered(reader.i16(), reader.i64())


def answer_to_fetch(answer: bytes) -> Given:
    reader = Reader(answer, flexible=True)
    reader.take(4 + 2 + 4)
    reader.varint()
    reader.string()
    reader.varint()
    reader.i32()
    code = reader.i16()
    reader.take(8 + 8 + 8)  # high watermark, the same without transactions, start
    reader.varint()
    reader.i32()
    return Given(code, reader.data())
