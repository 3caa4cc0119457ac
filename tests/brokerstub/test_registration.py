"""Registration: the owner session of a node says whose it is."""

from __future__ import annotations

import asyncio
import re
from random import Random

import msgspec
import pytest
from structlog.testing import capture_logs

from brokerstub.listeners import check_listeners, listeners_in
from brokerstub.registration import (
    DuplicateBrokerError,
    cluster_id,
    ensure_feature,
    generated_broker_id,
    register,
    registration_for,
)
from controller.base.config import BrokerConfig, ConfigError, broker_config_for
from controller.core.formats import decode_broker
from controller.core.operations import Delete
from controller.kafka.protocol.access import Admission
from controller.wire.bodies import speaks_http
from controller.zookeeper.layout import TOP_LEVEL_PATHS, ensure_paths
from controller.zookeeper.port import SessionLostError
from tests.brokerstub.support import eventually
from tests.contract.virtual import in_virtual_time
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.fakes.zookeeper import FakeClient, FakeZooKeeper

PATH = "/brokers/ids/1"


def data() -> bytes:
    return b'{"version":5}'


@pytest.fixture
def server() -> FakeZooKeeper:
    return FakeZooKeeper()


@pytest.fixture
async def client(server: FakeZooKeeper) -> FakeClient:
    client = await server.connect()
    await ensure_paths(client)
    return client


def owner_of(server: FakeZooKeeper) -> int:
    return server.tree.nodes[PATH].owner


async def until_waiting(client: FakeClient) -> None:
    """The registration has read the foreign owner, and waits."""
    await eventually(lambda: client.calls[-1:] == ["exists"])


async def test_top_level_paths_take_two_round_trips_the_first_time_and_one_later(server: FakeZooKeeper) -> None:
    first = await server.connect()
    await ensure_paths(first)
    assert first.calls == ["get_many", "transact", "get_many"]
    assert set(TOP_LEVEL_PATHS) <= server.tree.nodes.keys()
    second = await server.connect()
    await ensure_paths(second)
    assert second.calls == ["get_many"]


async def test_top_level_paths_that_exist_are_left_alone(server: FakeZooKeeper) -> None:
    server.seed({"/brokers": b"", "/brokers/ids": b"theirs"})
    await ensure_paths(await server.connect())
    assert server.read("/brokers/ids") == b"theirs"
    assert server.read("/config/ips") == b""


async def test_two_processes_that_start_together_agree_on_paths_and_cluster_id(server: FakeZooKeeper) -> None:
    async def start(seed: int) -> str:
        client = await server.connect()
        await ensure_paths(client)
        return await cluster_id(client, Random(seed))

    ids = await asyncio.gather(start(1), start(2), start(3))
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22
    assert msgspec.json.decode(server.read("/cluster/id") or b"") == {"version": "1", "id": ids[0]}


@pytest.mark.parametrize("fault", ["lose_next_answer", "lose_next_request"])
async def test_start_up_survives_a_lost_request_or_answer(server: FakeZooKeeper, fault: str) -> None:
    client = await server.connect()
    getattr(client, fault)()
    await ensure_paths(client)
    getattr(client, fault)()
    assert len(await cluster_id(client, Random(1))) == 22


@pytest.mark.parametrize("fault", [None, "lose_next_answer", "lose_next_request"])
async def test_the_feature_node_is_made_as_kafka_3_9_makes_it(
    server: FakeZooKeeper, client: FakeClient, fault: str | None
) -> None:
    if fault is not None:
        getattr(client, fault)()
    await ensure_feature(client)
    assert msgspec.json.decode(server.read("/feature") or b"") == {"version": 2, "status": 1, "features": {}}


async def test_a_feature_node_that_exists_is_left_alone(server: FakeZooKeeper, client: FakeClient) -> None:
    server.seed({"/feature": b"theirs"})
    await ensure_feature(client)
    assert server.read("/feature") == b"theirs"


async def test_generated_broker_ids_begin_after_the_reserved_ones_and_are_never_given_twice(
    server: FakeZooKeeper, client: FakeClient
) -> None:
    assert [await generated_broker_id(client, 1_000) for _ in range(2)] == [1_001, 1_002]
    client.lose_next_answer()
    assert await generated_broker_id(client, 1_000) == 1_004
    assert server.read("/brokers/seqid") == b""


async def test_the_broker_epoch_is_the_czxid(server: FakeZooKeeper, client: FakeClient) -> None:
    broker_epoch = await register(client, 1, data)
    assert broker_epoch == server.history[-1].zxid
    assert server.read(PATH) == data()
    assert owner_of(server) == client.session_id


