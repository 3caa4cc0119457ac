"""Brokers with records: copies on followers, their acknowledgement, and their fate as leaders change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from brokerstub.isr import REFUSED_AGAIN_MS
from brokerstub.records.errors import CorruptBatchError
from controller.base.config import BrokerConfig
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import (
    AlteredRow,
    AlteredTopic,
    AlterPartitionAnswer,
    StopReplicaRequest,
    StopRow,
    TopicStops,
)
from tests.brokerstub.cluster import LAG_MS, OBEYED
from tests.brokerstub.records_world import KEY, World, a_world, fetch, produce
from tests.brokerstub.support import eventually, row
from tests.records.support import a_batch


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as world:
        yield world


async def deaf(world: World, *followers: int) -> None:
    """Their questions do not reach the leader any more."""
    leader = world.nodes[1]
    leader.unheard_ids |= set(followers)
    await eventually(lambda: not {*leader.fetching} & {*map(str, leader.unheard_ids)})


async def lag(world: World) -> None:
    """The lag time passes for the deaf brokers; the others are heard in time."""
    leader = world.nodes[1]
    world.now_ms += LAG_MS
    heard = [leader.broker.sessions.of(one) for one in {2, 3} - leader.unheard_ids]
    await eventually(lambda: all(one is not None and one.fetched_ms == world.now_ms for one in heard))
    world.now_ms += 1


async def test_acknowledged_records_are_on_all_brokers(world: World) -> None:
    client = await world.client()
    for number in range(20):
        assert (await produce(client, b"%d" % number)).base_offset == number
        assert [end for end, _ in world.ends().values()] == [number + 1] * 3
    assert world.values(1) == world.values(2) == world.values(3)


async def test_followers_learn_the_high_watermark(world: World) -> None:
    await produce(await world.client(), b"a", b"b")
    await eventually(lambda: world.ends() == dict.fromkeys((1, 2, 3), (2, 2)))


async def test_acks_all_waits_for_the_isr_and_acks_1_does_not(world: World) -> None:
    client = await world.client()
    await deaf(world, 2)
    late = await produce(client, timeout_ms=1)
    assert (late.error_code, late.base_offset) == (Code.REQUEST_TIMED_OUT, -1)
    assert (await produce(client, acks=1)).base_offset == 1
    await eventually(lambda: world.ends()[3][0] == 2)
    assert world.ends()[1] == (2, 0)  # one of the ISR is missing
    assert (await fetch(client)).records == b""  # so no client may read it


async def test_a_lagging_follower_leaves_the_isr_and_records_that_waited_for_it_are_acknowledged(world: World) -> None:
    client = await world.client()
    await deaf(world, 2)
    waiting = asyncio.ensure_future(produce(client, b"a"))
    await eventually(lambda: world.ends()[3][0] == 1)
    await lag(world)
    assert (await waiting).base_offset == 0
    assert world.isr() == (1, 3)
    assert (world.ends()[2], world.values(3)) == ((0, 0), [b"a"])


async def test_an_idle_follower_is_not_behind_when_the_next_record_comes(world: World) -> None:
    """It had all there was: an hour of silence is none."""
    client = await world.client()
    await produce(client, b"a")
    for _ in range(10):
        world.now_ms += LAG_MS
        sessions = [world.nodes[1].broker.sessions.of(one) for one in (2, 3)]
        await eventually(lambda: all(one and one.fetched_ms == world.now_ms for one in sessions))  # noqa: B023
    logs = world.logs(1)
    one, leader = logs.led("orders", 0)
    logs.append(one, leader, a_batch((b"b",)), acks=1)
    assert logs.wanted_isr(KEY, world.now_ms, lambda *_: True) == (1, 2, 3)  # before anybody could fetch it
    await eventually(lambda: world.values(2) == [b"a", b"b"])
    assert (world.isr(), world.controller.bodies) == ((1, 2, 3), [])


async def test_a_returning_follower_joins_only_with_all_committed_records(world: World) -> None:
    client = await world.client()
    await deaf(world, 2)
    waiting = asyncio.ensure_future(produce(client, b"a"))
    await eventually(lambda: world.ends()[3][0] == 1)
    await lag(world)
    await waiting
    assert (await produce(client, b"b", b"c")).base_offset == 1
    world.nodes[1].unheard_ids.clear()
    await eventually(lambda: world.isr() == (1, 3, 2))
    assert world.values(2) == [b"a", b"b", b"c"]


async def test_fewer_than_min_insync_replicas_write_nothing_with_acks_all(tmp_path: Path) -> None:
    async with a_world(tmp_path, {"min_insync_replicas": "2"}) as world:
        client = await world.client()
        await world.lead(1, 1, isr=(1,))
        world.controller.refuse_with = 500
        refused = await produce(client)
        assert (refused.error_code, world.ends()[1][0]) == (Code.NOT_ENOUGH_REPLICAS, 0)
        assert (await produce(client, acks=1)).error_code == 0


async def test_a_producer_is_told_when_the_isr_shrank_below_the_minimum_after_the_write(tmp_path: Path) -> None:
    async with a_world(tmp_path, {"min_insync_replicas": "3"}) as world:
        client = await world.client()
        await deaf(world, 2)
        waiting = asyncio.ensure_future(produce(client))
        await eventually(lambda: world.ends()[3][0] == 1)
        await lag(world)
        assert (await waiting).error_code == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_a_topics_configuration_is_followed(tmp_path: Path) -> None:
    async with a_world(tmp_path, {"min_insync_replicas": "1"}) as world:
        client = await world.client()
        await world.lead(1, 1, isr=(1,))
        world.controller.refuse_with = 500
        assert (await produce(client)).error_code == 0
        changed = b'{"version":1,"config":{"min.insync.replicas":"2"}}'
        await (await world.zk.connect()).set("/config/topics/orders", changed, -1)
        one = world.logs(1).of("orders", 0)
        await eventually(lambda: one.settings and one.settings.min_isr == 2)
        assert (await produce(client)).error_code == Code.NOT_ENOUGH_REPLICAS


async def test_a_clean_election_loses_nothing_that_was_acknowledged(world: World) -> None:
    client = await world.client()
    await produce(client, b"a", b"b")
    await world.lead(2, 1)
    await eventually(lambda: world.nodes[2].broker.logs.of("orders", 0).leader)  # type: ignore[union-attr]
    assert (await produce(client)).error_code == Code.NOT_LEADER_OR_FOLLOWER
    other = await world.client(2)
    assert (await produce(other, b"c")).base_offset == 2
    assert [world.values(number) for number in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3
    assert all(world.logs(number).truncations("orders", 0) == [] for number in (1, 2, 3))


async def test_a_leader_that_was_told_nothing_acknowledges_nothing_to_acks_all(world: World) -> None:
    """2 leads; 1 still believes that it does. No follower copies the records that it takes."""
    old = await world.client(1)
    await world.lead(2, 1, to=(2, 3))
    late = await produce(old, b"late", timeout_ms=50)
    assert late.error_code == Code.REQUEST_TIMED_OUT
    assert (await produce(old, b"later", acks=1)).error_code == 0
    await world.lead(2, 1, isr=(2, 3), to=(1,))
    await eventually(lambda: world.ends()[1][0] == 0)  # it has truncated the records that only it had
    truncations = [line for line in world.nodes[1].lines if line.kind == "truncation"]
    assert [(line.records, line.records_lost) for line in truncations] == [(2, 0)]


def refusing(code: Code, *, leader: int, epoch: int, version: int) -> Callable[[bytes], AlterPartitionAnswer]:
    """Each question is refused, with this state."""
    answer = AlterPartitionAnswer(
        0, [AlteredTopic(KEY[0], [AlteredRow(0, code, leader, epoch, (leader,), version, 0)])]
    )
    return lambda _: answer


async def asked(world: World, times: int) -> None:
    """The leader has asked so often for another ISR, and has its answer."""
    keeper = world.nodes[1].broker.isr
    await eventually(lambda: len(world.controller.bodies) >= times and keeper.question is None)


async def test_who_was_asked_for_counts_on_after_a_refusal_that_names_another_leader(world: World) -> None:
    """An earlier attempt at the question was granted, and 2 was elected out of that ISR."""
    client = await world.client()
    world.controller.answer = refusing(Code.FENCED_LEADER_EPOCH, leader=2, epoch=2, version=9)
    await world.lead(1, 1, isr=(1,))
    await asked(world, 1)
    await deaf(world, 2, 3)
    assert (await produce(client, timeout_ms=50)).error_code == Code.REQUEST_TIMED_OUT


async def test_who_was_asked_for_counts_no_more_after_a_refusal_that_left_everything_as_it_was(world: World) -> None:
    client = await world.client()
    world.controller.answer = refusing(Code.INELIGIBLE_REPLICA, leader=1, epoch=1, version=1)
    await world.lead(1, 1, isr=(1,))
    await asked(world, 1)
    await deaf(world, 2, 3)
    assert (await produce(client)).error_code == 0


async def test_a_leader_that_does_not_know_whether_it_was_granted_asks_the_same_again(world: World) -> None:
    """Though its followers are gone, so that it would wish for no other ISR."""
    client = await world.client()
    world.controller.answer = refusing(Code.NOT_CONTROLLER, leader=-1, epoch=-1, version=-1)
    await world.lead(1, 1, isr=(1,))
    await asked(world, 1)
    await deaf(world, 2, 3)
    waiting = asyncio.ensure_future(produce(client))
    await eventually(lambda: world.ends()[1][0] == 1)
    world.controller.answer = refusing(Code.NONE, leader=1, epoch=1, version=1)
    world.now_ms += LAG_MS + REFUSED_AGAIN_MS + 1
    assert (await waiting).error_code == 0
    assert len(world.controller.bodies) > 1
    assert len(set(world.controller.bodies)) == 1


async def test_a_waiting_client_hears_that_the_leader_has_changed(world: World) -> None:
    client = await world.client()
    await deaf(world, 2, 3)
    waiting = asyncio.ensure_future(produce(client, b"a"))
    await eventually(lambda: world.ends()[1][0] == 1)
    await world.lead(2, 1)
    assert (await waiting).error_code == Code.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_stays_in_a_new_leader_epoch_acknowledges_records_taken_before(world: World) -> None:
    client = await world.client()
    await deaf(world, 2)
    waiting = asyncio.ensure_future(produce(client, b"a"))
    await eventually(lambda: world.ends()[3][0] == 1)
    await world.lead(1, 1, isr=(1, 3))
    assert ((answer := await waiting).error_code, answer.base_offset) == (0, 0)


async def test_an_unclean_election_loses_the_records_that_it_must_and_logs_them(world: World) -> None:
    """3 was cut off and is elected all the same: records that 1 and 2 had acknowledged meanwhile go."""
    client = await world.client()
    await produce(client, b"kept")
    await deaf(world, 3)
    waiting = asyncio.ensure_future(produce(client, b"lost", b"lost"))
    await eventually(lambda: world.ends()[2][0] == 3)
    await lag(world)
    await waiting
    await eventually(lambda: world.ends()[2] == (3, 3))  # committed, and 2 knows it
    await world.lead(3, 5, isr=(3,))
    assert (await produce(await world.client(3), b"new", acks=1)).base_offset == 1
    await eventually(lambda: world.values(1) == world.values(2) == [b"kept", b"new"])
    lines = [line for number in (1, 2) for line in world.nodes[number].lines if line.kind == "truncation"]
    assert [(line.broker_id, line.leader, line.leader_epoch, line.records, line.records_lost) for line in lines] == [
        (1, 3, 5, 2, 2),
        (2, 3, 5, 2, 2),
    ]
    assert lines[0].reason == "offsets 1 to 2: 2 records that leader 3 does not have, 2 of them committed"
    assert [(line.offset, line.records_epoch) for line in lines] == [(1, 0)] * 2
    await world.publish(row(leader=3, epoch=5, isr=(3,), version=5))
    logs = await world.log_ends(2).logs_of("orders", 0)
    assert logs is not None
    assert logs.records_lost == 2, "which 1 and 2 have truncated both"
    assert [(one.broker_id, one.start, one.end, one.committed) for one in logs.truncations] == [
        (1, 1, 3, 2),
        (2, 1, 3, 2),
    ]


async def test_records_of_two_leaders_at_the_same_offsets_are_told_apart(world: World) -> None:
    """Truncation goes by leader epochs: by offsets alone both logs would be equally long, and stay apart."""
    old = await world.client(1)
    await produce(old, b"a")
    await world.lead(2, 1, to=(2, 3))
    await produce(old, b"x", acks=1)
    new = await world.client(2)
    await eventually(lambda: world.nodes[2].broker.logs.of("orders", 0).leader)  # type: ignore[union-attr]
    await produce(new, b"y", acks=1)
    await world.lead(2, 1, to=(1,))
    await eventually(lambda: world.values(1) == world.values(2) == world.values(3) == [b"a", b"y"])


async def test_a_broker_that_starts_again_has_its_records(world: World, tmp_path: Path) -> None:
    client = await world.client()
    await produce(client, b"a", b"b")
    await eventually(lambda: world.ends()[2] == (2, 2))
    broker = world.nodes[2].broker
    broker.begin(201, await world.zk.connect())  # it was told nothing yet
    assert broker.logs is not None
    assert broker.logs.ends("orders", 0) is None
    await world.tell_brokers()
    await world.lead(1, 1)
    assert world.values(2) == [b"a", b"b"]
    assert world.ends()[2] == (2, 2)  # the high watermark, too


async def test_a_deleted_replica_leaves_no_records(world: World, tmp_path: Path) -> None:
    await produce(await world.client(), b"a")
    folder = tmp_path / "broker-2" / "records" / "id-orders-0"
    assert folder.exists()
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, 1, True)])])
    assert await world.controller.tell(world.nodes[2], bodies.STOP_REPLICA, stop, event="1-9") == OBEYED
    assert not folder.exists()
    assert world.logs(2).get(KEY) is None


async def test_a_stopped_replica_keeps_its_records_and_is_not_taken_back_until_it_is_told_to_follow(
    world: World,
) -> None:
    client = await world.client()
    await produce(client, b"a")
    await eventually(lambda: world.ends()[2] == (1, 1))
    stop = StopReplicaRequest([TopicStops("orders", "id-orders", [StopRow(0, 1, False)])])
    assert await world.controller.tell(world.nodes[2], bodies.STOP_REPLICA, stop) == OBEYED
    waiting = asyncio.ensure_future(produce(client, b"b"))
    await eventually(lambda: world.ends().get(3, (0, 0))[0] == 2)
    world.now_ms += LAG_MS
    third = world.nodes[1].broker.sessions.of(3)
    await eventually(lambda: third is not None and third.fetched_ms == world.now_ms)
    world.now_ms += 1
    assert (await waiting).error_code == Code.NONE
    assert world.isr() == (1, 3)
    await produce(client, b"c")
    assert world.isr() == (1, 3), "a replica that does not follow is not taken back"
    assert world.nodes[2].broker.replicas.led(KEY) is None
    assert KEY in world.nodes[2].broker.replicas.held
    await world.lead(1, 2)
    await eventually(lambda: world.values(2) == world.values(1) == [b"a", b"b", b"c"])


async def test_a_broken_disk_refuses_to_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    one = world.logs(1).of("orders", 0)
    monkeypatch.setattr(one.log._disk, "append", full)
    assert (await produce(await world.client())).error_code == Code.KAFKA_STORAGE_ERROR
    assert world.nodes[1].broker.replicas.led(KEY) is None


async def test_a_follower_that_cannot_append_asks_again_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the whole batch travels: not as often as the network allows."""
    refused, slept = 0, 0
    one = world.logs(2).of("orders", 0)

    def spoiled(*_: object) -> None:
        nonlocal refused
        refused += 1
        raise CorruptBatchError("spoiled")

    fetcher = world.nodes[2].broker._fetcher
    following = fetcher._followings[1]
    wait = following.woken.wait

    async def waited() -> bool:
        nonlocal slept
        slept += 1
        return await wait()

    monkeypatch.setattr(following.woken, "wait", waited)
    monkeypatch.setattr(one.log, "append_fetched", spoiled)
    await produce(await world.client(), b"a", acks=1)
    await eventually(lambda: refused >= 3)
    assert slept >= refused - 1
    monkeypatch.undo()
    await eventually(lambda: world.values(2) == [b"a"])


