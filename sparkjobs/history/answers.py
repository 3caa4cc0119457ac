"""The exact answers of a history: a walk through its steps, and rows of `sparkjobs.tables.record`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from sparkjobs.history.cluster import (
    NOBODY,
    Broker,
    BrokerStep,
    Cluster,
    ConfigStep,
    ControllerStep,
    MirrorStep,
    Name,
    NodeStep,
    Partition,
    PartitionStep,
    Replay,
    Step,
    TopicStep,
    partition_steps,
)
from sparkjobs.tables.record import (
    RecordBrokerLife,
    RecordConfigChange,
    RecordElection,
    RecordOperation,
    RecordOutage,
    RecordPartitionState,
    RecordTenure,
)
from sparkjobs.tables.silver import Row

EXACT, INFERRED = "exact", "inferred"
#: settings whose values must not appear in a report
_SECRET: Final = re.compile(r"password|secret|jaas|credential|\.key(store)?\b(?!\.(type|location))|token", re.I)
_HIDDEN: Final = "(hidden)"


def answers_of(
    replay: Replay,
    cluster: str,
    committed: int | None = None,
    watch: Callable[[Step, Cluster], None] = lambda step, cluster: None,
) -> dict[str, list[Row]]:
    """Walks through the history. `committed`: the first position that nothing proves; None where all is. `watch` sees
    each step, and the cluster after it."""
    walk = _AnswerRows(replay.cluster.mode, cluster, committed)
    for step in replay.steps():
        walk.take(step, replay.cluster)
        watch(step, replay.cluster)
    return walk.finished()


class _AnswerRows:
    """Rows that are complete, and rows of conditions that go on."""

    def __init__(self, mode: str, cluster: str, committed: int | None) -> None:
        self._head: dict[str, Any] = {"cluster": cluster, "mode": mode}
        self._committed = committed
        self._rows: dict[str, list[Row]] = {name: [] for name in _TABLES}
        self._tenure: RecordTenure | None = None
        self._lives: dict[int, RecordBrokerLife] = {}
        self._states: dict[Name, RecordPartitionState] = {}
        self._outages: dict[Name, RecordOutage] = {}
        self._led: dict[int, set[Name]] = {}  # which partitions each broker leads
        self._moves: dict[Name, RecordOperation] = {}
        self._deletions: dict[str, RecordOperation] = {}
        self._last_ms: int | None = None
        self._starts: list[tuple[int, int]] = []  # KRaft: controllers whose process began, and when
        self._left: _Left | None = None  # ZooKeeper's states, when KRaft's controller took the seat

    def take(self, step: Step, cluster: Cluster) -> None:
        """A step, and how things stand after it. While KRaft's controller holds ZooKeeper's seat, znodes are copies of
        its log and brokers come and go beside them: nothing is told of them."""
        seats = [one for one in step.changes if isinstance(one, ControllerStep)]
        if cluster.kraft_epoch is not None:
            if self._left is None:
                self._left = _Left(step.at_ms, dict(cluster.partitions), dict(cluster.brokers))
            self._controller(seats, step)
            return
        if self._left is not None:
            step, self._left = self._left.resumed(step, cluster, seats), None
        self._take(step, cluster)

    def _take(self, step: Step, cluster: Cluster) -> None:
        touched: set[Name] = set()
        unclean: set[Name] = set()
        for change in step.changes:
            match change:
                case BrokerStep():
                    self._broker(change, step)
                    touched |= self._led.get(change.broker, set())
                case PartitionStep():
                    touched.add(change.name)
                    if self._partition(change, step, cluster):
                        unclean.add(change.name)
                case ConfigStep():
                    self._config(change, step)
                case NodeStep():
                    self._starts.append((change.node, step.at_ms))
                case ControllerStep() | TopicStep() | MirrorStep():
                    pass
        if self._tenure is not None and self._tenure.first_ms is None and step.since_ms is None:
            self._tenure = msgspec.structs.replace(self._tenure, first_ms=step.at_ms)
        self._controller([one for one in step.changes if isinstance(one, ControllerStep)], step)
        self._topics([one for one in step.changes if isinstance(one, TopicStep)], step)
        for name in sorted(touched):
            self._outage(name, step, cluster, is_unclean=name in unclean)
        self._last_ms = step.at_ms

    def finished(self) -> dict[str, list[Row]]:
        """Returns all rows, those of conditions that go on included, sorted."""
        going_on: list[tuple[str, Row]] = [("record_broker_lives", one) for one in self._lives.values()]
        going_on += [("record_partition_states", one) for one in self._states.values()]
        going_on += [("record_outages", one) for one in self._outages.values()]
        going_on += [("record_operations", one) for one in self._moves.values()]
        going_on += [("record_operations", one) for one in self._deletions.values()]
        going_on += [] if self._tenure is None else [("record_tenures", self._tenure)]
        for name, row in going_on:
            self._rows[name].append(row)
        self._rows["record_tenures"] = [self._with_restart(one) for one in self._rows["record_tenures"]]
        for rows in self._rows.values():
            rows.sort(key=_sorting)
        return self._rows

    def _with_restart(self, tenure: Any) -> Any:
        """KRaft does not say how a controller ended; its next process registers."""
        if tenure.mode != "kraft":
            return tenure
        since = tenure.to_lo_ms or tenure.from_ms
        began = [at_ms for node, at_ms in self._starts if node == tenure.controller and at_ms > since]
        return msgspec.structs.replace(tenure, restarted_ms=min(began, default=None))

    def _grade(self, step: Step) -> str:
        is_proved = self._committed is None or step.position < self._committed
        return EXACT if is_proved and step.since_ms is None else INFERRED

    def _since(self, step: Step) -> int:
        return step.at_ms if step.since_ms is None else step.since_ms

    def _closed(self, table: str, row: Row, **ended: object) -> None:
        self._rows[table].append(msgspec.structs.replace(row, **ended))

    def _controller(self, changes: Sequence[ControllerStep], step: Step) -> None:
        if not changes:
            return
        last = changes[-1]
        old = self._tenure
        is_same = old is not None and last.controller == old.controller and last.epoch == old.epoch
        if is_same:
            return
        if old is not None:
            if last.controller == old.controller and self._head["mode"] == "zookeeper" and old.from_ms == step.at_ms:
                # the znode came first, and its epoch with it or just after
                self._tenure = msgspec.structs.replace(old, epoch=last.epoch)
                return
            gone = [one for one in changes if one.controller is None]
            why = gone[0].why if gone else "replaced"
            if last.kraft_epoch is not None:
                why = "KRaft took over"
            is_known = self._head["mode"] == "zookeeper"
            to_lo_ms = step.at_ms if is_known else self._last_ms
            self._closed("record_tenures", old, to_ms=step.at_ms, to_lo_ms=to_lo_ms, why_ended=why)
        self._tenure = None
        if last.controller is not None:
            self._tenure = RecordTenure(
                **self._head,
                epoch=last.epoch,
                controller=last.controller,
                from_ms=step.at_ms,
                from_lo_ms=self._since(step),
                position=step.position,
                grade=self._grade(step),
            )

    def _broker(self, change: BrokerStep, step: Step) -> None:
        was, now = change.before, change.after
        old = self._lives.get(change.broker)
        is_another = was is not None and now is not None and was.epoch != now.epoch
        if old is not None and (now is None or not now.is_serving or is_another):
            self._closed("record_broker_lives", self._lives.pop(change.broker), to_ms=step.at_ms, ended=change.why)
            old = None
        if now is None or not now.is_serving:
            return
        if old is None:
            self._lives[change.broker] = RecordBrokerLife(
                **self._head,
                broker=change.broker,
                broker_epoch=now.epoch,
                incarnation=now.incarnation,
                from_ms=step.at_ms,
                from_lo_ms=self._since(step),
                began=change.why,
                position=step.position,
                grade=self._grade(step),
            )
            return
        if now.is_leaving and old.leaving_ms is None:
            old = self._lives[change.broker] = msgspec.structs.replace(old, leaving_ms=step.at_ms)
        if now.has_lost_disks and old.disk_lost_ms is None:
            self._lives[change.broker] = msgspec.structs.replace(old, disk_lost_ms=step.at_ms)

    def _partition(self, change: PartitionStep, step: Step, cluster: Cluster) -> bool:
        """Returns whether an unclean election is among its changes."""
        name, before, after = change.name, change.before, change.after
        if before is not None and before.leader != NOBODY:
            self._led.get(before.leader, set()).discard(name)
        if (state := self._states.pop(name, None)) is not None:
            self._closed("record_partition_states", state, to_ms=step.at_ms)
        self._move(name, before, after, step)
        if after is None:
            return False
        if after.leader != NOBODY:
            self._led.setdefault(after.leader, set()).add(name)
        self._states[name] = RecordPartitionState(
            **self._head,
            topic=name[0],
            partition=name[1],
            topic_id=change.topic_id,
            from_ms=step.at_ms,
            from_lo_ms=self._since(step),
            leader=_broker_or_none(after.leader),
            leader_epoch=after.leader_epoch,
            isr=after.isr,
            elr=after.elr,
            last_known_elr=after.last_known_elr,
            replicas=after.replicas,
            adding=after.adding,
            removing=after.removing,
            partition_epoch=after.epoch,
            recovering=after.is_recovering,
            controller_epoch=step.epoch,
            position=step.position,
            grade=self._grade(step),
        )
        how = election_of(change, cluster.mode) if step.since_ms is None else None
        if how is None:
            return False
        self._rows["record_elections"].append(
            RecordElection(
                **self._head,
                topic=name[0],
                partition=name[1],
                at_ms=step.at_ms,
                at_lo_ms=self._since(step),
                leader_before=None if before is None else _broker_or_none(before.leader),
                leader=after.leader,
                leader_epoch=after.leader_epoch,
                how=how,
                unclean=how in UNCLEAN,
                isr_before=() if before is None else before.isr,
                elr_before=() if before is None else before.elr,
                controller=cluster.controller,
                controller_epoch=step.epoch,
                position=step.position,
                grade=self._grade(step),
            )
        )
        return how in UNCLEAN

    def _move(self, name: Name, before: Partition | None, after: Partition | None, step: Step) -> None:
        """A reassignment begins, ends, or another takes its place."""
        going = self._moves.get(name)
        goal = None if after is None or not after.is_moving else _without(after.replicas, after.removing)
        if going is not None and goal != going.replicas:
            outcome = "deleted" if after is None else "changed" if goal is not None else "done"
            if outcome == "done" and after is not None and set(after.replicas) != set(going.replicas):
                outcome = "cancelled"
            self._closed("record_operations", self._moves.pop(name), to_ms=step.at_ms, outcome=outcome)
            going = None
        if goal is not None and going is None and after is not None:
            start = _without(after.replicas, after.adding) if before is None else before.replicas
            self._moves[name] = self._operation("reassignment", name[0], step, 1, name[1], start, goal)

    def _operation(
        self,
        kind: str,
        topic: str,
        step: Step,
        partitions: int,
        partition: int | None = None,
        before: tuple[int, ...] = (),
        after: tuple[int, ...] = (),
    ) -> RecordOperation:
        return RecordOperation(
            **self._head,
            kind=kind,
            topic=topic,
            partition=partition,
            from_ms=step.at_ms,
            from_lo_ms=self._since(step),
            outcome="open",
            partitions=partitions,
            replicas_before=before,
            replicas=after,
            position=step.position,
            grade=self._grade(step),
        )

    def _topics(self, changes: Sequence[TopicStep], step: Step) -> None:
        if step.since_ms is not None:
            return  # a snapshot's topics were created before it: the time is unknown
        created = {one.topic: one.partitions for one in changes if one.kind == "created"}
        grown: dict[str, int] = {}
        for one in changes:
            if one.kind == "grew":
                known = created if one.topic in created else grown
                known[one.topic] = known.get(one.topic, 0) + one.partitions
            elif one.kind == "to be deleted":
                self._deletions[one.topic] = self._operation("deletion", one.topic, step, one.partitions)
            elif one.kind == "deleted":
                begun = self._deletions.pop(one.topic, None)
                begun = begun or self._operation("deletion", one.topic, step, one.partitions)
                self._closed("record_operations", begun, to_ms=step.at_ms, outcome="done")
        for kind, topics in (("creation", created), ("growth", grown)):
            for topic, count in topics.items():
                row = self._operation(kind, topic, step, count)
                self._closed("record_operations", row, to_ms=step.at_ms, outcome="done")

    def _outage(self, name: Name, step: Step, cluster: Cluster, *, is_unclean: bool) -> None:
        partition = cluster.partitions.get(name)
        going = self._outages.get(name)
        if partition is None or cluster.is_led(partition):
            if going is None:
                return
            leader = None if partition is None else partition.leader
            ended = "deleted" if partition is None else "returned" if leader == going.leader_before else "elected"
            if ended == "returned" and self._states[name].position == step.position:
                ended = "elected"  # the same broker again, by a decision
            self._closed(
                "record_outages", self._outages.pop(name), to_ms=step.at_ms, ended=ended, leader=leader,
                unclean=is_unclean,
            )  # fmt: skip
            return
        if going is None and name[0] not in self._deletions:  # a deletion takes leaders away, which is no outage
            before = next(
                (one.before for one in step.changes if isinstance(one, PartitionStep) and one.name == name), None
            )
            leader = partition.leader if before is None else before.leader
            self._outages[name] = RecordOutage(
                **self._head,
                topic=name[0],
                partition=name[1],
                from_ms=step.at_ms,
                from_lo_ms=self._since(step),
                began="no leader" if partition.leader == NOBODY else "leader gone",
                leader_before=_broker_or_none(leader),
                unclean=False,
                position=step.position,
                grade=self._grade(step),
            )

    def _config(self, change: ConfigStep, step: Step) -> None:
        hidden = is_secret(change.key)

        def shown(value: str | None) -> str | None:
            return _HIDDEN if hidden and value is not None else value

        self._rows["record_config_changes"].append(
            RecordConfigChange(
                **self._head,
                kind=change.target[0],
                name=change.target[1],
                key=change.key,
                at_ms=step.at_ms,
                at_lo_ms=self._since(step),
                before=shown(change.before),
                after=shown(change.after),
                position=step.position,
                grade=self._grade(step),
            )
        )


class _Left(msgspec.Struct, frozen=True):
    """The states that ZooKeeper's controllers left to KRaft."""

    at_ms: int
    partitions: dict[Name, Partition]
    brokers: dict[int, Broker]

    def resumed(self, step: Step, cluster: Cluster, seats: Sequence[ControllerStep]) -> Step:
        """Returns the step by which ZooKeeper decides again: all that changed meanwhile, at a time that is not known
        better."""
        brokers = [
            BrokerStep(broker, self.brokers.get(broker), cluster.brokers.get(broker), "found")
            for broker in sorted(self.brokers.keys() | cluster.brokers.keys())
            if self.brokers.get(broker) != cluster.brokers.get(broker)
        ]
        moved = partition_steps(self.partitions, cluster.partitions, cluster.topic_ids)
        return Step(step.at_ms, step.position, step.epoch, [*seats, *brokers, *moved], self.at_ms)


