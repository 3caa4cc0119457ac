"""The questions of tools to the controller itself, since it is listed among the brokers: configurations, and log
directories.

`kafka-reassign-partitions --verify` takes throttles off every broker that it sees. There is nothing to take off here,
so that succeeds; setting anything is refused. It has no configuration of a broker's to describe, and one directory
without any replica (of none at all, Kafka's clients make a refusal). Requests about other brokers are passed on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import Api, Passer

DESCRIBE_CONFIGS: Final = 32
DESCRIBE_LOG_DIRS: Final = 35
INCREMENTAL_ALTER_CONFIGS: Final = 44
BROKER, BROKER_LOGGER = 4, 8  # types of resource
DELETE: Final = 1  # an operation
UNSAID: Final = -1


class Resource(NamedTuple):
    """`operations`: the changes of its configuration that are asked for."""

    kind: int
    name: str
    operations: tuple[int, ...] = ()


class _Known(NamedTuple):
    """An API about resources, as it can be answered here."""

    version_max: int
    flexible_since: int
    read: Callable[[Reader], Resource]
    write: Callable[[Resource, Writer], object]


def with_own_configs(broker_id: int, pass_on: Passer) -> Passer:
    """As `pass_on`, but for requests about this controller alone."""
    own = {(kind, str(broker_id)) for kind in (BROKER, BROKER_LOGGER)}

    async def answered(frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        known = KNOWN.get(key)
        if known is None or not 0 <= version <= known.version_max:
            return await pass_on(frame)
        is_flexible = version >= known.flexible_since
        resources = _resources_in(frame, known.read, is_flexible=is_flexible)
        if not resources or not {(one.kind, one.name) for one in resources} <= own:
            return await pass_on(frame)
        writer = Writer(flexible=is_flexible).i32(correlation_id).tags().i32(0)
        writer.array(resources, lambda one: known.write(one, writer))
        return writer.tags().message()

    return answered


def own_log_dirs(directory: Path) -> dict[int, Api]:
    """Returns the table with the API for the directories of this process."""

    async def describe(version: int, reader: Reader, writer: Writer) -> None:
        writer.i32(0)
        if version >= 3:
            writer.i16(Code.NONE)
        writer.array([str(directory)], lambda path: _directory(version, path, writer))
        writer.tags()

    return {DESCRIBE_LOG_DIRS: Api(0, 4, 2, describe)}


def _directory(version: int, path: str, writer: Writer) -> None:
    writer.i16(Code.NONE).string(path).array((), writer.string)
    if version >= 4:
        writer.i64(UNSAID).i64(UNSAID)  # its size, and the free space
    writer.tags()


def _resources_in(frame: bytes, read: Callable[[Reader], Resource], *, is_flexible: bool) -> Sequence[Resource]:
    client = Reader(frame, 8, flexible=False)
    client.nullable_string()  # the client's id: never compact
    reader = Reader(frame, client.at, flexible=is_flexible)
    reader.tags()
    return reader.array(lambda: read(reader))


def _described(reader: Reader) -> Resource:
    kind, name = reader.i8(), reader.string()
    reader.nullable_array(reader.string)
    reader.tags()
    return Resource(kind, name)


def _write_described(resource: Resource, writer: Writer) -> None:
    writer.i16(Code.NONE).string(None).i8(resource.kind).string(resource.name).array((), writer.string).tags()


def _altered(reader: Reader) -> Resource:
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


def _write_altered(resource: Resource, writer: Writer) -> None:
    is_nothing = all(operation == DELETE for operation in resource.operations)
    code = Code.NONE if is_nothing else Code.INVALID_REQUEST
    text = None if is_nothing else "this is the controller, and no broker: it has no configuration of a broker's"
    writer.i16(code).string(text).i8(resource.kind).string(resource.name).tags()


KNOWN: Final = {
    DESCRIBE_CONFIGS: _Known(4, 4, _described, _write_described),
    INCREMENTAL_ALTER_CONFIGS: _Known(1, 1, _altered, _write_altered),
}