async def test_a_node_of_our_own_session_is_success(server: FakeZooKeeper, client: FakeClient) -> None:
    first = await register(client, 1, data)
    assert await register(client, 1, data) == first


async def test_a_node_of_an_earlier_session_of_ours_is_replaced(server: FakeZooKeeper, client: FakeClient) -> None:
    earlier = await server.connect()
    first = await register(earlier, 1, data)
    broker_epoch = await register(client, 1, data, earlier_session_ids={earlier.session_id})
    assert broker_epoch > first
    assert owner_of(server) == client.session_id


async def test_a_foreign_owner_that_goes_is_waited_for(server: FakeZooKeeper, client: FakeClient) -> None:
    foreign = await server.connect()
    first = await register(foreign, 1, data)
    async with asyncio.TaskGroup() as tasks:
        registering = tasks.create_task(register(client, 1, data))
        await until_waiting(client)
        assert owner_of(server) == foreign.session_id
        server.expire(foreign)
    assert registering.result() > first
    assert owner_of(server) == client.session_id


async def test_a_foreign_owner_that_stays_means_a_duplicate_broker_id(
    server: FakeZooKeeper, client: FakeClient
) -> None:
    foreign = await server.connect()
    first = await register(foreign, 1, lambda: b"theirs")
    with pytest.raises(DuplicateBrokerError, match="duplicate broker id 1"):
        await register(client, 1, data, earlier_session_ids={client.session_id - 100}, patience_ms=10)
    await client.close()
    assert (server.read(PATH), server.tree.nodes[PATH].stat.czxid) == (b"theirs", first)


def at(port: int) -> bytes:
    return b'{"version":5,"host":"h","port":%d,"endpoints":["HTTP://h:%d"],"timestamp":"1"}' % (port, port)


@in_virtual_time
async def test_an_earlier_life_of_ours_is_waited_for_however_long_its_session_is() -> None:
    """Thirty seconds, where ours has four: it was taken for a duplicate of itself after ten."""
    server = FakeZooKeeper()
    earlier, client = await server.connect(), await server.connect()
    await ensure_paths(client)
    await register(earlier, 1, lambda: at(8081))
    async with asyncio.TaskGroup() as tasks:
        registering = tasks.create_task(register(client, 1, lambda: at(8081)))
        await asyncio.sleep(30)
        assert not registering.done()
        server.expire(earlier)
    assert owner_of(server) == client.session_id


@in_virtual_time
async def test_a_process_at_another_address_is_a_duplicate_as_soon_as_ever() -> None:
    server = FakeZooKeeper()
    other, client = await server.connect(), await server.connect()
    await ensure_paths(client)
    await register(other, 1, lambda: at(8082))
    started = asyncio.get_running_loop().time()
    with pytest.raises(DuplicateBrokerError):
        await register(client, 1, lambda: at(8081))
    assert asyncio.get_running_loop().time() - started < 30


async def test_a_foreign_owner_that_goes_while_we_are_cut_off_is_noticed(
    server: FakeZooKeeper, client: FakeClient
) -> None:
    foreign = await server.connect()
    await register(foreign, 1, data)
    async with asyncio.TaskGroup() as tasks:
        registering = tasks.create_task(register(client, 1, data))
        await until_waiting(client)
        server.disconnect(client)
        server.expire(foreign)
        server.reconnect(client)
    assert registering.result() == server.history[-1].zxid


async def test_while_zookeeper_is_away_no_broker_is_taken_for_a_duplicate(
    server: FakeZooKeeper, client: FakeClient
) -> None:
    """It ended no session meanwhile: a broker that waited for its own earlier one gave up (chaos SEED=47.18)."""
    patience_ms = 300
    foreign = await server.connect()
    await register(foreign, 1, data)
    async with asyncio.TaskGroup() as tasks:
        registering = tasks.create_task(register(client, 1, data, patience_ms=patience_ms))
        await until_waiting(client)
        server.disconnect(client)
        over = asyncio.get_running_loop().time() + patience_ms / 1_000
        while asyncio.get_running_loop().time() < over:  # all of it passes, and it does not give up
            assert not registering.done()
            await asyncio.sleep(0.02)
        readings = client.calls.count("exists")
        server.reconnect(client)
        await eventually(lambda: client.calls.count("exists") > readings or registering.done())
        await asyncio.sleep(0)
        server.expire(foreign)
    assert registering.result() == server.history[-1].zxid


