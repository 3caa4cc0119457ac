"""The log ends of a partition, as brokers tell each other, and the records that an unclean election lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.log_ends import records_lost
from controller.api.v1.records import ReplicaLog
from controller.wire import bodies
from controller.wire.bodies import StatesRequest, Truncation
from tests.brokerstub.cluster import OBEYED
from tests.brokerstub.records_world import World, a_world, produce
from tests.brokerstub.support import eventually, row, topic


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as world:
        await world.publish(row())
        yield world


async def test_each_replica_says_where_its_log_ends_and_its_high_watermark_is(world: World) -> None:
    await produce(await world.client(), b"a", b"b", b"c")
    await eventually(lambda: set(world.ends().values()) == {(3, 3)})
    for number in world.nodes:
        found = await world.log_ends(number).logs_of("orders", 0)
        assert found is not None
        assert (found.kept, found.leader, found.records_lost, found.truncations) == (True, 1, 0, [])
        assert found.replicas == [ReplicaLog(one, one == 1, True, 0, 3, 3, 0) for one in (1, 2, 3)]


async def test_a_follower_that_lags_is_seen_to(world: World) -> None:
    world.nodes[1].unheard_ids.add(3)
    await eventually(lambda: "3" not in world.nodes[1].fetching)
    await produce(await world.client(), b"a", b"b", acks=1)
    await eventually(lambda: world.ends()[2][0] == 2)
    found = await world.log_ends(2).logs_of("orders", 0)
    assert found is not None
    assert [(one.log_end, one.high_watermark, one.lag) for one in found.replicas] == [(2, 0, 0), (2, 0, 0), (0, 0, 2)]


async def test_of_a_broker_that_does_not_answer_its_leader_knows_the_end(world: World) -> None:
    await produce(await world.client(), b"a", b"b")
    await eventually(lambda: set(world.ends().values()) == {(2, 2)})
    world.nodes[3].port = 1  # no server listens there
    request = StatesRequest(full=True, brokers=world.entries(), topics=[topic(row())])
    assert await world.controller.tell(world.nodes[1], bodies.UPDATE_METADATA, request) == OBEYED
    found = await world.log_ends(1).logs_of("orders", 0)
    assert found is not None
    assert found.replicas[2] == ReplicaLog(3, False, True, None, 2, None, 0, "its broker does not answer")


async def test_a_partition_that_no_broker_was_told_of_has_no_logs(world: World) -> None:
    assert await world.log_ends(1).logs_of("orders", 1) is None
    assert await world.log_ends(1).logs_of("unheard-of", 0) is None


def test_a_record_that_two_brokers_truncated_is_lost_once() -> None:
    def lost(broker_id: int, start: int, end: int, committed: int, epoch: int) -> Truncation:
        return Truncation(broker_id, 0, 3, 5, start, end, committed, epoch)

    assert records_lost([]) == 0
    assert records_lost([lost(1, 10, 15, 3, 0), lost(2, 10, 12, 2, 0)]) == 3
    assert records_lost([lost(1, 10, 15, 3, 0), lost(2, 12, 20, 5, 0)]) == 7
    assert records_lost([lost(1, 10, 15, 3, 0), lost(1, 10, 12, 2, 4)]) == 5, "others had these offsets by then"
    assert records_lost([lost(1, 10, 15, 0, 0)]) == 0, "nothing of it was committed"
