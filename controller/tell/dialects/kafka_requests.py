"""Requests to real brokers, as bytes: LeaderAndIsr, UpdateMetadata, StopReplica, and the meaning of their answers.

The codec is our own, because these requests carry every partition of a cluster; tests hold it to an independent one,
byte for byte. A body is the part that is the same for all brokers; `opened` puts the rest before it. Pure: no socket,
no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from controller.core.model import LEADER_REMOVED, NO_VERSION, Leadership, Partition, Replicas
from controller.core.project.requests import TopicKey
from controller.kafka.protocol.access import KnownNode
from controller.kafka.protocol.codec import (
    Reader,
    WireError,
    compact_ids,
    compact_string,
    topic_id_of,
    uuid_of,
    varint,
)
from controller.kafka.protocol.levels import (
    LEADER_AND_ISR,
    METADATA,
    STOP_REPLICA,
    UPDATE_METADATA,
    Level,
    described_in,
    metadata_body,
)
from controller.tell.dialects import Request, Unwanted
from controller.tell.dialects.row_cache import rows_for, whole_and_numbers
from controller.wire import bodies

KEYS: Final = {
    bodies.LEADER_AND_ISR: LEADER_AND_ISR,
    bodies.STOP_REPLICA: STOP_REPLICA,
    bodies.UPDATE_METADATA: UPDATE_METADATA,
    bodies.DESCRIBE_TOPICS: METADATA,
}
CLIENT_ID: Final = "klamm"
_EMPTY: Final = compact_ids(())
_TAGS: Final = b"\0"
#: how a replica's row ends: by whether there is a recovery state, whether the replica is new, and by that state
_ENDS: Final = {
    has_recovery: {
        is_new: [bytes((is_new, recovery)) + _TAGS if has_recovery else bytes((is_new,)) + _TAGS for recovery in (0, 1)]
        for is_new in (False, True)
    }
    for has_recovery in (False, True)
}
_REMOVED: Final = Partition((), state=Leadership(LEADER_REMOVED, 0, (), -1), version=NO_VERSION)
_HEAD = struct.Struct(">iiii")  # partition, controller epoch, leader, leader epoch
_VERSION = struct.Struct(">i")
_STOP = struct.Struct(">ii?B")
_ERROR = struct.Struct(">ihB")


def body_for(request: Request, level: Level, nodes: Sequence[KnownNode]) -> bytes:
    """Returns the body after the broker epoch, and of a question the body after the header. A StopReplica of level 2.4
    is two of these, as `stop_bodies` takes them apart."""
    if request.path == bodies.UPDATE_METADATA:
        return _update_metadata(request, level, nodes)
    if request.path == bodies.LEADER_AND_ISR:
        return _leader_and_isr(request, level, nodes)
    if request.path == bodies.DESCRIBE_TOPICS:
        return metadata_body(request.names, level.version_of(METADATA))
    if level.stop_replica >= 3:
        return _stop_replica(request.stops)
    halves = [_stop_replica_v2(request.stops, delete=delete) for delete in (True, False)]
    return struct.pack(">I", len(halves[0])) + b"".join(halves)


def stop_bodies(body: bytes, level: Level) -> Sequence[bytes]:
    """Returns the requests that one StopReplica comes to; one about nothing is left out."""
    if level.stop_replica >= 3:
        return (body,)
    size = struct.unpack_from(">I", body)[0] + 4
    return [half for half in (body[4:size], body[size:]) if half]


def opened(key: int, version: int, correlation_id: int, epochs: tuple[int, int, int]) -> bytes:
    """Returns everything before a body: header v2, and sender and receiver (controller id and epoch, broker epoch),
    unless it is a question as any client may ask it."""
    controller_id, controller_epoch, broker_epoch = epochs
    client = CLIENT_ID.encode()
    head = struct.pack(f">hhih{len(client)}sB", key, version, correlation_id, len(client), client, 0)
    if key == METADATA:
        return head
    is_migration = b"\0" if version >= {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}[key] else b""
    return head + struct.pack(">i", controller_id) + is_migration + struct.pack(">iq", controller_epoch, broker_epoch)


def answer_in(key: int, version: int, frame: bytes, correlation_id: int, names: Mapping[str, str]) -> bodies.Answer:
    """Returns the rows that a broker's answer refuses; 11 for a leader epoch that it has already, too. `names`: topic
    ids by name, for the answers that have no ids."""
    reader = Reader(frame, flexible=True)
    if (found := reader.i32()) != correlation_id:
        raise WireError(f"the answer to request {found}, not {correlation_id}")
    reader.tags()
    if key == METADATA:
        return described_in(reader, version)
    code = reader.i16()
    refused: list[bodies.Refusal] = []
    if key == LEADER_AND_ISR and version >= 5:
        for _ in range(reader.varint() - 1):
            refused += _refused_in(reader, topic_id_of(reader.uuid()))
            reader.tags()
    elif key != UPDATE_METADATA:
        for name, number, partition_code in reader.array(lambda: _named_error(reader)):
            if partition_code and name in names:
                refused.append(bodies.Refusal(names[name], number, partition_code))
    return bodies.Answer(code, refused)


def _refused_in(reader: Reader, topic_id: str) -> list[bodies.Refusal]:
    count = reader.varint() - 1
    rows = _ERROR.iter_unpack(reader.take(count * _ERROR.size))
    return [bodies.Refusal(topic_id, number, code) for number, code, _ in rows if code]


def _named_error(reader: Reader) -> tuple[str, int, int]:
    named = reader.string(), reader.i32(), reader.i16()
    reader.tags()
    return named


class _Ids(dict[Replicas, bytes]):
    """Arrays of ids, packed once: a cluster has few different ones."""

    def __missing__(self, ids: Replicas) -> bytes:
        self[ids] = packed = compact_ids(ids)
        return packed


def _update_metadata(request: Request, level: Level, nodes: Sequence[KnownNode]) -> bytes:
    """The list of brokers is in each of them: a broker takes the list as it comes, with any partitions."""
    live_ids, failed_dirs, ids = request.live_ids, request.failed_dirs, _Ids()
    are_sound = (live_ids - failed_dirs.keys()).issuperset
    has_ids = level.update_metadata >= 7
    out = [varint(len(request.rows) + 1)]
    for key, partitions in request.rows.items():
        rows = []
        for number, told in partitions.items():
            partition = _REMOVED if told is None else told
            state, replicas = partition.state, partition.replicas
            if state is None:
                continue
            offline = _EMPTY
            if not are_sound(replicas):
                absent = [one for one in replicas if one not in live_ids]
                if failed_dirs:
                    here = (key[0], number)
                    absent = [one for one in replicas if one in absent or here in failed_dirs.get(one, ())]
                offline = ids[tuple(absent)]
            rows.append(
                _HEAD.pack(number, state.controller_epoch, state.leader, state.leader_epoch)
                + ids[state.isr]
                + _VERSION.pack(partition.version)
                + ids[replicas]
                + offline
                + _TAGS
            )
        out += [_topic(key, has_ids=has_ids), varint(len(rows) + 1), *rows, _TAGS]
    out += [varint(len(nodes) + 1), *map(_node, nodes), _TAGS]
    return b"".join(out)


def _leader_and_isr(request: Request, level: Level, nodes: Sequence[KnownNode]) -> bytes:
    has_ids, leaders = level.leader_and_isr >= 5, set[int]()
    make = partial(_replica_rows, _Ids(), _ENDS[level.leader_and_isr >= 6])
    out = [b"\0" if has_ids else b"", varint(len(request.rows) + 1)]  # the first byte: type unknown, as Kafka says
    for key, partitions in request.rows.items():
        whole, numbers = whole_and_numbers(partitions)
        told = map(whole.__getitem__, numbers)
        leaders.update([one.state.leader for one in told if one is not None and one.state is not None])
        rows = list(rows_for(request.row_cache, key, partitions, request.new, make))
        out += [_topic(key, has_ids=has_ids), varint(len(rows) + 1), *rows, _TAGS]
    live = [node for node in nodes if node.node_id in leaders and node.listeners]
    out += [varint(len(live) + 1), *map(_leader, live), _TAGS]
    return b"".join(out)


def _replica_rows(
    ids: _Ids,
    ends: Mapping[bool, Sequence[bytes]],
    partitions: Mapping[int, Partition | None],
    is_new: bool,
) -> Iterator[bytes]:
    """The same for every broker, but for whether its replica is new."""
    by_recovery = ends[is_new]
    for number, partition in partitions.items():
        if partition is None or (state := partition.state) is None:
            yield b""
            continue
        yield (
            _HEAD.pack(number, state.controller_epoch, state.leader, state.leader_epoch)
            + ids[state.isr]
            + _VERSION.pack(partition.version)
            + ids[partition.replicas]
            + ids[partition.adding]
            + ids[partition.removing]
            + by_recovery[state.recovery]
        )


def _stop_replica(stops: Unwanted) -> bytes:
    out = [varint(len(stops) + 1)]
    for key, partitions in stops.items():
        rows = [_STOP.pack(number, stop.leader_epoch, stop.delete, 0) for number, stop in partitions.items()]
        out += [compact_string(key[0]), varint(len(rows) + 1), *rows, _TAGS]
    return b"".join([*out, _TAGS])


def _stop_replica_v2(stops: Unwanted, *, delete: bool) -> bytes:
    wanted = {key: [n for n, stop in partitions.items() if stop.delete == delete] for key, partitions in stops.items()}
    topics = [compact_string(key[0]) + compact_ids(numbers) + _TAGS for key, numbers in wanted.items() if numbers]
    return b"".join([bytes((delete,)), varint(len(topics) + 1), *topics, _TAGS]) if topics else b""


def _topic(key: TopicKey, *, has_ids: bool) -> bytes:
    return compact_string(key[0]) + (uuid_of(key[1]) if has_ids else b"")


def _node(node: KnownNode) -> bytes:
    listeners = [
        struct.pack(">i", one.port)
        + compact_string(one.host)
        + compact_string(one.name)
        + struct.pack(">hB", one.protocol, 0)
        for one in node.listeners
    ]
    head = struct.pack(">i", node.node_id) + varint(len(listeners) + 1)
    return b"".join([head, *listeners, compact_string(node.rack), _TAGS])


def _leader(node: KnownNode) -> bytes:
    """On the first listener, which is the one that brokers use among themselves."""
    first = node.listeners[0]
    return struct.pack(">i", node.node_id) + compact_string(first.host) + struct.pack(">iB", first.port, 0)
