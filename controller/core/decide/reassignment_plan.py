"""The plan of a reassignment, partition by partition: the arithmetic, the checks, and the writing.

The topic znode holds both ends of the way: origin = replicas - adding, target = replicas - removing. A topic's
assignment and the leaderships that go with it are one transaction, so no ISR is ever outside its assignment, each
decision costs one leader epoch, and a successor finds a reassignment running or over, never in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import StateDecided, TopicWritten
from controller.core.codes import Code
from controller.core.decide.repair import led_first, state_decided
from controller.core.decide.topic_ids import UNKNOWN
from controller.core.decide.topics import MAX_TOPIC_ZNODE_BYTES
from controller.core.decide.work import Context, Decided
from controller.core.elections import completed, repaired
from controller.core.formats import encode_topic
from controller.core.model import Assignment, Leadership, Partition, PartitionKey, Replicas, assignment_of

#: leaderships in one transaction with their topic's znode; fewer when that leaves little room for them
STATES_PER_TRANSACTION = 400
STATES_BESIDE_A_LARGE_TOPIC = 80
LARGE_TOPIC_BYTES = 800_000

_REASSIGNMENT: Final = Reason(Cause.REASSIGNMENT, "reassignment")
#: why a partition is not moved; with code NONE there is nothing to do
Trouble = tuple[Code, str]


class ReassignmentPlan(NamedTuple):
    """A partition's new assignment, and the leadership written with it (None: it was never led)."""

    assignment: Assignment
    state: StateDecided | None


def target_of(partition: Partition) -> Replicas:
    return tuple(one for one in partition.replicas if one not in partition.removing)


def origin_of(partition: Partition) -> Replicas:
    return tuple(one for one in partition.replicas if one not in partition.adding)


def is_reassigning(partition: Partition) -> bool:
    return bool(partition.adding or partition.removing)


def redirected(partition: Partition, target: Replicas) -> Assignment:
    """Returns the assignment that leads to `target`. The way back to the origin is no way at all: it is over at
    once."""
    origin = origin_of(partition)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    adding = tuple(one for one in replicas if one not in origin)
    return Assignment(replicas, adding, tuple(one for one in replicas if one not in target))


def plans_for(
    context: Context, topic: str, wanted: Mapping[int, Replicas | None], *, is_by_node: bool
) -> tuple[dict[int, ReassignmentPlan], dict[int, Trouble]]:
    """Returns for partitions of one topic their plans (None asks for the way back), or why they do not move. Each is
    judged alone."""
    plans: dict[int, ReassignmentPlan] = {}
    troubles: dict[int, Trouble] = {}
    for number, replicas in sorted(wanted.items()):
        plan, trouble = _plan_for(context, topic, number, replicas, is_by_node=is_by_node)
        if plan is not None:
            plans[number] = plan
        else:
            troubles[number] = trouble
    if plans:
        known = context.cluster.topics[topic]
        whole = {**assignment_of(known), **{number: plan.assignment for number, plan in plans.items()}}
        if (size := len(encode_topic(known.topic_id or "", whole))) > MAX_TOPIC_ZNODE_BYTES:
            detail = f"the topic's znode would have {size} bytes, more than {MAX_TOPIC_ZNODE_BYTES}: ask for fewer"
            return {}, troubles | dict.fromkeys(plans, (Code.INVALID_REPLICA_ASSIGNMENT, detail))
    return plans, troubles


def plan_at_end(
    context: Context, topic: str, number: int, partition: Partition, target: Replicas
) -> ReassignmentPlan | None:
    """Returns a reassignment's end; None as long as it cannot end."""
    after = end_of(context.cluster, (topic, number), partition, target)
    if after is None:
        return None
    return ReassignmentPlan(
        Assignment(target),
        state_decided(context, topic, number, partition.state, after, Reason(Cause.REASSIGNMENT, "reassigned")),
    )


def end_of(cluster: Cluster, key: PartitionKey, partition: Partition, target: Replicas) -> Leadership | None:
    """Returns the leadership with which a reassignment ends; None while its target is not in sync, or cannot lead."""
    if partition.state is None or not set(target) <= set(partition.state.isr) or not is_free(cluster, key):
        return None
    online = cluster.serving_ids(*key, cluster.live_ids)
    return completed(target, partition.state, online, cluster.controller_epoch, draining=cluster.avoided_ids)


def is_free(cluster: Cluster, key: PartitionKey) -> bool:
    """Returns whether a partition's znodes may be written: its topic stays, and they make sense."""
    topic = key[0]
    if cluster.lost_state(*key) is not None:
        return False  # brokers hold it, though no state stands
    return not ((topic, None) in cluster.unreadable or key in cluster.unreadable or cluster.duties.is_leaving(topic))