@pytest.mark.parametrize("fault", ["lose_next_answer", "lose_next_request"])
@pytest.mark.parametrize("call", ["sync", "exists", "create"])
async def test_whatever_is_lost_there_is_one_registration_and_it_is_ours(
    server: FakeZooKeeper, client: FakeClient, call: str, fault: str
) -> None:
    """Registering is sync, exists, create: each of them is lost once."""
    index = ["sync", "exists", "create"].index(call)
    seen: list[str] = []

    async def arm(asking: FakeClient, name: str) -> None:
        seen.append(name)
        if len(seen) == index:
            getattr(client, fault)()

    server.on_request = arm
    if index == 0:
        getattr(client, fault)()
    broker_epoch = await register(client, 1, data)
    created = [commit for commit in server.history if any(op.path == PATH for op in commit.ops)]
    assert [commit.zxid for commit in created] == [broker_epoch]
    assert owner_of(server) == client.session_id


async def test_a_lost_session_ends_the_wait(server: FakeZooKeeper, client: FakeClient) -> None:
    await register(await server.connect(), 1, data)

    async def expire() -> None:
        await until_waiting(client)
        server.expire(client)

    outcomes = await asyncio.gather(register(client, 1, data), expire(), return_exceptions=True)
    assert isinstance(outcomes[0], SessionLostError)


@pytest.mark.parametrize("gone", ["/brokers/ids", "/brokers"])
async def test_removed_parents_are_made_again(server: FakeZooKeeper, client: FakeClient, gone: str) -> None:
    below = sorted((path for path in server.tree.nodes if path.startswith(gone)), reverse=True)
    assert server.commit(0, [Delete(path, -1) for path in below]).refused is None
    assert await register(client, 1, data) == server.history[-1].zxid
    assert set(TOP_LEVEL_PATHS) <= server.tree.nodes.keys()


async def test_a_registration_that_is_refused_is_said_and_tried_again(
    server: FakeZooKeeper, client: FakeClient
) -> None:
    server.set_acl("/brokers/ids", grant_to_all(READ))
    with capture_logs() as lines:
        async with asyncio.TaskGroup() as tasks:
            registering = tasks.create_task(register(client, 1, data))
            await eventually(lambda: client.calls.count("create") >= 2)
            assert not registering.done()
            server.set_acl("/brokers/ids", grant_to_all(ALL))
    assert registering.result() == server.history[-1].zxid
    [said] = [line for line in lines if line["event"] == "registration.refused"]
    assert (said["reason"], "allow brokers" in said["mend"]) == ("NoAuthError (-102) at /brokers/ids/1", True)


async def test_registration_data_is_built_at_each_attempt(server: FakeZooKeeper, client: FakeClient) -> None:
    """After KAFKA-6573: the second registration advertised the old address."""
    versions = iter([b"first", b"second"])
    await register(client, 1, lambda: next(versions))
    server.expire(client)
    client = await server.connect()
    await register(client, 1, lambda: next(versions))
    assert server.read(PATH) == b"second"


def config(**fields: str) -> BrokerConfig:
    return BrokerConfig(broker_id=1, zookeeper_connect="", log_dirs=".", **fields)  # type: ignore[arg-type]


def test_the_registration_is_kafkas_version_5() -> None:
    assert msgspec.json.decode(registration_for(config(broker_rack="r1"), 1_794_988_138_221)) == {
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://127.0.0.1:8081"],
        "rack": "r1",
        "jmx_port": -1,
        "port": 8081,
        "host": "127.0.0.1",
        "version": 5,
        "timestamp": "1794988138221",
        "klamm_endpoints": ["HTTP://127.0.0.1:8081"],
    }
    assert b"rack" not in registration_for(config(), 0)


def test_the_advertised_listeners_are_registered() -> None:
    registered = msgspec.json.decode(registration_for(config(advertised_listeners="HTTP://broker-1:9000"), 0))
    assert (registered["klamm_endpoints"], registered["host"], registered["port"]) == (
        ["HTTP://broker-1:9000"],
        "broker-1",
        9000,
    )


LISTENERS = "HTTP://127.0.0.1:8081,PLAINTEXT://127.0.0.1:9091,INNER_HTTPS://[::1]:8443,SSL://127.0.0.1:9443"


