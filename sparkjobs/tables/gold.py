"""The answers' tables: a class each, as `sparkjobs.tables.silver` declares silver. The columns are the contract.

Moments are milliseconds since 1970 in UTC after the clocks' error was taken out; `_lo` and `_hi` are the bounds within
which the truth lies, where a moment was concluded and not read. `evidence` says which: `exact` (a line says it) or
`inferred` (it follows from other lines). (file_id, line_no) is where the line stands that proves the row. Rows of a
table are sorted by their columns in order, so that two runs over the same logs can be compared byte by byte.
"""

from __future__ import annotations

from typing import Final

from sparkjobs.tables.silver import Ints, Long, Row, Texts


class Failover(Row, kw_only=True, frozen=True):
    """The loss of a broker, and the course until its partitions were led again. Moments in the order they should
    have."""

    cluster: str
    broker: int
    was_controller: bool
    how: str  # crashed (it began anew), stopped, expired (it lived on without its session), lost (no line says which)
    last_seen_ms: Long | None = None  # the last line it wrote before
    detected_ms: Long  # a controller said that it is gone
    detected_evidence: str
    went_about_ms: Long | None = None  # by its session's time-out, where that is known and a controller watched
    controller: int | None = None  # that handled it
    controller_epoch: int | None = None
    ready_ms: Long | None = None  # that controller began to serve, if it had to be elected first
    first_elected_ms: Long | None = None
    last_elected_ms: Long | None = None
    last_acked_ms: Long | None = None
    moved: int  # partitions that got another leader
    left_offline: int  # partitions that it left without one
    expected: Ints  # brokers that were told
    acked: Ints  # those whose own logs say that they did it
    slowest: int | None = None  # the broker that did it last
    slowest_ms: Long | None = None  # after the last election
    returned_ms: Long | None = None
    file_id: str
    line_no: Long


class ControllerTenure(Row, kw_only=True, frozen=True):
    """One stretch as the active controller. Its end lies between the holder's last word and the next claim."""

    cluster: str
    controller_epoch: int
    broker: int
    from_ms: Long
    from_lo_ms: Long
    evidence: str  # of the start
    ready_ms: Long | None = None  # "ready to serve"
    done_ms: Long | None = None  # all that a new controller does first is done
    to_ms: Long | None = None  # none: it holds the seat where the logs end; likeliest, where only bounds are known
    to_lo_ms: Long | None = None
    to_hi_ms: Long | None = None
    why_ended: str | None = None  # resigned, moved, stopped, lost
    gap_before_ms: Long | None = None  # time without a controller: from the end of the one before, at least
    file_id: str
    line_no: Long


class ControllerPhase(Row, kw_only=True, frozen=True):
    """One phase of a takeover. Kafka's lines name the step that begins, ours the work that is over."""

    cluster: str
    controller_epoch: int
    broker: int
    from_ms: Long
    phase: str
    to_ms: Long | None = None  # none: its end is not in the logs
    took_ms: float | None = None
    file_id: str
    line_no: Long


class BrokerLife(Row, kw_only=True, frozen=True):
    """One stretch in which a broker spoke. A new one begins when it starts, or when it speaks after it was gone."""

    cluster: str
    broker: int
    from_ms: Long
    last_seen_ms: Long
    started: bool  # it began by starting, not in the middle
    ended: str  # crashed, stopped, expired, running
    gone_ms: Long | None = None  # when a controller said so


class ZookeeperOutage(Row, kw_only=True, frozen=True):
    """More than half of the brokers that lived were without ZooKeeper: no election and no ISR change was possible."""

    cluster: str
    from_ms: Long
    to_ms: Long | None = None
    brokers: Ints  # that lost it
    expired: Ints  # whose session did not survive it
    file_id: str  # of the first of them
    line_no: Long


class ClusterSilence(Row, kw_only=True, frozen=True):
    """No broker lived: the cluster was off. Partitions without a leader meanwhile are not held against it."""

    cluster: str
    from_ms: Long
    to_ms: Long
    last_heard: int  # the broker that spoke last
    first_back: int


