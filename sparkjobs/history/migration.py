"""A cluster's migration from ZooKeeper to KRaft: its phases, its controllers, and the differences at its end. Pure.

Until the import is done ZooKeeper's history is the truth, and KRaft's log from then on. A znode written after KRaft's
controller took ZooKeeper's seat is a copy. The znode `/migration` names the offset up to which the log is copied; the
two are compared there, independent of clocks. A phase's time is the clock of the record that began it: ZooKeeper's
leader wrote the claim of the seat, KRaft's controller the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sparkjobs.history.answers import EXACT, INFERRED, is_secret
from sparkjobs.history.cluster import (
    BrokerStep,
    Cluster,
    ConfigStep,
    ControllerStep,
    MirrorStep,
    PartitionStep,
    Step,
    TopicStep,
)
from sparkjobs.history.kraft import MIGRATION
from sparkjobs.tables.record import RecordMigration, RecordMigrationBroker, RecordMigrationDifference
from sparkjobs.tables.record import RecordMigrationPhase as Phase
from sparkjobs.tables.silver import Row

ZOOKEEPER, WAITING, IMPORT, DUAL, RESTARTING, ALL_KRAFT, FINALISED, ROLLED_BACK = PHASES = (
    "zookeeper",
    "waiting for brokers",
    "import",
    "dual write",
    "dual write, brokers restart into KRaft mode",
    "dual write, all brokers in KRaft mode",
    "kraft",
    "rolled back",
)
_LOGGED, _UNKNOWN = "logged", "unknown"
#: a state of KRaft's migration driver, as its controller logs it, and the phase that begins with it
DRIVEN: Final = {"WAIT_FOR_BROKERS": WAITING, "BECOME_CONTROLLER": IMPORT, "DUAL_WRITE": DUAL}
_BRING_KRAFT: Final = "__cluster_metadata-0 of any node would tell"
_BRING_ZOOKEEPER: Final = "ZooKeeper's log.* and snapshot.* of then would tell"
_COPIED: Final = ("topic", "broker")


class Began(msgspec.Struct, frozen=True):
    """A moment of a record, and its place there."""

    at_ms: int
    position: int
    grade: str
    controller: int | None = None
    epoch: int = 0


def _began(step: Step, committed: int | None = None, controller: int | None = None) -> Began:
    is_known = step.since_ms is None and (committed is None or step.position < committed)
    return Began(step.at_ms, step.position, EXACT if is_known else INFERRED, controller, step.epoch)


class ZooKeeperSide:
    """The part of a migration that ZooKeeper's history has."""

    def __init__(self) -> None:
        self.first: Began | None = None
        self.marked: Began | None = None  # `/migration` was made: KRaft's controller is there
        self.claims: list[Began] = []  # of the seat, by KRaft's controllers
        self.copied: Began | None = None  # the first time that something was copied
        self.returned: Began | None = None  # a broker took the seat back
        self.noted: MirrorStep | None = None
        #: written since the offset was last raised: copies of later decisions
        self.ahead: set[Subject] = set()
        self.cluster: Cluster | None = None
        self._was_held = False

    def __call__(self, step: Step, cluster: Cluster) -> None:
        self.cluster = cluster
        if self.first is None:
            self.first = _began(step)
        for one in step.changes:
            if isinstance(one, MirrorStep):
                if self.noted is None or one.offset > self.noted.offset:
                    self.ahead = set()
                self.noted = one
                self.marked = self.marked or _began(step)
                if one.offset >= 0:
                    self.copied = self.copied or _began(step)
            elif isinstance(one, ControllerStep) and one.kraft_epoch is not None:
                self.claims.append(_began(step, controller=one.controller))
            elif isinstance(one, PartitionStep | TopicStep | ConfigStep):
                self.ahead.add(_subject_of(one))
        if self._was_held and cluster.kraft_epoch is None:
            self.returned = _began(step, controller=cluster.controller)
        elif cluster.kraft_epoch is not None:
            self.returned = None
        self._was_held = cluster.kraft_epoch is not None