@pytest.mark.parametrize(
    ("listeners", "endpoints", "address"),
    [
        ("HTTP://127.0.0.1:8081", ["PLAINTEXT://127.0.0.1:8081"], ("127.0.0.1", 8081)),
        (
            "HTTP://h:1,BROKERS://h:2,INNER_HTTPS://[::1]:3,HTTPS://h:4",
            ["PLAINTEXT://h:1", "SSL://[::1]:3"],
            ("h", 1),
        ),
        (LISTENERS, ["PLAINTEXT://127.0.0.1:9091", "SSL://127.0.0.1:9443"], ("127.0.0.1", 9091)),
    ],
)
def test_tools_of_every_kafka_read_the_registration(
    listeners: str, endpoints: list[str], address: tuple[str, int]
) -> None:
    """Kafka 0.9 takes the name before `://` for a security protocol, and fails as a whole at any other."""
    registered = msgspec.json.decode(registration_for(config(listeners=listeners), 0))
    assert registered["endpoints"] == endpoints
    assert (registered["host"], registered["port"]) == address
    kafkas_pattern = re.compile(r"^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
    names = [match[1] for one in endpoints if (match := kafkas_pattern.match(one))]
    assert names == list(registered["listener_security_protocol_map"])
    assert set(names) <= {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    assert registered["listener_security_protocol_map"] == {name: name for name in names}


def test_a_registration_is_read_with_all_its_listeners() -> None:
    broker = decode_broker(registration_for(config(listeners=LISTENERS), 0), 1, 7)
    assert set(broker.endpoints) == set(LISTENERS.split(","))
    assert speaks_http(broker.endpoints)
    alone = decode_broker(registration_for(config(), 0), 1, 7)
    assert alone.endpoints == ("HTTP://127.0.0.1:8081",)  # it is one listener, under two names


def test_a_registration_of_an_earlier_release_is_read_as_it_was() -> None:
    data = b'{"version":5,"host":"h","port":1,"endpoints":["HTTP://h:1"],"features":{}}'
    broker = decode_broker(data, 1, 7)
    assert (broker.endpoints, speaks_http(broker.endpoints)) == (("HTTP://h:1",), True)
    assert not speaks_http(decode_broker(data.replace(b"HTTP", b"PLAINTEXT"), 1, 7).endpoints)


@pytest.mark.parametrize("listeners", ["", "127.0.0.1:8081", "HTTP://127.0.0.1", "HTTP://:8081", "HTTP://h:port"])
def test_a_listener_that_makes_no_sense_is_explained(listeners: str) -> None:
    with pytest.raises(ConfigError, match="write it like HTTP://"):
        registration_for(config(listeners=listeners), 0)


@pytest.mark.parametrize(
    ("listeners", "more", "message"),
    [
        ("PLAINTEXT://0.0.0.0:9091", {}, "write and read records"),
        ("SSL://0.0.0.0:9091", {}, "write and read records"),
        ("SSL://0.0.0.0:9091", {"ssl_client_auth": "required"}, None),
        ("PLAINTEXT://127.0.0.1:9091", {}, None),
        ("SASL_PLAINTEXT://127.0.0.1:9091", {}, "says how clients log in"),
        ("HTTP://0.0.0.0:9091", {}, None),
    ],
)
def test_records_are_for_this_machine_or_for_clients_with_a_certificate(
    listeners: str, more: dict[str, str], message: str | None
) -> None:
    if message is None:
        check_listeners(config(listeners=listeners, **more))
        return
    with pytest.raises(ConfigError, match=message):
        check_listeners(config(listeners=listeners, **more))
    if "SASL" not in listeners:
        check_listeners(config(listeners=listeners, **more), is_insecure=True)


def test_a_listener_at_which_clients_log_in_may_be_reached_by_others() -> None:
    listeners = "SASL_SSL://0.0.0.0:9091,SASL_PLAINTEXT://0.0.0.0:9092"
    check_listeners(config(listeners=listeners), Admission(("PLAIN",), {"ann": "secret"}))
    assert [(one.has_sasl, one.has_tls) for one in listeners_in(listeners)] == [(True, True), (True, False)]
    assert [(one.has_sasl, one.has_tls) for one in listeners_in("SSL://h:1,PLAINTEXT://h:2,HTTPS://h:3")] == [
        (False, True),
        (False, False),
        (False, False),
    ]


def test_the_listener_of_the_brokers_among_themselves_must_be_one_of_theirs() -> None:
    properties = {
        "zookeeper.connect": "127.0.0.1:2181",
        "log.dirs": "logs",
        "listeners": "HTTP://0.0.0.0:8080,BROKERS://0.0.0.0:9090",
        "advertised.listeners": "HTTP://127.0.0.1:8081,BROKERS://broker1.cluster:9090",
        "inter.broker.listener.name": "BROKERS",
    }
    registered = msgspec.json.decode(registration_for(broker_config_for(properties), 0))
    assert (registered["host"], registered["port"]) == ("127.0.0.1", 8081)
    assert registered["klamm_endpoints"] == ["HTTP://127.0.0.1:8081", "BROKERS://broker1.cluster:9090"]
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name: none of the listeners is named OTHERS"):
        broker_config_for({**properties, "inter.broker.listener.name": "OTHERS"})
