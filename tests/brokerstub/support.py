"""Builders for a controller's requests: rows, topics, brokers, and whole requests; and a way to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from controller.wire.bodies import (
    BrokerEntry,
    FetchRequest,
    FetchRow,
    FetchTopic,
    ForgottenTopic,
    PartitionRow,
    StatesRequest,
    TopicRows,
    UndecodedStatesRequest,
    encode,
)


def row(
    partition: int = 0,
    leader: int = 1,
    epoch: int = 0,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    is_new: bool = False,
) -> PartitionRow:
    return PartitionRow(partition, 1, leader, epoch, isr, version, replicas, (), (), (), is_new, 0)


def topic(*rows: PartitionRow, name: str = "orders", topic_id: str = "id-orders") -> TopicRows:
    return TopicRows(name, topic_id, rows)


def broker(broker_id: int, epoch: int | None = None, *, state: str = "live", port: int = 0) -> BrokerEntry:
    epoch = 100 * broker_id if epoch is None else epoch
    return BrokerEntry(broker_id, epoch, state, None, (f"HTTP://127.0.0.1:{port or 8080 + broker_id}",))


def undecoded(request: StatesRequest) -> UndecodedStatesRequest:
    """A request as UpdateMetadata comes in."""
    return msgspec.json.decode(encode(request), type=UndecodedStatesRequest)


def fetch(
    *entries: tuple[int, int], session: int = 0, sequence: int = 0, forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    """Entries are (partition, leader epoch) of `orders`."""
    listed = [FetchRow(partition, epoch, "log") for partition, epoch in entries]
    return FetchRequest(
        session,
        sequence,
        [FetchTopic("id-orders", listed)] if listed else [],
        [ForgottenTopic("id-orders", list(forgotten))] if forgotten else [],
    )


async def eventually(is_so: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Return as soon as it is so."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - the condition is anything, no event is set for it
            await asyncio.sleep(0.001)
