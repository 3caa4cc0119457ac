"""A cluster as it stood, and the steps from one state to the next. Both modes are told in these words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, Protocol

import msgspec

Mode = Literal["zookeeper", "kraft"]
NOBODY: Final = -1


class Partition(msgspec.Struct, frozen=True, gc=False):
    """The replicas and the leader of a partition. `epoch` is the partition epoch, or the version of the state znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False  # elected uncleanly, and its leader did not say yet that it has recovered

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


class Broker(msgspec.Struct, frozen=True, gc=False):
    """A registration. In ZooKeeper mode a broker that is gone has none."""

    epoch: int
    is_fenced: bool = False
    is_leaving: bool = False  # in controlled shutdown
    incarnation: str | None = None
    rack: str | None = None
    has_lost_disks: bool = False  # since it registered
    is_migrating: bool = False  # registered with KRaft, and still in ZooKeeper mode

    @property
    def is_serving(self) -> bool:
        return not self.is_fenced


#: topic and number
Name = tuple[str, int]
#: the kind of resource that is configured (topic, broker, …), and its name: "" for the default of all
Target = tuple[str, str]


class PartitionStep(msgspec.Struct, frozen=True, gc=False):
    """None before: it came to be; None after: it was deleted."""

    name: Name
    topic_id: str | None
    before: Partition | None
    after: Partition | None
    elects: bool = False  # the step names a leader, though perhaps the same


class BrokerStep(msgspec.Struct, frozen=True, gc=False):
    """None before: it registered for the first time, as far as is known; None after: it is registered no more."""

    broker: int
    before: Broker | None
    after: Broker | None
    why: str  # registered, unfenced, fenced, shutting down, unregistered, session expired, closed


class ControllerStep(msgspec.Struct, frozen=True, gc=False):
    """The controller since this step; None: there is none."""

    controller: int | None
    epoch: int
    why: str  # elected, expired, closed, deleted
    kraft_epoch: int | None = None  # of KRaft's controller, where it holds ZooKeeper's seat


class MirrorStep(msgspec.Struct, frozen=True, gc=False):
    """The znode `/migration`: all records of KRaft's log up to the offset are written to ZooKeeper; -1: none yet."""

    offset: int
    epoch: int


class NodeStep(msgspec.Struct, frozen=True, gc=False):
    """KRaft: a controller's process began, active or not."""

    node: int
    incarnation: str


class ConfigStep(msgspec.Struct, frozen=True, gc=False):
    """A setting, a feature's level or the voters; None: there is none."""

    target: Target
    key: str
    before: str | None
    after: str | None


class TopicStep(msgspec.Struct, frozen=True, gc=False):
    """A topic was created, grew, was to be deleted, or was; or came with a migration from ZooKeeper."""

    kind: Literal["created", "grew", "to be deleted", "deleted", "imported"]
    topic: str
    topic_id: str | None
    partitions: int  # how many more, or fewer


Change = PartitionStep | BrokerStep | ControllerStep | ConfigStep | TopicStep | MirrorStep | NodeStep


class Step(msgspec.Struct, frozen=True, gc=False):
    """The changes of one record, or of one transaction; all of them at once."""

    at_ms: int
    position: int  # offset or zxid
    epoch: int  # of the controller that wrote it
    changes: list[Change]
    #: it follows a gap that a snapshot bridges: its changes happened since then
    since_ms: int | None = None


class Cluster(msgspec.Struct):
    """How things stand after the last step."""

    mode: Mode
    at_ms: int = 0
    position: int = -1
    partitions: dict[Name, Partition] = {}
    topic_ids: dict[str, str] = {}
    brokers: dict[int, Broker] = {}
    controller: int | None = None
    controller_epoch: int = 0
    configs: dict[Target, dict[str, str]] = {}
    kraft_epoch: int | None = None  # ZooKeeper: KRaft's controller of this epoch holds the seat, and znodes are copies
    cluster_id: str | None = None
    next_producer_id: int | None = None
    #: access control, quotas, credentials and tokens, by names: that they are there, not their content
    beyond: set[str] = set()

    def is_led(self, partition: Partition) -> bool:
        """Returns whether a broker leads it that lives, as far as the record knows."""
        broker = self.brokers.get(partition.leader)
        return broker is not None and broker.is_serving

    def config_of(self, topic: str, key: str, default: str) -> str:
        """Returns the value that holds for a topic: its own setting, or that of all brokers."""
        of_all = self.configs.get(("broker", ""), {}).get(key, default)
        return self.configs.get(("topic", topic), {}).get(key, of_all)


class Replay(Protocol):
    """A history that is walked through once; `cluster` is how things stand after the last step.

    The order of the record counts: the first step that is later than a time ends the walk to it, though another
    controller's clock may be behind. `next_ms` is then when that step was; None where the record ends.
    """

    cluster: Cluster
    next_ms: int | None

    def steps(self, until_ms: int | None = None) -> Iterator[Step]: ...


def partition_steps(
    before: dict[Name, Partition], after: dict[Name, Partition], ids: dict[str, str]
) -> Iterator[PartitionStep]:
    """Yields the differences between two states."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            is_elected = new is not None and (old is None or old.leader_epoch != new.leader_epoch)
            yield PartitionStep(name, ids.get(name[0]), old, new, is_elected)
