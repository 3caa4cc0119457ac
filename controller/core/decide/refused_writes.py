"""Writes that ZooKeeper refused: the answers to their callers, and new decisions that nothing else makes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, Refused, StateDecided, TopicWritten, WriteRefused
from controller.core.changes.duties import DrainEnded, FailedDirsNoted, TermRecorded
from controller.core.codes import Code
from controller.core.decide.work import Context, Decided, Work
from controller.core.project.refusals import remedy_for, trouble_of


def answers_for(cluster: Cluster, refused: WriteRefused) -> list[Refused]:
    """Returns the answers to the caller: of each partition, where it asked about partitions. Each has a code after
    which Kafka's leaders take their proposal back, and its clients do not ask again by themselves."""
    code, detail = Code.OPERATION_NOT_ATTEMPTED, f"{trouble_of(refused)}. {remedy_for(refused)}"
    match refused.change:
        case StateDecided(topic=topic, partition=number):
            numbers: tuple[int, ...] = (number,)
        case TopicWritten(name=topic, touched=touched, is_reassignment=True) if touched is not None:
            numbers = touched
        case _:
            return [Refused(refused.subject, code, detail)]
    known = cluster.topics.get(topic)
    topic_id = "" if known is None or known.topic_id is None else known.topic_id
    return [Refused(refused.subject, code, detail, topic_id, number) for number in numbers]


def refused_of(cluster: Cluster, subject: str) -> WriteRefused | None:
    """Returns the first refusal that a subject met, if it meets any now."""
    return next((one for one in cluster.refused.values() if one.subject == subject), None)


def on_time_passed(context: Context) -> Iterator[Work]:
    """Notes that neither a reading nor a duty decides again: as they were wanted last, if they still are."""
    for _, refused in sorted(context.cluster.refused.items()):
        if not refused.is_asked and _is_wanted(context.cluster, refused.change):
            yield Work(refused.subject, partial(_again, refused.change))


def _is_wanted(cluster: Cluster, change: Change) -> bool:
    match change:
        case FailedDirsNoted(broker_id=broker_id, epoch=epoch, has_failed=has_failed):
            broker = cluster.brokers.get(broker_id)
            is_true = has_failed == (broker_id in cluster.duties.failed_dirs)
            return is_true and (not has_failed or (broker is not None and broker.epoch == epoch))
        case DrainEnded(broker_id=broker_id):
            return broker_id not in cluster.duties.drains
        case TermRecorded():
            return True
        case _:
            return False


def _again(change: Change) -> Iterator[Decided]:
    yield 0, change