async def test_old_segments_go_and_those_that_followers_lack_stay(tmp_path: Path) -> None:
    async with a_world(tmp_path, {"segment_bytes": "100", "retention_bytes": "100"}) as world:
        client = await world.client()
        for number in range(5):
            await produce(client, b"%d" % number)
        await world.logs(1).keep()
        ends = world.logs(1).ends("orders", 0)
        assert ends is not None
        assert (ends.log_start, ends.log_end) == (3, 5)
        assert (await fetch(client, 0)).error_code == Code.OFFSET_OUT_OF_RANGE
        await produce(client, b"5")
        await eventually(lambda: world.logs(2).of("orders", 0).log.start_offset == 3)


async def test_a_new_leader_tells_no_end_before_it_knows_the_high_watermark(world: World) -> None:
    await produce(await world.client(), b"a")
    await eventually(lambda: world.ends()[2] == (1, 1))
    await deaf(world, 2)
    one = world.logs(2).of("orders", 0)
    assert one.follower is not None
    one.follower.high_watermark = 0  # as if it had not been told yet
    world.nodes[2].unheard_ids |= {1, 3}
    await world.lead(2, 1)
    leader = world.logs(2).of("orders", 0).leader
    assert leader is not None
    assert (leader.high_watermark, leader.knows_its_end) == (0, False)
    world.nodes[2].unheard_ids.clear()
    await eventually(lambda: leader.knows_its_end)
    assert leader.high_watermark == 1


def test_records_are_kept_where_a_listener_speaks_kafkas_protocol(tmp_path: Path) -> None:
    from brokerstub.listeners import keeps_records

    def config(listeners: str) -> BrokerConfig:
        return BrokerConfig(zookeeper_connect="", log_dirs=str(tmp_path), listeners=listeners)

    assert not keeps_records(config("HTTP://127.0.0.1:1,BROKERS://127.0.0.1:2"))
    assert keeps_records(config("HTTP://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"))


async def test_a_batch_of_another_producer_is_told_apart_after_an_election(world: World) -> None:
    """The log holds the state of idempotent producers, so the new leader knows it, too."""
    batch = a_batch((b"once",), producer=(7, 0, 0))
    await produce(await world.client(1), data=batch)
    await world.lead(2, 1)
    again = await produce(await world.client(2), data=batch)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert world.values(2) == [b"once"]
