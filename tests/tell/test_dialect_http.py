"""The HTTP dialect: which bytes and headers a request becomes, and which answers count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from controller.core.model import Broker, Leadership, Partition
from controller.core.project.requests import KnownBroker, Stop
from controller.tell.dialects import Envelope, NotAcknowledgedError, Request
from controller.tell.dialects.http import HttpDialect
from controller.tell.dialects.row_cache import PartitionSubset, RowCache
from controller.wire import bodies
from controller.wire.client import HttpClient
from controller.wire.signing import Signer

ENVELOPE = Envelope(1, 7, "7-12")
ORDERS = ("orders", "orders-id")
TOLD = Request(path=bodies.LEADER_AND_ISR, brokers=[], live_ids=frozenset())


def a_broker(broker_id: int = 1, endpoint: str = "HTTP://127.0.0.1:8081") -> Broker:
    return Broker(broker_id, 40 + broker_id, "h", 1, ("PLAINTEXT://h:9092", endpoint), rack="r")


@asynccontextmanager
async def a_client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def a_dialect() -> AsyncIterator[HttpDialect]:
    async with a_client() as client:
        yield HttpDialect(client)


async def encoded(**fields: object) -> bodies.StatesRequest:
    known = [KnownBroker(a_broker(1), "live"), KnownBroker(a_broker(2), "gone")]
    request = Request(path=bodies.UPDATE_METADATA, brokers=known, live_ids=frozenset({1, 3}), **fields)  # type: ignore[arg-type]
    async with a_dialect() as dialect:
        return bodies.decode(dialect.encode(request), bodies.StatesRequest)


async def test_a_row_says_all_of_a_partition_and_which_replicas_are_offline() -> None:
    partition = Partition((1, 2, 3), adding=(3,), removing=(2,), state=Leadership(1, 5, (1, 3), 6, 1), version=9)
    message = await encoded(rows={ORDERS: {0: partition, 1: partition}}, new=frozenset({("orders-id", 1)}))
    rows = [bodies.PartitionRow(n, 6, 1, 5, (1, 3), 9, (1, 2, 3), (3,), (2,), (2,), n == 1, 1) for n in (0, 1)]
    assert message.topics == [bodies.TopicRows("orders", "orders-id", rows)]


async def test_a_cached_row_serves_the_same_state_only_and_never_a_new_replica() -> None:
    before, after = (Partition((1, 2), state=Leadership(leader, 5, (1, 2), 6), version=9) for leader in (1, 2))
    row_cache: RowCache = {}
    plain = await encoded(rows={ORDERS: {0: before, 1: before}}, row_cache=row_cache)
    assert await encoded(rows={ORDERS: {0: before, 1: before}}, row_cache=row_cache) == plain
    assert set(row_cache[ORDERS, False].rows) == {0, 1}
    is_new = frozenset({("orders-id", 1)})
    other = await encoded(rows={ORDERS: {0: after, 1: before, 2: None}}, row_cache=row_cache, new=is_new)
    told = [(row.partition, row.leader, row.is_new) for row in other.topics[0].partitions]
    assert told == [(0, 2, False), (1, 1, True), (2, -2, False)]
    assert await encoded(rows={ORDERS: {1: before}}, row_cache=row_cache) == await encoded(rows={ORDERS: {1: before}})


async def test_a_part_of_a_topic_told_whole_is_told_in_its_present_state() -> None:
    before, after = (Partition((1, 2), state=Leadership(leader, 5, (1, 2), 6), version=9) for leader in (1, 2))
    row_cache: RowCache = {}
    whole = {0: before, 1: before, 2: None}
    await encoded(rows={ORDERS: whole}, row_cache=row_cache)
    same = await encoded(rows={ORDERS: PartitionSubset(whole, [1])}, row_cache=row_cache)
    assert [(row.partition, row.leader) for row in same.topics[0].partitions] == [(1, 1)]
    await encoded(rows={ORDERS: {1: after}}, row_cache=row_cache)
    for changed in (whole, {0: before, 1: after}):
        told = await encoded(rows={ORDERS: PartitionSubset(changed, [0, 1])}, row_cache=row_cache)
        leaders = [each.state.leader for n in (0, 1) if (each := changed[n]) is not None and each.state is not None]
        assert [row.leader for row in told.topics[0].partitions] == leaders


def test_a_part_has_only_its_own_partitions() -> None:
    one = Partition((1, 2))
    part = PartitionSubset({0: one, 1: one, 2: None}, [0, 2])
    assert (len(part), list(part), part[0], 1 in part, 2 in part) == (2, [0, 2], one, False, False)


async def test_a_replica_on_a_failed_directory_is_offline_though_its_broker_lives() -> None:
    failed = {1: frozenset({("orders", 0)}), 3: frozenset()}
    rows = {ORDERS: {n: Partition((1, 2, 3), state=Leadership(3, 5, (3,), 6)) for n in (0, 1)}}
    message = await encoded(rows=rows, failed_dirs=failed)
    assert [row.offline for row in message.topics[0].partitions] == [(1, 2), (2,)]


async def test_replicas_to_be_stopped_go_by_topic_with_their_leader_epochs() -> None:
    stops = {ORDERS: {0: Stop(5, delete=False), 3: Stop(-2, delete=True)}}
    request = Request(path=bodies.STOP_REPLICA, brokers=[], live_ids=frozenset(), stops=stops)
    async with a_dialect() as dialect:
        message = bodies.decode(dialect.encode(request), bodies.StopReplicaRequest)
    rows = [bodies.StopRow(0, 5, False), bodies.StopRow(3, -2, True)]
    assert message.topics == [bodies.TopicStops("orders", "orders-id", rows)]


async def test_a_broker_is_asked_by_name_and_one_older_than_the_question_knows_nothing() -> None:
    request = Request(path=bodies.DESCRIBE_TOPICS, brokers=[], live_ids=frozenset(), names=["orders", "new"])
    known = bodies.DescribedId("orders-id", told=True, held=True, leader_epochs=[bodies.KnownEpoch(0, 7)])
    answer = bodies.DescribeTopicsAnswer(partitions=[], topics=[bodies.DescribedTopic("orders", [known])])
    async with a_dialect() as dialect:
        assert bodies.decode(dialect.encode(request), bodies.DescribeTopicsRequest).topics == ["orders", "new"]
        async with a_serving_broker(200, bodies.encode(answer), [], bodies.DESCRIBE_TOPICS) as broker:
            assert await dialect.send(broker, request, b"bytes", ENVELOPE) == answer
        async with a_serving_broker(200, b"", []) as older:
            assert await dialect.send(older, request, b"bytes", ENVELOPE) == bodies.DescribeTopicsAnswer()


async def test_a_removed_partition_has_leader_minus_two_and_one_never_led_is_left_out() -> None:
    message = await encoded(rows={ORDERS: {0: None, 1: Partition((1,))}, ("idle", "idle-id"): {0: Partition((1,))}})
    assert [(t.topic, [(r.partition, r.leader) for r in t.partitions]) for t in message.topics] == [
        ("orders", [(0, -2)])
    ]


async def test_brokers_are_told_only_where_the_request_says_so() -> None:
    assert (await encoded(rows={})).brokers == []
    told = await encoded(tells_brokers=True, full=True, part=1, parts=3)
    assert (told.full, told.part, told.parts) == (True, 1, 3)
    assert told.brokers == [
        bodies.BrokerEntry(1, 41, "live", "r", ("PLAINTEXT://h:9092", "HTTP://127.0.0.1:8081")),
        bodies.BrokerEntry(2, 42, "gone", "r", ("PLAINTEXT://h:9092", "HTTP://127.0.0.1:8081")),
    ]


async def test_a_topic_without_an_id_is_never_told() -> None:
    with pytest.raises(AssertionError):
        await encoded(rows={("old", ""): {0: None}})


def test_a_broker_is_told_where_its_listener_of_that_name_is() -> None:
    endpoints = ("HTTPS://h:1", "HTTP://[::1]:8081", "BROKERS://b1:9090")
    assert bodies.address_of(endpoints) == "http://[::1]:8081"
    assert bodies.address_of(endpoints, "BROKERS") == "http://b1:9090"
    assert bodies.address_of(endpoints, "PLAINTEXT") is None


@asynccontextmanager
async def a_serving_broker(
    status: int, answer: bytes, seen: list[web.Request], path: str = bodies.LEADER_AND_ISR
) -> AsyncIterator[Broker]:
    async def handle(request: web.Request) -> web.Response:
        seen.append(request)
        assert await request.read() == b"bytes"
        return web.Response(status=status, body=answer)

    app = web.Application()
    app.router.add_post(path, handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield a_broker(endpoint=f"HTTP://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


async def test_the_part_per_broker_travels_in_headers_and_the_answer_comes_back() -> None:
    seen: list[web.Request] = []
    answer = bodies.Answer(0, [bodies.Refusal("orders-id", 3, 56)])
    async with a_serving_broker(200, bodies.encode(answer), seen) as broker, a_dialect() as dialect:
        assert await dialect.send(broker, TOLD, b"bytes", ENVELOPE) == answer
    headers = {name: value for name, value in seen[0].headers.items() if name.startswith("Klamm-")}
    assert headers == {
        "Klamm-Controller-Id": "1",
        "Klamm-Controller-Epoch": "7",
        "Klamm-Broker-Epoch": "41",
        "Klamm-Event-Id": "7-12",
        "Klamm-Sequence": "1",
    }
    assert seen[0].content_type == "application/json"


@pytest.mark.parametrize(
    ("status", "answer"), [(503, b'{"error_code":0}'), (401, b""), (200, b"<html>"), (200, b'{"error_code":"x"}')]
)
async def test_an_answer_without_a_result_is_no_acknowledgement(status: int, answer: bytes) -> None:
    async with a_serving_broker(status, answer, []) as broker, a_dialect() as dialect:
        with pytest.raises(NotAcknowledgedError, match="answer"):
            await dialect.send(broker, TOLD, b"bytes", ENVELOPE)


@pytest.mark.parametrize("secrets", [(), ("a-secret-of-the-tests",)])
@pytest.mark.parametrize(
    "endpoint",
    [
        *("HTTP://", "HTTP://[bad:80", "HTTP://h:x", "HTTP://h:99999999", f"HTTP://{'x' * 70}:1", "HTTP://..:1"),
        *("HTTP://a b:1", "HTTP://\x00:1", f"HTTP://h:{'9' * 5_000}"),
    ],
)
async def test_a_broker_that_registered_nonsense_has_not_acknowledged(endpoint: str, secrets: tuple[str, ...]) -> None:
    async with a_client() as client:
        dialect = HttpDialect(client, signer=Signer(secrets), own_epoch=1)
        with pytest.raises(NotAcknowledgedError):
            await dialect.send(a_broker(endpoint=endpoint), TOLD, b"{}", ENVELOPE)


async def test_a_broker_that_cannot_be_reached_has_not_acknowledged() -> None:
    async with a_dialect() as dialect:
        with pytest.raises(NotAcknowledgedError, match="no listener named HTTP"):
            await dialect.send(Broker(1, 1, "h", 1, ()), TOLD, b"bytes", ENVELOPE)
        async with a_serving_broker(200, b"", []) as broker:
            pass
        with pytest.raises(NotAcknowledgedError, match="POST http"):
            await dialect.send(broker, TOLD, b"bytes", ENVELOPE)
