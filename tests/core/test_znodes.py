"""The writes of changes, and the JSON of each znode in every version that Kafka ever wrote."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from controller.core import formats
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    BrokerGone,
    NotificationRead,
    Refused,
    StateDecided,
    TopicCreated,
    TopicWritten,
)
from controller.core.codes import Code
from controller.core.formats import FormatError
from controller.core.model import Assignment
from controller.core.operations import Create, Delete, Set
from controller.core.project.znodes import (
    Ensure,
    Put,
    numbers_in,
)
from controller.core.states import PartitionStatus
from tests.builders import a_cluster, a_leadership
from tests.support.znodes import decode_as, kind_of

ID = "abcdefghijklmnopqrstuv"
P = PartitionStatus


def decided(partition: int = 0) -> StateDecided:
    return StateDecided("orders", partition, a_leadership(1, [1, 2], 3), P.NEW, P.ONLINE, "a test", Cause.TOPIC_CREATED)


def test_a_state_that_exists_is_set_at_the_version_believed() -> None:
    [write] = decided().writes(a_cluster(orders=[[1, 2]], version=0))
    data = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    assert write == Set("/brokers/topics/orders/partitions/0/state", data, 0)


def test_a_state_that_does_not_exist_is_made_with_its_parents() -> None:
    ensure, ensure_partition, create = decided().writes(a_cluster(orders=[[1, 2]], states={"orders-0": None}))
    assert ensure == Ensure("/brokers/topics/orders/partitions")
    assert ensure_partition == Ensure("/brokers/topics/orders/partitions/0")
    assert isinstance(create, Create)
    assert create.path == "/brokers/topics/orders/partitions/0/state"


def test_a_topic_is_made_after_its_configuration() -> None:
    put, create = TopicCreated("orders", ID, {0: Assignment((1, 2))}, {"k": "v"}).writes(a_cluster())
    assert isinstance(put, Put)
    assert (put.path, json.loads(put.data)) == ("/config/topics/orders", {"version": 1, "config": {"k": "v"}})
    assert isinstance(create, Create)
    assert create.path == "/brokers/topics/orders"


def test_a_topic_is_rewritten_at_the_version_believed() -> None:
    written = TopicWritten("orders", ID, {0: Assignment((1,))}, "id", Cause.TOPIC_ID_MISSING)
    [write] = written.writes(a_cluster(orders=[[1]]))
    assert isinstance(write, Set)
    assert (write.path, write.version) == ("/brokers/topics/orders", 0)


def test_a_notification_is_removed_as_it_was_made() -> None:
    assert NotificationRead("/x", 3).writes(a_cluster()) == (Delete("/x", 3),)


def test_what_changes_no_znode_writes_nothing() -> None:
    assert BrokerGone(1, 11, "gone", Cause.BROKER_GONE).writes(a_cluster()) == ()
    assert Refused("topic orders", Code.NONE, "exists").writes(a_cluster()) == ()


# ---------------------------------------------------------------------- formats

#: paths, and the data that Kafka wrote there
KAFKAS: list[tuple[str, Any]] = [
    ("/controller", {"version": 1, "brokerid": 3, "timestamp": "1652877672721"}),
    ("/controller", {"version": 2, "brokerid": 3, "timestamp": "1652877672721", "kraftControllerEpoch": -1}),
    ("/controller_epoch", 7),
    ("/brokers/topics/t", {"version": 3, "partitions": {"0": [1, 2]}, "adding_replicas": {}, "removing_replicas": {}}),
    (
        "/brokers/topics/t",
        {
            "version": 3,
            "partitions": {"0": [4, 1], "10": [2]},
            "adding_replicas": {"0": [4]},
            "removing_replicas": {"0": [1]},
            "topic_id": ID,
        },
    ),
    (
        "/brokers/topics/t/partitions/0/state",
        {
            "controller_epoch": 7,
            "leader": -1,
            "version": 1,
            "leader_epoch": 3,
            "isr": [1, 2],
            "leader_recovery_state": 1,
        },
    ),
    ("/admin/reassign_partitions", {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}),
    ("/admin/preferred_replica_election", {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}),
    ("/isr_change_notification/isr_change_0000000001", {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}),
    ("/log_dir_event_notification/log_dir_event_0000000001", {"version": 1, "broker": 2, "event": 1}),
    ("/config/topics/t", {"version": 1, "config": {"unclean.leader.election.enable": "true"}}),
    ("/config/brokers/<default>", {"version": 1, "config": {}}),
    ("/config/changes/config_change_0000000001", {"version": 2, "entity_path": "topics/t"}),
    ("/config/changes/config_change_0000000001", {"version": 1, "entity_type": "topics", "entity_name": "t"}),
    ("/cluster/id", {"version": "1", "id": ID}),
    ("/feature", {"version": 2, "status": 1, "features": {"f": {"max_version_level": 3}}}),
    ("/feature", {"version": 1, "status": 1, "features": {"f": {"min_version_level": 1, "max_version_level": 3}}}),
    ("/latest_producer_id_block", {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"}),
]


@pytest.mark.parametrize(("path", "value"), KAFKAS)
def test_what_kafka_wrote_is_read_by_its_own_type_and_written_again_as_an_equal_object(path: str, value: Any) -> None:
    kind = kind_of(path)
    assert kind is not None
    known = decode_as(kind, json.dumps(value).encode())
    again = json.loads(formats.encode(known))
    assert {key: again[key] for key in value} == value if isinstance(value, dict) else again == value


BROKERS: list[dict[str, Any]] = [
    {"version": 1, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "1"},
    {"version": 2, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "1", "endpoints": ["PLAINTEXT://h:9092"]},
    {"version": 3, "host": None, "port": -1, "jmx_port": 1, "timestamp": "1", "endpoints": ["SSL://h:1"], "rack": "a"},
    {
        "version": 4,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1",
        "endpoints": ["HTTP://h:9092"],
        "rack": None,
        "listener_security_protocol_map": {"HTTP": "PLAINTEXT"},
    },
    {
        "version": 5,
        "host": None,
        "port": -1,
        "jmx_port": -1,
        "timestamp": "1",
        "endpoints": ["HTTP://h:9092"],
        "listener_security_protocol_map": {"HTTP": "PLAINTEXT"},
        "features": {"f": {"min_version": 1, "max_version": 3}},
        "from_a_later_version": True,
    },
]


@pytest.mark.parametrize("value", BROKERS, ids=lambda value: f"v{value['version']}")
def test_every_version_of_a_broker_is_read(value: dict[str, Any]) -> None:
    broker = formats.decode_broker(json.dumps(value).encode(), 1, 99)
    assert (broker.broker_id, broker.epoch, broker.host, broker.port) == (1, 99, value["host"], value["port"])
    assert broker.endpoints == tuple(value.get("endpoints", ()))
    assert broker.rack == value.get("rack")
    assert broker.listener_security_protocol_map == value.get("listener_security_protocol_map", {})
    assert broker.features == value.get("features", {})


@pytest.mark.parametrize(
    ("value", "topic_id"),
    [
        ({"version": 1, "partitions": {"1": [2, 3], "0": [1, 2]}}, None),
        (
            {"version": 2, "partitions": {"0": [1, 2], "1": [2, 3]}, "adding_replicas": {}, "removing_replicas": {}},
            None,
        ),
        ({"partitions": {"0": [1, 2], "1": [2, 3]}, "version": 3, "topic_id": ID}, ID),
    ],
)
def test_every_version_of_a_topic_is_read_in_the_order_of_its_partitions(value: Any, topic_id: str | None) -> None:
    known, assignment = formats.decode_topic(json.dumps(value).encode())
    assert known == topic_id
    assert list(assignment.items()) == [(0, Assignment((1, 2))), (1, Assignment((2, 3)))]


def test_a_topic_is_written_as_kafka_3_9_writes_it() -> None:
    written = formats.encode_topic(ID, {0: Assignment((4, 1), (4,), (1,)), 1: Assignment((1,))})
    assert json.loads(written) == {
        "version": 3,
        "partitions": {"0": [4, 1], "1": [1]},
        "adding_replicas": {"0": [4]},
        "removing_replicas": {"0": [1]},
        "topic_id": ID,
    }
    assert formats.decode_topic(written) == (ID, {0: Assignment((4, 1), (4,), (1,)), 1: Assignment((1,))})


@pytest.mark.parametrize("recovery", [0, 1])
def test_a_state_reads_as_it_was_written(recovery: int) -> None:
    state = a_leadership(-1, [2, 1], 4, recovery=recovery)
    assert formats.decode_state(formats.encode_state(state)) == state
    assert ("leader_recovery_state" in json.loads(formats.encode_state(state))) is (recovery == 1)


def test_a_broker_that_reads_v2_controllers_needs_only_the_broker_id() -> None:
    znode = msgspec.json.decode(b'{"version":2,"brokerid":0,"timestamp":"1"}', type=formats.ControllerZnode)
    assert znode.brokerid == 0


def test_a_controller_is_read_by_its_broker_id_alone() -> None:
    assert formats.decode(b'{"brokerid":3}', formats.ControllerZnode).brokerid == 3


def a_state_znode(**given: object) -> bytes:
    return json.dumps(
        {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1], **given}
    ).encode()


TOO_LARGE = (
    a_state_znode(leader_epoch=2**31 - 1),
    a_state_znode(controller_epoch=2**31),
    a_state_znode(leader=2**31, isr=[2**31]),
    a_state_znode(isr=[1, 2**31]),
    a_state_znode(leader_recovery_state=2),
)


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"version":1}', *TOO_LARGE])
def test_nonsense_in_a_state_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        formats.decode_state(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b'{"partitions":[]}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"1000000":[1]}}',
        b'{"partitions":{"9223372036854775807":[1]}}',
        b'{"partitions":{"0":[]}}',
        b'{"partitions":{"0":[1,1]}}',
        b'{"partitions":{"0":[-1]}}',
        b'{"partitions":{"0":["1"]}}',
        b'{"partitions":{"0":[2147483648]}}',
        b'{"partitions":{"0":[1]},"topic_id":"short"}',
        b'{"partitions":{"0":[1]},"topic_id":"aaaaaaaaaaaaaaaaaaaaaa\\n"}',
        b'{"partitions":{"0":[1]},"topic_id":"aaaaaaaaaaaaaaaaaaaa@@"}',
        b'{"partitions":{"0":[1]},"topic_id":7}',
    ],
)
def test_nonsense_in_a_topic_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        formats.decode_topic(data)


@pytest.mark.parametrize("path", [path for path, _ in KAFKAS] + ["/brokers/ids/1"])
def test_nonsense_anywhere_is_a_format_error(path: str) -> None:
    kind = kind_of(path)
    assert kind is not None
    for data in (b"", b"{", b"[1]", b'"x"', b"\xff"):
        with pytest.raises(FormatError):
            decode_as(kind, data)


def test_a_state_without_an_isr_is_malformed() -> None:
    with pytest.raises(FormatError):
        formats.decode_state(b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[]}')


@pytest.mark.parametrize(
    "path", ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0", "/brokers", "/admin"]
)
def test_a_znode_that_holds_nothing_is_known(path: str) -> None:
    kind = kind_of(path)
    assert kind is not None
    assert decode_as(kind, b"") is None


@pytest.mark.parametrize("path", ["/kafka", "/brokers/ids/x", "/brokers/topics/t/state", "/brokers/ids/1/2"])
def test_a_path_that_kafka_does_not_know_has_no_kind(path: str) -> None:
    assert kind_of(path) is None


@pytest.mark.parametrize("path", ["/migration", "/kafka-acl", "/delegation_token", "/config/users/u/clients/c"])
def test_every_path_of_kafka_has_a_kind(path: str) -> None:
    assert kind_of(path) is not None


def test_children_that_are_no_numbers_are_passed_over() -> None:
    assert numbers_in(iter(["10", "9", "x", "-1", "٣", ""])) == [9, 10]
