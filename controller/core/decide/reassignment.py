"""Reassignments: asked for by the API or by `/admin/reassign_partitions`, ended as soon as the target is in sync.

Requests of the API are decided at once. Everything else is one rule on belief, `on_reassignments_due`: begin the moves
that the node still asks for, end those in sync, take finished ones out of the node. After each commit `due_after` names
the partitions for which that may now change anything. The cause does not matter, so a successor, a broker that came
back and a request of a leader are one case. `reassignment_plan.py` computes the new state of each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import (
    BrokerLive,
    Committed,
    Refused,
    StateDecided,
    StateFound,
    TopicFound,
    TopicGone,
    TopicWritten,
)
from controller.core.changes.duties import (
    DeletionMarked,
    DeletionQueued,
    MarkerDropped,
    NodeRemoved,
    OperatorErrorReported,
    ReassignNodeFound,
    ReassignNodeWritten,
    TopicErased,
    TopicIdGiven,
    node_subject,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide.reassignment_plan import (
    end_of,
    is_reassigning,
    plan_at_end,
    plans_for,
    target_of,
    written,
)
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import ReassignAsked, ReassignmentsDue, ReassignNodeSeen
from controller.core.model import PartitionKey, Replicas
from controller.core.project.znodes import REASSIGN

NODE = node_subject(REASSIGN)


def on_reassign_asked(context: Context, event: ReassignAsked) -> Iterator[Work]:
    """Step 0: the node no longer asks for the partitions of this request. Step 1: the partitions."""
    yield Work(NODE, partial(_supersede, context, event))
    for topic, wanted in sorted(_by_topic(event.targets).items()):
        yield Work(topic_subject(topic), partial(_reassign, context, topic, wanted))


def on_reassign_node_seen(context: Context, event: ReassignNodeSeen) -> Iterator[Work]:
    """Believed here; its plan is due from then on."""
    yield Work(NODE, partial(see_node, context, event))


def on_reassignments_due(context: Context, event: ReassignmentsDue) -> Iterator[Work]:
    """Begin, end, and tidy up."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(event.partitions):
        by_topic.setdefault(topic, []).append(number)
    for topic, numbers in by_topic.items():
        yield Work(topic_subject(topic), partial(_advance, context, topic, numbers))
    yield Work(NODE, partial(_tidy, context, event.partitions))


def due_after(
    cluster: Cluster, committed: Iterable[Committed], overdue: Iterable[PartitionKey] = ()
) -> ReassignmentsDue | None:
    """Returns the work that these changes, believed already, make due, and the due work that did not stand; None when
    there is none. To be asked again after it is settled."""
    running, asked = cluster.reassigning, cluster.duties.reassign_targets
    if not running and not asked:
        return None
    touched: set[PartitionKey] = set(overdue)
    for one in committed:
        if isinstance(one.change, BrokerLive | ReassignNodeFound):
            touched = {*running, *asked}
            break
        touched.update(_touched(cluster, one))
    due = frozenset(key for key in touched if (key in running or key in asked) and _is_due(cluster, key))
    return ReassignmentsDue(due) if due else None


def see_node(context: Context, event: ReassignNodeSeen) -> Iterator[Decided]:
    """`/admin/reassign_partitions` was read, by a term that starts or because it changed."""
    duties = context.cluster.duties
    seen = ({}, None) if event.trouble is not None else (dict(event.targets), event.version)
    if event.version is not None and not seen[0]:
        yield 0, NodeRemoved(REASSIGN, event.version, event.trouble or "asks for nothing")
        seen = ({}, None)
    if seen != (dict(duties.reassign_targets), duties.reassign_version):
        yield 1, ReassignNodeFound(*seen)
    if event.trouble is not None:
        yield 1, OperatorErrorReported(NODE, event.trouble)


