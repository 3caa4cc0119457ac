"""The rules in ZooKeeper as Kafka's brokers write them: read at the start, and again when a notification comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.core.acls import Caller, Kind, Operation
from controller.kafka.cluster.acl_keeper import AclKeeper, AuthorizerSettings
from controller.zookeeper.port import ZooKeeper
from tests.fakes.acls import Grant
from tests.fakes.zookeeper import FakeZooKeeper
from tests.waiting import until

ANN = Caller("User:ann", "127.0.0.1")
TOPIC, TEAM = "/kafka-acl/Topic/orders", "/kafka-acl-extended/prefixed/Topic/team-"
FOLDERS = (
    "/kafka-acl/Topic",
    "/kafka-acl-extended/prefixed/Topic",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)


def rules(operation: str = "Read") -> bytes:
    row = {"principal": "User:ann", "permissionType": "Allow", "operation": operation, "host": "*"}
    return json.dumps({"version": 1, "acls": [row]}).encode()


async def put(zk: ZooKeeper, path: str, data: bytes = b"") -> None:
    parts = path.split("/")
    for depth in range(2, len(parts) + 1):
        part = "/".join(parts[:depth])
        if (await zk.exists(part)).stat is None:
            await zk.create(part, b"")
    await zk.set(path, data, -1)


async def notify(zk: ZooKeeper, folder: str = "/kafka-acl-changes") -> None:
    await zk.create(f"{folder}/acl_changes_", b"Topic:orders", sequential=True)


@asynccontextmanager
async def a_keeper(zk: ZooKeeper, **settings: bool) -> AsyncIterator[AclKeeper]:
    keeper = AclKeeper(AuthorizerSettings(**settings))
    task = asyncio.create_task(keeper.keep())
    try:
        keeper.on_session(zk)
        yield keeper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def may(keeper: AclKeeper, name: str, operation: Operation = Operation.READ) -> bool:
    return (await keeper.authorizer()).allows(ANN, operation, Kind.TOPIC, name)


async def an_authorized_kafka() -> tuple[FakeZooKeeper, ZooKeeper]:
    server = FakeZooKeeper()
    kafka = await server.connect()
    for folder in FOLDERS:
        await put(kafka, folder)
    return server, kafka


async def test_rules_of_both_kinds_of_pattern_are_read() -> None:
    server, kafka = await an_authorized_kafka()
    await put(kafka, TOPIC, rules())
    await put(kafka, TEAM, rules("All"))
    async with a_keeper(await server.connect()) as keeper:
        assert await may(keeper, "orders")
        assert not await may(keeper, "orders", Operation.WRITE)
        assert await may(keeper, "team-x", Operation.WRITE)
        assert not await may(keeper, "others")


async def test_a_change_that_is_announced_is_read_and_one_through_us_before_its_answer() -> None:
    server, kafka = await an_authorized_kafka()
    async with a_keeper(await server.connect()) as keeper:
        assert not await may(keeper, "orders")
        await put(kafka, TOPIC, rules())
        await notify(kafka)
        await until(lambda: may(keeper, "orders"), "the rule applies")
        await put(kafka, TEAM, rules())
        await notify(kafka, FOLDERS[3])
        await until(lambda: may(keeper, "team-x"), "the rule about a prefix applies")
        await kafka.delete(TOPIC, -1)
        await keeper.changed()
        assert not await may(keeper, "orders")


async def test_folders_that_brokers_make_later_are_noticed() -> None:
    server = FakeZooKeeper()
    async with a_keeper(await server.connect()) as keeper:
        assert not await may(keeper, "orders")
        kafka = await server.connect()
        await put(kafka, TOPIC, rules())
        await put(kafka, FOLDERS[2])
        await notify(kafka)
        await until(lambda: may(keeper, "orders"), "the rule applies")


async def test_a_resource_whose_rules_make_no_sense_or_may_not_be_read_is_closed_and_others_are_not() -> None:
    server, kafka = await an_authorized_kafka()
    await put(kafka, TOPIC, rules())
    await put(kafka, "/kafka-acl/Topic/broken", b"{")
    await put(kafka, "/kafka-acl/Topic/hidden", rules())
    server.set_acl("/kafka-acl/Topic/hidden", Grant(0, "world", "anyone"))
    async with a_keeper(await server.connect(), is_open=True) as keeper:
        assert await may(keeper, "orders")
        assert await may(keeper, "others")  # without a rule
        assert not await may(keeper, "broken")
        assert not await may(keeper, "hidden")


async def test_rules_outlive_a_session_and_the_next_one_reads_them_again() -> None:
    server, kafka = await an_authorized_kafka()
    await put(kafka, TOPIC, rules())
    first = await server.connect()
    async with a_keeper(first) as keeper:
        assert await may(keeper, "orders")
        await first.close()
        await kafka.delete(TOPIC, -1)
        await notify(kafka)
        await keeper.changed()  # without a session
        assert await may(keeper, "orders")
        keeper.on_session(await server.connect())

        async def is_denied() -> bool:
            return not await may(keeper, "orders")

        await until(is_denied, "the rule is gone")


async def test_nobody_is_answered_before_rules_were_read() -> None:
    keeper = AclKeeper(AuthorizerSettings(is_open=True))
    waiting = asyncio.create_task(keeper.authorizer())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
