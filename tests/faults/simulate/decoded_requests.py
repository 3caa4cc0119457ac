"""Decodes the requests to a broker, and those from a broker, out of the bytes of an exchange, for the checker."""

from __future__ import annotations

from collections.abc import Iterator

from controller.wire import bodies
from tests.faults.checker.history import BrokerRequest, IsrProposal, Row, Rpc, Stop
from tests.faults.simulate.network import Exchange

TOLD = (bodies.LEADER_AND_ISR, bodies.UPDATE_METADATA, bodies.STOP_REPLICA)
ASKED = (bodies.ALTER_PARTITION, bodies.CONTROLLED_SHUTDOWN)


def rpc_of(exchange: Exchange, at_ms: int) -> Rpc:
    """Return the request that a broker received, decoded from its bytes."""
    answer = bodies.decode(exchange.answer, bodies.Answer)
    kind = exchange.path.rpartition("/")[2]
    rows: tuple[Row, ...] = ()
    stops: tuple[Stop, ...] = ()
    is_full, part, parts = False, 1, 1
    if exchange.path == bodies.STOP_REPLICA:
        stopped = bodies.decode(exchange.body, bodies.StopReplicaRequest)
        stops = tuple(
            Stop(t.topic_id, s.partition, s.leader_epoch, s.delete) for t in stopped.topics for s in t.partitions
        )
    else:
        told = bodies.decode(exchange.body, bodies.StatesRequest)
        is_full, part, parts = told.full, told.part, told.parts
        rows = tuple(
            Row(t.topic_id, r.partition, r.leader, r.leader_epoch, r.isr, r.version, r.controller_epoch, r.is_new)
            for t in told.topics
            for r in t.partitions
        )
    heads = exchange.headers
    return Rpc(
        at_ms=at_ms,
        broker_id=int(exchange.receiver.partition(":")[0][1:]),
        broker_epoch=int(heads[bodies.BROKER_EPOCH]),
        controller_id=int(heads[bodies.CONTROLLER_ID]),
        controller_epoch=int(heads[bodies.CONTROLLER_EPOCH]),
        kind=kind,
        error_code=answer.error_code,
        event_id=heads.get(bodies.EVENT_ID),
        is_full=is_full,
        rows=rows,
        stops=stops,
        refused=frozenset((one.topic_id, one.partition) for one in answer.partitions),
        part=part,
        parts=parts,
        sent_ms=exchange.sent_ms,
        sent_zxid=exchange.sent_zxid,
        sent_late_s=exchange.sent_late_s,
    )


def broker_request_of(exchange: Exchange, at_ms: int) -> BrokerRequest:
    """Return the request that a broker sent to its supposed controller, with the answer if there is one yet."""
    sender_id, sender_epoch = map(int, exchange.headers[bodies.SENDER].split(" "))
    kind = exchange.path.rpartition("/")[2]
    proposals: tuple[IsrProposal, ...] = ()
    if exchange.path == bodies.ALTER_PARTITION:
        proposals = tuple(_proposals_in(bodies.decode(exchange.body, bodies.AlterPartitionRequest)))
    if not exchange.status:
        return BrokerRequest(at_ms, kind, sender_id, sender_epoch, None, proposals)
    if exchange.path == bodies.CONTROLLED_SHUTDOWN:
        left = bodies.decode(exchange.answer, bodies.ControlledShutdownAnswer)
        remaining = tuple((one.topic, one.partition) for one in left.remaining)
        return BrokerRequest(at_ms, kind, sender_id, sender_epoch, left.error_code, remaining=remaining)
    answer = bodies.decode(exchange.answer, bodies.AlterPartitionAnswer)
    granted = {(t.topic_id, r.partition): r.version for t in answer.topics for r in t.partitions if r.error_code == 0}
    proposals = tuple(one._replace(version=granted.get((one.topic_id, one.partition))) for one in proposals)
    return BrokerRequest(at_ms, kind, sender_id, sender_epoch, answer.error_code, proposals)


def _proposals_in(asked: bodies.AlterPartitionRequest) -> Iterator[IsrProposal]:
    for topic in asked.topics:
        for row in topic.partitions:
            members = tuple((one.broker_id, one.broker_epoch) for one in row.isr)
            yield IsrProposal(topic.topic_id, row.partition, members, None, row.version, row.leader_epoch, row.recovery)
