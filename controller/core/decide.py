"""`decide`: an event and a belief in, slices of changes out. Pure, synchronous, a generator.

The table below is the whole dispatch. The loop over subjects is the one place where a bug (an illegal move, a failed
assertion) is met: the subject is parked for the term and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from controller.core import (
    balance,
    brokers,
    configs,
    deletion,
    dirs,
    drains,
    growth,
    isr,
    producers,
    reassignment,
    startup,
    terms,
    timers,
    topics,
)
from controller.core.changes import Change, Refused, Slice, SubjectParked
from controller.core.cluster import Cluster
from controller.core.codes import Code
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
    StatesSeen,
    StopReplicaAnswered,
    TermStarted,
    TermTold,
    TimePassed,
    TopicsSeen,
    UndrainAsked,
)
from controller.core.states import IllegalMoveError
from controller.core.work import Context, Work

CHANGES_PER_SLICE = 5_000

HANDLERS: dict[type, Callable[[Context, Any], Iterator[Work]]] = {
    # facts
    TermStarted: startup.on_term_started,
    BrokersSeen: brokers.on_brokers_seen,
    TopicsSeen: topics.on_topics_seen,
    StatesSeen: isr.on_states_seen,
    DeletionsSeen: deletion.on_deletions_seen,
    StopReplicaAnswered: deletion.on_stop_replica_answered,
    LeaderAndIsrAnswered: dirs.on_leader_and_isr_answered,
    LogDirsSeen: dirs.on_log_dirs_seen,
    ConfigsSeen: configs.on_configs_seen,
    ElectionNodeSeen: balance.on_election_node_seen,
    ReassignNodeSeen: reassignment.on_reassign_node_seen,
    ReassignmentsDue: reassignment.on_reassignments_due,
    ProducerIdsSeen: producers.on_producer_ids_seen,
    TermTold: terms.on_term_told,
    TimePassed: timers.on_time_passed,
    # requests
    AlterPartitionAsked: isr.on_alter_partition_asked,
    CreateTopicAsked: topics.on_create_topic_asked,
    GrowTopicAsked: growth.on_grow_topic_asked,
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
    """What should become true because of `event`. Leaves the cluster untouched; same input, same output."""
    context = Context(cluster, now_ms, Random(seed))
    collected: dict[int, list[Change]] = {}
    size = 0
    for work in HANDLERS[type(event)](context, event):
        for step, change in _run(cluster, work):
            collected.setdefault(step, []).append(change)
            size += 1
        if size >= changes_per_slice:
            yield from _slices(collected, changes_per_slice)
            collected, size = {}, 0
    yield from _slices(collected, changes_per_slice)


def _run(cluster: Cluster, work: Work) -> list[tuple[int, Change]]:
    if work.subject in cluster.parked:
        return [(0, _refusal(work.subject, cluster.parked[work.subject]))]
    try:
        return list(work.run())
    except (IllegalMoveError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as bug:
        trouble = f"{type(bug).__name__}: {bug}"
        return [(0, SubjectParked(work.subject, trouble)), (0, _refusal(work.subject, trouble))]


def _refusal(subject: str, trouble: str) -> Refused:
    """If somebody asked, this is the answer; otherwise nobody hears it."""
    return Refused(subject, Code.UNKNOWN_SERVER_ERROR, f"{subject} is left out after a bug: {trouble}")


def _slices(collected: dict[int, list[Change]], size: int) -> Iterator[Slice]:
    for step, changes in sorted(collected.items()):
        for start in range(0, len(changes), size):
            yield Slice(step, changes[start : start + size])
