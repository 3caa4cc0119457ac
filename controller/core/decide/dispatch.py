"""`decide`: an event and a belief in, slices of changes out. Pure, synchronous, a generator.

The table below is the whole dispatch; time that passes concerns several modules. The loop over subjects is the one
place where a bug (an illegal move, a failed assertion) is met: the subject is parked for the term and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from controller.core.belief.cluster import Cluster
from controller.core.belief.kept_states import Mover
from controller.core.changes.cluster import (
    Change,
    Refused,
    Slice,
    StateDecided,
    SubjectParked,
    move_together,
)
from controller.core.codes import Code
from controller.core.decide import (
    added_partitions,
    balance,
    broker_refusals,
    brokers,
    configs,
    deletion,
    drains,
    dropped_replicas,
    isr,
    log_directories,
    producers,
    reassignment,
    refused_writes,
    startup,
    term_history,
    topic_ids,
    topics,
)
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import (
    AlterPartitionAsked,
    BrokersSeen,
    ConfigAsked,
    ConfigsSeen,
    CreateTopicAsked,
    DeleteTopicAsked,
    DeletionsSeen,
    DrainAsked,
    ElectAsked,
    ElectionNodeSeen,
    Event,
    ForgetBrokerAsked,
    GrowTopicAsked,
    LeaderAndIsrAnswered,
    LogDirsSeen,
    ProducerIdsAsked,
    ProducerIdsSeen,
    ReassignAsked,
    ReassignmentsDue,
    ReassignNodeSeen,
    RefusalsAnswered,
    StatesSeen,
    StopReplicaAnswered,
    TermStarted,
    TermTold,
    TimePassed,
    TopicsDescribed,
    TopicsSeen,
    UndrainAsked,
)
from controller.core.states import IllegalMoveError


def on_time_passed(context: Context, event: TimePassed) -> Iterator[Work]:
    """Work that the clock makes due: deletions, drains, refusals, topic id searches, notes, automatic elections."""
    yield from deletion.on_time_passed(context, event)
    yield from drains.on_time_passed(context)
    yield from dropped_replicas.on_time_passed(context)
    yield from broker_refusals.on_time_passed(context)
    yield from topic_ids.on_time_passed(context)
    yield from brokers.on_time_passed(context)
    yield from refused_writes.on_time_passed(context)
    if event.is_balance_due:
        yield from balance.balance(context, context.cluster.imbalance_percentage)


CHANGES_PER_SLICE = 5_000

HANDLERS: dict[type, Callable[[Context, Any], Iterator[Work]]] = {
    # facts
    TermStarted: startup.on_term_started,
    BrokersSeen: brokers.on_brokers_seen,
    TopicsSeen: topics.on_topics_seen,
    StatesSeen: isr.on_states_seen,
    DeletionsSeen: deletion.on_deletions_seen,
    StopReplicaAnswered: deletion.on_stop_replica_answered,
    LeaderAndIsrAnswered: log_directories.on_leader_and_isr_answered,
    TopicsDescribed: topic_ids.on_topics_described,
    RefusalsAnswered: broker_refusals.on_refusals_answered,
    LogDirsSeen: log_directories.on_log_dirs_seen,
    ConfigsSeen: configs.on_configs_seen,
    ElectionNodeSeen: balance.on_election_node_seen,
    ReassignNodeSeen: reassignment.on_reassign_node_seen,
    ReassignmentsDue: reassignment.on_reassignments_due,
    ProducerIdsSeen: producers.on_producer_ids_seen,
    TermTold: term_history.on_term_told,
    TimePassed: on_time_passed,
    # requests
    AlterPartitionAsked: isr.on_alter_partition_asked,
    CreateTopicAsked: topics.on_create_topic_asked,
    GrowTopicAsked: added_partitions.on_grow_topic_asked,
    DeleteTopicAsked: deletion.on_delete_topic_asked,
    ReassignAsked: reassignment.on_reassign_asked,
    ElectAsked: balance.on_elect_asked,
    DrainAsked: drains.on_drain_asked,
    UndrainAsked: drains.on_undrain_asked,
    ForgetBrokerAsked: brokers.on_forget_broker_asked,
    ConfigAsked: configs.on_config_asked,
    ProducerIdsAsked: producers.on_producer_ids_asked,
}


def decide(
    cluster: Cluster, event: Event, now_ms: int, seed: int, *, changes_per_slice: int = CHANGES_PER_SLICE
) -> Iterator[Slice]:
    """Returns the changes that should be made because of `event`, at a moment of the term's clock. Leaves the cluster
    untouched; same input, same output."""
    context = Context(cluster, now_ms, Random(seed))
    trial = cluster.trial()
    collected: dict[int, list[Change]] = {}
    size = 0
    for work in HANDLERS[type(event)](context, event):
        for step, change in _run(cluster, work, trial):
            collected.setdefault(step, []).append(change)
            size += 1
        if size >= changes_per_slice:
            yield from _slices(collected, changes_per_slice)
            collected, size = {}, 0
    yield from _slices(collected, changes_per_slice)


def _run(cluster: Cluster, work: Work, trial: Mover) -> list[Decided]:
    """Returns the decision about one subject, if all its moves are legal after those that were decided before it."""
    if work.subject in cluster.parked:
        return [(0, _refusal(work.subject, cluster.parked[work.subject]))]
    try:
        decided = list(work.run())
        _try_moves(cluster, decided, trial)
        return decided
    except (IllegalMoveError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as bug:
        trouble = f"{type(bug).__name__}: {bug}"
        return [(0, SubjectParked(work.subject, trouble)), (0, _refusal(work.subject, trouble))]


def _try_moves(cluster: Cluster, decided: list[Decided], trial: Mover) -> None:
    """Make the moves of the decision about one subject, on trial. Leaderships that follow each other move together."""
    led: list[StateDecided] = []
    for _, change in decided:
        if type(change) is StateDecided:
            led.append(change)
            continue
        if led:
            move_together(cluster, led, trial)
            led = []
        trial.settle()
        change.move(cluster, trial)
    if led:
        move_together(cluster, led, trial)


def _refusal(subject: str, trouble: str) -> Refused:
    """The answer if a caller waits; otherwise it goes nowhere."""
    return Refused(subject, Code.UNKNOWN_SERVER_ERROR, f"{subject} is left out after a bug: {trouble}")


def _slices(collected: dict[int, list[Change]], size: int) -> Iterator[Slice]:
    for step, changes in sorted(collected.items()):
        for start in range(0, len(changes), size):
            yield Slice(step, changes[start : start + size])