class KraftSide:
    """The part of a migration that KRaft's log has. Its state is kept as of the offset that `/migration` names, and of
    what ZooKeeper has of later decisions, as of the decision."""

    def __init__(self, committed: int | None, zookeeper: ZooKeeperSide | None) -> None:
        self.first: int | None = None
        self.states: dict[str, Began] = {}
        self.registered: dict[int, Began] = {}  # brokers in ZooKeeper mode
        self.moved: dict[int, Began] = {}  # brokers, restarted into KRaft mode
        self.all_moved: Began | None = None
        self.copy: Cluster | None = None
        self.after = 0  # steps behind the copy that changed something
        self.last = -1
        self._met: set[Subject] = set()
        self._committed = committed
        self._upto = None if zookeeper is None or zookeeper.noted is None else zookeeper.noted.offset
        self._zookeeper = zookeeper

    def __call__(self, step: Step, cluster: Cluster) -> None:
        if self.first is None:
            self.first = step.position
        self.last = step.position
        for one in step.changes:
            if isinstance(one, ConfigStep) and one.target == MIGRATION and one.after is not None:
                self.states.setdefault(one.after, _began(step, self._committed, cluster.controller))
            elif isinstance(one, BrokerStep) and one.after is not None:
                began = _began(step, self._committed, cluster.controller)
                self._broker(one.broker, is_migrating=one.after.is_migrating, began=began)
        if self.copy is not None:
            self.after += bool(step.changes)
            for one in step.changes:
                if isinstance(one, PartitionStep | TopicStep | ConfigStep):
                    self._follow(one, self.copy)
        if step.position == self._upto:
            self.copy, self.after = _copy_of(cluster), 0

    def _follow(self, change: PartitionStep | TopicStep | ConfigStep, copy: Cluster) -> None:
        """Takes the decision that ZooKeeper has already, and no later one about the same."""
        old = None if self._zookeeper is None else self._zookeeper.cluster
        subject = _subject_of(change)
        if self._zookeeper is None or old is None or subject not in self._zookeeper.ahead or subject in self._met:
            return
        if isinstance(change, PartitionStep):
            there, name = old.partitions.get(change.name), change.name
            if there is None or change.after is None:
                is_it = there is change.after
            else:
                is_it = all(value(there) == value(change.after) for value in _DECIDED.values())
            if is_it and change.after is not None:
                copy.partitions[name] = change.after
            elif is_it:
                copy.partitions.pop(name, None)
        elif isinstance(change, TopicStep):
            is_it = old.topic_ids.get(change.topic) == (None if change.kind == "deleted" else change.topic_id)
            if is_it and change.kind == "deleted":
                copy.topic_ids.pop(change.topic, None)
            elif is_it and change.topic_id is not None:
                copy.topic_ids[change.topic] = change.topic_id
        else:
            is_it = old.configs.get(change.target, {}).get(change.key) == change.after
            settings = copy.configs.setdefault(change.target, {})
            if is_it and change.after is not None:
                settings[change.key] = change.after
            elif is_it:
                settings.pop(change.key, None)
        if is_it:
            self._met.add(subject)

    def _broker(self, broker: int, *, is_migrating: bool, began: Began) -> None:
        if is_migrating:
            self.registered.setdefault(broker, began)
        elif broker in self.registered and broker not in self.moved:
            self.moved[broker] = began
            if self.registered.keys() == self.moved.keys():
                self.all_moved = began


#: a partition, a topic, or a setting, by names
Subject = tuple[object, ...]


def _subject_of(change: PartitionStep | TopicStep | ConfigStep) -> Subject:
    if isinstance(change, PartitionStep):
        return change.name
    return (change.topic,) if isinstance(change, TopicStep) else (*change.target, change.key)