def written(context: Context, topic: str, plans: Mapping[int, ReassignmentPlan], *, step: int) -> Iterator[Decided]:
    """The topic's znode and the leaderships, in as few transactions as hold them; then partitions never led."""
    if not plans:
        return
    known = context.cluster.topics[topic]
    topic_id = known.topic_id
    assert topic_id is not None, "a topic without an id is not moved"
    whole = assignment_of(known)
    is_large = len(encode_topic(topic_id, whole)) > LARGE_TOPIC_BYTES
    at_once = STATES_BESIDE_A_LARGE_TOPIC if is_large else STATES_PER_TRANSACTION
    numbers = tuple(sorted(plans))
    for start in range(0, len(numbers), at_once):
        some = numbers[start : start + at_once]
        whole = {**whole, **{number: plans[number].assignment for number in some}}
        states = tuple(state for number in some if (state := plans[number].state) is not None)
        dropped = tuple(
            (state.partition, one)
            for state in states
            for one in known.partitions[state.partition].replicas
            if one not in whole[state.partition].replicas
        )
        words, cause = _REASSIGNMENT.words, _REASSIGNMENT.cause
        yield (
            step,
            TopicWritten(topic, topic_id, whole, words, cause, some, dropped, is_reassignment=True, states=states),
        )
        step += 1
    for number in (number for number in numbers if plans[number].state is None):
        unled = Partition(plans[number].assignment.replicas)
        yield from led_first(context, topic, number, unled, context.cluster.live_ids, _REASSIGNMENT, step=step)


_NO_TROUBLE: Trouble = (Code.NONE, "")


def _plan_for(
    context: Context, topic: str, number: int, wanted: Replicas | None, *, is_by_node: bool
) -> tuple[ReassignmentPlan | None, Trouble]:
    cluster = context.cluster
    partition = cluster.partition(topic, number)
    if partition is None or not is_free(cluster, (topic, number)):
        return None, (Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown, being deleted, or its znode is malformed")
    if cluster.topics[topic].topic_id is None:
        return None, (Code.UNKNOWN_TOPIC_ID, UNKNOWN)
    if wanted is None and not is_reassigning(partition):
        return None, (Code.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of it runs")
    target = origin_of(partition) if wanted is None else wanted
    if target == target_of(partition):
        return None, (Code.NONE, "that is its target already")
    trouble = None if wanted is None else _replicas_trouble(cluster, partition, wanted, is_by_node=is_by_node)
    if trouble is not None:
        return None, (Code.INVALID_REPLICA_ASSIGNMENT, trouble)
    if partition.state is None:  # no broker holds anything of it
        return ReassignmentPlan(Assignment(target), None), _NO_TROUBLE
    plan = plan_at_end(context, topic, number, partition, target)
    if plan is None:
        plan = _plan_on_the_way(context, topic, number, partition.state, redirected(partition, target))
    detail = f"only replicas that it would lose are in sync: {list(partition.state.isr)}"
    return plan, (Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, detail)


def _replicas_trouble(cluster: Cluster, partition: Partition, wanted: Replicas, *, is_by_node: bool) -> str | None:
    """Kafka does not ask for live brokers when the node asks: so it waits, if the broker was ever seen."""
    if not wanted or len(set(wanted)) < len(wanted) or min(wanted) < 0:
        return f"it needs one or more different broker ids, not {list(wanted)}"
    able_ids = cluster.live_ids - cluster.leaving_ids
    if is_by_node:
        able_ids = cluster.live_ids | cluster.gone.keys() | cluster.hosted.keys()
    unable = [one for one in wanted if one not in able_ids and one not in origin_of(partition)]
    return f"{'unknown' if is_by_node else 'not live'}: {unable}" if unable else None


def _plan_on_the_way(
    context: Context, topic: str, number: int, before: Leadership, assignment: Assignment
) -> ReassignmentPlan | None:
    """The leader epoch rises in any case: only with a new one do brokers take the new replicas. None when no staying
    replica has all data."""
    cluster = context.cluster
    online = cluster.serving_ids(topic, number, cluster.live_ids)
    after = repaired(
        assignment.replicas,
        before,
        online,
        context.epoch,
        draining=cluster.avoided_ids,
        adding=assignment.adding,
        allow_unclean=before.leader not in online and cluster.is_unclean_allowed(topic),
    ) or Leadership(before.leader, before.leader_epoch + 1, before.isr, context.epoch, before.recovery)
    if not set(after.isr) <= set(assignment.replicas):
        return None
    return ReassignmentPlan(assignment, state_decided(context, topic, number, before, after, _REASSIGNMENT))
