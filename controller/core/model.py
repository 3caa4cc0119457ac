"""The nouns: brokers, topics, partitions and their states, as immutable values.

A value per partition is a struct outside the garbage collector's books (`gc=False`): a cluster of
100,000 partitions must not make every collection slower.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

NO_LEADER = -1
#: told to brokers instead of a leader: forget this partition
LEADER_REMOVED = -2
NO_VERSION = -1
FIRST_LEADER_EPOCH = 0
RECOVERED = 0
RECOVERING = 1

#: the bounds of Kafka's protocol: a larger number could be told to no broker
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Replicas = tuple[Int32, ...]
LEADER_EPOCH_MAX = 2**31 - 1


#: topic and partition, where only a key is needed
PartitionKey = tuple[str, int]
#: topic id and partition: a replica of the broker concerned, whichever topic has the name by now
TopicIdPartition = tuple[str, int]


class TopicPartition(NamedTuple):
    """A partition by name, for people and for keys that outlive an event."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Broker(msgspec.Struct, frozen=True):
    """One incarnation of a broker: its registration and the czxid of that (`epoch`)."""

    broker_id: int
    epoch: int
    host: str | None
    port: int
    endpoints: tuple[str, ...]
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] = {}
    features: dict[str, dict[str, int]] = {}


class Leadership(msgspec.Struct, frozen=True, gc=False):
    """The content of a state znode: leader, ISR, and the controller that decided it."""

    leader: int
    leader_epoch: int
    isr: Replicas
    controller_epoch: int
    recovery: int = RECOVERED


class Partition(msgspec.Struct, frozen=True, gc=False):
    """One partition as believed. `state` is None until it was first led; `version` is the state znode's."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()
    state: Leadership | None = None
    version: int = NO_VERSION
    #: the state znode is known as of this zxid: older facts about it are passed over
    zxid: int = 0


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """Where a topic znode wants one partition's replicas."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()


class BrokerRefusal(msgspec.Struct, frozen=True, gc=False):
    """A broker's refusal of a state, and the controller's answer to it so far."""

    request: str  # LeaderAndIsr, UpdateMetadata, StopReplica
    code: int
    #: the leader epoch that it refused last, and the highest one that it knows (-1: it did not say)
    told_epoch: int
    known_epoch: int
    #: how often it was decided or told anew because of this, and when last, by the term's clock
    tries: int
    tried_ms: int


class Topic(msgspec.Struct):
    """A topic as believed. Only `Cluster.apply` changes it; `partitions` keeps the order of their numbers."""

    name: str
    topic_id: str | None
    version: int
    czxid: int
    zxid: int
    partitions: dict[int, Partition]


def assignment_of(topic: Topic) -> dict[int, Assignment]:
    """Returns all of a topic, as its znode has it."""
    return {
        number: Assignment(partition.replicas, partition.adding, partition.removing)
        for number, partition in topic.partitions.items()
    }
