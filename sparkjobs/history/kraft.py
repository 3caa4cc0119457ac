"""A KRaft cluster's history: its metadata log, record by record.

A change of a partition does not contain epochs: each change steps the partition epoch, and a change that names a leader
steps the leader epoch. A snapshot's times are those of its writing, so only its state counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from sparkjobs.history.cluster import (
    Broker,
    BrokerStep,
    Change,
    Cluster,
    ConfigStep,
    ControllerStep,
    Name,
    NodeStep,
    Partition,
    PartitionStep,
    Step,
    TopicStep,
    partition_steps,
)
from sparkjobs.records import RecordError
from sparkjobs.records.kraft_files import Message
from sparkjobs.records.kraft_history import KraftHistory

_TARGETS: Final = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
_NO_CHANGE: Final = -2
#: the target of the state of a migration from ZooKeeper
MIGRATION: Final = ("migration", "")
#: fields of a PartitionChangeRecord: None is no change
_LISTS: Final = {
    "isr": "isr",
    "replicas": "replicas",
    "addingReplicas": "adding",
    "removingReplicas": "removing",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
}
_MIGRATION: Final = ("none", "migration", "pre-migration", "post-migration")


class KraftReplay:
    """Walks through a history once."""

    def __init__(self, history: KraftHistory) -> None:
        self.cluster = Cluster("kraft")
        self.next_ms: int | None = None
        self.unknown: dict[str, int] = {}  # kinds of records that this reader does not know, and how often each occurs
        self._history = history
        self._names: dict[str, str] = {}  # of topics, by id
        self._numbers: dict[str, set[int]] = {}  # of partitions, by topic id
        self._delayed: list[Message] | None = None  # messages that take effect when the transaction ends

    def steps(self, until_ms: int | None = None) -> Iterator[Step]:
        """A step for each batch that changed something, and one for each snapshot."""
        snapshot: _Snapshot | None = None
        for source, batch in self._history.batches():
            if source.kind == "kraft snapshot":
                snapshot = snapshot or _Snapshot(source.first, source.epoch or 0)
                for record in batch.records:
                    self._count(record.unknown)
                    if record.message is not None:
                        snapshot.take(record.message)
                if snapshot.is_whole:
                    if self._is_after(snapshot.at_ms, until_ms):
                        return
                    yield self._restored(snapshot)
                    snapshot = None
                continue
            if self._is_after(batch.at_ms, until_ms):
                return
            changes: list[Change] = []
            for record in batch.records:
                message = record.message
                if message is None:
                    self._count(record.unknown)
                elif message.name == "PartitionChangeRecord" and self._delayed is None:  # most of a large log
                    changes += self._on_partition_change(message.fields)
                elif message.name != "NoOpRecord":
                    changes += self._taken(message, batch.epoch)
            self.cluster.at_ms, self.cluster.position = batch.at_ms, batch.last_offset
            yield Step(batch.at_ms, batch.last_offset, batch.epoch, changes)
        if snapshot is not None:
            raise RecordError("a snapshot is cut short: it has no end")

    def _is_after(self, at_ms: int, until_ms: int | None) -> bool:
        if until_ms is None or at_ms <= until_ms:
            return False
        self.next_ms = at_ms
        return True

    def _count(self, unknown: str | None) -> None:
        if unknown is not None:
            self.unknown[unknown] = self.unknown.get(unknown, 0) + 1

    def _restored(self, snapshot: _Snapshot) -> Step:
        """Returns the step to the snapshot's state: all of it, and its differences from the known state."""
        old, since_ms = self.cluster, self.cluster.at_ms
        self.cluster = Cluster("kraft", snapshot.at_ms, snapshot.end - 1, controller_epoch=snapshot.epoch)
        self._names, self._numbers, self._delayed = {}, {}, None
        brokers: list[Change] = []
        for message in snapshot.messages:
            brokers += [one for one in self._applied(message) if isinstance(one, BrokerStep | ConfigStep)]
        changes = [
            one for one in brokers if not (isinstance(one, BrokerStep) and one.after == old.brokers.get(one.broker))
        ]
        gone = [BrokerStep(broker, was, None, "unregistered") for broker, was in old.brokers.items()
                if broker not in self.cluster.brokers]  # fmt: skip
        moved = partition_steps(old.partitions, self.cluster.partitions, old.topic_ids | self.cluster.topic_ids)
        return Step(snapshot.at_ms, snapshot.end - 1, snapshot.epoch, [*changes, *gone, *moved], since_ms)

    def _taken(self, message: Message, epoch: int) -> Iterator[Change]:
        if message.name == "LeaderChangeMessage":
            leader = message.fields["leaderId"]
            self.cluster.controller, self.cluster.controller_epoch = leader, epoch
            yield ControllerStep(leader, epoch, "elected")
        elif message.name == "BeginTransactionRecord":
            self._delayed = []
        elif message.name == "AbortTransactionRecord":
            self._delayed = None
        elif message.name == "EndTransactionRecord":
            delayed, self._delayed = self._delayed or [], None
            for one in delayed:
                yield from self._applied(one)
        elif self._delayed is not None and message.name not in ("VotersRecord", "NoOpRecord"):
            self._delayed.append(message)
        else:
            yield from self._applied(message)

    def _applied(self, message: Message) -> Iterable[Change]:
        apply = getattr(self, f"_on_{message.type.removesuffix('_RECORD').lower()}", None)
        changes: Iterable[Change] = () if apply is None else apply(message.fields)
        return changes

    # Brokers.

    def _on_register_broker(self, said: dict[str, Any]) -> Iterator[Change]:
        yield self._put_broker(
            said["brokerId"],
            Broker(
                said["brokerEpoch"],
                is_fenced=said["fenced"],
                is_leaving=said.get("inControlledShutdown", False),
                incarnation=said["incarnationId"],
                rack=said["rack"],
                is_migrating=said.get("isMigratingZkBroker", False),
            ),
            "registered",
        )

    def _on_register_controller(self, said: dict[str, Any]) -> Iterator[Change]:
        yield NodeStep(said["controllerId"], said["incarnationId"])

    def _on_unregister_broker(self, said: dict[str, Any]) -> Iterator[Change]:
        before = self.cluster.brokers.pop(said["brokerId"], None)
        if before is not None:
            yield BrokerStep(said["brokerId"], before, None, "unregistered")

    def _on_fence_broker(self, said: dict[str, Any]) -> Iterator[Change]:
        yield from self._on_broker_registration_change({"brokerId": said["id"], "fenced": 1})

    def _on_unfence_broker(self, said: dict[str, Any]) -> Iterator[Change]:
        yield from self._on_broker_registration_change({"brokerId": said["id"], "fenced": -1})

    def _on_broker_registration_change(self, said: dict[str, Any]) -> Iterator[Change]:
        before = self.cluster.brokers.get(said["brokerId"])
        fenced, leaving = said.get("fenced", 0), said.get("inControlledShutdown", 0)
        if before is None:
            return
        after = before
        if fenced:
            after = msgspec.structs.replace(after, is_fenced=fenced > 0)
        if leaving:
            after = msgspec.structs.replace(after, is_leaving=True)
        if said.get("logDirs"):  # those that are still good
            after = msgspec.structs.replace(after, has_lost_disks=True)
        if after != before:
            why = ("fenced" if fenced > 0 else "unfenced") if fenced else "shutting down" if leaving else "lost disks"
            yield self._put_broker(said["brokerId"], after, why)

    def _put_broker(self, broker: int, after: Broker, why: str) -> BrokerStep:
        before = self.cluster.brokers.get(broker)
        self.cluster.brokers[broker] = after
        return BrokerStep(broker, before, after, why)

    # Topics and partitions.

    def _on_topic(self, said: dict[str, Any]) -> Iterator[Change]:
        self._names[said["topicId"]] = said["name"]
        self._numbers.setdefault(said["topicId"], set())
        self.cluster.topic_ids[said["name"]] = said["topicId"]
        yield TopicStep("imported" if self._imports else "created", said["name"], said["topicId"], 0)

    def _on_partition(self, said: dict[str, Any]) -> Iterator[Change]:
        after = Partition(
            leader=said["leader"],
            leader_epoch=said["leaderEpoch"],
            isr=tuple(said["isr"]),
            replicas=tuple(said["replicas"]),
            epoch=said["partitionEpoch"],
            adding=tuple(said["addingReplicas"] or ()),
            removing=tuple(said["removingReplicas"] or ()),
            elr=tuple(said.get("eligibleLeaderReplicas") or ()),
            last_known_elr=tuple(said.get("lastKnownElr") or ()),
            is_recovering=said.get("leaderRecoveryState", 0) == 1,
        )
        if said["topicId"] in self._names:
            self._numbers[said["topicId"]].add(said["partitionId"])
            name = self._name_of(said)
            if not self._imports:
                yield TopicStep("grew", name[0], said["topicId"], 1)
            yield self._put_partition(name, said["topicId"], after, elects=not self._imports)

    def _on_partition_change(self, said: dict[str, Any]) -> Sequence[Change]:
        topic = self._names.get(said["topicId"])
        if topic is None or (before := self.cluster.partitions.get(name := (topic, said["partitionId"]))) is None:
            return ()  # of a topic whose creation is not in the record
        changed: dict[str, Any] = {}
        is_elected = False
        for key, value in said.items():
            if (field := _LISTS.get(key)) is not None:
                if value is not None:
                    changed[field] = tuple(value)
            elif key == "leader" and value != _NO_CHANGE:
                is_elected = True
                changed["leader"], changed["leader_epoch"] = value, before.leader_epoch + 1
            elif key == "leaderRecoveryState" and value >= 0:
                changed["is_recovering"] = value == 1
        after = msgspec.structs.replace(before, epoch=before.epoch + 1, **changed)
        self.cluster.partitions[name] = after
        return (PartitionStep(name, said["topicId"], before, after, is_elected),)

    def _on_remove_topic(self, said: dict[str, Any]) -> Iterator[Change]:
        topic_id = said["topicId"]
        topic = self._names.pop(topic_id, None)
        if topic is None:
            return
        self.cluster.topic_ids.pop(topic, None)
        self.cluster.configs.pop(("topic", topic), None)
        numbers = sorted(self._numbers.pop(topic_id, ()))
        yield TopicStep("deleted", topic, topic_id, len(numbers))
        for number in numbers:
            before = self.cluster.partitions.pop((topic, number), None)
            if before is not None:
                yield PartitionStep((topic, number), topic_id, before, None)

    def _on_clear_elr(self, said: dict[str, Any]) -> Iterator[Change]:
        for name, before in list(self.cluster.partitions.items()):
            if (not said["topicName"] or name[0] == said["topicName"]) and (before.elr or before.last_known_elr):
                after = msgspec.structs.replace(before, elr=(), last_known_elr=())
                yield self._put_partition(name, self.cluster.topic_ids.get(name[0]), after, elects=False)

    @property
    def _imports(self) -> bool:
        """Whether what comes to be now was in ZooKeeper before: until the import is done nothing else is decided."""
        return self.cluster.configs.get(MIGRATION, {}).get("state") == "pre-migration"

    def _name_of(self, said: dict[str, Any]) -> Name:
        return self._names[said["topicId"]], said["partitionId"]

    def _put_partition(self, name: Name, topic_id: str | None, after: Partition, *, elects: bool) -> PartitionStep:
        before = self.cluster.partitions.get(name)
        self.cluster.partitions[name] = after
        return PartitionStep(name, topic_id, before, after, elects)

    # Settings.

    def _on_config(self, said: dict[str, Any]) -> Iterator[Change]:
        target = _TARGETS.get(said["resourceType"], f"kind {said['resourceType']}"), said["resourceName"]
        yield from self._configured(target, said["name"], said["value"])

    def _on_feature_level(self, said: dict[str, Any]) -> Iterator[Change]:
        level = str(said["featureLevel"]) if said["featureLevel"] else None
        yield from self._configured(("feature", ""), said["name"], level)

    def _on_zk_migration_state(self, said: dict[str, Any]) -> Iterator[Change]:
        state = said["zkMigrationState"]
        words = _MIGRATION[state] if 0 <= state < len(_MIGRATION) else str(state)
        yield from self._configured(MIGRATION, "state", words)

    def _on_voters(self, said: dict[str, Any]) -> Iterator[Change]:
        voters = ", ".join(str(one["voterId"]) for one in said["voters"])
        yield from self._configured(("quorum", ""), "voters", voters)

    def _on_producer_ids(self, said: dict[str, Any]) -> Iterator[Change]:
        self.cluster.next_producer_id = said["nextProducerId"]
        return iter(())

    # Only that they are there.

    def _on_access_control_entry(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"access control {said['id']}")

    def _on_remove_access_control_entry(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"access control {said['id']}", is_gone=True)

    def _on_client_quota(self, said: dict[str, Any]) -> Iterator[Change]:
        entity = sorted((one["entityType"], one["entityName"] or "") for one in said["entity"])
        return self._beyond(f"quota {entity} {said['key']}", is_gone=said["remove"])

    def _on_user_scram_credential(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"credential {said['name']} {said['mechanism']}")

    def _on_remove_user_scram_credential(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"credential {said['name']} {said['mechanism']}", is_gone=True)

    def _on_delegation_token(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"token {said['tokenId']}")

    def _on_remove_delegation_token(self, said: dict[str, Any]) -> Iterator[Change]:
        return self._beyond(f"token {said['tokenId']}", is_gone=True)

    def _beyond(self, name: str, *, is_gone: bool = False) -> Iterator[Change]:
        if is_gone:
            self.cluster.beyond.discard(name)
        else:
            self.cluster.beyond.add(name)
        return iter(())

    def _configured(self, target: tuple[str, str], key: str, value: str | None) -> Iterator[Change]:
        settings = self.cluster.configs.setdefault(target, {})
        before = settings.get(key)
        if value is None:
            settings.pop(key, None)
        else:
            settings[key] = value
        if not settings:
            del self.cluster.configs[target]
        if before != value:
            yield ConfigStep(target, key, before, value)


class _Snapshot(msgspec.Struct):
    """The part of a snapshot that was read so far."""

    end: int
    epoch: int
    at_ms: int = 0
    messages: list[Message] = []
    is_whole: bool = False

    def take(self, message: Message) -> None:
        if message.name == "SnapshotHeaderRecord":
            self.at_ms = message.fields["lastContainedLogTimestamp"]
        elif message.name == "SnapshotFooterRecord":
            self.is_whole = True
        else:
            self.messages.append(message)
