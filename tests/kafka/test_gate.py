"""The gate in front of the Kafka listener, where no real broker can be asked: what is refused outright, what is hidden,
and who a caller is. `real_brokers/test_acls.py` holds its answers against Kafka's.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.base.config import LIMITS, BrokerConfig, ConfigError
from controller.core.acls import Acl, Authorizer, Kind, Operation, Resource
from controller.kafka.cluster.acl_keeper import AuthorizerSettings
from controller.kafka.cluster.settings import authorizer_for
from controller.kafka.protocol.access import Access, Listener
from controller.kafka.protocol.codec import Reader, WireError, Writer, topic_id_of
from controller.kafka.server.admin_apis import HOSTED
from controller.kafka.server.callers import host_as_java_writes, name_as_java_writes
from controller.kafka.server.gate import FREE, JUDGED, Gate
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer
from controller.kafka.server.login import Login
from controller.kafka.server.relay import ACL_CHANGES, PASSED_ON
from controller.security.tls import client_context_for, server_context_for
from tests.builders import a_cluster
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import HOST, Client
from tests.kafka.test_kafka_login import ADMITTED, a_sasl, records
from tests.security.authority import Authority

SECOND = timedelta(seconds=1)
IDS = {"orders": uuid.UUID(int=7), "hidden": uuid.UUID(int=8)}
USER = "User:ka=f,ka"  # who logs in here
SEEN = Resource(Kind.TOPIC, "orders")


def allowed(*operations: Operation, principal: str = USER) -> tuple[Acl, ...]:
    return tuple(Acl(principal, "*", one, is_denial=False) for one in operations)


class World:
    """A listener behind the gate; what comes through is kept."""

    def __init__(self, rules: Mapping[Resource, Sequence[Acl]]) -> None:
        self.rules = rules
        self.came: list[int] = []
        self.changes = 0
        ids = {name: topic_id_of(uuid.bytes) for name, uuid in IDS.items()}
        self.cluster = a_cluster(live=[1], orders=[[1]], hidden=[[1]], ids=ids)

    async def authorizer(self) -> Authorizer:
        return Authorizer(self.rules)

    async def changed(self) -> None:
        self.changes += 1
        self.rules = {}

    async def handled(self, key: int, version: int, reader: Reader, writer: Writer) -> None:
        self.came.append(key)
        writer.i32(0)

    async def passed_on(self, frame: bytes) -> bytes:
        self.came.append(int.from_bytes(frame[:2], "big"))
        return b"passed on"

    async def none_foreign(self) -> Mapping[int, Api]:
        return {key: Api(0, 99, 99) for key in (3, 1000)}


@asynccontextmanager
async def served(
    world: World, tls: BrokerConfig | None = None, *, auto_creates: bool = True, is_anonymous: bool = False
) -> AsyncIterator[int]:
    own = {key: Api(0, 99, 99, partial(world.handled, key)) for key in JUDGED - PASSED_ON - ACL_CHANGES}
    gate = Gate(world.authorizer, lambda: world.cluster, world.changed, auto_creates=auto_creates)
    table = {**own, **HOSTED, API_VERSIONS: Api(0, 3, 3)}
    server = KafkaServer(table, world.none_foreign, world.passed_on, LIMITS, gate)
    login = None if is_anonymous else partial(Login, ADMITTED, records)
    port = await server.start(HOST, 0, tls=None if tls is None else server_context_for(tls), login=login)
    try:
        yield port
    finally:
        await server.close()


@asynccontextmanager
async def a_client(world: World, **how: bool) -> AsyncIterator[Client]:
    """Logged in, if nothing else is said."""
    is_anonymous = how.get("is_anonymous", False)
    protocol = ("PLAINTEXT", 0) if is_anonymous else ("SASL_PLAINTEXT", 2)
    async with served(world, None, **how) as port:
        access = Access(sasl=None if is_anonymous else a_sasl("PLAIN"))
        opened = await access.open(Listener(protocol[0], HOST, port, protocol[1]))
        try:
            yield Client(opened.reader, opened.writer)
        finally:
            opened.writer.close()


def a_row(api: str, version: int, kind: str, /, **fields: Any) -> Any:
    return getattr(kio.schema(api, version, "request"), kind)(**fields)


@pytest.mark.parametrize("is_anonymous", [False, True])
async def test_without_a_rule_a_broker_s_request_is_denied_and_never_comes_through(is_anonymous: bool) -> None:
    world = World({})
    async with a_client(world, is_anonymous=is_anonymous) as client:
        with capture_logs() as lines:
            answer = await client.ask(
                "alter_partition", 3, "AlterPartitionRequest", broker_id=1, broker_epoch=1, topics=()
            )
    assert (int(answer.error_code), world.came) == (31, [])
    [line] = [one for one in lines if one["event"] == "request.denied"]
    principal = "User:ANONYMOUS" if is_anonymous else USER
    assert (line["principal"], line["host"], line["api"]) == (principal, HOST, "AlterPartition")


async def test_an_allowed_request_of_a_broker_is_not_even_read() -> None:
    world = World({Resource(Kind.CLUSTER, "kafka-cluster"): allowed(Operation.CLUSTER_ACTION)})
    async with a_client(world) as client:
        assert await client.raw(kio.request_header(56, 3, 7, "c") + b"nonsense") == b"\0\0\0\7\0\0\0\0"
    assert world.came == [56]


@pytest.mark.parametrize("key", [1000, 17, 4])
async def test_an_api_without_a_rule_is_neither_listed_nor_served(key: int) -> None:
    world = World({SEEN: allowed(Operation.ALL)})
    async with a_client(world, is_anonymous=True) as client:
        listed = await client.ask("api_versions", 0, "ApiVersionsRequest")
        assert {one.api_key for one in listed.api_keys} <= JUDGED | FREE
        assert {one.api_key: one.max_version for one in listed.api_keys}[3] == 12  # what can be read here
        assert await client.raw(kio.request_header(key, 0, 7, "c", 1)) is None
    assert world.came == []


async def test_what_is_no_request_ends_the_connection() -> None:
    async with a_client(World({})) as client:
        assert await client.raw(kio.request_header(19, 7, 7, "c") + b"\xff\xff\xff") is None


async def test_a_topic_that_may_not_be_seen_is_deleted_by_no_id_and_named_to_nobody() -> None:
    world = World({SEEN: allowed(Operation.DESCRIBE)})
    async with a_client(world) as client:
        rows = tuple(
            a_row("delete_topics", 6, "DeleteTopicState", name=None, topic_id=IDS[name])
            for name in ("orders", "hidden")
        )
        answer = await client.ask("delete_topics", 6, "DeleteTopicsRequest", topics=rows, timeout=SECOND)
    told = [(one.name, one.topic_id, int(one.error_code)) for one in answer.responses]
    assert told == [("orders", IDS["orders"], 29), (None, IDS["hidden"], 29)]
    assert world.came == []


async def test_metadata_names_no_topic_that_may_not_be_seen_and_makes_none() -> None:
    world = World({SEEN: allowed(Operation.DESCRIBE), Resource(Kind.TOPIC, "new"): allowed(Operation.READ)})
    sent: list[Any] = []

    async def told(frame: bytes) -> bytes:
        kind = kio.schema("metadata", 1, "request").MetadataRequest
        sent.append(kio.read(kind, frame[15:]))  # after the head, with the name of the client
        m = kio.schema("metadata", 1, "response")
        return frame[4:8] + kio.written(m.MetadataResponse(brokers=(), controller_id=9, topics=()))

    world.passed_on = told  # type: ignore[method-assign]
    async with a_client(world) as client:
        rows = tuple(a_row("metadata", 1, "MetadataRequestTopic", name=name) for name in ("orders", "hidden", "new"))
        answer = await client.ask("metadata", 1, "MetadataRequest", topics=rows)
        await client.ask("metadata", 1, "MetadataRequest", topics=None)
    assert [[one.name for one in request.topics] for request in sent] == [["orders"], ["orders"]]
    assert [(one.name, int(one.error_code)) for one in answer.topics] == [("hidden", 29), ("new", 29)]


async def test_a_change_of_rules_that_came_through_applies_to_the_next_request() -> None:
    world = World({Resource(Kind.CLUSTER, "kafka-cluster"): allowed(Operation.ALTER)})
    async with a_client(world) as client:
        request = kio.written(kio.schema("create_acls", 3, "request").CreateAclsRequest(creations=()))
        assert await client.raw(kio.request_header(30, 3, 7, "c") + request) == b"passed on"
        assert world.changes == 1
        assert await client.raw(kio.request_header(30, 3, 8, "c") + request) != b"passed on"
    assert world.came == [30]


async def test_by_tls_a_caller_is_who_the_certificate_says_and_nobody_without_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")

    def own(**properties: str) -> BrokerConfig:
        return BrokerConfig(zookeeper_connect="", log_dirs="d", ssl_truststore_location=authority.trust, **properties)  # type: ignore[arg-type]

    asking = own(ssl_keystore_location=authority.keystore("server"), ssl_client_auth="requested")
    world = World({Resource(Kind.CLUSTER, "kafka-cluster"): allowed(Operation.ALL, principal="User:CN=ann")})
    codes = []
    async with served(world, asking, is_anonymous=True) as port:
        for config in (own(ssl_keystore_location=authority.keystore("ann")), own()):
            opened = await Access(tls=client_context_for(config)).open(Listener("SSL", HOST, port, 1))
            client = Client(opened.reader, opened.writer)
            kind = kio.schema("allocate_producer_ids", 0, "request").AllocateProducerIdsRequest
            request = kio.written(kind(broker_id=1, broker_epoch=1))
            answer = await client.raw(kio.request_header(67, 0, 7, "c") + request)
            assert answer is not None
            codes.append(answer[9:11])
            opened.writer.transport.abort()
    assert world.came == [67]
    assert codes[1] == b"\0\x1f"  # CLUSTER_AUTHORIZATION_FAILED


def subject(*parts: tuple[tuple[str, str], ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    return parts


CN, OU = "commonName", "organizationalUnitName"
#: as Java 17 writes them: the same certificates, made by openssl, were read by both
WRITTEN = {
    "CN=broker-1,OU=Kafka,O=Klamm,L=Munich,ST=Bavaria,C=DE": subject(
        (("countryName", "DE"),), (("stateOrProvinceName", "Bavaria"),), (("localityName", "Munich"),),
        (("organizationName", "Klamm"),), ((OU, "Kafka"),), ((CN, "broker-1"),),
    ),
    r"CN=\#first,O=Sons\, Inc. \+ \<x\>\;y": subject((("organizationName", "Sons, Inc. + <x>;y"),), ((CN, "#first"),)),
    r"CN=\ \ a\ \ ": subject(((CN, "  a  "),)),
    "CN=b+OU=a,DC=example,DC=org": subject(
        (("domainComponent", "org"),), (("domainComponent", "example"),), ((CN, "b"), (OU, "a"))
    ),
    r"CN=ä\"q\\,UID=7,STREET=x": subject((("streetAddress", "x"),), (("userId", "7"),), ((CN, 'ä"q\\'),)),
    r"CN=a\#b\=c": subject(((CN, "a#b=c"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_certificate_s_name_is_written_as_java_does(name: str) -> None:
    assert name_as_java_writes(WRITTEN[name]) == name


def test_a_name_that_cannot_be_written_so_is_nobody_s() -> None:
    with pytest.raises(WireError, match="emailAddress"):
        name_as_java_writes(subject(((CN, "x"),), (("emailAddress", "a@b"),)))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a:b", "2001:db8:0:0:0:0:a:b"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("nowhere", "nowhere"),
    ],
)
def test_an_address_is_written_as_java_does(address: str, host: str) -> None:
    assert host_as_java_writes(address) == host


AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def test_the_settings_are_those_of_brokers() -> None:
    assert authorizer_for({}) is None
    assert authorizer_for(AUTHORIZER) == AuthorizerSettings()
    given = {"super.users": "User:ann; User:CN=b,O=x;", "allow.everyone.if.no.acl.found": "true"}
    found = authorizer_for({**AUTHORIZER, **given, "auto.create.topics.enable": "FALSE"})
    assert found == AuthorizerSettings(frozenset({"User:ann", "User:CN=b,O=x"}), is_open=True, auto_creates=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"super.users": "User:ann"}, "only with authorizer.class.name"),
        ({"authorizer.class.name": "org.example.Mine"}, "not org.example.Mine"),
        ({**AUTHORIZER, "super.users": "ann"}, "User:ann;User:bob"),
        ({**AUTHORIZER, "allow.everyone.if.no.acl.found": "perhaps"}, "true or false"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        authorizer_for(given)
