"""Batches made by kio, an independent codec, and the recorded ones of real clients."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record, RecordBatch
from kio.records.writers import write_batch

from brokerstub.records.batches import batches_in

RECORDED = Path(__file__).parents[1] / "data" / "records"
#: in milliseconds
START = 1_700_000_000_000


@cache
def _written(
    values: tuple[bytes, ...],
    timestamps: tuple[int, ...],
    producer: tuple[int, int, int],
    base_offset: int,
    leader_epoch: int,
    attributes: int,
) -> bytes:
    records = tuple(
        Record(
            attributes=0,
            timestamp=datetime.fromtimestamp(timestamp / 1_000, UTC),
            offset=base_offset + index,
            key=None,
            value=value,
            headers=(),
        )
        for index, (value, timestamp) in enumerate(zip(values, timestamps, strict=True))
    )  # type: ignore[arg-type]
    producer_id, producer_epoch, sequence = producer
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": sequence}
    fields |= {"records": records, "attributes": attributes, "partition_leader_epoch": leader_epoch}
    with io.BytesIO() as buffer:
        write_batch(buffer, NewRecordBatch(**fields))
        data = buffer.getvalue()
    return base_offset.to_bytes(8, "big") + data[8:]


def a_batch(
    values: Sequence[bytes] = (b"value",),
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp: int = START,
    timestamps: Sequence[int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
) -> bytes:
    """As kio writes it; `producer` is id, epoch, and sequence number. Timestamps are whole seconds: kio reads no
    others."""
    times = tuple(timestamps) if timestamps is not None else (timestamp,) * len(values)
    return _written(tuple(values), times, producer, base_offset, leader_epoch, attributes)


def read_by_kio(data: bytes) -> list[RecordBatch]:
    """All batches of it, checksums checked."""
    batches, position = [], 0
    while position < len(data):
        batch, size = read_batch(data, position)
        batches.append(batch)
        position += size
    return batches


def recorded(name: str) -> list[bytes]:
    """The batches that a real client sent."""
    data = (RECORDED / name).read_bytes()
    return [data[position : position + header.size] for position, header in batches_in(data)]


def offsets_in(data: bytes) -> list[tuple[int, int]]:
    """The first offset of each batch, and the one behind it."""
    return [(header.base_offset, header.next_offset) for _, header in batches_in(data)]
