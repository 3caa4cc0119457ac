"""The bodies of every RPC between processes, and the one encoder and decoder for them.

Interface, section 3, is the contract. Rows are arrays and grouped by topic, since at 100,000 partitions encoding
and decoding them is where the time goes. Nothing in here knows how a body travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from controller.core.model import Replicas

CONTROLLER_ID: Final = "Klamm-Controller-Id"
CONTROLLER_EPOCH: Final = "Klamm-Controller-Epoch"
BROKER_EPOCH: Final = "Klamm-Broker-Epoch"
EVENT_ID: Final = "Klamm-Event-Id"
SENDER: Final = "Klamm-Sender"
RECEIVER: Final = "Klamm-Receiver"
SEQUENCE: Final = "Klamm-Sequence"
BODY_SHA256: Final = "Klamm-Body-Sha256"
ROLE: Final = "Klamm-Role"
REQUEST_ID: Final = "Klamm-Request-Id"
#: 1: pass the request on rather than redirect; 0: it was passed on
FORWARD: Final = "Klamm-Forward"
SIGNATURE: Final = "Klamm-Signature"

#: the listener of people and tools, and of brokers among themselves where nothing else is configured
HTTP_LISTENER: Final = "HTTP"

LEADER_AND_ISR: Final = "/rpc/v1/leader-and-isr"
UPDATE_METADATA: Final = "/rpc/v1/update-metadata"
STOP_REPLICA: Final = "/rpc/v1/stop-replica"
ALTER_PARTITION: Final = "/rpc/v1/alter-partition"
CONTROLLED_SHUTDOWN: Final = "/rpc/v1/controlled-shutdown"
FETCH: Final = "/rpc/v1/fetch"


class PartitionRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One partition in LeaderAndIsr and UpdateMetadata. `leader` -2 removes it."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Replicas
    version: int
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    offline: Replicas
    is_new: bool
    recovery: int


class TopicRows(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    partitions: Sequence[PartitionRow]


class UndecodedTopicRows(msgspec.Struct, frozen=True):
    """A topic whose rows stay bytes until somebody asks (copy the Raw: it keeps its whole message alive)."""

    topic: str
    topic_id: str
    partitions: msgspec.Raw


class BrokerEntry(msgspec.Struct, frozen=True):
    """A broker as told to brokers; `state` is live, draining or gone."""

    id: int
    epoch: int
    state: str
    rack: str | None
    endpoints: tuple[str, ...]


def address_of(endpoints: Iterable[str], listener: str = HTTP_LISTENER) -> str | None:
    """Where a broker's listener of that name is, as the start of a URL."""
    for endpoint in endpoints:
        name, separator, address = endpoint.partition("://")
        if separator and name == listener:
            return f"{scheme_of(name)}://{address}"
    return None


def speaks_http(endpoints: Iterable[str]) -> bool:
    """Whether a registration is that of a stub, by the names of its listeners."""
    names = [endpoint.partition("://")[0] for endpoint in endpoints]
    return any(name == HTTP_LISTENER or name.endswith("HTTPS") for name in names)


def scheme_of(listener: str) -> str:
    """A listener whose name ends so speaks TLS."""
    return "https" if listener.endswith("HTTPS") else "http"


class StatesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """LeaderAndIsr and UpdateMetadata. A full list takes effect with its last part."""

    full: bool = False
    part: int = 1
    parts: int = 1
    brokers: Sequence[BrokerEntry] = ()
    topics: Sequence[TopicRows] = ()


class UndecodedStatesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """UpdateMetadata as a broker takes it in."""

    full: bool = False
    part: int = 1
    parts: int = 1
    brokers: Sequence[BrokerEntry] = ()
    topics: Sequence[UndecodedTopicRows] = ()


class StopRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    partition: int
    leader_epoch: int
    delete: bool


class TopicStops(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    partitions: Sequence[StopRow]


class StopReplicaRequest(msgspec.Struct, frozen=True):
    topics: Sequence[TopicStops] = ()


class Refusal(msgspec.Struct, frozen=True):
    """One partition that a broker refused, with Kafka's number."""

    topic_id: str
    partition: int
    error_code: int


class Answer(msgspec.Struct, frozen=True):
    """A broker's answer to the controller: only what it refused."""

    error_code: int = 0
    partitions: Sequence[Refusal] = ()


class IsrMember(msgspec.Struct, frozen=True, gc=False, array_like=True):
    broker_id: int
    broker_epoch: int


class AlterRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A leader asks: this ISR, given my leader epoch and the version I know."""

    partition: int
    leader_epoch: int
    version: int
    recovery: int
    isr: tuple[IsrMember, ...]


class AlterTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[AlterRow]


class AlterPartitionRequest(msgspec.Struct, frozen=True):
    topics: Sequence[AlterTopic]


class AlteredRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What now stands, whatever the code."""

    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    isr: Replicas
    version: int
    recovery: int


class AlteredTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[AlteredRow]


class AlterPartitionAnswer(msgspec.Struct, frozen=True):
    error_code: int = 0
    topics: Sequence[AlteredTopic] = ()


class RemainingPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class ControlledShutdownAnswer(msgspec.Struct, frozen=True):
    error_code: int = 0
    remaining: Sequence[RemainingPartition] = ()


class FetchRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    partition: int
    leader_epoch: int
    log_id: str


class FetchTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[FetchRow]


class ForgottenTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[int]


class FetchRequest(msgspec.Struct, frozen=True):
    """Session 0 lists everything and gets an id; later ones list only what changed; empty means all as before."""

    session: int = 0
    sequence: int = 0
    topics: Sequence[FetchTopic] = ()
    forgotten: Sequence[ForgottenTopic] = ()


class FetchAnswer(msgspec.Struct, frozen=True):
    error_code: int = 0
    session: int = 0
    partitions: Sequence[Refusal] = ()


_encoder = msgspec.json.Encoder()
encode = _encoder.encode
encode_lines = _encoder.encode_lines

_T = TypeVar("_T")


def decode(body: bytes, kind: type[_T]) -> _T:
    """The body as a value of `kind`; raises msgspec.ValidationError or DecodeError for anything else."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    except UnicodeDecodeError as error:  # in a string: msgspec leaves it as it is
        raise msgspec.DecodeError(f"not UTF-8: {error.reason} at byte {error.start} of a string") from None