class Zombie(Row, kw_only=True, frozen=True):
    """An actor on an epoch that was over."""

    cluster: str
    kind: str  # controller_refused, controller_obeyed, controller_spoke, leader_refused, leader_obeyed, isr_refused
    stale: int | None = None  # the broker whose epoch was over
    witness: int | None = None  # the broker that says so
    controller_epoch: int | None = None  # the one that was over
    topic: str | None = None  # only of leader_obeyed, which is about one partition
    partition: int | None = None
    first_ms: Long
    last_ms: Long
    times: int
    file_id: str  # of the first line
    line_no: Long


class RpcLatency(Row, kw_only=True, frozen=True):
    """How long requests of the controller took, in one hour."""

    cluster: str
    hour_ms: Long
    broker: int
    api: str
    side: str  # broker (how long it worked, as it says or its lines do), controller (from sending to acknowledgement)
    requests: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class SloDay(Row, kw_only=True, frozen=True):
    """Availability of a topic on a day, as far as the logs reach; the row without a topic is the whole cluster."""

    cluster: str
    dt: str
    topic: str | None = None
    partitions: int
    observed_ms: Long  # partitions times the time the logs cover
    unavailable_ms: Long
    unavailable_hi_ms: Long  # if every outage began at its earliest
    availability: float  # per cent
    budget_ms: Long  # the budget that the target allows
    budget_used: float  # share of it; 1.0 is all
    is_met: bool


class LogSpan(Row, kw_only=True, frozen=True):
    """From the first to the last line of a cluster's logs."""

    cluster: str
    from_ms: Long
    to_ms: Long


class Coverage(Row, kw_only=True, frozen=True):
    """The questions that these logs can answer, and those that they cannot."""

    cluster: str
    question: str
    grade: str  # exact, inferred, partial, none
    why: str


class Outage(Row, kw_only=True, frozen=True):
    """A stretch in which a partition had no leader."""

    cluster: str
    topic: str
    partition: int
    start_ms: Long
    end_ms: Long | None = None  # none: still without a leader where the logs end
    start_lo_ms: Long
    start_hi_ms: Long
    evidence: str  # of the start
    end_evidence: str | None = None
    ended_by: str | None = None  # elected, found_online (by the next controller), deleted
    cause: str  # broker_lost, broker_stopped, controller_lost, disk_failed, unknown
    first_broker: int | None = None  # whose going began it: the leader before
    leader_last_seen_ms: Long | None = None  # clients may have felt it since then
    leader: int | None = None  # the leader after it
    leader_epoch: int | None = None
    controller_epoch: int | None = None  # that first saw it
    election_attempts: int  # of which all but the last failed; of an open one all
    unclean: bool  # it ended by an election that may have lost data
    open: bool
    unseen: str | None = None  # possible unseen end: deletion (no controller.log), controller (no lines)
    file_id: str
    line_no: Long


class LeaderChange(Row, kw_only=True, frozen=True):
    """A leader was elected: another one, or the same one again with a higher epoch."""

    cluster: str
    topic: str
    partition: int
    at_ms: Long
    controller_epoch: int | None = None
    controller: int | None = None
    leader_before: int | None = None  # none: not known from these logs
    leader: int
    leader_epoch: int | None = None
    version: Long | None = None
    isr: Ints | None = None
    why: str  # created, offline_election, election (preferred, by shutdown, by reassignment), or the cause of our logs
    unclean: bool
    acked: Ints  # brokers whose own logs say that they follow or lead at this leader epoch, first one first
    acked_ms: tuple[Long, ...]  # when, in the same order
    file_id: str
    line_no: Long


class Churn(Row, kw_only=True, frozen=True):
    """How often a topic's partitions changed their leader in an hour."""

    cluster: str
    topic: str
    hour_ms: Long  # its start
    partitions: int  # that changed
    changes: int
    most_partition: int
    most_changes: int


class IsrState(Row, kw_only=True, frozen=True):
    """The state in a partition's znode, from when to when; it was written between `from_lo_ms` and `from_ms`."""

    cluster: str
    topic: str
    partition: int
    version: Long | None = None
    from_ms: Long
    from_lo_ms: Long
    to_ms: Long | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Ints
    controller_epoch: int | None = None
    topic_id: str | None = None
    said_by: str  # controller, leader
    file_id: str
    line_no: Long


