"""Kafka's messages by an independent codec (kio): the expected bytes of our requests, and answers of brokers."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from controller.core.model import Partition
from controller.core.project.requests import KnownBroker
from controller.kafka.protocol.access import KnownNode
from controller.kafka.protocol.codec import uuid_of
from controller.kafka.protocol.levels import Level
from controller.tell.dialects import Request


def schema(name: str, version: int, kind: str) -> Any:
    """The module with a message's classes."""
    return import_module(f"kio.schema.{name}.v{version}.{kind}")


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(kind: Any, data: bytes) -> Any:
    """The one message that `data` is."""
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data), f"{len(data) - size} bytes too many"
    return entity


def request_header(key: int, version: int, correlation_id: int, client: str | None, header_version: int = 2) -> bytes:
    header = schema("request_header", header_version, "header").RequestHeader
    return written(
        header(request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client)
    )


def error(code: int) -> ErrorCode:
    return ErrorCode(code)


def no_throttle() -> timedelta:
    return timedelta()


def leader_and_isr(request: Request, level: Level, epochs: tuple[int, int, int], nodes: Sequence[KnownNode]) -> bytes:
    """The request by the other codec."""
    version = level.leader_and_isr
    m = schema("leader_and_isr", version, "request")
    topics = []
    for (name, topic_id), partitions in request.rows.items():
        rows = []
        for number, told in partitions.items():
            if told is None or told.state is None:
                continue
            fields = {"leader_recovery_state": told.state.recovery} if version >= 6 else {}
            rows.append(
                m.LeaderAndIsrPartitionState(
                    partition_index=number,
                    controller_epoch=told.state.controller_epoch,
                    leader=told.state.leader,
                    leader_epoch=told.state.leader_epoch,
                    isr=told.state.isr,
                    **_version_field(m.LeaderAndIsrPartitionState, told),
                    replicas=told.replicas,
                    adding_replicas=told.adding,
                    removing_replicas=told.removing,
                    is_new=(topic_id, number) in request.new,
                    **fields,
                )
            )
        ids = {"topic_id": uuid.UUID(bytes=uuid_of(topic_id))} if version >= 5 else {}
        topics.append(m.LeaderAndIsrTopicState(topic_name=name, partition_states=tuple(rows), **ids))
    leaders = {p.state.leader for rows in request.rows.values() for p in rows.values() if p and p.state}
    live = [
        m.LeaderAndIsrLiveLeader(broker_id=one.node_id, host_name=one.listeners[0].host, port=one.listeners[0].port)
        for one in nodes
        if one.node_id in leaders
    ]
    controller_id, controller_epoch, broker_epoch = epochs
    return written(
        m.LeaderAndIsrRequest(
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=tuple(topics),
            live_leaders=tuple(live),
            **({"type_": 0} if version >= 5 else {}),
        )
    )


def update_metadata(request: Request, level: Level, epochs: tuple[int, int, int], nodes: Sequence[KnownNode]) -> bytes:
    version = level.update_metadata
    m = schema("update_metadata", version, "request")
    topics = []
    for (name, topic_id), partitions in request.rows.items():
        rows = [_metadata_row(m, request, name, *item) for item in partitions.items() if _is_told(item[1])]
        ids = {"topic_id": uuid.UUID(bytes=uuid_of(topic_id))} if version >= 7 else {}
        topics.append(m.UpdateMetadataTopicState(topic_name=name, partition_states=tuple(rows), **ids))
    controller_id, controller_epoch, broker_epoch = epochs
    brokers = [
        m.UpdateMetadataBroker(
            id_=node.node_id,
            rack=node.rack,
            endpoints=tuple(
                m.UpdateMetadataEndpoint(port=o.port, host=o.host, listener=o.name, security_protocol=o.protocol)
                for o in node.listeners
            ),
        )
        for node in nodes
    ]
    return written(
        m.UpdateMetadataRequest(
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=tuple(topics),
            live_brokers=tuple(brokers),
        )
    )


def stop_replica(request: Request, level: Level, epochs: tuple[int, int, int]) -> list[bytes]:
    version = level.stop_replica
    m = schema("stop_replica", version, "request")
    controller_id, controller_epoch, broker_epoch = epochs
    common = {"controller_id": controller_id, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    if version >= 3:
        topics = [
            m.StopReplicaTopicState(
                topic_name=name,
                partition_states=tuple(
                    m.StopReplicaPartitionState(
                        partition_index=n, leader_epoch=stop.leader_epoch, delete_partition=stop.delete
                    )
                    for n, stop in partitions.items()
                ),
            )
            for (name, _), partitions in request.stops.items()
        ]
        return [written(m.StopReplicaRequest(topic_states=tuple(topics), **common))]
    requests = []
    for delete in (True, False):
        wanted = {
            name: tuple(n for n, stop in partitions.items() if stop.delete == delete)
            for (name, _), partitions in request.stops.items()
        }
        of_kind = tuple(m.StopReplicaTopicV1(name=name, partition_indexes=ns) for name, ns in wanted.items() if ns)
        if of_kind:
            requests.append(written(m.StopReplicaRequest(delete_partitions=delete, topics=of_kind, **common)))
    return requests


def live_brokers(request: Request) -> list[KnownBroker]:
    return [known for known in request.brokers if known.broker.broker_id in request.live_ids]


def _is_told(partition: Partition | None) -> bool:
    return partition is None or partition.state is not None


def _metadata_row(m: Any, request: Request, topic: str, number: int, partition: Partition | None) -> Any:
    if partition is None or partition.state is None:
        return m.UpdateMetadataPartitionState(
            partition_index=number, controller_epoch=-1, leader=-2, leader_epoch=0, zk_version=-1
        )
    state = partition.state
    offline = tuple(
        one
        for one in partition.replicas
        if one not in request.live_ids or (topic, number) in request.failed_dirs.get(one, ())
    )
    return m.UpdateMetadataPartitionState(
        partition_index=number,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=partition.version,
        replicas=partition.replicas,
        offline_replicas=offline,
    )


def _version_field(kind: Any, partition: Partition) -> dict[str, int]:
    name = "partition_epoch" if "partition_epoch" in kind.__dataclass_fields__ else "zk_version"
    return {name: partition.version}
