"""The answers' tables: a class each, as `sparkjobs.schemas` declares silver. The columns are the contract.

Moments are milliseconds since 1970 in UTC after the clocks' error was taken out; `_lo` and `_hi` are the bounds within
which the truth lies, where a moment was concluded and not read. `evidence` says which: `exact` (a line says it) or
`inferred` (it follows from other lines). (file_id, line_no) is where the line stands that proves the row. Rows of a
table are sorted by their columns in order, so that two runs over the same logs can be compared byte by byte.
"""

from __future__ import annotations

from typing import Final

from sparkjobs.gold_clusters import (
    BrokerLife,
    ClusterSilence,
    ControllerPhase,
    ControllerTenure,
    Coverage,
    Failover,
    RpcLatency,
    SloDay,
    Zombie,
    ZookeeperOutage,
)
from sparkjobs.schemas import Ints, Long, Row

__all__ = [
    "BrokerLife",
    "ClusterSilence",
    "ControllerPhase",
    "ControllerTenure",
    "Coverage",
    "Failover",
    "RpcLatency",
    "SloDay",
    "Zombie",
    "ZookeeperOutage",
]


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
    leader: int | None = None  # who leads after it
    leader_epoch: int | None = None
    controller_epoch: int | None = None  # that first saw it
    election_attempts: int  # of which all but the last failed; of an open one all
    unclean: bool  # it ended by an election that may have lost data
    open: bool
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
    why: str  # created, offline_election, election (preferred, by shutdown, by reassignment), or what our logs say
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
    """What a partition's state znode said, from when to when; it was written between `from_lo_ms` and `from_ms`."""

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
    """A leader was elected that was not in sync: what only the others had is lost."""

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
    why: str | None = None  # who asked
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
    "flapping": Flapping,
    "illegal_transitions": IllegalTransition,
    "operations": Operation,
    "stuck_ops": StuckOp,
    "zombies": Zombie,
    "rpc_latency": RpcLatency,
    "slo_daily": SloDay,
    "coverage": Coverage,
}