class UncleanElection(Row, kw_only=True, frozen=True):
    """A leader was elected that was not in sync: records that only the others had are lost."""

    cluster: str
    topic: str
    partition: int
    at_ms: Long
    controller_epoch: int | None = None
    leader: int
    leader_epoch: int | None = None
    isr_before: Ints | None = None
    proof: str  # said (a line says so), recovering (the state says so), derived (the leader was not in the ISR before)
    file_id: str
    line_no: Long


class Truncation(Row, kw_only=True, frozen=True):
    """Records that a replica removed from its log, because its leader does not have them. Only our own brokers say how
    many of them had been committed: those were lost by an unclean election, on each replica that had them."""

    cluster: str
    topic: str
    partition: int
    at_ms: Long
    broker: int
    leader: int
    leader_epoch: int
    from_offset: Long
    to_offset: Long  # of the last of them
    records: Long
    committed: Long  # so many of them, from the first on
    records_epoch: int | None = None  # under which leader epoch the first was written: with its offset it is one record
    topic_id: str | None = None
    file_id: str
    line_no: Long


class Flapping(Row, kw_only=True, frozen=True):
    """Something that went to and fro more often than a quiet cluster would."""

    cluster: str
    what: str  # broker, leader, isr
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    from_ms: Long
    to_ms: Long
    transitions: int  # in the whole stretch
    most_in_window: int


class IllegalTransition(Row, kw_only=True, frozen=True):
    """A move that the tables of Kafka's state machines do not have."""

    cluster: str
    topic: str
    partition: int
    at_ms: Long
    machine: str  # partition, replica
    replica: int | None = None
    controller_epoch: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    how: str  # done (a line says that it happened), refused (the controller says that it did not allow it)
    partitions: Long = 1  # that the line is about; the first of them is named
    file_id: str
    line_no: Long


class StateTransition(Row, kw_only=True, frozen=True):
    """How often partitions, or replicas, moved from one state to another in an hour."""

    cluster: str
    machine: str  # partition, replica
    source: str | None = None  # none: no line says it (Kafka 0.8.0 of replicas)
    target: str
    cause: str | None = None  # none: Kafka's lines do not say why
    hour_ms: Long  # its start
    times: Long
    known_as: str  # table (the state machines have it), older (only older Kafkas make it), unknown


class TimeInState(Row, kw_only=True, frozen=True):
    """How long partitions, or replicas, stood in a state, summed. Where a line that begins or ends a stay may be
    missing, only bounds are known. The part of a stay before the first line about it is unknown."""

    cluster: str
    machine: str  # partition, replica
    state: str
    subjects: Long  # how many stood in it at some time
    stays: Long
    known_ms: Long  # for certain
    at_most_ms: Long
    longest_ms: Long  # of one stay, at most
    lasting: Long  # stays that have no end where the logs end
    unbegun: Long  # stays that began at an unknown time
    evidence: str  # exact, bounded, unknown (of some stay no line tells the beginning)


class ReplicaLife(Row, kw_only=True, frozen=True):
    """The states that a replica went through, from its creation to its deletion, as far as the logs tell."""

    cluster: str
    topic: str
    partition: int
    broker: int
    from_ms: Long  # its first moment in these logs
    to_ms: Long | None = None  # it was gone; none: no line tells of that
    is_begun: bool  # it came into being in these logs
    states: Texts
    since_ms: tuple[Long, ...]  # when each state was entered, or first named
    file_id: str
    line_no: Long


class MoveOutOfTurn(Row, kw_only=True, frozen=True):
    """Lines of one controller epoch that move partitions, or replicas, from a state that they were not in, though all
    moves of that epoch have lines: some are missing, or two write as one."""

    cluster: str
    machine: str  # partition, replica
    controller_epoch: int
    stood_in: str
    source: str
    target: str
    times: Long
    at_ms: Long  # of the first
    topic: str
    partition: int
    replica: int | None = None
    file_id: str
    line_no: Long


