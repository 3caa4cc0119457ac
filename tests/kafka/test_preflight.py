"""The checks before the seat is taken from Kafka's controller: vetoes, and the first decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from controller.base.config import Limits
from controller.kafka.cluster.settings import DedicatedConfig, config_for
from controller.kafka.protocol.access import Access, Listener, OpenConnection
from controller.kafka.takeover import Preflight, preflight, vetoes_against
from controller.seat.claim import read_seat
from controller.security.secrets import NO_SECRETS
from controller.term.parts import TermParts
from controller.wire import bodies
from tests.fakes.zookeeper import FakeZooKeeper
from tests.kafka.kafka_world import HOST, a_broker_of, a_frozen_broker
from tests.support.harness import Heard, a_server, topic_json


def registration(endpoint: str = "PLAINTEXT://h:9092", version: int = 5) -> bytes:
    protocols = {"INSIDE": "PLAINTEXT", "HTTP": "PLAINTEXT"}
    endpoints = endpoint.split(",")
    told = {"version": version, "host": None, "port": -1, "endpoints": endpoints}
    names = [one.partition("://")[0] for one in endpoints]
    return json.dumps(
        {**told, "listener_security_protocol_map": {name: protocols.get(name, name) for name in names}}
    ).encode()


async def a_kafka(**brokers: bytes) -> FakeZooKeeper:
    """Real brokers by name b1, b2, ...; the first holds the seat."""
    server = await a_server()
    for name, data in (brokers or {"b1": registration(), "b2": registration()}).items():
        zk = await server.connect()
        await zk.create(f"/brokers/ids/{name[1:]}", data, ephemeral=True)
    tool = await server.connect()
    await tool.create("/controller_epoch", b"7")
    await tool.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}')
    return server


async def put(server: FakeZooKeeper, path: str, value: Any) -> None:
    tool = await server.connect()
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts)):
        if server.read(parent := "/" + "/".join(parts[:depth])) is None:
            await tool.create(parent, b"")
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    await tool.create(path, data)


LISTEN = "kafka://127.0.0.1:1,http://127.0.0.1:2"


class Redirected(Access, frozen=True):
    """Connects to these ports, one after the other, and ignores the addresses that brokers register."""

    ports: list[int] = []

    async def open(self, address: Listener) -> OpenConnection:
        self.ports.append(port := self.ports.pop(0))
        return await super().open(Listener(address.name, HOST, port, address.protocol))


KAFKA_3_9 = a_broker_of({4: (0, 7), 5: (0, 4), 6: (0, 8)})
KAFKA_3_3 = a_broker_of({4: (0, 6), 5: (0, 3), 6: (0, 7)})


async def checked(
    server: FakeZooKeeper,
    level: str = "3.9",
    listener: str | None = None,
    own_id: int = 100,
    listen: str = LISTEN,
    brokers: Sequence[Any] = (KAFKA_3_9,),
    **more: Any,
) -> Preflight:
    """Reached brokers answer like these, in turn; None: no server listens."""
    async with AsyncExitStack() as stack:
        ports = []
        for one in brokers:
            endpoint = await asyncio.start_server(one or KAFKA_3_9, HOST, 0)
            stack.callback(endpoint.close)
            ports.append(endpoint.sockets[0].getsockname()[1])
            if one is None:
                endpoint.close()
        config = config_of(level, listener, own_id, listen, **more)
        access = Redirected(listener=listener, tls=config.access.tls, sasl=config.access.sasl, ports=ports)
        zk = await server.connect()
        return await preflight(zk, msgspec.structs.replace(config, access=access), await read_seat(zk), parts_of())


def parts_of() -> TermParts:
    heard = Heard()
    return TermParts(
        cluster_id="test",
        open_outboxes=heard.open_outboxes,
        journal=heard,
        limits=Limits(kafka_probe_ms=3_000, kafka_probe_rest_ms=1_000),
        wall_ms=lambda: 0,
        entropy=Random(1),
        is_ours=lambda broker: not bodies.speaks_http(broker.endpoints),
    )


def config_of(
    level: str = "3.9",
    listener: str | None = None,
    own_id: int = 100,
    listen: str = LISTEN,
    overrides: tuple[str, ...] = (),
    **more: Any,
) -> DedicatedConfig:
    return config_for(
        zookeeper="unused", controller_id=own_id, listen=listen, protocol=level, listener=listener, is_preferred=False,
        is_insecure=False, directory=Path("unused"), file=None, overrides=overrides, secrets=NO_SECRETS, **more,
    )  # fmt: skip


async def test_a_cluster_as_it_should_be_may_be_taken_over_and_nothing_would_be_written() -> None:
    server = await a_kafka()
    await put(server, "/brokers/topics/orders", topic_json([1, 2]))
    state = {"controller_epoch": 7, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1, 2]}
    await put(server, "/brokers/topics/orders/partitions/0/state", state)
    found = await checked(server)
    assert (found.controller, found.controller_epoch, found.brokers) == (1, 7, [1, 2])
    assert (found.topics, found.partitions) == (1, 1)
    assert (found.reasons, found.writes) == ([], [])


async def test_the_first_decisions_are_told_and_not_carried_out() -> None:
    server = await a_kafka()
    await put(server, "/brokers/topics/orders", topic_json([2, 1]))
    before = {"controller_epoch": 7, "leader": 3, "version": 1, "leader_epoch": 4, "isr": [1, 2, 3]}
    path = "/brokers/topics/orders/partitions/0/state"
    await put(server, path, before)
    found = await checked(server)
    assert (found.writes, found.writes_count) == ([path], 1)
    assert found.decisions == ["orders-0: leader 3 -> 2, epoch 5, ISR 1, 2"]
    assert json.loads(server.read(path) or b"") == before


MIGRATION = {"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 1, "kraft_metadata_offset": 5}
FEATURES = {"version": 2, "status": 1, "features": {"group.version": {"max_version_level": 1}}}


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("/migration", MIGRATION, "a migration to KRaft is under way"),
        ("/feature", FEATURES, "features are finalised"),
        ("/kafka-acl/Topic/orders", {"version": 1, "acls": []}, "ACLs are in use (/kafka-acl)"),
        ("/kafka-acl-extended/prefixed/Topic/o", {"version": 1, "acls": []}, "ACLs are in use (/kafka-acl-extended)"),
        ("/delegation_token/tokens/abc", b"", "delegation tokens are in use"),
    ],
)
async def test_a_feature_that_this_controller_lacks_is_a_reason(path: str, value: object, reason: str) -> None:
    server = await a_kafka()
    await put(server, path, value)
    [said] = (await checked(server)).reasons
    assert said.startswith(reason)


async def test_a_seat_that_a_controller_of_kraft_holds_is_left_to_it() -> None:
    server = await a_kafka()
    tool = await server.connect()
    told = {"version": 2, "brokerid": 3000, "timestamp": "0", "kraftControllerEpoch": 4}
    await tool.set("/controller", json.dumps(told).encode(), -1)
    [said] = (await checked(server)).reasons
    assert said.startswith("a migration to KRaft is under way")


async def test_an_empty_node_is_no_reason() -> None:
    server = await a_kafka()
    await put(server, "/feature", {"version": 2, "status": 1, "features": {}})
    await put(server, "/migration", {"version": 0, "kraft_controller_id": -1})
    assert (await checked(server)).reasons == []


async def test_an_authorizer_without_a_rule_is_a_reason_unless_it_is_known_to_be_gone() -> None:
    server = await a_kafka()
    await put(server, "/kafka-acl/Topic", b"")
    await put(server, "/kafka-acl-extended/prefixed/Topic", b"")
    [said] = (await checked(server)).reasons
    assert said.startswith("an authorizer has made /kafka-acl")
    assert (await checked(server, is_without_authorizer=True)).reasons == []
    await put(server, "/kafka-acl/Topic/orders", {"version": 1, "acls": []})
    [said] = (await checked(server, is_without_authorizer=True)).reasons
    assert said.startswith("ACLs are in use")


async def test_where_this_controller_holds_clients_to_them_acls_are_no_reason() -> None:
    server = await a_kafka()
    await put(server, "/kafka-acl/Topic/orders", {"version": 1, "acls": []})
    [said] = (await checked(server)).reasons
    assert "authorizer.class.name" in said
    guarded = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:kafka")
    assert (await checked(server, overrides=guarded)).reasons == []


@pytest.mark.parametrize(
    ("brokers", "given", "reason"),
    [
        ({"b1": registration(version=4)}, {}, "brokers [1] register as those below"),
        ({"b1": registration(version=4)}, {"level": "2.6"}, None),
        (
            {"b1": registration("SASL_SSL://h:9092")},
            {},
            "brokers [1] have a listener of SASL_SSL, which takes ssl.truststore.location and sasl.jaas",
        ),
        ({"b1": registration("INSIDE://h:9092")}, {"listener": "INSIDE"}, None),
        ({"b1": registration("INSIDE://h:9092")}, {"listener": "OTHER"}, "brokers [1] have no listener named OTHER"),
        ({"b1": registration("HTTP://h:9092")}, {}, "no broker that this controller can speak to"),
        (
            {"b1": registration()},
            {"listen": "ssl://127.0.0.1:1,http://127.0.0.1:2"},
            "brokers [1] speak PLAINTEXT to their controller, and this one does not listen so: add plaintext://",
        ),
        (
            {"b1": registration("PLAINTEXT://h:9092,OUTSIDE://h:9093,SSL://h:9094")},
            {},
            "brokers [1] have a listener SSL of SSL, too, by which this one does not listen: say with --listener-name",
        ),
        ({"b1": registration("PLAINTEXT://h:9092,SSL://h:9094")}, {"listener": "PLAINTEXT"}, None),
        (
            {"b1": registration("PLAINTEXT://h:9092,SSL://h:9094")},
            {"listen": "kafka://127.0.0.1:1,ssl://127.0.0.1:3,http://127.0.0.1:2"},
            None,
        ),
        ({"b1": registration(), "b2": b"garbage"}, {}, None),
        ({"b1": registration()}, {"own_id": 1}, "broker 1 is registered: give this controller another id"),
    ],
)
async def test_brokers_are_looked_at_one_by_one(
    brokers: dict[str, bytes], given: dict[str, Any], reason: str | None
) -> None:
    reasons = (await checked(await a_kafka(**brokers), **given)).reasons
    assert [one[: len(reason or "")] for one in reasons] == ([] if reason is None else [reason])


async def test_stubs_that_hold_replicas_are_a_reason_and_others_are_none() -> None:
    server = await a_kafka(b1=registration(), b2=registration("HTTP://h:8081"))
    assert (await checked(server)).reasons == []
    await put(server, "/brokers/topics/orders", topic_json([1, 2]))
    [reason] = (await checked(server)).reasons
    assert reason.startswith("brokers [2] hold replicas and are stubs")


@pytest.mark.parametrize(
    ("registered", "given", "reason"),
    [
        ({"b1": registration(version=4)}, {}, "brokers [1] register as those below"),
        ({"b1": registration("SASL_SSL://h:9092")}, {}, "brokers [1] have a listener of SASL_SSL"),
        ({"b1": registration("SSL://h:9094")}, {}, "brokers [1] have a listener of SSL"),
        ({"b1": registration()}, {"own_id": 1}, "broker 1 is registered"),
        ({"b1": registration("HTTP://h:8081")}, {}, "no broker that this controller can speak to"),
        ({"b1": registration(), "b2": b"garbage"}, {}, None),
    ],
)
async def test_a_vacant_seat_is_left_for_the_same_reasons(
    registered: dict[str, bytes], given: dict[str, Any], reason: str | None
) -> None:
    zk = await (await a_kafka(**registered)).connect()
    reasons = await vetoes_against(zk, config_of(**given))
    assert [one[: len(reason or "")] for one in reasons] == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    ("brokers", "level", "reason"),
    [
        ([KAFKA_3_9, KAFKA_3_9], "3.9", None),
        ([KAFKA_3_3, KAFKA_3_3], "3.9", "brokers [1, 2] take LeaderAndIsr from version 0 to 6 and not 7, StopReplica"),
        ([KAFKA_3_3, KAFKA_3_3], "3.3", None),
        ([KAFKA_3_9, None], "3.9", "brokers [2] cannot be spoken to by PLAINTEXT"),
        ([KAFKA_3_9, a_frozen_broker], "3.9", None),
        ([a_frozen_broker, a_frozen_broker], "3.9", "brokers [1, 2] do not answer"),
    ],
    ids=["as they should", "older ones", "older ones, known", "one refuses", "one stands still", "all stand still"],
)
async def test_brokers_are_asked_for_their_versions(brokers: list[Any], level: str, reason: str | None) -> None:
    reasons = (await checked(await a_kafka(), level, brokers=brokers)).reasons
    assert [one[: len(reason or "")] for one in reasons] == ([] if reason is None else [reason])
