"""The JSON inside Kafka's znodes: a type for each, read in every version, written as Kafka 3.9 writes it.

Readers do not check `version` (Kafka's do not either), accept any key
order, and take missing fields as empty. Fields are in the order in which Kafka writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, TypeVar

import msgspec

from controller.core.bitset import PARTITION_MAX
from controller.core.model import NO_LEADER, RECOVERED, Assignment, Broker, Int32, Leadership, Replicas

EPOCH_MAX: Final = 2**31 - 1
_EPOCH_DIGITS: Final = len(str(EPOCH_MAX))
#: sixteen bytes, as Kafka writes them
TOPIC_ID: Final = r"^([A-Za-z0-9_-]{22})?\Z"


class FormatError(ValueError):
    """A znode's content is not as Kafka writes it; the message says how it differs."""


class ControllerZnode(msgspec.Struct, frozen=True):
    """`/controller`, version 1 or 2; readers need only the broker id."""

    brokerid: int
    timestamp: str | msgspec.UnsetType = msgspec.UNSET
    version: int | msgspec.UnsetType = msgspec.UNSET
    kraftControllerEpoch: int | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - Kafka's own key


class BrokerZnode(msgspec.Struct, frozen=True):
    """`/brokers/ids/N`, version 1 to 5. `klamm_endpoints` is ours: the HTTP listeners of a stub broker. Kafka's tools
    parse all of `endpoints`, `host`, `port` and the map; fields that they do not know stand beside them."""

    host: str | None = None
    port: Int32 = -1
    endpoints: tuple[str, ...] = ()
    rack: str | msgspec.UnsetType | None = msgspec.UNSET
    listener_security_protocol_map: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    features: dict[str, dict[str, int]] | msgspec.UnsetType = msgspec.UNSET
    jmx_port: int = -1
    timestamp: str | msgspec.UnsetType = msgspec.UNSET
    version: int = 5
    klamm_endpoints: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class TopicZnode(msgspec.Struct, frozen=True):
    """`/brokers/topics/T`, version 1 to 3."""

    partitions: dict[int, Replicas] = {}
    adding_replicas: dict[int, Replicas] | msgspec.UnsetType = msgspec.UNSET
    removing_replicas: dict[int, Replicas] | msgspec.UnsetType = msgspec.UNSET
    topic_id: Annotated[str, msgspec.Meta(pattern=TOPIC_ID)] | msgspec.UnsetType = msgspec.UNSET
    version: int = 3


class StateZnode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`/brokers/topics/T/partitions/P/state`."""

    controller_epoch: Int32
    leader: Int32
    version: int = 1
    leader_epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**30)]  # it has to have room to rise
    isr: Replicas
    leader_recovery_state: Annotated[int, msgspec.Meta(ge=0, le=1)] | msgspec.UnsetType = msgspec.UNSET


class ReplicasOf(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: Replicas


class PartitionOf(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class ReassignZnode(msgspec.Struct, frozen=True):
    """`/admin/reassign_partitions`."""

    partitions: tuple[ReplicasOf, ...] = ()
    version: int = 1


class PartitionsZnode(msgspec.Struct, frozen=True):
    """`/admin/preferred_replica_election` and `/isr_change_notification/isr_change_*`."""

    partitions: tuple[PartitionOf, ...] = ()
    version: int = 1


class LogDirEventZnode(msgspec.Struct, frozen=True):
    """`/log_dir_event_notification/log_dir_event_*`."""

    broker: int
    event: int = 1
    version: int = 1


class ConfigZnode(msgspec.Struct, frozen=True):
    """`/config/<type>/<entity>`."""

    config: dict[str, str] = {}
    version: int = 1


class AclRow(msgspec.Struct, frozen=True):
    """A rule in an `AclZnode`."""

    principal: str
    permissionType: str  # noqa: N815 - Kafka's name
    operation: str
    host: str


class AclZnode(msgspec.Struct, frozen=True):
    """`/kafka-acl/<kind>/<name>`, `/kafka-acl-extended/prefixed/<kind>/<name>`."""

    acls: tuple[AclRow, ...]
    version: int = 1


class ConfigChangeZnode(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/config/changes/config_change_*`, version 1 (type and name) or 2 (path)."""

    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


class ClusterIdZnode(msgspec.Struct, frozen=True):
    """`/cluster/id`: here the version is a string."""

    id: str
    version: str = "1"


class FeatureZnode(msgspec.Struct, frozen=True):
    """`/feature`, version 1 or 2."""

    status: int
    features: dict[str, dict[str, int]] = {}
    version: int = 2


class ProducerIdsZnode(msgspec.Struct, frozen=True):
    """`/latest_producer_id_block`: the bounds are strings."""

    broker: int
    block_start: str
    block_end: str
    version: int = 1


