"""Requests to real brokers, byte for byte as another codec of Kafka's protocol writes them, at every protocol level."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.core.codes import Code
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.model import Broker, Leadership, Partition
from controller.core.project.requests import KnownBroker, Stop
from controller.kafka.protocol.access import PLAINTEXT, KnownNode, Listener, broker_node
from controller.kafka.protocol.codec import WireError, uuid_of
from controller.kafka.protocol.levels import (
    LEADER_AND_ISR,
    METADATA,
    STOP_REPLICA,
    UPDATE_METADATA,
    level_for,
)
from controller.tell.dialects import Request
from controller.tell.dialects.kafka import KafkaDialect, OwnAddress
from controller.tell.dialects.kafka_requests import answer_in, opened, stop_bodies
from controller.tell.dialects.row_cache import PartitionSubset, RowCache
from controller.wire import bodies
from tests.kafka import kafka_support as kio

LEVELS = ["2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.2-IV0", "3.3", "3.4", "3.9"]
EPOCHS = (100, 7, 4_294_967_400)
OWN = OwnAddress(100, {PLAINTEXT: ("10.0.0.1", 9100)})
IDS = {name: draw_topic_id(random.Random(name)) for name in ("a", "orders", "ü")}

brokers = st.integers(0, 5)
replicas = st.lists(brokers, min_size=1, max_size=4, unique=True).map(tuple)
numbers = st.integers(0, 2**31 - 1)
states = st.builds(Leadership, st.integers(-1, 5), numbers, replicas, numbers, st.sampled_from([0, 1]))
partitions = st.builds(Partition, replicas, replicas | st.just(()), replicas | st.just(()), states | st.none(), numbers)
stops = st.builds(Stop, st.integers(-2, 100), st.booleans())


def by_topic(values: st.SearchStrategy[object]) -> st.SearchStrategy[Mapping[tuple[str, str], Mapping[int, object]]]:
    keys = st.sampled_from(sorted(IDS.items()))
    return st.dictionaries(keys, st.dictionaries(st.integers(0, 200), values, min_size=1, max_size=5), max_size=3)


def a_broker(broker_id: int) -> Broker:
    endpoints = (f"EXTERNAL://out:{9200 + broker_id}", f"INSIDE://[::1]:{9300 + broker_id}")
    protocols = {"EXTERNAL": "SSL", "INSIDE": "PLAINTEXT"}
    return Broker(broker_id, 40 + broker_id, None, -1, endpoints, "r1" if broker_id % 2 else None, protocols)


requests = st.builds(
    Request,
    path=st.sampled_from([bodies.LEADER_AND_ISR, bodies.UPDATE_METADATA]),
    brokers=st.just([KnownBroker(a_broker(n), "live") for n in range(6)]),
    live_ids=st.frozensets(brokers, min_size=1),
    failed_dirs=st.dictionaries(brokers, st.frozensets(st.tuples(st.sampled_from(sorted(IDS)), st.integers(0, 9)))),
    rows=by_topic(partitions | st.none()),
    new=st.frozensets(st.tuples(st.sampled_from(sorted(IDS.values())), st.integers(0, 9))),
)


def a_dialect(level: str) -> KafkaDialect:
    return KafkaDialect(level_for(level), OWN, check=lambda: None)


def nodes_of(request: Request) -> list[KnownNode]:
    """Live brokers, the PLAINTEXT listener first, and the controller under the name of that listener."""
    live = [broker_node(known.broker, "INSIDE") for known in kio.live_brokers(request)]
    return [*live, KnownNode(100, (Listener("INSIDE", "10.0.0.1", 9100),))]


@given(requests, st.sampled_from(LEVELS))
def test_states_are_told_as_kafkas_own_schema_has_them(request: Request, name: str) -> None:
    level = level_for(name)
    key, other = (
        (LEADER_AND_ISR, kio.leader_and_isr)
        if request.path == bodies.LEADER_AND_ISR
        else (UPDATE_METADATA, kio.update_metadata)
    )
    version = level.version_of(key)
    ours = opened(key, version, 12, EPOCHS) + a_dialect(name).encode(request)
    assert ours == kio.request_header(key, version, 12, "klamm") + other(request, level, EPOCHS, nodes_of(request))


@given(requests, requests, st.sampled_from(LEVELS))
def test_rows_made_for_another_broker_serve_the_very_same_states_only(
    request: Request, earlier: Request, name: str
) -> None:
    dialect, row_cache = a_dialect(name), RowCache()
    parts = {
        key: PartitionSubset(whole, [number for number, one in whole.items() if one is not None and number % 2])
        for key, whole in request.rows.items()
    }
    for told in (earlier, request, replace(request, rows=parts), request):
        alone = dialect.encode(replace(told, path=bodies.LEADER_AND_ISR))
        assert dialect.encode(replace(told, path=bodies.LEADER_AND_ISR, row_cache=row_cache)) == alone


@given(by_topic(stops), st.sampled_from(LEVELS))
def test_stops_are_told_as_kafkas_own_schema_has_them(stops: object, name: str) -> None:
    level = level_for(name)
    request = Request(path=bodies.STOP_REPLICA, brokers=[], live_ids=frozenset(), stops=stops)  # type: ignore[arg-type]
    head = kio.request_header(STOP_REPLICA, level.stop_replica, 1, "klamm")
    encoded = stop_bodies(a_dialect(name).encode(request), level)
    ours = [opened(STOP_REPLICA, level.stop_replica, 1, EPOCHS) + body for body in encoded]
    assert ours == [head + body for body in kio.stop_replica(request, level, EPOCHS)]


@pytest.mark.parametrize("name", ["2.3", "4.0", "3.10", "", "3", "latest"])
def test_a_level_that_zookeeper_mode_never_had_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"no protocol level from 2.4 to 3.9"):
        level_for(name)


def test_versions_follow_the_protocol_level() -> None:
    versions = {name: level_for(name) for name in LEVELS}
    assert [(v.leader_and_isr, v.stop_replica, v.update_metadata) for v in versions.values()] == [
        (4, 2, 6), (4, 2, 6), (4, 3, 6), (4, 3, 6), (5, 3, 7), (5, 3, 7), (6, 3, 7), (6, 3, 7), (7, 4, 8), (7, 4, 8),
    ]  # fmt: skip


def leader_and_isr_answer(version: int, codes: Mapping[int, int]) -> bytes:
    m = kio.schema("leader_and_isr", version, "response")
    header = kio.schema("response_header", 1, "header").ResponseHeader(correlation_id=5)
    if version >= 5:
        rows = [m.LeaderAndIsrPartitionError(partition_index=n, error_code=kio.error(c)) for n, c in codes.items()]
        topic = m.LeaderAndIsrTopicError(topic_id=uuid.UUID(bytes=uuid_of(IDS["a"])), partition_errors=tuple(rows))
        answer = m.LeaderAndIsrResponse(error_code=kio.error(0), topics=(topic,))
    else:
        named = [
            m.LeaderAndIsrPartitionError(topic_name="a", partition_index=n, error_code=kio.error(c))
            for n, c in codes.items()
        ]
        answer = m.LeaderAndIsrResponse(error_code=kio.error(0), partition_errors=tuple(named))
    return kio.written(header) + kio.written(answer)


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_an_answer_names_the_refused_partitions(version: int) -> None:
    raw = leader_and_isr_answer(version, {0: 0, 1: 56, 2: 11, 3: 103})
    answer = answer_in(LEADER_AND_ISR, version, raw, 5, {"a": IDS["a"]})
    assert answer.error_code == Code.NONE
    assert answer.partitions == [
        bodies.Refusal(IDS["a"], number, code) for number, code in ((1, 56), (2, 11), (3, 103))
    ]


@pytest.mark.parametrize("version", [4, 7])
def test_an_answer_cut_anywhere_is_an_error_and_no_answer(version: int) -> None:
    raw = leader_and_isr_answer(version, {0: 0, 1: 56})
    for size in range(len(raw) - 1):  # the last byte ends the tags, which are not needed
        with pytest.raises(WireError):
            answer_in(LEADER_AND_ISR, version, raw[:size], 5, {"a": IDS["a"]})


def test_the_answer_to_another_request_is_an_error() -> None:
    with pytest.raises(WireError, match="request 5, not 6"):
        answer_in(LEADER_AND_ISR, 7, leader_and_isr_answer(7, {}), 6, {})


@pytest.mark.parametrize(("name", "version"), [("2.4", 9), ("2.7", 9), ("2.8", 10), ("3.9", 10)])
def test_brokers_are_asked_about_topics_as_kafkas_own_schema_has_it(name: str, version: int) -> None:
    names = ("a", "orders", "ü")
    request = Request(path=bodies.DESCRIBE_TOPICS, brokers=[], live_ids=frozenset(), names=names)
    m = kio.schema("metadata", version, "request")
    given = {"topic_id": None} if version >= 10 else {}
    topics = tuple(m.MetadataRequestTopic(name=name, **given) for name in names)
    asked = m.MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert level_for(name).version_of(METADATA) == version
    ours = opened(METADATA, version, 12, EPOCHS) + a_dialect(name).encode(request)
    assert ours == kio.request_header(METADATA, version, 12, "klamm") + kio.written(asked)


def metadata_answer(version: int, codes: Mapping[str, int]) -> bytes:
    m = kio.schema("metadata", version, "response")
    header = kio.schema("response_header", 1, "header").ResponseHeader(correlation_id=5)

    def topic(name: str, code: int) -> object:
        partitions = tuple(
            m.MetadataResponsePartition(
                error_code=kio.error(5 if leader < 0 else 0), partition_index=number, leader_id=leader,
                leader_epoch=epoch, replica_nodes=(1, 2), isr_nodes=(1,), offline_replicas=(2,),
            )
            for number, leader, epoch in ((0, 1, 7), (3, -1, 2))
        )  # fmt: skip
        given = {"topic_id": uuid.UUID(bytes=uuid_of(IDS[name]))} if version >= 10 else {}
        return m.MetadataResponseTopic(
            error_code=kio.error(code),
            name=name,
            is_internal=False,
            partitions=() if code == 3 else partitions,
            **given,
        )

    brokers = (m.MetadataResponseBroker(node_id=1, host="h", port=9092, rack=None),)
    topics = tuple(topic(name, code) for name, code in codes.items())
    answer = m.MetadataResponse(
        throttle_time=kio.no_throttle(), brokers=brokers, cluster_id="c", controller_id=1, topics=topics
    )
    return kio.written(header) + kio.written(answer)


@pytest.mark.parametrize("version", [9, 10])
def test_an_answer_about_topics_has_id_and_leader_epochs_and_nothing_of_missing_topics(version: int) -> None:
    """Code 3: there is no such topic; 29: it does not show it to us."""
    answer = answer_in(METADATA, version, metadata_answer(version, {"a": 0, "orders": 3, "ü": 29}), 5, {})
    epochs = [bodies.KnownEpoch(0, 7), bodies.KnownEpoch(3, 2)]
    known = bodies.DescribedId(IDS["a"] if version >= 10 else "", told=True, held=False, leader_epochs=epochs)
    assert answer == bodies.DescribeTopicsAnswer(topics=[bodies.DescribedTopic("a", [known])])


def test_an_answer_about_topics_cut_anywhere_is_an_error() -> None:
    raw = metadata_answer(10, {"a": 0})
    for size in range(len(raw)):
        with pytest.raises(WireError):
            answer_in(METADATA, 10, raw[:size], 5, {})