_TABLES: Final = (
    "record_tenures",
    "record_broker_lives",
    "record_partition_states",
    "record_outages",
    "record_elections",
    "record_operations",
    "record_config_changes",
)
UNCLEAN: Final = frozenset({"unclean", "last known leader"})


def is_secret(key: str) -> bool:
    """Returns whether a setting's value is secret."""
    return _SECRET.search(key) is not None


def election_of(change: PartitionStep, mode: str) -> str | None:
    """Returns how a leader was found, or None where no leader was elected: the leader stays, or there is none.

    KRaft marks an unclean election; a leader that was not in sync before and is not marked joined in the same change,
    at the end of a reassignment. ZooKeeper mode writes the two one after the other, and before 3.2 has no mark.
    """
    before, after = change.before, change.after
    if after is None or after.leader == NOBODY or not change.elects:
        return None
    if before is None:
        return "created"
    may_lead = before.isr or before.elr
    if after.leader in may_lead or (mode == "kraft" and not after.is_recovering):
        if after.leader == before.leader:
            return None
        return "elr" if not before.isr and after.leader in before.elr else "isr"
    return "last known leader" if not before.isr and before.last_known_elr[:1] == (after.leader,) else "unclean"


def _without(replicas: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(one for one in replicas if one not in gone)


def _broker_or_none(broker: int) -> int | None:
    return None if broker == NOBODY else broker


def _sorting(row: Row) -> tuple[tuple[bool, object], ...]:
    """Returns a key that sorts by all columns in order; an unknown value comes first."""
    values: Mapping[str, object] = msgspec.structs.asdict(row)
    return tuple((value is not None, value if value is not None else 0) for value in values.values())
