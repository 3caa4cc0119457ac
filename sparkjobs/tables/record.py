"""The tables of the facts known from records: ZooKeeper's history or KRaft's metadata log, not from lines of logs.

Columns that are called logged come from lines of logs (`sparkjobs.history.log_join`); the record does not know them.

As in `sparkjobs.tables.gold`, rows of a table are sorted by their columns in order. `grade` is `exact` where the record
says it. It is `inferred` behind a gap that a snapshot bridges (the event happened between `from_lo_ms` and `from_ms`),
or in a tail of a metadata log that may not be committed. `position` is the zxid or the offset. Moments are the clock of
the ZooKeeper leader, or of the active controller when it began to write the batch.
"""

from __future__ import annotations

from typing import Final

from sparkjobs.tables.silver import Ints, Long, Row


class RecordSource(Row, kw_only=True, frozen=True):
    """The kind of the record, and its gaps."""

    cluster: str
    mode: str  # zookeeper, kraft
    kind: str  # history, gap, void (written and never committed), trouble, unknown, uncommitted
    node: str | None = None
    said: str


class RecordTenure(Row, kw_only=True, frozen=True):
    """One stretch as the active controller."""

    cluster: str
    mode: str
    epoch: int
    controller: int
    from_ms: Long
    from_lo_ms: Long
    to_lo_ms: Long | None = None  # KRaft does not say when a controller ends: its last record
    to_ms: Long | None = None  # none: it is controller where the record ends
    why_ended: str | None = None  # session expired, closed, deleted, replaced, KRaft took over, finalised
    first_ms: Long | None = None  # KRaft: its first decision, or its first beat
    restarted_ms: Long | None = None  # KRaft: its process was started anew by then
    active_ms: Long | None = None  # KRaft, logged: its own line that it is the active controller
    renounced_ms: Long | None = None  # KRaft, logged: its own line that it is no more
    position: Long
    grade: str


class RecordBrokerLife(Row, kw_only=True, frozen=True):
    """One stretch in which a broker could lead: registered, and not fenced."""

    cluster: str
    mode: str
    broker: int
    broker_epoch: Long
    incarnation: str | None = None
    from_ms: Long
    from_lo_ms: Long
    to_ms: Long | None = None
    began: str  # registered, unfenced
    leaving_ms: Long | None = None  # it asked to be shut down
    disk_lost_ms: Long | None = None  # KRaft: a log directory of it failed
    #: fenced, session expired, closed, registered (it came back), unregistered, handed over (to KRaft)
    ended: str | None = None
    position: Long
    grade: str


class RecordPartitionState(Row, kw_only=True, frozen=True):
    """How a partition stood, from when to when."""

    cluster: str
    mode: str
    topic: str
    partition: int
    topic_id: str | None = None
    from_ms: Long
    from_lo_ms: Long
    to_ms: Long | None = None
    leader: int | None = None
    leader_epoch: int
    isr: Ints
    elr: Ints
    last_known_elr: Ints
    replicas: Ints
    adding: Ints
    removing: Ints
    partition_epoch: int  # the state znode's version, of ZooKeeper
    recovering: bool
    controller_epoch: int
    position: Long
    grade: str


class RecordOutage(Row, kw_only=True, frozen=True):
    """A stretch in which no living broker led a partition."""

    cluster: str
    mode: str
    topic: str
    partition: int
    from_ms: Long
    from_lo_ms: Long
    to_ms: Long | None = None
    began: str  # leader gone (its registration went), no leader (no replica could be elected)
    leader_before: int | None = None
    why: str | None = None  # KRaft: the broker that went just then, and why; or unexplained
    ended: str | None = None  # elected, returned (the same leader is back), deleted, handed over (to KRaft)
    leader: int | None = None
    unclean: bool
    acted_ms: Long | None = None  # logged: the leader that ended it said that it leads
    position: Long
    grade: str


class RecordElection(Row, kw_only=True, frozen=True):
    """A leader was named: another one, or the first."""

    cluster: str
    mode: str
    topic: str
    partition: int
    at_ms: Long
    at_lo_ms: Long
    leader_before: int | None = None
    leader: int
    leader_epoch: int
    how: str  # created, isr, elr, last known leader (unclean), unclean
    unclean: bool
    isr_before: Ints
    elr_before: Ints
    controller: int | None = None
    controller_epoch: int
    acted_ms: Long | None = None  # logged: the new leader said that it leads; none: it never did, or its log is missing
    offset: Long | None = None  # logged: where its records begin
    position: Long
    grade: str


class RecordOperation(Row, kw_only=True, frozen=True):
    """Something that was done to a topic or partition, from its beginning to its end."""

    cluster: str
    mode: str
    kind: str  # creation, growth, deletion, reassignment
    topic: str
    partition: int | None = None
    from_ms: Long
    from_lo_ms: Long
    to_ms: Long | None = None  # none: it is not over where the record ends
    outcome: str  # done, cancelled, changed (another reassignment is in its place), deleted, handed over, open
    partitions: int
    replicas_before: Ints
    replicas: Ints
    position: Long
    grade: str


class RecordConfigChange(Row, kw_only=True, frozen=True):
    """A setting, a feature, the voters or the state of a migration changed; secrets are hidden."""

    cluster: str
    mode: str
    kind: str  # topic, broker, feature, quorum, migration, ...
    name: str
    key: str
    at_ms: Long
    at_lo_ms: Long
    before: str | None = None
    after: str | None = None
    position: Long
    grade: str


