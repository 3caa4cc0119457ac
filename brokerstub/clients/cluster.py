"""The questions of clients about the cluster: Metadata, DescribeCluster, DescribeConfigs, and FindCoordinator's
refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from brokerstub.listeners import Listener, listeners_in
from brokerstub.logs import Logs
from brokerstub.metadata import MetadataCache
from brokerstub.topic_settings import MIN_ISR, settings_for
from controller.api.ports import ControllerHandle, TopicView
from controller.base.config import BrokerConfig, ConfigError
from controller.core.codes import Code
from controller.core.model import NO_LEADER
from controller.kafka.protocol.codec import NO_UUID, Reader, Writer, tagged, topic_id_of, uuid_of
from controller.kafka.server.listener import Api
from controller.wire.bodies import PartitionRow

METADATA, FIND_COORDINATOR, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 3, 10, 32, 60
TOPIC, BROKER = 2, 4  # kinds of resources
OF_TOPIC, OF_BROKER, DEFAULT = 1, 4, 5  # where a value comes from
#: the rights of clients are not asked for
UNSAID_OPERATIONS: Final = -(1 << 31)
#: so long a client waits for a broker that the controller has told nothing yet; then the connection ends
UNTOLD_TIMEOUT_S: Final = 10.0
NO_GROUPS: Final = (
    "Klamm's stub brokers serve no consumer groups and no transactions yet: assign partitions (assign() instead of "
    "subscribe(), kafka-console-consumer --partition, kcat -C)"
)


class _Node(NamedTuple):
    node_id: int
    listener: Listener
    rack: str | None


class _Topic(NamedTuple):
    code: Code
    name: str | None
    view: TopicView | None
    uuid: bytes = NO_UUID


class _Value(NamedTuple):
    name: str
    value: str
    source: int


class ClusterApis:
    """Handlers. `listener`: the name of the one that clients came by; other brokers are shown under it."""

    def __init__(
        self, config: BrokerConfig, metadata: MetadataCache, logs: Logs, handle: ControllerHandle, listener: str
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._logs = logs
        self._handle = handle
        self._listener = listener

    def table(self) -> dict[int, Api]:
        return {
            METADATA: Api(1, 12, 9, self.metadata),
            FIND_COORDINATOR: Api(1, 3, 3, self.find_coordinator),
            DESCRIBE_CONFIGS: Api(1, 4, 4, self.describe_configs),
            DESCRIBE_CLUSTER: Api(0, 0, 0, self.describe_cluster),
        }

    async def metadata(self, version: int, reader: Reader, writer: Writer) -> None:
        wanted = reader.nullable_array(lambda: _asked(version, reader))
        nodes = await self._nodes_once_told()
        if wanted is None:
            topics = [_Topic(Code.NONE, view.topic, view) for view in self._metadata.topics()]
        else:
            topics = [self._topic(uuid, name) for uuid, name in wanted]
        if version >= 3:
            writer.i32(0)
        writer.array(nodes, lambda node: _write_node(node, writer))
        if version >= 2:
            writer.string(self._metadata.cluster_id)
        writer.i32(self._controller_id(nodes))
        writer.array(topics, lambda topic: _write_topic(version, topic, writer))
        if 8 <= version <= 10:
            writer.i32(UNSAID_OPERATIONS)
        writer.tags()

    async def describe_cluster(self, version: int, reader: Reader, writer: Writer) -> None:
        nodes = await self._nodes_once_told()
        writer.i32(0).i16(Code.NONE).string(None).string(self._metadata.cluster_id).i32(self._controller_id(nodes))
        writer.array(nodes, lambda node: _write_node(node, writer)).i32(UNSAID_OPERATIONS).tags()

    async def find_coordinator(self, version: int, reader: Reader, writer: Writer) -> None:
        writer.i32(0).i16(Code.UNSUPPORTED_VERSION).string(NO_GROUPS).i32(-1).string("").i32(-1).tags()

    async def describe_configs(self, version: int, reader: Reader, writer: Writer) -> None:
        resources = reader.array(lambda: _resource(reader))
        answers = [(kind, name, keys, await self._values(kind, name)) for kind, name, keys in resources]

        def write(one: tuple[int, str, list[str] | None, list[_Value] | None]) -> None:
            kind, name, keys, values = one
            code = Code.NONE if values is not None else Code.UNKNOWN_TOPIC_OR_PARTITION
            detail = None if values is not None else f"nothing is known here of {name!r}"
            shown = [value for value in values or () if keys is None or value.name in keys]
            writer.i16(code).string(detail).i8(kind).string(name)
            writer.array(shown, lambda value: _write_value(version, kind, value, writer)).tags()

        writer.i32(0).array(answers, write).tags()

    async def _values(self, kind: int, name: str) -> list[_Value] | None:
        if kind == TOPIC and self._metadata.topic(name) is not None:
            own = await self._logs.configs.values_of(name)
            return None if own is None else _values_of_topic(self._config, name, own)
        if kind == BROKER and name in ("", str(self._metadata.own_broker_id)):
            values: Mapping[str, object] = msgspec.to_builtins(self._config)
            return [_Value(key, _text(value), OF_BROKER) for key, value in sorted(values.items()) if value is not None]
        return None

    def _topic(self, uuid: bytes, name: str | None) -> _Topic:
        if name is None:
            topic_id = topic_id_of(uuid)
            found = next((view for view in self._metadata.topics() if view.topic_id == topic_id), None)
            if found is None:
                return _Topic(Code.UNKNOWN_TOPIC_ID, None, None, uuid)
            return _Topic(Code.NONE, found.topic, found)
        view = self._metadata.topic(name)
        return _Topic(Code.UNKNOWN_TOPIC_OR_PARTITION if view is None else Code.NONE, name, view)

    async def _nodes_once_told(self) -> list[_Node]:
        """An answer without brokers would do harm: librdkafka's AdminClient asks again after five minutes. Raises
        TimeoutError."""
        async with asyncio.timeout(UNTOLD_TIMEOUT_S):
            while self._metadata.metadata_version == 0:
                await self._metadata.changes.wait()
        return self._nodes()

    def _nodes(self) -> list[_Node]:
        nodes = []
        for broker in self._metadata.brokers:
            if broker.state == "gone":
                continue
            for endpoint in broker.endpoints:
                try:
                    listener = listeners_in(endpoint)[0]
                except ConfigError:
                    continue
                if listener.name == self._listener:
                    nodes.append(_Node(broker.id, listener, broker.rack))
                    break
        return nodes

    def _controller_id(self, nodes: list[_Node]) -> int:
        holder = self._metadata.own_broker_id if self._handle.is_active else self._metadata.controller_id
        return holder if any(node.node_id == holder for node in nodes) else -1


def _asked(version: int, reader: Reader) -> tuple[bytes, str | None]:
    uuid = reader.uuid() if version >= 10 else NO_UUID
    return tagged(reader, (uuid, reader.nullable_string() if version >= 10 else reader.string()))


def _resource(reader: Reader) -> tuple[int, str, list[str] | None]:
    return tagged(reader, (reader.i8(), reader.string(), reader.nullable_array(reader.string)))


def _write_node(node: _Node, writer: Writer) -> None:
    writer.i32(node.node_id).string(node.listener.host).i32(node.listener.port).string(node.rack).tags()


def _write_topic(version: int, topic: _Topic, writer: Writer) -> None:
    view = topic.view
    writer.i16(topic.code).string(topic.name if version >= 12 else topic.name or "")
    if version >= 10:
        writer.raw(topic.uuid if view is None else uuid_of(view.topic_id))
    writer.i8(0)
    writer.array(() if view is None else view.partitions, lambda row: _write_row(version, row, writer))
    if version >= 8:
        writer.i32(UNSAID_OPERATIONS)
    writer.tags()


def _write_row(version: int, row: PartitionRow, writer: Writer) -> None:
    writer.i16(Code.LEADER_NOT_AVAILABLE if row.leader == NO_LEADER else Code.NONE).i32(row.partition).i32(row.leader)
    if version >= 7:
        writer.i32(row.leader_epoch)
    writer.ids(row.replicas).ids(row.isr)
    if version >= 5:
        writer.ids(row.offline)
    writer.tags()


def _values_of_topic(config: BrokerConfig, name: str, own: Mapping[str, str]) -> list[_Value]:
    settled = settings_for(config, name, own)
    known = {**msgspec.to_builtins(settled.log), MIN_ISR: settled.min_isr}
    values = {key: _Value(key, _text(value), DEFAULT) for key, value in known.items()}
    values |= {key: _Value(key, value, OF_TOPIC) for key, value in own.items()}
    return [values[key] for key in sorted(values)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_value(version: int, kind: int, value: _Value, writer: Writer) -> None:
    writer.string(value.name).string(value.value).i8(kind == BROKER).i8(value.source).i8(0)
    writer.array((), writer.string)
    if version >= 3:
        writer.i8(0).string(None)  # its type is not known here
    writer.tags()