class Operation(Row, kw_only=True, frozen=True):
    """Something that was asked of a topic or partition and came to an end."""

    cluster: str
    kind: str  # reassignment, deletion, preferred election
    topic: str | None = None  # none: of many topics
    partition: int | None = None
    started_ms: Long
    ended_ms: Long
    outcome: str  # done, failed, dropped (its topic was deleted), asked
    why: str | None = None  # the asker; of a deletion: the reason for its wait
    file_id: str
    line_no: Long


class StuckOp(Row, kw_only=True, frozen=True):
    """A reassignment or deletion whose end is not in the logs."""

    cluster: str
    kind: str  # reassignment, deletion
    topic: str
    partition: int | None = None
    started_ms: Long
    last_step_ms: Long
    last_step: str
    age_ms: Long  # at the end of the logs
    file_id: str
    line_no: Long


class ReplicaRole(Row, kw_only=True, frozen=True):
    """A broker began to lead or to follow, by its own line: its epochs name one record. Of ZooKeeper mode only of
    partitions with an unclean election, for the offsets."""

    cluster: str
    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: Long | None = None
    broker: int
    role: str  # leader, follower
    at_ms: Long
    leader: int | None = None
    offset: Long | None = None  # of a leader: where its records begin; of a follower: its own end, before it truncates
    file_id: str
    line_no: Long


class Fencing(Row, kw_only=True, frozen=True):
    """KRaft: a controller said that it fences a broker. Only the metadata log knows whether that came true."""

    cluster: str
    at_ms: Long
    controller: int
    broker: int
    broker_epoch: Long | None = None
    heard_ms: Long | None = None  # the last line of the broker before
    file_id: str
    line_no: Long


class NodeSign(Row, kw_only=True, frozen=True):
    """KRaft: a node said something of itself that explains who leads."""

    cluster: str
    at_ms: Long
    node: int
    sign: str  # prospective, candidate, leader, resigned (in the quorum); stopping (its process)
    epoch: int | None = None
    file_id: str
    line_no: Long


class QuorumTenure(Row, kw_only=True, frozen=True):
    """KRaft: one stretch as the active controller, by its own lines."""

    cluster: str
    controller_epoch: int
    controller: int
    from_ms: Long
    to_ms: Long | None = None  # none: it did not say so
    committed_offset: Long | None = None  # its decisions behind that offset are void
    file_id: str
    line_no: Long


class MigrationState(Row, kw_only=True, frozen=True):
    """KRaft: how far its controller said that it is with a migration from ZooKeeper."""

    cluster: str
    at_ms: Long
    controller: int
    state_before: str
    state: str  # WAIT_FOR_BROKERS, BECOME_CONTROLLER, ZK_MIGRATION, ..., DUAL_WRITE
    file_id: str
    line_no: Long


GOLD: Final[dict[str, type[Row]]] = {
    "partition_outages": Outage,
    "leader_changes": LeaderChange,
    "leader_churn": Churn,
    "failovers": Failover,
    "controller_tenures": ControllerTenure,
    "controller_phases": ControllerPhase,
    "broker_lives": BrokerLife,
    "zookeeper_outages": ZookeeperOutage,
    "cluster_silences": ClusterSilence,
    "isr_timeline": IsrState,
    "unclean_elections": UncleanElection,
    "truncations": Truncation,
    "flapping": Flapping,
    "illegal_transitions": IllegalTransition,
    "state_transitions": StateTransition,
    "time_in_state": TimeInState,
    "replica_lives": ReplicaLife,
    "moves_out_of_turn": MoveOutOfTurn,
    "operations": Operation,
    "stuck_ops": StuckOp,
    "zombies": Zombie,
    "rpc_latency": RpcLatency,
    "slo_daily": SloDay,
    "replica_roles": ReplicaRole,
    "fencings": Fencing,
    "quorum_tenures": QuorumTenure,
    "migration_states": MigrationState,
    "node_signs": NodeSign,
    "log_spans": LogSpan,
    "coverage": Coverage,
}
