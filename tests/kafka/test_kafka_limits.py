"""The server in Kafka's protocol under hostile input: exactly the versions it lists, bounds on its queues, garbage."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest

from controller.core.codes import Code
from controller.kafka.server.listener import RequestMemory
from tests.fakes.client import FakeClient
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import (
    SECOND,
    Client,
    World,
    a_world,
    create,
)
from tests.loop.admin_site import belief
from tests.support.harness import until
from tests.waiting import DEADLINE_S

#: every API that is answered here itself, with the names that the other codec has for it
OWN = {
    7: ("controlled_shutdown", "ControlledShutdownRequest"),
    16: ("list_groups", "ListGroupsRequest"),
    19: ("create_topics", "CreateTopicsRequest"),
    20: ("delete_topics", "DeleteTopicsRequest"),
    37: ("create_partitions", "CreatePartitionsRequest"),
    43: ("elect_leaders", "ElectLeadersRequest"),
    45: ("alter_partition_reassignments", "AlterPartitionReassignmentsRequest"),
    46: ("list_partition_reassignments", "ListPartitionReassignmentsRequest"),
    56: ("alter_partition", "AlterPartitionRequest"),
    66: ("list_transactions", "ListTransactionsRequest"),
    67: ("allocate_producer_ids", "AllocateProducerIdsRequest"),
}
VALUES: dict[str, Any] = {
    "topics": (),
    "topic_names": (),
    "timeout": SECOND,
    "validate_only": False,
    "topic_partitions": None,
    "broker_id": 2,
    "broker_epoch": 0,
    "election_type": 0,
    "states_filter": (),
    "types_filter": (),
    "state_filters": (),
    "producer_id_filters": (),
    "duration_filter": -1,
}


def fields_of(kind: Any) -> dict[str, Any]:
    return {name: VALUES[name] for name in kind.__dataclass_fields__ if name in VALUES}


async def listed(client: Client) -> dict[int, tuple[int, int]]:
    answer = await client.ask("api_versions", 0, "ApiVersionsRequest")
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


async def test_each_version_that_is_listed_is_answered_in_full_and_the_next_ones_end_the_connection() -> None:
    async with a_world() as world:
        versions = await listed(await world.client())
        assert versions.keys() == {*OWN, 3, 18}
        for key, (name, request) in OWN.items():
            first, last = versions[key]
            for version in range(first, last + 1):
                client = await world.client()
                kind = getattr(kio.schema(name, version, "request"), request)
                await client.ask(name, version, request, **fields_of(kind))  # the other codec reads all of the answer
            for version in {first - 1, last + 1}:
                assert await (await world.client()).raw(kio.request_header(key, version, 1, "c")) is None


async def grown(client: Client, count: int, rows: tuple[tuple[int, ...], ...] | None = None) -> int:
    """Asked only whether it could."""
    m = kio.schema("create_partitions", 3, "request")
    assignments = None if rows is None else tuple(m.CreatePartitionsAssignment(broker_ids=one) for one in rows)
    topic = m.CreatePartitionsTopic(name="orders", count=count, assignments=assignments)
    fields = {"topics": (topic,), "timeout": SECOND, "validate_only": True}
    return int((await client.ask("create_partitions", 3, "CreatePartitionsRequest", **fields)).results[0].error_code)


async def test_a_request_to_validate_only_gets_the_verdict_and_changes_nothing() -> None:
    async with a_world() as world:
        client = await world.client()
        await create(client, "orders", {0: (2, 1)})
        cluster = belief(world.node)
        before = len(world.site.server.history)
        for name, assignment, code in (
            ("new", {0: (2, 1), 1: (1, 3)}, 0),
            ("orders", {0: (2, 1)}, Code.TOPIC_ALREADY_EXISTS),
            ("no/name", {0: (2, 1)}, Code.INVALID_TOPIC_EXCEPTION),
            ("elsewhere", {0: (2, 77)}, Code.INVALID_REPLICA_ASSIGNMENT),
        ):
            assert (await create(client, name, assignment, is_trial=True)).error_code == code
        assert await grown(client, 4) == 0
        assert await grown(client, 2, ((3, 1),)) == 0
        assert await grown(client, 1) == Code.INVALID_PARTITIONS
        assert await grown(client, 2, ((3, 77),)) == Code.INVALID_REPLICA_ASSIGNMENT
        assert len(world.site.server.history) == before
        assert (list(cluster.topics), len(cluster.topics["orders"].partitions)) == (["orders"], 1)


async def test_a_client_that_does_not_read_is_cut_off_and_others_are_served() -> None:
    async with a_world(stall_ms=100) as world:
        lazy, other = await world.client(), await world.client()
        await until(lambda: world.server.connections == 2)
        world.passed_on = bytes(1 << 20)
        ask = kio.request_header(3, 0, 1, "c", 1)
        flood = (struct.pack(">i", len(ask)) + ask) * 50  # its answers are larger than the buffer for it
        assert isinstance(lazy.writer.transport, asyncio.Transport)
        lazy.writer.transport.pause_reading()
        lazy.writer.write(flood)
        async with asyncio.timeout(DEADLINE_S):
            while world.server.connections > 1:  # noqa: ASYNC110 - it is real time that cuts it off
                await asyncio.sleep(0.01)
        assert (await create(other, "orders", {0: (2, 1)})).error_code == 0


async def test_a_request_that_does_not_end_is_given_up() -> None:
    async with a_world(body_timeout_ms=50) as world:
        for begun in (b"\0", struct.pack(">i", 100) + b"half of it"):
            slow = await world.client()
            slow.writer.write(begun)
            assert await slow.reader.read() == b""


async def test_a_connection_that_is_silent_for_long_is_ended() -> None:
    async with a_world(kafka_idle_ms=50) as world:
        assert await (await world.client()).reader.read() == b""


async def test_requests_wait_for_room_and_none_is_lost() -> None:
    room, order = RequestMemory(100), list[str]()

    async def use(name: str, size: int, until_set: asyncio.Event) -> None:
        with room.share() as take:
            await take(size)
            order.append(name)
            await until_set.wait()

    first, second = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        large = group.create_task(use("large", 80, first))
        await asyncio.sleep(0)
        group.create_task(use("too much now", 30, second))
        group.create_task(use("fits beside", 20, second))
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == ["large", "fits beside"]
        large.cancel()  # a client that is cut off also gives back its share
        second.set()
    assert order == ["large", "fits beside", "too much now"]


async def test_an_announced_request_that_does_not_come_takes_no_room() -> None:
    size = 1 << 20
    async with a_world(kafka_in_flight_bytes=size, rpc_body_max_bytes=size, body_timeout_ms=3_600_000) as world:
        for _ in range(8):
            client = await world.client()
            client.writer.write(struct.pack(">i", size) + b"\0")
        await until(lambda: world.server.connections == 8)
        async with asyncio.timeout(DEADLINE_S):
            assert (await create(await world.client(), "orders", {0: (2, 1)})).error_code == 0


@pytest.mark.parametrize("limit", ["kafka_connections", "kafka_connections_per_peer"])
async def test_clients_that_are_silent_or_read_keep_no_broker_out(limit: str) -> None:
    """Each new connection is served; of those before, the one that last asked for a change is the last to go."""
    async with a_world(**{limit: 3}) as world:
        broker = await world.client()
        assert (await create(broker, "orders", {0: (2, 1)})).error_code == 0
        silent = [await world.client() for _ in range(20)]
        await until(lambda: world.server.connections == 3)
        for _ in range(20):
            await listed(await world.client())
        assert (await create(broker, "users", {0: (2, 1)})).error_code == 0
        assert await silent[0].reader.read() == b""
        assert (await create(await world.client(), "parcels", {0: (2, 1)})).error_code == 0


@pytest.mark.parametrize("limit", ["kafka_connections", "kafka_connections_per_peer"])
async def test_where_all_that_are_open_work_another_is_closed_at_once(limit: str) -> None:
    async with a_world(**{limit: 1}) as world:
        first = await world.client()
        assert (await create(first, "orders", {0: (2, 1)})).error_code == 0
        written, go_on = asyncio.Event(), asyncio.Event()

        async def hold(_: FakeClient, call: str) -> None:
            if call == "transact":
                written.set()
                await go_on.wait()

        world.site.server.on_request = hold
        asking = asyncio.create_task(create(first, "users", {0: (2, 1)}))
        async with asyncio.timeout(DEADLINE_S):
            await written.wait()
            assert await (await world.client()).raw(kio.request_header(3, 12, 1, "c")) is None
        go_on.set()
        assert (await asking).error_code == 0


def spoiled(frame: bytes, chance: random.Random) -> bytes:
    """A valid request with some of its bytes changed, removed or repeated."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at:at] = data[at : at + chance.randint(1, 8)]
            case 3:
                data += chance.randbytes(chance.randint(1, 16))
        data = data or bytearray(b"\0")
    return bytes(data)


