"""The cost of telling brokers, in steps: a row of a large topic, or of many topics, costs as much as a row of a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from controller.core.model import Broker, Partition
from controller.core.project.requests import Rows, Stop, Stops
from controller.kafka.protocol.levels import level_for
from controller.tell.dialects import Envelope, Request
from controller.tell.dialects.kafka_requests import body_for
from controller.wire.bodies import Answer
from tests.bench.world import topic_id_of
from tests.steps import Number, Steps, counted
from tests.tell.outbox_support import (
    Fixture,
    MemoryDialect,
    a_broker,
    a_state,
    outboxes,
)

BROKERS = range(1, 7)
#: the second one soon shows quadratic cost
SIZES = (1_000, 4_000, 10_000, 40_000)
REMOVED_AT_ONCE = 250
#: of the steps for a partition in a small cluster, at most so many times in a large one
GROWTH_MAX = 1.5


class Encoding(MemoryDialect):
    """Makes bytes as for real brokers: their encoder takes any whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def encode(self, request: Request) -> bytes:
        body_for(request, level_for("3.9"), ())
        return b""

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> Answer:
        self.encoded[body] = request
        self.rows += sum(map(len, request.rows.values())) + sum(map(len, request.stops.values()))
        return await super().send(broker, request, body, envelope)


def one_topic(count: int) -> Rows:
    return {("big", topic_id_of("big")): {Number(number): a_partition(number) for number in range(count)}}


def many_topics(count: int) -> Rows:
    return {
        (name, topic_id_of(name)): {Number(0): a_partition(number)}
        for number, name in enumerate(f"t{number}" for number in range(count))
    }


def a_partition(number: int, leader_epoch: int = 0) -> Partition:
    return a_state(leader_epoch, tuple(1 + (number + step) % len(BROKERS) for step in range(3)))


def new_in(rows: Rows) -> frozenset[tuple[str, int, int]]:
    return frozenset(
        (topic_id, number, broker_id)
        for (_, topic_id), partitions in rows.items()
        for number, partition in partitions.items()
        for broker_id in partition.replicas
    )


def hosted(rows: Rows) -> Mapping[int, Rows]:
    by_broker: dict[int, Rows] = {broker_id: {} for broker_id in BROKERS}
    for key, partitions in rows.items():
        for number, partition in partitions.items():
            for broker_id in partition.replicas:
                by_broker[broker_id].setdefault(key, {})[number] = partition
    return by_broker


def stops_in(rows: Rows) -> Mapping[int, Stops]:
    return {
        broker_id: {key: dict.fromkeys(one, Stop(-2, delete=True)) for key, one in wanted.items()}
        for broker_id, wanted in hosted(rows).items()
    }


def joining(fixture: Fixture, rows: Rows) -> None:
    """All brokers join; before they have heard, one partition of each topic has another leader epoch."""
    fixture.tell(joined=[a_broker(broker_id) for broker_id in BROKERS], everything=rows)
    changed = {key: {number: a_partition(number, 1) for number in list(one)[:1]} for key, one in rows.items()}
    fixture.tell(metadata=changed, leaderships=hosted(changed))


def creating(fixture: Fixture, rows: Rows) -> None:
    fixture.tell(metadata=rows, leaderships=hosted(rows), new_replicas=new_in(rows))


def removing(fixture: Fixture, rows: Rows) -> None:
    """Topics go, piece by piece, while all of their replicas are still to be told as new."""
    creating(fixture, rows)
    keys = list(rows)
    for start in range(0, len(keys), REMOVED_AT_ONCE):
        some = {key: rows[key] for key in keys[start : start + REMOVED_AT_ONCE]}
        fixture.tell(removed={key: tuple(partitions) for key, partitions in some.items()}, stops=stops_in(some))


async def steps_for(deed: Callable[[Fixture, Rows], None], rows: Rows) -> tuple[Steps, int]:
    """The steps that all brokers' outboxes take, and how many rows they tell."""
    async with outboxes(partitions_per_rpc=1_000) as fixture:
        dialect = fixture.outboxes._dialect = Encoding()
        if deed is not joining:
            await fixture.join(*(a_broker(broker_id) for broker_id in BROKERS))
        before = dialect.rows
        with counted() as steps:
            deed(fixture, rows)
            await fixture.outboxes.settled()  # however long it takes
        return steps, dialect.rows - before


@pytest.mark.parametrize("rows_of", [one_topic, pytest.param(many_topics, marks=pytest.mark.long)])
@pytest.mark.parametrize("deed", [joining, creating, removing])
async def test_a_row_told_costs_the_same_however_many_there_are(
    deed: Callable[[Fixture, Rows], None], rows_of: Callable[[int], Rows]
) -> None:
    each: dict[int, float] = {}
    for size in SIZES if rows_of is one_topic else (SIZES[0], SIZES[-1]):
        steps, told = await steps_for(deed, rows_of(size))
        assert told >= size
        each[size] = steps.count / told
        assert each[size] <= GROWTH_MAX * each[SIZES[0]], f"{each} steps for each row"
