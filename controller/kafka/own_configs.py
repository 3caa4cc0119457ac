"""Configurations that tools want to change on the controller itself, since it is listed among the brokers.

`kafka-reassign-partitions --verify` takes throttles off every broker that it sees. There is nothing to take off here,
so that is done; setting anything is refused. Whatever is about others is passed on. It keeps nothing.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from controller.core.codes import Code
from controller.dialects.kafka_codec import Reader, Writer
from controller.kafka.server import Passer

INCREMENTAL_ALTER_CONFIGS: Final = 44
FLEXIBLE_SINCE: Final = 1
VERSION_MAX: Final = 1
BROKER: Final = 4  # a type of resource
DELETE: Final = 1  # an operation


class Resource(NamedTuple):
    kind: int
    name: str
    operations: tuple[int, ...]


def with_own_configs(broker_id: int, pass_on: Passer) -> Passer:
    """As `pass_on`, but for changes that are only about this controller."""

    async def answered(frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key != INCREMENTAL_ALTER_CONFIGS or not 0 <= version <= VERSION_MAX:
            return await pass_on(frame)
        resources = _resources_in(frame, is_flexible=version >= FLEXIBLE_SINCE)
        if {(one.kind, one.name) for one in resources} != {(BROKER, str(broker_id))}:
            return await pass_on(frame)
        writer = Writer(flexible=version >= FLEXIBLE_SINCE).i32(correlation_id).tags().i32(0)
        writer.array(resources, lambda one: _answer(one, writer))
        return writer.tags().message()

    return answered


def _resources_in(frame: bytes, *, is_flexible: bool) -> list[Resource]:
    client = Reader(frame, 8, flexible=False)
    client.nullable_string()  # the client's id: never compact
    reader = Reader(frame, client.at, flexible=is_flexible)
    reader.tags()
    return reader.array(lambda: _resource(reader))


def _resource(reader: Reader) -> Resource:
    kind, name = reader.i8(), reader.string()
    operations = reader.array(lambda: _operation(reader))
    reader.tags()
    return Resource(kind, name, tuple(operations))


def _operation(reader: Reader) -> int:
    reader.string()
    operation = reader.i8()
    reader.nullable_string()
    reader.tags()
    return operation


def _answer(resource: Resource, writer: Writer) -> None:
    is_nothing = all(operation == DELETE for operation in resource.operations)
    code = Code.NONE if is_nothing else Code.INVALID_REQUEST
    text = None if is_nothing else "this is the controller, and no broker: it has no configuration of a broker's"
    writer.i16(code).string(text).i8(resource.kind).string(resource.name).tags()
