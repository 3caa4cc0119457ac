"""Whole messages of Kafka's protocol as values, by kio: for requests that are few, where a resource may be denied.

What is hot has a codec of its own (`codec.py`). A message that kio cannot read is a `WireError`.
"""

from __future__ import annotations

import dataclasses
import io
import struct
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from controller.kafka.protocol.codec import Reader, WireError

#: the modules of these messages in kio, by the number of their API
NAMES: Final = {
    3: "metadata",
    7: "controlled_shutdown",
    10: "find_coordinator",
    19: "create_topics",
    20: "delete_topics",
    22: "init_producer_id",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    35: "describe_log_dirs",
    37: "create_partitions",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    56: "alter_partition",
    60: "describe_cluster",
    67: "allocate_producer_ids",
}
_FLEXIBLE_HEADER: Final = 2
_ERRORS: Final = (SerialError, ValueError, TypeError, LookupError, OverflowError, struct.error)
_VERSIONS_MAX: Final = 32
#: of fields that are left out, by their type
_BLANK: Final[dict[str, Any]] = {
    "string": "",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
}


def api_name(key: int) -> str:
    """Kafka's name of an API: `CreateTopics`."""
    return "".join(part.capitalize() for part in NAMES[key].split("_"))


@cache
def versions_of(key: int) -> tuple[int, int]:
    """Returns the first and the last version of an API that can be read here."""
    found = [one for one in range(_VERSIONS_MAX) if find_spec(f"kio.schema.{NAMES[key]}.v{one}") is not None]
    return found[0], found[-1]


@cache
def schema(key: int, version: int, kind: str) -> Any:
    """Returns the module with the classes of a `request` or `response`. Raises WireError."""
    if key not in NAMES:
        raise WireError(f"API {key} is not known")
    try:
        return import_module(f"kio.schema.{NAMES[key]}.v{version}.{kind}")
    except ModuleNotFoundError:
        raise WireError(f"API {key} in version {version} is not known") from None


def _whole(key: int, version: int, kind: str) -> Any:
    return getattr(schema(key, version, kind), api_name(key) + kind.capitalize())


class Message:
    """One request's frame, taken apart: its head as it came, and its content."""

    def __init__(self, frame: bytes) -> None:
        self.key, self.version, self.correlation_id = struct.unpack_from(">hhi", frame)
        kind = _whole(self.key, self.version, "request")
        self._body_at = _body_at(frame, is_flexible=kind.__header_schema__.__version__ == _FLEXIBLE_HEADER)
        self._head = frame[: self._body_at]
        self.content = _read(kind, frame, self._body_at)

    def frame_of(self, content: Any) -> bytes:
        """Returns the same request with other content."""
        return self._head + _written(content)

    def row(self, name: str, /, **given: Any) -> Any:
        """Returns a part of the answer, by the name of its class."""
        return blank(getattr(schema(self.key, self.version, "response"), name), **given)

    def request_row(self, name: str, /, **given: Any) -> Any:
        """Returns a part of the request, likewise."""
        return blank(getattr(schema(self.key, self.version, "request"), name), **given)

    def answer(self, **given: Any) -> bytes:
        """Returns the frame of an answer with these fields; others are empty."""
        return self.answer_of(blank(_whole(self.key, self.version, "response"), **given))

    def answer_of(self, content: Any) -> bytes:
        tags = bytes(content.__header_schema__.__version__)
        return b"".join((struct.pack(">i", self.correlation_id), tags, _written(content)))

    def read_answer(self, frame: bytes) -> Any:
        kind = _whole(self.key, self.version, "response")
        return _read(kind, frame, 4 + kind.__header_schema__.__version__)


def has(kind: Any, name: str) -> bool:
    """Returns whether these messages have this field."""
    return name in kind.__dataclass_fields__


def blank(kind: Any, /, **given: Any) -> Any:
    """Returns a value of `kind` with those of the given fields that it has; others have their default, or are empty."""
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in given:
            values[field.name] = given[field.name]
        elif field.default is dataclasses.MISSING:
            kafka_type = field.metadata.get("kafka_type")
            values[field.name] = () if kafka_type is None else _BLANK.get(kafka_type, 0)
    return kind(**values)


def error(code: int) -> ErrorCode:
    return ErrorCode(code)


def _body_at(frame: bytes, *, is_flexible: bool) -> int:
    client = Reader(frame, 8, flexible=False)
    client.nullable_string()  # the client's id: never compact
    tags = Reader(frame, client.at, flexible=is_flexible)
    tags.tags()
    return tags.at


def _read(kind: Any, frame: bytes, at: int) -> Any:
    try:
        content, size = entity_reader(kind)(frame, at)
    except _ERRORS as error:
        raise WireError(f"no {kind.__name__}: {error}") from None
    if at + size != len(frame):
        raise WireError(f"{len(frame) - at - size} bytes too many")
    return content


def _written(content: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(content))(buffer, content)
    return buffer.getvalue()