def _touched(cluster: Cluster, one: Committed) -> Iterable[PartitionKey]:
    match one.change:
        case StateDecided(topic=topic, partition=number) | StateFound(topic=topic, partition=number):
            return [(topic, number)]
        case TopicWritten(name=topic, touched=numbers) if numbers is not None:
            return [(topic, number) for number in numbers]
        case TopicGone(name=topic, partitions=numbers) | TopicErased(topic=topic, partitions=numbers):
            return [(topic, number) for number in numbers]
        case TopicFound(fact=fact):
            topic = fact.name
        case TopicWritten(name=topic) | TopicIdGiven(topic=topic):
            pass
        case DeletionMarked(topic=topic) | DeletionQueued(topic=topic) | MarkerDropped(topic=topic):
            pass
        case _:
            return ()
    known = cluster.topics.get(topic)
    return [] if known is None else [(topic, number) for number in known.partitions]


def _is_due(cluster: Cluster, key: PartitionKey) -> bool:
    partition = cluster.partition(*key)
    if partition is None or cluster.duties.is_leaving(key[0]):
        return key in cluster.duties.reassign_targets
    if cluster.topics[key[0]].topic_id is None:
        return False  # it is when its id is written
    wanted = cluster.duties.reassign_targets.get(key)
    if wanted is not None and (wanted != target_of(partition) or not is_reassigning(partition)):
        return True
    return is_reassigning(partition) and end_of(cluster, key, partition, target_of(partition)) is not None


def _advance(context: Context, topic: str, numbers: Iterable[int]) -> Iterator[Decided]:
    cluster = context.cluster
    asked = cluster.duties.reassign_targets
    wanted = {number: asked[topic, number] for number in numbers if (topic, number) in asked}
    plans, _ = plans_for(context, topic, wanted, is_by_node=True)
    for number in numbers:
        partition = cluster.partition(topic, number)
        if number in plans or partition is None or not is_reassigning(partition):
            continue
        plan = plan_at_end(context, topic, number, partition, target_of(partition))
        if plan is not None:
            plans[number] = plan
    yield from written(context, topic, plans, step=0)


def _tidy(context: Context, partitions: Iterable[PartitionKey]) -> Iterator[Decided]:
    """Take finished and impossible moves out of the node; impossible ones are reported."""
    cluster = context.cluster
    asked = cluster.duties.reassign_targets
    gone: set[PartitionKey] = set()
    reports: list[OperatorErrorReported] = []
    for topic, wanted in _by_topic({key: asked[key] for key in sorted(partitions) if key in asked}).items():
        _, troubles = plans_for(context, topic, wanted, is_by_node=True)
        for number, (code, detail) in troubles.items():
            if code is not Code.NONE:
                reports.append(OperatorErrorReported(NODE, f"{topic}-{number}: {detail}"))
            elif (topic, number) in cluster.reassigning:
                continue  # on its way
            gone.add((topic, number))
    if gone:
        yield 0, ReassignNodeWritten({key: replicas for key, replicas in asked.items() if key not in gone})
    for report in reports:
        yield 1, report


def _supersede(context: Context, event: ReassignAsked) -> Iterator[Decided]:
    asked = context.cluster.duties.reassign_targets
    taken: set[PartitionKey] = set()
    for topic, wanted in _by_topic({key: one for key, one in event.targets.items() if key in asked}).items():
        _, troubles = plans_for(context, topic, wanted, is_by_node=False)
        taken.update((topic, one) for one in wanted if one not in troubles or troubles[one][0] is Code.NONE)
    left = {key: one for key, one in asked.items() if key not in taken or event.targets[key] == one}
    if len(left) < len(asked):
        yield 0, ReassignNodeWritten(left)


def _reassign(context: Context, topic: str, wanted: Mapping[int, Replicas | None]) -> Iterator[Decided]:
    plans, troubles = plans_for(context, topic, wanted, is_by_node=False)
    known = context.cluster.topics.get(topic)
    topic_id = "" if known is None or known.topic_id is None else known.topic_id
    for number, (code, detail) in troubles.items():
        yield 1, Refused(topic_subject(topic), code, detail, topic_id, number)
    yield from written(context, topic, plans, step=1)


def _by_topic(targets: Mapping[PartitionKey, Replicas | None]) -> dict[str, dict[int, Replicas | None]]:
    by_topic: dict[str, dict[int, Replicas | None]] = {}
    for (topic, number), replicas in targets.items():
        by_topic.setdefault(topic, {})[number] = replicas
    return by_topic
