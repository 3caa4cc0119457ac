"""The meaning of a broker's answer to the controller: an event for the loop, or a line in the log.

It decides nothing. An ordinary answer becomes no event: there is one for each request and broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from controller.core.codes import Code
from controller.core.decide import broker_refusals
from controller.core.events import (
    KnownId,
    LeaderAndIsrAnswered,
    RefusalsAnswered,
    StopReplicaAnswered,
    ToldRefused,
    TopicsDescribed,
)
from controller.core.model import Broker, TopicIdPartition
from controller.core.project.requests import EPOCH_DURING_DELETE
from controller.tell.dialects import Request
from controller.tell.merge_queue import replicas_in
from controller.wire.bodies import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Answer,
    DescribeTopicsAnswer,
)

log = structlog.get_logger()

BrokerAnswered = StopReplicaAnswered | LeaderAndIsrAnswered | RefusalsAnswered | TopicsDescribed


def event_for(
    broker: Broker, requests: Sequence[Request], answer: Answer, *, is_suspect: bool
) -> BrokerAnswered | None:
    """Returns the event that an answer is worth, if any. `requests` are all requests that it answers. The requests that
    a broker serves are worth an event only if it does not serve everything, or is suspected of it."""
    if isinstance(answer, DescribeTopicsAnswer):
        return _described(broker, requests, answer)
    refused = {(one.topic_id, one.partition): one.error_code for one in answer.partitions}
    path = requests[0].path if requests else None
    if path == STOP_REPLICA:
        return _stopped(broker, requests, refused, is_whole=bool(answer.error_code))
    failed = frozenset(replica for replica, code in refused.items() if code == Code.KAFKA_STORAGE_ERROR)
    if path != LEADER_AND_ISR or answer.error_code or not (failed or is_suspect):
        return None
    told = frozenset[TopicIdPartition]().union(*(replicas_in(request.rows) for request in requests))
    return LeaderAndIsrAnswered(broker.broker_id, broker.epoch, told - refused.keys(), failed)


def _described(broker: Broker, requests: Sequence[Request], answer: DescribeTopicsAnswer) -> TopicsDescribed:
    """Returns the answer about all topics asked about: a topic that it does not mention is unknown to the broker."""
    topics: dict[str, Sequence[KnownId]] = {name: () for request in requests for name in request.names}
    for one in answer.topics:
        if one.topic in topics:
            topics[one.topic] = tuple(
                KnownId(
                    each.topic_id, each.told, each.held, {row.partition: row.leader_epoch for row in each.leader_epochs}
                )
                for each in one.ids
            )
    return TopicsDescribed(broker.broker_id, broker.epoch, topics)


class RefusalLedger:
    """The rows that one broker incarnation refuses, so that their later acceptance is noticed, too."""

    def __init__(self, standing: RefusalLedger | None = None) -> None:
        """`standing`: of the same incarnation, which is told everything anew."""
        self._refused: set[TopicIdPartition] = set() if standing is None else standing._refused
        self._in_list: set[TopicIdPartition] = set()

    def event_for(
        self, broker: Broker, request: Request, answered: Sequence[Request], answer: Answer
    ) -> RefusalsAnswered | None:
        """`request` was answered, and with it all of `answered`. None if nothing is refused that was not, nor taken
        that was."""
        refused = refused_in(request, answer)
        if not refused and not self._refused:
            return None
        if request.part == 1:
            self._in_list.clear()
        self._in_list |= refused.keys()
        told = frozenset[TopicIdPartition]().union(*map(_told_in, answered))
        obeyed = frozenset((self._refused & told) - self._in_list)
        self._refused -= obeyed
        self._refused |= refused.keys()
        return RefusalsAnswered(broker.broker_id, broker.epoch, refused, obeyed) if refused or obeyed else None


def refused_in(request: Request, answer: Answer) -> dict[TopicIdPartition, ToldRefused]:
    """Returns the rows that an answer refuses, without failed directories and deletions of whole topics, which others
    handle."""
    code = answer.error_code
    if request.path == UPDATE_METADATA:
        return {broker_refusals.METADATA: ToldRefused(broker_refusals.UPDATE_METADATA, code)} if code else {}
    if not code and not answer.partitions:
        return {}
    is_leadership = request.path == LEADER_AND_ISR
    kind = broker_refusals.LEADER_AND_ISR if is_leadership else broker_refusals.STOP_REPLICA
    told = _leader_epochs_in(request)
    codes = [(replica, code, -1) for replica in told] if code else []
    codes += [((one.topic_id, one.partition), one.error_code, one.leader_epoch) for one in answer.partitions]
    return {
        replica: ToldRefused(kind, why, told[replica], heard)
        for replica, why, heard in codes
        if replica in told and not (is_leadership and why == Code.KAFKA_STORAGE_ERROR)
    }


def _leader_epochs_in(request: Request) -> dict[TopicIdPartition, int]:
    """Returns the leader epochs of a LeaderAndIsr, or of a StopReplica whose topic stays."""
    if request.path == LEADER_AND_ISR:
        return {
            (topic_id, number): one.state.leader_epoch
            for (_, topic_id), rows in request.rows.items()
            for number, one in rows.items()
            if one is not None and one.state is not None
        }
    return {
        (topic_id, number): stop.leader_epoch
        for (_, topic_id), stops in request.stops.items()
        for number, stop in stops.items()
        if stop.leader_epoch != EPOCH_DURING_DELETE
    }


def _told_in(request: Request) -> set[TopicIdPartition]:
    """Metadata is taken when all of it is: a refused list is told anew, whole."""
    if request.path == UPDATE_METADATA:
        return {broker_refusals.METADATA} if request.full else set()
    return replicas_in(request.stops or request.rows)


def note_refusals(broker: Broker, path: str, answer: Answer) -> None:
    """Log once each refusal of a broker. Failed directories are the loop's to report."""
    codes = [one.error_code for one in answer.partitions]
    if path == LEADER_AND_ISR:
        codes = [code for code in codes if code != Code.KAFKA_STORAGE_ERROR]
    if answer.error_code or codes:
        code = answer.error_code or codes[0]
        log.warning("request.refused", broker_id=broker.broker_id, path=path, partitions=len(codes), code=code)


def _stopped(
    broker: Broker, requests: Sequence[Request], refused: Mapping[TopicIdPartition, int], *, is_whole: bool
) -> StopReplicaAnswered | None:
    """Only of replicas that were to be deleted: no work waits for the others. `is_whole`: all of it was refused."""
    told = [(key[1], stops) for request in requests for key, stops in request.stops.items()]
    deleted = frozenset((topic_id, number) for topic_id, stops in told for number in stops if stops[number].delete)
    if not deleted:
        return None
    return StopReplicaAnswered(
        broker.broker_id, broker.epoch, deleted, deleted if is_whole else deleted & refused.keys()
    )
