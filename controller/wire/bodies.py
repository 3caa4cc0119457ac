"""The bodies of every RPC between processes, and the one encoder and decoder for them.

`/openapi.json` describes them. Rows are arrays and grouped by topic, since at 100,000 partitions encoding
and decoding them is where the time goes. Nothing in here knows how a body travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from controller.core.model import Replicas
from controller.wire.addresses import split_address

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
#: of a number in a header: as many as 64 bits have
DIGITS_MAX: Final = 19

LEADER_AND_ISR: Final = "/rpc/v1/leader-and-isr"
UPDATE_METADATA: Final = "/rpc/v1/update-metadata"
STOP_REPLICA: Final = "/rpc/v1/stop-replica"
DESCRIBE_TOPICS: Final = "/rpc/v1/describe-topics"
DESCRIBE_LOG: Final = "/rpc/v1/describe-log"
ALTER_PARTITION: Final = "/rpc/v1/alter-partition"
CONTROLLED_SHUTDOWN: Final = "/rpc/v1/controlled-shutdown"
PRODUCER_IDS: Final = "/rpc/v1/producer-ids"
FETCH: Final = "/rpc/v1/fetch"


def number_in(text: str) -> int | None:
    """Returns the number that a header says; None if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else None


def sender_in(text: str) -> tuple[int, int] | None:
    """Returns broker id and broker epoch as `SENDER` says them; None if it does not."""
    broker_id, _, broker_epoch = text.partition(" ")
    known_id, known_epoch = number_in(broker_id), number_in(broker_epoch)
    return None if known_id is None or known_epoch is None else (known_id, known_epoch)


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
    """A topic whose rows stay bytes until a reader asks (copy the Raw: it keeps its whole message alive)."""

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
    """Returns where a broker's listener of that name is, as the start of a URL; none where nothing may be sent to."""
    for endpoint in endpoints:
        name, separator, address = endpoint.partition("://")
        if separator and name == listener and split_address(address) is not None:
            return f"{scheme_of(name)}://{address}"
    return None


def speaks_http(endpoints: Iterable[str]) -> bool:
    """Returns whether a registration is that of a stub, by the names of its listeners."""
    names = [endpoint.partition("://")[0] for endpoint in endpoints]
    return any(name == HTTP_LISTENER or name.endswith("HTTPS") for name in names)


def scheme_of(listener: str) -> str:
    """Returns the scheme of a listener by its name: HTTPS if the name ends so."""
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


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition that a broker refused, with Kafka's number."""

    topic_id: str
    partition: int
    error_code: int
    #: where the leader epoch told was too low: the highest that the broker has heard of
    leader_epoch: int = -1


class Answer(msgspec.Struct, frozen=True):
    """A broker's answer to the controller: only what it refused. `controller_epoch`: the one that it obeys, where that
    is the reason; Kafka's brokers do not say."""

    error_code: int = 0
    partitions: Sequence[Refusal] = ()
    controller_epoch: int = -1


class DescribeTopicsRequest(msgspec.Struct, frozen=True):
    """Asks what a broker knows of these topics, by name."""

    topics: Sequence[str] = ()


class KnownEpoch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The highest leader epoch of a partition that a broker knows, from requests to it or from its disks."""

    partition: int
    leader_epoch: int


class DescribedId(msgspec.Struct, frozen=True):
    """A topic id that a broker knows for a name: `told` in its metadata, `held` by replicas on its disks. Neither: only
    replicas that were set aside have it."""

    topic_id: str
    told: bool
    held: bool
    leader_epochs: Sequence[KnownEpoch] = ()


class DescribedTopic(msgspec.Struct, frozen=True):
    """Nothing in `ids`: the broker does not know the topic."""

    topic: str
    ids: Sequence[DescribedId] = ()


class DescribeTopicsAnswer(Answer, frozen=True):
    """A broker's answer about topics."""

    topics: Sequence[DescribedTopic] = ()


