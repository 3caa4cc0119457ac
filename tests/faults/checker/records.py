"""The fate of records: batches as they were sent, those that clients relied on, and the logs in the end.

A batch is told by its name, which no other has; the names of a producer's batches are numbered as it sent them. It
judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, Literal, NamedTuple

import msgspec
from crc32c import crc32c

#: of a batch's header: offset and length, leader epoch, producer id and epoch, checksum, number of the last record
_PLACE: Final = Struct(">qi")
_EPOCH: Final = Struct(">i")
_LIFE: Final = Struct(">qh")
_SUM: Final = Struct(">I")
_EPOCH_AT, _SUM_AT, _COVERED_FROM, _LAST_AT, _LIFE_AT, _RECORDS_AT = 12, 17, 21, 23, 43, 61
_PLACE_BYTES: Final = 12
#: from a batch's first byte to its name: it is the first record's value, and shorter than 64 bytes with all around it
NAME_AT: Final = _RECORDS_AT + 6
NAME_ENDS: Final = b";"

#: of a producer that is not idempotent
NO_LIFE: Final = (-1, -1)
#: topic id and partition
LogKey = tuple[str, int]


class Sent(NamedTuple):
    """A batch as its producer sent it, once or more often."""

    name: str
    producer: str
    number: int
    #: a producer that sends it again means the same batch
    is_idempotent: bool
    #: -1: all
    acks: int


class Relied(NamedTuple):
    """A broker acknowledged a batch to `acks=all`, or gave it to a consumer. `held_by`: the brokers that had it on disk
    at that offset then; None: not known. `zxid`: ZooKeeper's latest one then; and the leader epoch in which the broker
    led."""

    how: Literal["acknowledged", "read"]
    key: LogKey
    offset: int
    name: str
    broker_id: int
    leader_epoch: int | None = None
    zxid: int | None = None
    held_by: frozenset[int] | None = None


class Kept(NamedTuple):
    """A batch in a log."""

    offset: int
    count: int
    leader_epoch: int
    name: str
    #: producer id and epoch: what a broker knows of whoever sends something again
    life: tuple[int, int] = NO_LIFE


class Copy(NamedTuple):
    """A replica's log in the end."""

    broker_id: int
    key: LogKey
    high_watermark: int
    batches: tuple[Kept, ...]


class Damage(NamedTuple):
    """A broker's machine died, or its disk was lost: unsynced bytes, or all, may be gone. `zxid`: ZooKeeper's latest
    one then."""

    broker_id: int
    zxid: int


class Records(msgspec.Struct):
    """Of a whole run."""

    sent: list[Sent] = []
    relied: list[Relied] = []
    copies: list[Copy] = []
    damages: list[Damage] = []


def sent_anew(batches: Sequence[Kept]) -> frozenset[int]:
    """Returns the offsets of those that are there already, from an earlier life of their producer. A broker cannot tell
    that they are the same: librdkafka begins another producer epoch when a later batch was out of order, and takes
    NOT_LEADER_OR_FOLLOWER for "not written" (number 4953 of its tracker); Kafka answers this of a batch that it
    wrote, too, when its leadership moves before the ISR has it."""
    first: dict[str, Kept] = {}
    anew = set()
    for one in batches:
        before = first.setdefault(one.name, one)
        if before is not one and NO_LIFE not in (before.life, one.life) and before.life != one.life:
            anew.add(one.offset)
    return frozenset(anew)


def batches_in(log: bytes) -> Iterator[Kept]:
    """Up to the first one that is torn or damaged."""
    at = 0
    while (kept := batch_at(log, at)) is not None:
        yield kept[0]
        at += kept[1]


def batch_at(log: bytes, at: int) -> tuple[Kept, int] | None:
    """The whole batch that begins there, and its size in bytes."""
    if (size := _size_at(log, at)) is None:
        return None
    name_end = log.find(NAME_ENDS, at + NAME_AT, at + size)
    return _kept_at(log, at, log[at + NAME_AT : name_end].decode()), size


def records_in(log: bytes) -> Iterator[Kept]:
    """Of foreign clients, record by record: the value of each is its name. Up to the first batch that is torn or
    damaged."""
    at = 0
    while (size := _size_at(log, at)) is not None:
        batch = _kept_at(log, at, "")
        place = at + _RECORDS_AT
        for number in range(batch.count):
            length, inside = _number_at(log, place)
            _, after = _number_at(log, inside + 1)  # behind its attributes: its time
            _, after = _number_at(log, after)
            key_length, after = _number_at(log, after)
            value_length, value_at = _number_at(log, after + max(key_length, 0))
            name = log[value_at : value_at + max(value_length, 0)].decode()
            yield batch._replace(offset=batch.offset + number, count=1, name=name)
            place = inside + length
        at += size


def _size_at(log: bytes, at: int) -> int | None:
    """Of the batch that begins there, in bytes; None: it is not whole."""
    if at + _RECORDS_AT > len(log):
        return None
    size = _PLACE_BYTES + _PLACE.unpack_from(log, at)[1]
    if size < _RECORDS_AT or at + size > len(log):
        return None
    covered = memoryview(log)[at + _COVERED_FROM : at + size]
    return size if _SUM.unpack_from(log, at + _SUM_AT)[0] == crc32c(covered) else None


def _kept_at(log: bytes, at: int, name: str) -> Kept:
    offset, epoch = _PLACE.unpack_from(log, at)[0], _EPOCH.unpack_from(log, at + _EPOCH_AT)[0]
    life = _LIFE.unpack_from(log, at + _LIFE_AT)
    return Kept(offset, _EPOCH.unpack_from(log, at + _LAST_AT)[0] + 1, epoch, name, life)


def _number_at(log: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends. The checksum has said that it is whole."""
    value, shift = 0, 0
    while log[at] >= 0x80:
        value |= (log[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    value |= log[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def is_at(log: bytes, name: str, offset: int) -> bool:
    """Whether a log has this batch whole, and there."""
    mark = name.encode() + NAME_ENDS
    at = log.find(mark)
    while at >= NAME_AT:
        found = batch_at(log, at - NAME_AT)
        if found is not None and found[0].name == name and found[0].offset == offset:
            return True
        at = log.find(mark, at + 1)
    return False
