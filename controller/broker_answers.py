"""What a broker's answer to the controller means: an event for the loop, or a line in the log.

It decides nothing. An ordinary answer becomes no event: there is one for each request and broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from controller.core.codes import Code
from controller.core.events import LeaderAndIsrAnswered, StopReplicaAnswered
from controller.core.model import Broker
from controller.dialects import Request
from controller.pending import Replica, replicas_in
from controller.wire import LEADER_AND_ISR, STOP_REPLICA, Answer

log = structlog.get_logger()

BrokerAnswered = StopReplicaAnswered | LeaderAndIsrAnswered


def event_for(
    broker: Broker, requests: Sequence[Request], answer: Answer, *, is_suspect: bool
) -> BrokerAnswered | None:
    """`requests` is all that the answer is about. What a broker serves is worth an event only of one that does not
    serve everything, or is suspected of it."""
    refused = {(one.topic_id, one.partition): one.error_code for one in answer.partitions}
    path = requests[0].path if requests else None
    if path == STOP_REPLICA:
        return _stopped(broker, requests, refused, is_whole=bool(answer.error_code))
    failed = frozenset(replica for replica, code in refused.items() if code == Code.KAFKA_STORAGE_ERROR)
    if path != LEADER_AND_ISR or answer.error_code or not (failed or is_suspect):
        return None
    told = frozenset[Replica]().union(*(replicas_in(request.rows) for request in requests))
    return LeaderAndIsrAnswered(broker.broker_id, broker.epoch, told - refused.keys(), failed)


def note_refusals(broker: Broker, path: str, answer: Answer) -> None:
    """Say once what a broker would not do. Failed directories are the loop's to report."""
    codes = [one.error_code for one in answer.partitions]
    if path == LEADER_AND_ISR:
        codes = [code for code in codes if code != Code.KAFKA_STORAGE_ERROR]
    if answer.error_code or codes:
        code = answer.error_code or codes[0]
        log.warning("request.refused", broker_id=broker.broker_id, path=path, partitions=len(codes), code=code)


def _stopped(
    broker: Broker, requests: Sequence[Request], refused: Mapping[Replica, int], *, is_whole: bool
) -> StopReplicaAnswered | None:
    """Only of replicas that were to be deleted: nobody waits for the others. `is_whole`: all of it was refused."""
    told = [(key[1], stops) for request in requests for key, stops in request.stops.items()]
    deleted = frozenset((topic_id, number) for topic_id, stops in told for number in stops if stops[number].delete)
    if not deleted:
        return None
    return StopReplicaAnswered(
        broker.broker_id, broker.epoch, deleted, deleted if is_whole else deleted & refused.keys()
    )