def _copy_of(cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(
        cluster,
        partitions=dict(cluster.partitions),
        topic_ids=dict(cluster.topic_ids),
        configs={target: dict(settings) for target, settings in cluster.configs.items()},
        beyond=set(cluster.beyond),
    )


def migration_rows(
    cluster: str, zookeeper: ZooKeeperSide | None, kraft: KraftSide | None, tenures: Sequence[Any]
) -> dict[str, list[Row]]:
    """Returns the tables of a migration; they are empty where there was none. `tenures`: of both records."""
    began = _beginnings(zookeeper, kraft)
    is_seen = any(one.grade == EXACT for phase, one in began.items() if phase != ZOOKEEPER)
    if not is_seen and (zookeeper is None or (zookeeper.marked is None and not zookeeper.claims)):
        return {}  # none, or one of which only the end is left
    phases = list(_phases(cluster, began, zookeeper, kraft, tenures))
    differences, compared = _compared(cluster, zookeeper, kraft)
    brokers = [] if kraft is None else list(_brokers(cluster, kraft))
    last = phases[-1]
    noted = None if zookeeper is None else zookeeper.noted
    row = RecordMigration(
        cluster=cluster,
        state=last.phase,
        since_ms=last.from_ms,
        controller=last.controllers[-1] if last.controllers else None,
        compared=compared.is_done,
        differences=len(differences),
        partitions=compared.partitions,
        topics=compared.topics,
        settings=compared.settings,
        offset=noted.offset if noted is not None and noted.offset >= 0 else None,
        zxid=None if zookeeper is None or zookeeper.cluster is None else zookeeper.cluster.position,
        later_changes=compared.later,
        said=compared.said,
    )
    tables: dict[str, list[Row]] = {
        "record_migrations": [row],
        "record_migration_phases": list(phases),
        "record_migration_brokers": list(brokers),
        "record_migration_differences": list(differences),
    }
    return tables


def handed_over(
    tables: Mapping[str, Sequence[Any]], cluster: str, zookeeper: ZooKeeperSide, kraft: KraftSide
) -> dict[str, list[Row]]:
    """Returns the tables with the open rows of each record ended where the other one decides from then on."""
    final = kraft.states.get("post-migration")
    back = zookeeper.returned

    def ended(table: str, row: Any) -> Any:
        if row.to_ms is not None:
            return row
        if table == "record_tenures" and row.mode == "zookeeper":
            # of KRaft's controller, whose epoch brokers in ZooKeeper mode are told
            if back is not None or final is None:
                return row
            return msgspec.structs.replace(row, to_ms=final.at_ms, to_lo_ms=final.at_ms, why_ended="finalised")
        if row.mode == "zookeeper" and row.cluster == cluster and back is None:
            at_ms = zookeeper.claims[0].at_ms
            return msgspec.structs.replace(row, to_ms=at_ms, **dict.fromkeys(_ENDED[table], HANDED_OVER))
        if row.mode == "kraft" and back is not None:
            return msgspec.structs.replace(row, to_ms=back.at_ms, **dict.fromkeys(_ENDED[table], ROLLED_BACK))
        return row

    def is_void(row: Any) -> bool:
        return back is not None and row.mode == "kraft" and row.from_ms >= back.at_ms

    return {
        table: [ended(table, row) for row in rows if not is_void(row)] if table in _ENDED else list(rows)
        for table, rows in tables.items()
    }


HANDED_OVER: Final = "handed over"
_ENDED: Final[dict[str, tuple[str, ...]]] = {
    "record_tenures": ("why_ended",),
    "record_broker_lives": ("ended",),
    "record_partition_states": (),
    "record_outages": ("ended",),
    "record_operations": ("outcome",),
}


def _beginnings(zookeeper: ZooKeeperSide | None, kraft: KraftSide | None) -> dict[str, Began]:
    """Returns the phases of which a record says when they began."""
    found: dict[str, Began | None] = {}
    if kraft is not None:
        found[WAITING] = kraft.states.get("pre-migration")
        found[DUAL] = kraft.states.get("migration")
        found[RESTARTING] = min(kraft.moved.values(), key=lambda one: one.position, default=None)
        found[ALL_KRAFT] = kraft.all_moved
        found[FINALISED] = kraft.states.get("post-migration")
    if zookeeper is not None:
        found[ZOOKEEPER] = zookeeper.first
        found[IMPORT] = zookeeper.claims[0] if zookeeper.claims else None
        if found.get(WAITING) is None and zookeeper.marked is not None:
            found[WAITING] = msgspec.structs.replace(zookeeper.marked, grade=INFERRED)
        if found.get(DUAL) is None and zookeeper.copied is not None:
            found[DUAL] = msgspec.structs.replace(zookeeper.copied, grade=INFERRED)
        found[ROLLED_BACK] = zookeeper.returned
    return {phase: began for phase in PHASES if (began := found.get(phase)) is not None}


def _phases(
    cluster: str,
    began: Mapping[str, Began],
    zookeeper: ZooKeeperSide | None,
    kraft: KraftSide | None,
    tenures: Sequence[Any],
) -> Iterator[Phase]:
    """Each phase up to the last that began. A phase that no record dates is there, without a time."""
    reached = max(PHASES.index(phase) for phase in began)
    # brokers may restart one by one after the end of the records, or not at all before a rollback
    optional = {RESTARTING, ALL_KRAFT, FINALISED} if reached == PHASES.index(ROLLED_BACK) else {RESTARTING, ALL_KRAFT}
    passed = [one for one in PHASES[: reached + 1] if one in began or one not in optional]
    for number, phase in enumerate(passed):
        start = began.get(phase)
        after = began.get(passed[number + 1]) if number + 1 < len(passed) else None
        from_ms = None if start is None else start.at_ms
        to_ms = None if after is None else after.at_ms
        is_of_zookeeper = phase in (ZOOKEEPER, WAITING, ROLLED_BACK)
        position = None if start is None else start.position
        is_zxid = phase in (ZOOKEEPER, IMPORT, ROLLED_BACK) or (
            start is not None and zookeeper is not None and _is_its(start, zookeeper)
        )
        is_last = number + 1 == len(passed)
        yield Phase(
            cluster=cluster,
            number=number + 1,
            phase=phase,
            from_ms=from_ms,
            to_ms=to_ms,
            controllers=_holders(tenures, from_ms, to_ms, is_of_zookeeper=is_of_zookeeper, is_last=is_last),
            zxid=position if is_zxid else None,
            offset=None if is_zxid else position,
            grade=_UNKNOWN if start is None else start.grade,
            said=_said(phase, start, zookeeper, kraft, is_last=is_last),
        )


def _is_its(start: Began, zookeeper: ZooKeeperSide) -> bool:
    own = [zookeeper.marked, zookeeper.copied]
    return any(one is not None and (one.at_ms, one.position) == (start.at_ms, start.position) for one in own)


def _holders(
    tenures: Sequence[Any], from_ms: int | None, to_ms: int | None, *, is_of_zookeeper: bool, is_last: bool
) -> tuple[int, ...]:
    """The controllers that decided, in their order: ZooKeeper's until KRaft's takes the seat. Nobody where the ends
    are not known."""
    if from_ms is None or (to_ms is None and not is_last):
        return ()
    modes = {one.mode for one in tenures}
    mode = "zookeeper" if is_of_zookeeper or "kraft" not in modes else "kraft"
    held = [
        one.controller
        for one in sorted(tenures, key=lambda one: one.position)
        if one.mode == mode and (to_ms is None or one.from_ms < to_ms) and (one.to_ms is None or one.to_ms > from_ms)
    ]
    return tuple(one for number, one in enumerate(held) if number == 0 or held[number - 1] != one)


def _said(
    phase: str, start: Began | None, zookeeper: ZooKeeperSide | None, kraft: KraftSide | None, *, is_last: bool
) -> str:
    """Returns the proof of a phase, or the file that would tell."""
    if start is None:
        return _BRING_ZOOKEEPER if phase in (ZOOKEEPER, IMPORT) else _BRING_KRAFT
    words = _WORDS[phase]
    if start.grade == INFERRED:
        words += "; it may have begun before that"
    if is_last and phase == DUAL and kraft is None:
        words += f"; whether it ended, {_BRING_KRAFT}"
    if phase == IMPORT and zookeeper is not None and len(zookeeper.claims) > 1:
        words += f"; the seat was claimed {len(zookeeper.claims)} times, by each controller of KRaft that took over"
    return words


_WORDS: Final = {
    ZOOKEEPER: "the first transaction of ZooKeeper that is there",
    WAITING: "KRaft's controller is active and decides nothing until all brokers have registered with it",
    IMPORT: "KRaft's controller took ZooKeeper's seat and copies topics, settings and producer ids into its log",
    DUAL: "the import is done: KRaft's controller decides, and writes each decision to ZooKeeper after it",
    RESTARTING: "the first broker registered in KRaft mode",
    ALL_KRAFT: "the last broker registered in KRaft mode",
    FINALISED: "the migration is final: nothing is written to ZooKeeper any more",
    ROLLED_BACK: "a broker took ZooKeeper's seat back: what KRaft decided after its last copy is lost",
}


def _brokers(cluster: str, kraft: KraftSide) -> Iterator[RecordMigrationBroker]:
    for broker, began in sorted(kraft.registered.items()):
        moved = kraft.moved.get(broker)
        yield RecordMigrationBroker(
            cluster=cluster,
            broker=broker,
            registered_ms=began.at_ms,
            restarted_ms=None if moved is None else moved.at_ms,
            position=began.position,
            grade=began.grade,
        )


class _Compared(msgspec.Struct, frozen=True):
    is_done: bool
    said: str
    partitions: int | None = None
    topics: int | None = None
    settings: int | None = None
    later: int | None = None


def _compared(
    cluster: str, zookeeper: ZooKeeperSide | None, kraft: KraftSide | None
) -> tuple[list[RecordMigrationDifference], _Compared]:
    """Both states at the offset that `/migration` names last."""
    if zookeeper is None or zookeeper.cluster is None:
        return [], _Compared(False, f"Whether both agree is not known: {_BRING_ZOOKEEPER}")
    if zookeeper.returned is not None:
        return [], _Compared(False, "Rolled back: ZooKeeper went on by itself")
    noted = zookeeper.noted
    if noted is None or noted.offset < 0:
        return [], _Compared(False, "Nothing was copied to ZooKeeper yet: there is nothing to compare")
    if kraft is None:
        return [], _Compared(False, f"Whether both agree is not known: {_BRING_KRAFT}")
    if kraft.copy is None:
        why = (
            f"KRaft's log begins at offset {kraft.first}, behind it: older segments"
            if kraft.first is not None and kraft.first > noted.offset
            else f"KRaft's log ends at offset {kraft.last}, before it: the log of another node"
            if kraft.last < noted.offset
            else "no batch of KRaft's log ends there: the log of another node"
        )
        return [], _Compared(False, f"Whether both agree at offset {noted.offset} is not known. {why} would tell")
    old, new = zookeeper.cluster, kraft.copy
    found = [
        msgspec.structs.replace(
            one,
            cluster=cluster,
            zxid=old.position,
            offset=noted.offset,
            why=_AHEAD if subject in zookeeper.ahead and not one.why else one.why,
        )
        for subject, one in _differences(old, new)
    ]
    settings = sum(len(values) for target, values in new.configs.items() if target[0] in _COPIED)
    untold = len(old.beyond) + len(new.beyond)
    said = f"Compared where ZooKeeper says that it has KRaft's log up to offset {noted.offset}"
    said += f": partitions {len(new.partitions)}, topics {len(new.topic_ids)}, settings {settings}"
    said += f"; not compared: access control, quotas, credentials and tokens ({untold} of them)" if untold else ""
    return found, _Compared(True, said, len(new.partitions), len(new.topic_ids), settings, kraft.after)


_AHEAD: Final = "ZooKeeper has it from a decision behind that offset, which this log of KRaft's does not have"


def _differences(old: Cluster, new: Cluster) -> Iterator[tuple[Subject, RecordMigrationDifference]]:
    for topic in sorted(old.topic_ids.keys() | new.topic_ids.keys()):
        if old.topic_ids.get(topic) != new.topic_ids.get(topic):
            yield (topic,), _difference("topic id", topic, old.topic_ids.get(topic), new.topic_ids.get(topic))
    for name in sorted(old.partitions.keys() | new.partitions.keys()):
        before, after = old.partitions.get(name), new.partitions.get(name)
        what = f"{name[0]}-{name[1]}"
        if before is None or after is None:
            there = [None if one is None else "there" for one in (before, after)]
            yield name, _difference("partition", what, there[0], there[1])
            continue
        for kind, value in _FIELDS.items():
            pair = [value(one) for one in (before, after)]
            if pair[0] != pair[1]:
                yield name, _difference(kind, what, str(pair[0]), str(pair[1]))
    for target in sorted(old.configs.keys() | new.configs.keys()):
        if target[0] in _COPIED:
            one, other = old.configs.get(target, {}), new.configs.get(target, {})
            for key in sorted(one.keys() | other.keys()):
                if one.get(key) != other.get(key):
                    values = one.get(key), other.get(key)
                    if is_secret(key):
                        values = _hidden(values[0], "first"), _hidden(values[1], "second")
                    name_of_key = f"{target[1] or 'default'} {key}"
                    yield (*target, key), _difference(f"{target[0]} setting", name_of_key, *values)
    if old.next_producer_id != new.next_producer_id:
        ids = [None if one is None else str(one) for one in (old.next_producer_id, new.next_producer_id)]
        yield ("next producer id",), _difference("next producer id", "of all brokers", ids[0], ids[1])


def _hidden(value: str | None, which: str) -> str | None:
    return None if value is None else f"(hidden, {which})"


#: of a partition, without the version; the order of an ISR means nothing
_DECIDED: Final[dict[str, Any]] = {
    "leader": lambda one: one.leader,
    "leader epoch": lambda one: one.leader_epoch,
    "in sync": lambda one: sorted(one.isr),
    "replicas": lambda one: list(one.replicas),
    "adding": lambda one: sorted(one.adding),
    "removing": lambda one: sorted(one.removing),
    "recovering": lambda one: one.is_recovering,
}
_FIELDS: Final[dict[str, Any]] = {**_DECIDED, "partition epoch": lambda one: one.epoch}


def _difference(kind: str, name: str, zookeeper: str | None, kraft: str | None) -> RecordMigrationDifference:
    why = ""
    if kind == "partition epoch" and zookeeper is not None and kraft is not None and int(zookeeper) < int(kraft):
        why = "decisions that are copied together step the znode's version once"
    return RecordMigrationDifference(
        cluster="", kind=kind, name=name, zookeeper=zookeeper, kraft=kraft, why=why, zxid=0, offset=0
    )
