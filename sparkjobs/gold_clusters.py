"""The answers' tables about brokers, controllers and the cluster as a whole; `sparkjobs.gold` has the conventions."""

from __future__ import annotations

from sparkjobs.schemas import Ints, Long, Row


class Failover(Row, kw_only=True, frozen=True):
    """A broker went, and what it took until its partitions were led again. Moments in the order they should have."""

    cluster: str
    broker: int
    was_controller: bool
    how: str  # crashed, stopped, expired (it lived on without its session), unknown
    last_seen_ms: Long | None = None  # the last line it wrote before
    detected_ms: Long  # a controller said that it is gone
    detected_evidence: str
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
    to_ms: Long | None = None  # none: it holds the seat where the logs end
    to_lo_ms: Long | None = None
    to_hi_ms: Long | None = None
    why_ended: str | None = None  # resigned, moved, stopped, lost
    gap_before_ms: Long | None = None  # nobody was controller: from the end of the one before, at least
    file_id: str
    line_no: Long


class ControllerPhase(Row, kw_only=True, frozen=True):
    """One phase of a takeover; of Kafka's lines what the step is called, of ours what was done when it was over."""

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
    """More than half of the brokers that lived were without ZooKeeper: nobody could elect, or change an ISR."""

    cluster: str
    from_ms: Long
    to_ms: Long | None = None
    brokers: Ints  # that lost it
    expired: Ints  # whose session did not survive it
    file_id: str  # of the first of them
    line_no: Long


class ClusterSilence(Row, kw_only=True, frozen=True):
    """No broker lived: the cluster was off. What was without a leader meanwhile is not held against it."""

    cluster: str
    from_ms: Long
    to_ms: Long
    last_heard: int  # the broker that spoke last
    first_back: int


class Zombie(Row, kw_only=True, frozen=True):
    """Somebody acted on an epoch that was over."""

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
    budget_ms: Long  # what the target allows
    budget_used: float  # share of it; 1.0 is all
    is_met: bool


class Coverage(Row, kw_only=True, frozen=True):
    """What these logs can answer, and what they cannot."""

    cluster: str
    question: str
    grade: str  # exact, inferred, partial, none
    why: str
