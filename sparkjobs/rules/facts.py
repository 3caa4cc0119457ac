"""The history of a cluster as a whole: its controllers and their terms, the brokers that went and how, the deletions.

All other rules rest on it. It is small: some lines for each controller and broker, however large the logs are.
`facts_for` concludes it from the few events that are `is_of_cluster`, from `Tally` (how often each kind of line occurs,
and from when to when) and from `Voices` (when each broker was last heard before a moment).

Terms are ordered by their epoch, never by a clock. Pure; it must never read or write anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from sparkjobs.tables.silver import SilverEvent

CLUSTER_EVENTS: Final = frozenset(
    {
        "controller_elected",
        "controller_epoch_raised",
        "controller_ready",
        "failover_started",
        "failover_step",
        "failover_done",
        "controller_reported",
        "preferred_election_asked",
        "controller_resigned",
        "controller_moved",
        "session_expired",
        "session_established",
        "broker_shutdown_requested",
        "zookeeper_lost",
        "brokers_changed",
        "brokers_met",
        "broker_changed",
        "server_starting",
        "registered",
        "server_stopping",
        "server_stopped",
        "controlled_shutdown_started",
        "topic_deletion_started",
        "topic_deleted",
        "topic_changed",
        "states_moved",
        "quorum_fencing",
        "quorum_activated",
        "quorum_renounced",
        "migration_moved",
        "quorum_state",
        "quorum_stopping",
    }
)
#: a broker's lines about each partition of a request
RECEIVED: Final = "request_received"
DONE: Final = "request_done"
#: how our controller's requests end: a broker's own line, which names the cause that its controller gave
ANSWERED: Final = (DONE, "LeaderAndIsr")
#: clocks are known to about this much; a line so shortly after a moment may have been written before it
MARGIN_MS: Final = 2_000
GOODBYES: Final = frozenset({"server_stopping", "server_stopped", "controlled_shutdown_started"})


def is_of_cluster(event: SilverEvent) -> bool:
    """Returns whether facts rest on the event."""
    return event.event in CLUSTER_EVENTS or is_answer(event)


def is_answer(event: SilverEvent) -> bool:
    """Returns whether a broker says in this line that it carried out an election of our controller."""
    return event.cause_id is not None and (event.event, event.api) == ANSWERED and event.error is None


class Place(NamedTuple):
    """Where a line stands."""

    file_id: str
    line_no: int


class Tally(NamedTuple):
    """All events that agree in the first fields, counted."""

    cluster: str
    broker: int | None
    role: str
    level: str
    event: str
    controller: int | None
    controller_epoch: int | None
    api: str | None
    error: str | None
    peer_broker: int | None  # only of isr_changed: the replica that a controller took out
    is_found: bool  # our logs: a new controller reports the state that it found of its predecessor
    times: int
    first_ms: int
    last_ms: int
    first: Place


def together(one: Tally, other: Tally) -> Tally:
    """Of the same kind of line."""
    return one._replace(
        times=one.times + other.times,
        first_ms=min(one.first_ms, other.first_ms),
        last_ms=max(one.last_ms, other.last_ms),
        first=Place._make(min((one.first_ms, *one.first), (other.first_ms, *other.first))[1:]),
    )


def in_order(tallies: Iterable[Tally]) -> list[Tally]:
    """Returns them in the order of their first lines, whichever executor counted them. Of two that contradict each
    other the earlier one is believed."""
    return sorted(tallies, key=lambda one: (one.first_ms, one.first))


TALLIED: Final = ("broker", "role", "level", "event", "controller", "controller_epoch", "api", "error")


_COMMON: Final = attrgetter(*TALLIED)


def tally_key(event: SilverEvent) -> tuple[object, ...]:
    """Returns the fields that the events of a `Tally` have in common, in its order."""
    peer = event.peer_broker if event.event == "isr_changed" and event.role == "controller" else None
    return (event.cluster, *_COMMON(event), peer, event.cause == "found")


def by_number_in(tallies: Sequence[Tally]) -> frozenset[int]:
    """Returns the brokers that log the requests that they received and completed, and never the leader epoch at which
    they begin."""
    told = {(one.event, one.broker) for one in tallies if one.role == "broker" and one.api in ("LeaderAndIsr", None)}
    return frozenset(
        one.broker
        for one in tallies
        if one.broker is not None and {(RECEIVED, one.broker), (DONE, one.broker)} <= told
        if not {("leader_started", one.broker), ("follower_started", one.broker)} & told
    )


class Gap(NamedTuple):
    """A stretch in which a broker was without ZooKeeper."""

    broker: int
    from_ms: int
    place: Place
    to_ms: int | None = None  # none: to the end of the logs
    has_expired: bool = False


class ElectionRequest(NamedTuple):
    """A request for an election of first replicas."""

    at_ms: int
    why: str  # the asker, in Kafka's words
    file_id: str
    line_no: int


class Step(NamedTuple):
    """A line about a controller's taking over: where a step begins, or, with `since_ms`, where a phase is over."""

    broker: int
    controller_epoch: int | None
    at_ms: int
    name: str
    since_ms: float | None  # since the seat was seen to be vacant
    file_id: str
    line_no: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A broker went, and a controller said so, or had to be replaced because of it."""

    broker: int
    detected_ms: int
    controller_epoch: int | None
    controller: int | None
    evidence: str
    place: Place
    was_controller: bool = False
    #: its lines from here on belong to a new life: when it was detected, or when it had begun anew by then
    silent_from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """One controller epoch, as its holder's lines tell it."""

    controller_epoch: int
    broker: int
    from_ms: int
    evidence: str
    place: Place
    last_ms: int  # its last line as the controller
    ready_ms: int | None = None
    done_ms: int | None = None
    goodbye_ms: int | None = None
    why_ended: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one cluster."""

    cluster: str
    first_ms: int
    last_ms: int
    terms: Sequence[Term]
    losses: Sequence[Loss]
    returns: Mapping[int, Sequence[int]]  # broker: when it was seen to come
    starts: Mapping[int, Sequence[int]]  # broker: when its process began
    goodbyes: Mapping[int, Sequence[int]]
    again: Mapping[int, Sequence[int]]  # our logs, broker: when it was there anew after it had said goodbye
    signs: Mapping[int, Sequence[int]]  # broker: when it registered, or learned that its session had expired
    deletions: Mapping[str, Sequence[int]]  # topic: when its deletion began
    deleted: Mapping[str, Sequence[int]]
    back: Mapping[int, Sequence[int]] = field(default_factory=dict)  # broker: its first sign of life after a loss
    session_ms: Mapping[int, int] = field(default_factory=dict)  # broker: the longest time-out of its sessions
    tell_deletions: frozenset[int] = frozenset()  # controllers in whose logs a deletion would be seen
    is_end_told: bool = True  # the last controller's own lines are here, to the end
    gaps: Sequence[Gap] = ()
    steps: Sequence[Step] = ()
    asked: Sequence[ElectionRequest] = ()
    clock_err_ms: Mapping[int, int | None] = field(default_factory=dict)  # broker: how wrong its corrected clock may be
    answered: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # cause: broker: when it had done all of it
    by_number: frozenset[int] = frozenset()  # brokers that log their work by a request's number: before 2.6
    moved: Sequence[SilverEvent] = ()  # our lines about moves
    moved_epochs: frozenset[int] = frozenset()  # controller epochs of ours since there are such lines
    told_epochs: frozenset[int] = frozenset()  # controller epochs of which each move has a line: ours, or TRACE
    # KRaft: the controllers' lines about themselves and about brokers that they fence
    quorum: Sequence[SilverEvent] = ()
    stopping: Sequence[SilverEvent] = ()  # nodes that said that they stop
    metadata_readers: frozenset[int] = frozenset()  # KRaft: brokers that go by the metadata log
    voices: Mapping[tuple[int, int], int] = field(default_factory=dict)  # (broker, moment): last heard before it

    @property
    def moments(self) -> Iterator[tuple[int, int]]:
        """Brokers and moments before which it matters when they were last heard."""
        yield from ((loss.broker, loss.silent_from_ms) for loss in self.losses)
        yield from ((loss.broker, self.next_start_ms(loss.broker, loss.silent_from_ms)) for loss in self.losses)
        yield from ((broker, start_ms) for broker in {*self.starts, *self.again} for start_ms in self.births(broker))
        yield from ((broker, sign_ms) for broker, signs in self.back.items() for sign_ms in signs)
        yield from ((loss.broker, self.last_ms + 1) for loss in self.losses)
        yield from (
            (one.peer_broker, one.ts_adj)
            for one in self.quorum
            if one.event == "quorum_fencing" and one.peer_broker is not None
        )
        yield from ((term.broker, after.from_ms) for term, after in zip(self.terms, self.terms[1:], strict=False))

    def births(self, broker: int) -> list[int]:
        """Returns when its process is known to have begun, in order."""
        return sorted((*self.starts.get(broker, ()), *self.again.get(broker, ())))

    def next_start_ms(self, broker: int, after_ms: int) -> int:
        """Returns when the broker's process began again, or the end of the logs."""
        return next((ms for ms in self.starts.get(broker, ()) if ms >= after_ms), self.last_ms + 1)

    def last_heard_ms(self, loss: Loss) -> int | None:
        """The lost broker's last line before it went."""
        return self.voices.get((loss.broker, loss.silent_from_ms))

    def went_about_ms(self, loss: Loss) -> int | None:
        """When its process ended, as its session's time-out has it: such a session ends that long after its last
        sign of life. Only where a controller that watched said so at once: one that took over looks when it can."""
        session_ms = self.session_ms.get(loss.broker)
        if (
            session_ms is None
            or loss.controller is None
            or how_it_went(loss, self) not in ("crashed", "expired", "lost")
        ):
            return None
        before = next((one for one in self.terms if one.controller_epoch + 1 == loss.controller_epoch), None)
        if loss.evidence != "exact" and (before is None or before.broker != loss.broker):
            return None
        about_ms = loss.detected_ms - session_ms
        if not self._watched(loss.controller, about_ms, loss.detected_ms):
            return None
        heard_ms = self.last_heard_ms(loss)
        return about_ms if heard_ms is None else max(about_ms, heard_ms)

    def are_moves_told(self, from_epoch: int, to_epoch: int) -> bool:
        """Returns whether each move of these controllers has a line, as far as the logs are whole."""
        if from_epoch == to_epoch:
            return to_epoch in self.told_epochs
        return all(epoch in self.told_epochs for epoch in range(from_epoch, to_epoch + 1))

    def _watched(self, broker: int, from_ms: int, to_ms: int) -> bool:
        """Returns whether it lived, and had ZooKeeper, all that time."""
        if any(from_ms < ms <= to_ms for ms in self.births(broker)):
            return False
        others = [gap for gap in self.gaps if gap.broker == broker]
        return not any(gap.from_ms <= to_ms and (gap.to_ms is None or gap.to_ms >= from_ms) for gap in others)

    def loss_of(self, broker: int | None, by_ms: int) -> Loss | None:
        """The last time it went, up to that moment."""
        for loss in reversed(self.losses):
            if loss.broker == broker and loss.detected_ms <= by_ms:
                return loss
        return None

    def term_after(self, controller_epoch: int) -> Term | None:
        """Returns the next controller that these logs know."""
        return next((term for term in self.terms if term.controller_epoch > controller_epoch), None)


def how_it_went(loss: Loss, facts: Facts) -> str:
    """Politely, by dying, or by losing its session while it lived on."""
    heard_ms = facts.last_heard_ms(loss)
    begun = (*facts.births(loss.broker), *facts.back.get(loss.broker, ()))
    born_ms = max((ms for ms in begun if ms < loss.silent_from_ms), default=facts.first_ms)
    if any(born_ms <= ms <= loss.detected_ms for ms in facts.goodbyes.get(loss.broker, ())):
        return "stopped"
    if heard_ms is None:
        return "unknown"
    if not facts.starts.get(loss.broker):
        return "lost"  # nothing says whether its process lived on
    next_ms = facts.next_start_ms(loss.broker, loss.silent_from_ms)
    lived_on = any(loss.silent_from_ms <= ms < next_ms for ms in facts.signs.get(loss.broker, ()))
    if lived_on:
        return "expired"
    return "crashed" if next_ms <= facts.last_ms else "lost"  # where the logs end it may stand still and live on