class Truncation(msgspec.Struct, frozen=True):
    """A broker removed its records from `start` up to `end`, which this leader does not have. `committed`: how many of
    them, from the first on, had been committed, as far as the broker knew: an unclean election lost these.
    `records_epoch`: the leader epoch of the first."""

    broker_id: int
    at_ms: int
    leader: int
    leader_epoch: int
    start: int
    end: int
    committed: int
    records_epoch: int


class DescribeLogRequest(msgspec.Struct, frozen=True):
    """How far a broker's log of this partition is."""

    topic: str
    partition: int


class DescribeLogAnswer(Answer, frozen=True):
    """`heard`: of a leader, the log end of each broker as its fetches told it; -1: it did not fetch yet."""

    log_start: int = -1
    log_end: int = -1
    high_watermark: int = -1
    heard: Sequence[tuple[int, int]] = ()
    truncations: Sequence[Truncation] = ()


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
    """The state that stands now, whatever the code."""

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


class ProducerIdsAnswer(msgspec.Struct, frozen=True):
    """A block of producer ids for idempotent producers: no other broker gets them."""

    error_code: int = 0
    start: int = 0
    size: int = 0


class FetchRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`offset` and `last_epoch`: where the follower's log ends, and the leader epoch of its last record; -1 from a
    broker that keeps no records."""

    partition: int
    leader_epoch: int
    log_id: str
    offset: int = -1
    last_epoch: int = -1


class FetchTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[FetchRow]


class ForgottenTopic(msgspec.Struct, frozen=True):
    topic_id: str
    partitions: Sequence[int]


class FetchRequest(msgspec.Struct, frozen=True):
    """Session 0 lists everything and gets an id; later ones list only changes; empty means all as before.
    `wait_ms`: for so long the answer may wait for records."""

    session: int = 0
    sequence: int = 0
    topics: Sequence[FetchTopic] = ()
    forgotten: Sequence[ForgottenTopic] = ()
    wait_ms: int = 0


class FetchedRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A leader's answer to a follower of one partition: `size` bytes of batches behind the JSON, in the order of these
    rows. `parting`: leader epoch and offset where both logs part; -1 twice: they do not."""

    topic_id: str
    partition: int
    leader_epoch: int
    high_watermark: int
    start_offset: int
    end_offset: int
    size: int = 0
    parting_epoch: int = -1
    parting_offset: int = -1
    is_out_of_range: bool = False


class FetchAnswer(msgspec.Struct, frozen=True):
    """`is_fed`: the leader keeps records and lets questions wait, so the next may follow at once. With `records`, a
    line feed ends the JSON, and raw batches follow it."""

    error_code: int = 0
    session: int = 0
    partitions: Sequence[Refusal] = ()
    is_fed: bool = False
    records: Sequence[FetchedRow] = ()


def with_batches(answer: FetchAnswer, batches: Iterable[bytes]) -> bytes:
    """Returns a fetch's answer with the records that it announces."""
    return b"".join((_encoder.encode(answer), b"\n", *batches))


def batches_of(body: bytes) -> tuple[FetchAnswer, list[bytes]]:
    """Returns the answer, and the batches of each of its rows. Raises msgspec.ValidationError or DecodeError."""
    head, _, tail = body.partition(b"\n")
    answer = decode(head, FetchAnswer)
    sizes = [row.size for row in answer.records]
    if min(sizes, default=0) < 0 or sum(sizes) != len(tail):
        raise msgspec.DecodeError(f"batches of {sum(sizes)} bytes announced, and {len(tail)} there")
    batches, at = [], 0
    for size in sizes:
        batches.append(tail[at : at + size])
        at += size
    return answer, batches


_encoder = msgspec.json.Encoder()
encode = _encoder.encode
encode_lines = _encoder.encode_lines

_T = TypeVar("_T")


def decode(body: bytes, kind: type[_T]) -> _T:
    """Returns the body as a value of `kind`; raises msgspec.ValidationError or DecodeError for anything else."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    except UnicodeDecodeError as error:  # in a string: msgspec leaves it as it is
        raise msgspec.DecodeError(f"not UTF-8: {error.reason} at byte {error.start} of a string") from None