class RecordLoss(Row, kw_only=True, frozen=True):
    """The cost of an unclean election. Every acknowledged record that it lost is in the range."""

    cluster: str
    mode: str
    topic: str
    partition: int
    at_ms: Long
    last_leader: int | None = None  # the leader before, which acknowledged
    leader: int
    leader_epoch: int
    how: str  # as of the election
    extent: str  # exact, nothing (proved), unbounded (from an offset on), unknown
    from_offset: Long | None = None
    to_offset: Long | None = None  # the first that is not in it
    why: str  # the proof, or the file that would tell
    position: Long


class RecordFencing(Row, kw_only=True, frozen=True):
    """A controller's line that it fences a broker, held against the record."""

    cluster: str
    mode: str
    at_ms: Long
    controller: int
    broker: int
    broker_epoch: Long | None = None
    outcome: str  # done, no change (it was fenced already), void (no record has it: it never happened)
    done_ms: Long | None = None  # as the record has it
    heard_ms: Long | None = None  # the last line of the broker before
    file_id: str
    line_no: Long


class RecordClock(Row, kw_only=True, frozen=True):
    """A broker's clock held against a controller's: a broker acts after the record that makes it act."""

    cluster: str
    mode: str
    broker: int
    controller: int  # whose clock the record has
    lines: int  # that name a record of it
    least_ms: Long  # from the record to the line: negative, and its clock is at least that far behind
    median_ms: Long
    most_ms: Long


class RecordDeparture(Row, kw_only=True, frozen=True):
    """KRaft: a broker went, or a disk of it. Why, and each phase of the way to its successors."""

    cluster: str
    mode: str
    broker: int
    broker_epoch: Long
    gone_ms: Long  # fenced, or registered anew
    heard_ms: Long | None = None  # logged: its last line before
    asked_ms: Long | None = None  # it asked to be shut down
    fencing_ms: Long | None = None  # logged: the controller's line that its session timed out
    acted_ms: Long | None = None  # logged: the last of the new leaders acted
    back_ms: Long | None = None  # it could lead again
    cause: str  # shut down, died, silent, restarted, unregistered, lost a disk (and stayed), unknown
    said: str  # what the cause rests on
    elected: int  # partitions that it led and that another took over
    leaderless: int  # partitions that it led and nobody could take over
    controller: int | None = None
    grade: str


class RecordTakeover(Row, kw_only=True, frozen=True):
    """KRaft: a controller followed another one. Why, and each phase."""

    cluster: str
    mode: str
    epoch: int
    controller: int
    before: int  # the controller before it
    last_ms: Long  # the last that the controller before it wrote
    renounced_ms: Long | None = None  # logged: that one's line that it is no more
    noticed_ms: Long | None = None  # logged: the first node that stood for election
    won_ms: Long
    active_ms: Long | None = None  # logged
    first_ms: Long | None = None  # its first decision, or its first beat
    cause: str  # no majority, silent, died, stopped, unknown
    said: str
    position: Long
    grade: str


class RecordMigration(Row, kw_only=True, frozen=True):
    """A move of the whole cluster from ZooKeeper to KRaft: how far it is, and whether both say the same."""

    cluster: str
    state: str  # the last phase that was reached
    since_ms: Long | None = None
    controller: int | None = None  # of that phase, the last
    compared: bool  # false: `said` names why not
    differences: int  # each is a row of record_migration_differences
    partitions: int | None = None  # that were compared, as topics and settings
    topics: int | None = None
    settings: int | None = None
    offset: Long | None = None  # up to which ZooKeeper has KRaft's log, as it says itself
    zxid: Long | None = None  # of ZooKeeper's last transaction
    later_changes: int | None = None  # steps of KRaft's log behind that offset, which ZooKeeper never had
    said: str


class RecordMigrationPhase(Row, kw_only=True, frozen=True):
    """One phase of a migration. A phase ends where the next begins, by the clock of the record of that."""

    cluster: str
    number: int
    phase: str  # zookeeper, waiting for brokers, import, dual write (and two more with brokers), kraft, rolled back
    from_ms: Long | None = None  # none: `said` names the file that would tell
    to_ms: Long | None = None
    logged_ms: Long | None = None  # logged: the controller's line that it begins
    controllers: Ints  # that decided in it, in their order
    zxid: Long | None = None  # the transaction that began it
    offset: Long | None = None  # or the record of KRaft's log
    grade: str  # exact, inferred, logged (no record, but a line), unknown
    said: str


class RecordMigrationBroker(Row, kw_only=True, frozen=True):
    """A broker in a migration."""

    cluster: str
    broker: int
    registered_ms: Long  # with KRaft, in ZooKeeper mode
    restarted_ms: Long | None = None  # registered in KRaft mode
    position: Long
    grade: str


class RecordMigrationDifference(Row, kw_only=True, frozen=True):
    """What ZooKeeper and KRaft's log say differently where the one is a copy of the other."""

    cluster: str
    kind: str  # topic id, partition, leader, leader epoch, in sync, replicas, ..., partition epoch, topic setting, ...
    name: str
    zookeeper: str | None = None  # none: it is not there
    kraft: str | None = None
    why: str  # empty where it is not known
    zxid: Long
    offset: Long


RECORD: Final[dict[str, type[Row]]] = {
    "record_sources": RecordSource,
    "record_tenures": RecordTenure,
    "record_broker_lives": RecordBrokerLife,
    "record_partition_states": RecordPartitionState,
    "record_outages": RecordOutage,
    "record_elections": RecordElection,
    "record_operations": RecordOperation,
    "record_config_changes": RecordConfigChange,
    "record_losses": RecordLoss,
    "record_fencings": RecordFencing,
    "record_clocks": RecordClock,
    "record_departures": RecordDeparture,
    "record_takeovers": RecordTakeover,
    "record_migrations": RecordMigration,
    "record_migration_phases": RecordMigrationPhase,
    "record_migration_brokers": RecordMigrationBroker,
    "record_migration_differences": RecordMigrationDifference,
}