def valid_frames() -> list[bytes]:
    m = kio.schema("create_topics", 7, "request")
    row = m.CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 2))
    topic = m.CreatableTopic(
        name="x", num_partitions=-1, replication_factor=-1, assignments=(row,),
        configs=(m.CreatableTopicConfig(name="a", value="b"),),
    )  # fmt: skip
    frames = [
        kio.request_header(19, 7, 1, "c")
        + kio.written(m.CreateTopicsRequest(topics=(topic,), timeout=SECOND, validate_only=False))
    ]
    for key, (name, request) in OWN.items():
        version = {7: 3, 56: 3}.get(key, 0 if key in (45, 46, 67) else 1)
        if key == 19:
            continue
        kind = getattr(kio.schema(name, version, "request"), request)
        header = kio.request_header(key, version, 1, "c", kind.__header_schema__.__version__)
        frames.append(header + kio.written(kind(**fields_of(kind))))
    return frames


async def asked(world: World, frame: bytes) -> None:
    client = await world.client()
    async with asyncio.timeout(DEADLINE_S):
        await client.raw(frame)  # answered, or its connection is ended: either way soon
    client.writer.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_spoiled_requests_cost_their_own_connection_and_the_controller_goes_on(seed: int) -> None:
    chance = random.Random(seed)
    async with a_world() as world:
        other, frames = await world.client(), valid_frames()
        epoch = world.node.handle.controller_epoch
        for _ in range(150):
            await asked(world, spoiled(chance.choice(frames), chance))
        assert (await create(other, "orders", {0: (2, 1)})).error_code == 0
        assert world.node.handle.controller_epoch == epoch, "the same term"
        assert not belief(world.node).parked
