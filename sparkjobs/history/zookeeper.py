"""A ZooKeeper-mode cluster's history: every version of the znodes that matter, transaction by transaction.

A snapshot may hold effects of later transactions, so a transaction whose effect is there already is applied again.
Where Kafka's znodes lie below a chroot, the reader finds the chroot by itself.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from sparkjobs.history.cluster import (
    Broker,
    BrokerStep,
    Change,
    Cluster,
    ConfigStep,
    ControllerStep,
    MirrorStep,
    Partition,
    PartitionStep,
    Step,
    TopicStep,
)
from sparkjobs.records.zookeeper_files import Operation
from sparkjobs.records.zookeeper_history import Bridge

_ROOTS: Final = re.compile(r"(?P<chroot>(?:/[^/]+)*?)/brokers/(?:ids|topics)(?:/|$)")
_STATE: Final = re.compile(r"/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<number>\d{1,9})/state", re.ASCII)
_TOPIC: Final = re.compile(r"/brokers/topics/(?P<topic>[^/]+)")
_BROKER: Final = re.compile(r"/brokers/ids/(?P<broker>\d{1,9})", re.ASCII)
_CONFIG: Final = re.compile(r"/config/(?P<kind>topics|brokers)/(?P<name>[^/]+)")
_OF_MIGRATION: Final = frozenset({"/migration", "/cluster/id", "/latest_producer_id_block"})
#: access control, quotas, credentials and tokens
_BEYOND: Final = re.compile(
    r"/kafka-acl(?:-extended)?/[^/]+/.+|/config/(?:users|clients|ips)/.+|/delegation_token/tokens/.+"
)
_DELETION: Final = re.compile(r"/admin/delete_topics/(?P<topic>[^/]+)")


class Told(Protocol):
    """Transactions in their order, and snapshots that stand in for some of them."""

    def steps(self) -> Iterator[Sequence[Operation] | Bridge]: ...


class ZooKeeperReplay:
    """Walks through a history once."""

    def __init__(self, history: Told, chroot: str = "") -> None:
        self.cluster = Cluster("zookeeper")
        self.next_ms: int | None = None
        self.unknown: dict[str, int] = {}  # znodes with content that Kafka does not write, and how often each occurs
        self._history = history
        self._chroot = chroot
        self._owned: defaultdict[int, set[str]] = defaultdict(set)  # ephemeral znodes by session
        self._owners: dict[str, int] = {}
        self._assignments: dict[str, dict[int, tuple[int, ...]]] = {}
        self._moving: dict[str, dict[int, tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        self._numbers: dict[str, set[int]] = {}  # of partitions with a state
        self._stands: set[str] = set()  # znodes of the tree that matter
        self._czxids: dict[str, int] = {}

    def steps(self, until_ms: int | None = None) -> Iterator[Step]:
        """A step for each transaction, and one for each snapshot that bridges a gap."""
        for found in self._history.steps():
            at_ms = self._latest_ms(found) if isinstance(found, Bridge) else found[0].at_ms
            if until_ms is not None and at_ms > until_ms:
                self.next_ms = at_ms
                return
            if isinstance(found, Bridge):
                yield self._restored(found)
                continue
            self.cluster.at_ms, self.cluster.position = found[0].at_ms, found[0].zxid
            changes = [change for operation in found for change in self._done(operation)]
            yield Step(found[0].at_ms, found[0].zxid, self.cluster.controller_epoch, changes)

    def _restored(self, bridge: Bridge) -> Step:
        """Returns the step to the snapshot's state, as if it had just been written; a znode that it lacks is gone."""
        since_ms = self.cluster.at_ms
        there = {inside for one in bridge.snapshot.znodes if (inside := self._inside(one.path)) is not None}
        changes: list[Change] = []
        for path in sorted(self._stands - there, reverse=True):  # children before their parents
            changes += self._gone(path, "found to be gone")
        latest_ms = self._latest_ms(bridge)
        for one in sorted(bridge.snapshot.znodes, key=lambda znode: znode.path):
            inside = self._inside(one.path)
            if inside is not None:
                changes += self._put(inside, one.data or b"", one.version, one.ephemeral_owner, one.mzxid, "found")
        self.cluster.at_ms, self.cluster.position = latest_ms, bridge.zxid
        return Step(latest_ms, bridge.zxid, self.cluster.controller_epoch, changes, since_ms)

    @staticmethod
    def _latest_ms(bridge: Bridge) -> int:
        return max((one.mtime_ms for one in bridge.snapshot.znodes), default=0)

    def _inside(self, path: str) -> str | None:
        if not self._chroot:
            return path
        return path.removeprefix(self._chroot) if path.startswith(f"{self._chroot}/") else None

    def _done(self, operation: Operation) -> Iterator[Change]:
        if operation.kind == "close":
            why = "closed" if operation.is_asked_for else "session expired"
            for path in sorted(self._owned.pop(operation.session, set())):
                yield from self._gone(path, why)
            return
        inside = None if operation.path is None else self._inside(operation.path)
        if inside is None:
            return
        if operation.kind in ("create", "set"):
            owner = operation.ephemeral_owner or self._owners.get(inside, 0)
            yield from self._put(
                inside, operation.data or b"", operation.version or 0, owner, operation.zxid, "written"
            )
        elif operation.kind == "delete":
            yield from self._gone(inside, "deleted")

    def _put(self, path: str, data: bytes, version: int, owner: int, zxid: int, why: str) -> Iterator[Change]:
        is_new = path not in self._stands
        if found := _STATE.fullmatch(path):
            yield from self._state(path, found["topic"], int(found["number"]), data, version)
        elif found := _TOPIC.fullmatch(path):
            yield from self._assigned(path, found["topic"], data)
        elif found := _BROKER.fullmatch(path):
            said = self._said(path, data)
            if said is not None:
                self._stands.add(path)
                self._czxids[path] = zxid if is_new else self._czxids.get(path, zxid)
                yield self._registered(int(found["broker"]), said, self._czxids[path])
        elif path == "/controller":
            said = self._said(path, data)
            broker = None if said is None else _number(said.get("kraftControllerId"), _number(said.get("brokerid"), -1))
            if broker is not None and said is not None and broker >= 0:
                kraft_epoch = _number(said.get("kraftControllerEpoch"), -1)
                self.cluster.kraft_epoch = kraft_epoch if kraft_epoch >= 0 else None
                if self.cluster.controller != broker or is_new:
                    self._stands.add(path)
                    self.cluster.controller = broker
                    yield ControllerStep(broker, self.cluster.controller_epoch, "elected", self.cluster.kraft_epoch)
        elif path == "/controller_epoch":
            with suppress(ValueError):
                self._stands.add(path)
                self.cluster.controller_epoch = int(data)
                if self.cluster.controller is not None:
                    yield ControllerStep(self.cluster.controller, int(data), "elected")
        elif found := _CONFIG.fullmatch(path):
            yield from self._configured(path, found["kind"].removesuffix("s"), found["name"], data)
        elif path in _OF_MIGRATION:
            yield from self._noted(path, data)
        elif _BEYOND.fullmatch(path) and data not in (b"", b'{"version":1,"config":{}}'):
            self._stands.add(path)
            self.cluster.beyond.add(path)
        elif (found := _DELETION.fullmatch(path)) and is_new:
            self._stands.add(path)
            topic = found["topic"]
            count = len(self._assignments.get(topic, ()))
            yield TopicStep("to be deleted", topic, self.cluster.topic_ids.get(topic), count)
        if owner:
            self._owned[owner].add(path)
            self._owners[path] = owner

    def _noted(self, path: str, data: bytes) -> Iterator[Change]:
        """What a migration to KRaft is known by, and what both modes have."""
        said = self._said(path, data)
        if said is None:
            return
        if path == "/migration":
            self._stands.add(path)
            offset, epoch = said.get("kraft_metadata_offset"), said.get("kraft_metadata_epoch")
            yield MirrorStep(_number(offset, -1, bits=63), _number(epoch, -1))
        elif path == "/cluster/id" and isinstance(said.get("id"), str):
            self.cluster.cluster_id = said["id"]
        elif path == "/latest_producer_id_block":
            with suppress(ValueError):
                self.cluster.next_producer_id = int(str(said.get("block_end"))[:20]) + 1

    def _gone(self, path: str, why: str) -> Iterator[Change]:
        owner = self._owners.pop(path, None)
        if owner is not None and owner in self._owned:
            self._owned[owner].discard(path)
        if path not in self._stands:
            return
        self._stands.discard(path)
        if found := _STATE.fullmatch(path):
            name = found["topic"], int(found["number"])
            self._numbers.get(name[0], set()).discard(name[1])
            before = self.cluster.partitions.pop(name, None)
            if before is not None:
                yield PartitionStep(name, self.cluster.topic_ids.get(name[0]), before, None)
        elif found := _TOPIC.fullmatch(path):
            count = len(self._assignments.pop(found["topic"], ()))
            self._moving.pop(found["topic"], None)
            yield TopicStep("deleted", found["topic"], self.cluster.topic_ids.pop(found["topic"], None), count)
        elif found := _BROKER.fullmatch(path):
            before_broker = self.cluster.brokers.pop(int(found["broker"]), None)
            if before_broker is not None:
                yield BrokerStep(int(found["broker"]), before_broker, None, why)
        elif path == "/controller":
            self.cluster.controller = self.cluster.kraft_epoch = None
            yield ControllerStep(None, self.cluster.controller_epoch, why)
        elif found := _CONFIG.fullmatch(path):
            yield from self._configured(path, found["kind"].removesuffix("s"), found["name"], b'{"config":{}}')
            self._stands.discard(path)
        elif path in self.cluster.beyond:
            self.cluster.beyond.discard(path)

    def _said(self, path: str, data: bytes) -> dict[str, Any] | None:
        """Returns a znode's JSON object, or None. Content that is no JSON object is counted. Kafka makes some znodes
        empty, and writes them in one go."""
        if data == b"":
            return None
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            kind = "/".join(path.split("/")[:3])
            self.unknown[f"{kind}: no JSON object"] = self.unknown.get(f"{kind}: no JSON object", 0) + 1
            return None
        return said

    def _registered(self, broker: int, said: dict[str, Any], epoch: int) -> BrokerStep:
        before = self.cluster.brokers.get(broker)
        rack = said.get("rack")
        after = Broker(epoch, rack=rack if isinstance(rack, str) else None)
        self.cluster.brokers[broker] = after
        return BrokerStep(broker, before, after, "registered")

    def _assigned(self, path: str, topic: str, data: bytes) -> Iterator[Change]:
        said = self._said(path, data)
        if said is None:
            return
        is_new = path not in self._stands
        self._stands.add(path)
        if isinstance(said.get("topic_id"), str):
            self.cluster.topic_ids[topic] = said["topic_id"]
        count = -len(self._assignments.get(topic, ()))
        self._assignments[topic] = _lists_in(said.get("partitions"))
        count += len(self._assignments[topic])
        if is_new or count > 0:
            yield TopicStep("created" if is_new else "grew", topic, self.cluster.topic_ids.get(topic), count)
        adding, removing = _lists_in(said.get("adding_replicas")), _lists_in(said.get("removing_replicas"))
        numbers = adding.keys() | removing.keys()
        self._moving[topic] = {number: (adding.get(number, ()), removing.get(number, ())) for number in numbers}
        for number in sorted(self._numbers.get(topic, ())):
            before = self.cluster.partitions[topic, number]
            after = self._with_assignment(topic, number, before)
            if after != before:
                self.cluster.partitions[topic, number] = after
                yield PartitionStep((topic, number), self.cluster.topic_ids.get(topic), before, after)

    def _state(self, path: str, topic: str, number: int, data: bytes, version: int) -> Iterator[Change]:
        said = self._said(path, data)
        if said is None:
            return
        self._stands.add(path)
        before = self.cluster.partitions.get((topic, number))
        isr = said.get("isr")
        after = self._with_assignment(
            topic,
            number,
            Partition(
                leader=_number(said.get("leader"), -1),
                leader_epoch=_number(said.get("leader_epoch"), 0),
                isr=_numbers(isr),
                replicas=before.replicas if before is not None else (),
                epoch=version,
                is_recovering=said.get("leader_recovery_state", 0) == 1,
            ),
        )
        if before == after:
            return
        self.cluster.partitions[topic, number] = after
        self._numbers.setdefault(topic, set()).add(number)
        elects = before is None or before.leader_epoch != after.leader_epoch
        yield PartitionStep((topic, number), self.cluster.topic_ids.get(topic), before, after, elects)

    def _with_assignment(self, topic: str, number: int, partition: Partition) -> Partition:
        adding, removing = self._moving.get(topic, {}).get(number, ((), ()))
        return Partition(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            replicas=self._assignments.get(topic, {}).get(number, partition.replicas),
            epoch=partition.epoch,
            adding=adding,
            removing=removing,
            is_recovering=partition.is_recovering,
        )

    def _configured(self, path: str, kind: str, name: str, data: bytes) -> Iterator[Change]:
        said = self._said(path, data)
        if said is None:
            return
        self._stands.add(path)
        new = said.get("config")
        settings = {str(k): str(v) for k, v in new.items()} if isinstance(new, dict) else {}
        target = kind, "" if name == "<default>" else name
        old = self.cluster.configs.get(target, {})
        self.cluster.configs[target] = settings
        if not settings:
            del self.cluster.configs[target]
        for key in sorted(old.keys() | settings.keys()):
            if old.get(key) != settings.get(key):
                yield ConfigStep(target, key, old.get(key), settings.get(key))


def chroots_in(history: Told) -> list[str]:
    """Returns where clusters of Kafka lie in the tree; "" is the root."""
    found: set[str] = set()
    for one in history.steps():
        paths = [each.path for each in (one.snapshot.znodes if isinstance(one, Bridge) else one)]
        for path in paths:
            if path is not None and "/brokers/" in path and (place := _ROOTS.match(path)):
                found.add(place["chroot"])
    return sorted(found)


def _number(value: object, default: int, *, bits: int = 31) -> int:
    """Returns a number as Kafka has it; anything else is no number of its."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    return value if is_one and isinstance(value, int) else default


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if _number(one, -1) >= 0) if isinstance(value, list) else ()


def _lists_in(value: object) -> dict[int, tuple[int, ...]]:
    if not isinstance(value, dict):
        return {}
    return {int(key): _numbers(one) for key, one in value.items() if str(key).isdecimal() and len(str(key)) < 10}