class MarkerZnode(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/admin/delete_topics/T`: Kafka's is empty and only has to be there; ours may say more."""

    abandon_offline: bool = False


class DrainZnode(msgspec.Struct, frozen=True):
    """`/klamm/draining/N`."""

    broker_epoch: int
    by: str


class KnownBrokerZnode(msgspec.Struct, frozen=True):
    """`/klamm/brokers/N`: the last registration seen."""

    broker_epoch: int
    host: str | None = None
    port: Int32 = -1
    endpoints: tuple[str, ...] = ()
    rack: str | None = None


class FailedDirsZnode(msgspec.Struct, frozen=True):
    """`/klamm/failed_dirs/N`."""

    broker_epoch: int


class TermZnode(msgspec.Struct, frozen=True):
    """`/klamm/terms/E`: the controller, from when to when, why it ended, and how long its start took."""

    broker_id: int
    from_ms: int
    to_ms: int | None = None
    why: str | None = None
    #: milliseconds since the seat was seen to be vacant, at the end of each phase
    phases: dict[str, float] = {}


Placed = dict[int, Assignment]

_T = TypeVar("_T")
_state_decoder = msgspec.json.Decoder(StateZnode)
encode = msgspec.json.encode


def decode(data: bytes, kind: type[_T]) -> _T:
    """Returns a znode's JSON as a value of `kind`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a {kind.__name__}: {error}") from None


def decode_epoch(data: bytes) -> int:
    """`/controller_epoch`: a plain decimal, not JSON, that fits into 32 bits as everywhere else in Kafka."""
    digits = data.strip()
    if not (digits.isdigit() and len(digits) <= _EPOCH_DIGITS and int(digits) <= EPOCH_MAX):
        raise FormatError(f"not an epoch: {data[:40]!r}")
    return int(digits)


def decode_state(data: bytes, placed: Mapping[Replicas, Assignment] | None = None) -> Leadership:
    """An ISR that is some assignment's replicas is those of `placed`, as in `decode_topic`."""
    try:
        znode = _state_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a state: {error}") from None
    if not znode.isr or (znode.leader != NO_LEADER and znode.leader not in znode.isr):
        raise FormatError(f"leader {znode.leader} is not in the ISR {list(znode.isr)}")
    recovery = znode.leader_recovery_state or RECOVERED
    isr = placed[znode.isr].replicas if placed is not None and znode.isr in placed else znode.isr
    return Leadership(znode.leader, znode.leader_epoch, isr, znode.controller_epoch, recovery)


@lru_cache(maxsize=1_024)
def encode_state(state: Leadership) -> bytes:
    """The states that a broker's death changes are often equal, and then encoded once."""
    znode = StateZnode(
        controller_epoch=state.controller_epoch, leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr,
        leader_recovery_state=msgspec.UNSET if state.recovery == RECOVERED else state.recovery,
    )  # fmt: skip
    return encode(znode)


def decode_topic(data: bytes, placed: dict[Replicas, Assignment] | None = None) -> tuple[str | None, Placed]:
    """Returns topic id (None before version 3) and assignment; callers with one `placed` share equal values."""
    znode = decode(data, TopicZnode)
    adding, removing = znode.adding_replicas or {}, znode.removing_replicas or {}
    assignment, placed = {}, {} if placed is None else placed
    for number, replicas in sorted(znode.partitions.items()):
        one = placed.get(replicas)
        if one is None:
            if not replicas or min(replicas) < 0 or len(set(replicas)) != len(replicas):
                raise FormatError(f"partition {number} cannot have replicas {list(replicas)}")
            one = placed[replicas] = Assignment(replicas)
        assignment[number] = one
    for number in (adding.keys() | removing.keys()) & assignment.keys() if adding or removing else ():
        assignment[number] = Assignment(assignment[number].replicas, adding.get(number, ()), removing.get(number, ()))
    if assignment and not 0 <= min(assignment) <= max(assignment) <= PARTITION_MAX:
        raise FormatError(
            f"partitions are numbered from 0 to {PARTITION_MAX}, not {min(assignment)} to {max(assignment)}"
        )
    return znode.topic_id or None, assignment


def encode_topic(topic_id: str, assignment: dict[int, Assignment]) -> bytes:
    return encode(
        TopicZnode(
            partitions={number: one.replicas for number, one in assignment.items()},
            adding_replicas={number: one.adding for number, one in assignment.items() if one.adding},
            removing_replicas={number: one.removing for number, one in assignment.items() if one.removing},
            topic_id=topic_id,
        )
    )


def encode_marker(*, abandon_offline: bool) -> bytes:
    return encode(MarkerZnode(abandon_offline=True)) if abandon_offline else b""


def decode_marker(data: bytes) -> bool:
    """Returns whether the deletion goes on without brokers that are gone; the marker's other content means nothing."""
    try:
        return decode(data, MarkerZnode).abandon_offline
    except FormatError:
        return False


def encode_targets(targets: Mapping[tuple[str, int], Replicas]) -> bytes:
    return encode(ReassignZnode(tuple(ReplicasOf(topic, number, one) for (topic, number), one in targets.items())))


def decode_producer_ids(data: bytes) -> int:
    """Returns the first producer id that was never granted."""
    try:
        return int(decode(data, ProducerIdsZnode).block_end) + 1
    except ValueError as error:
        raise FormatError(f"not a block of producer ids: {error}") from None


def decode_broker(data: bytes, broker_id: int, epoch: int) -> Broker:
    znode = decode(data, BrokerZnode)
    if not znode.endpoints and znode.host is None:
        raise FormatError("not a BrokerZnode: it has neither endpoints nor a host")
    own = znode.klamm_endpoints or ()
    return Broker(
        broker_id, epoch, znode.host, znode.port, (*own, *_others(znode.endpoints, own)), znode.rack or None,
        znode.listener_security_protocol_map or {}, znode.features or {},
    )  # fmt: skip


def _others(endpoints: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """A stub without a listener of Kafka's registers its HTTP address under a name that Kafka's tools know,
    too."""
    addresses = {one.partition("://")[2] for one in own}
    return tuple(one for one in endpoints if one.partition("://")[2] not in addresses)


def known_broker_for(broker: Broker) -> KnownBrokerZnode:
    return KnownBrokerZnode(broker.epoch, broker.host, broker.port, broker.endpoints, broker.rack)


def known_broker_in(znode: KnownBrokerZnode, broker_id: int) -> Broker:
    return Broker(broker_id, znode.broker_epoch, znode.host, znode.port, znode.endpoints, znode.rack)
