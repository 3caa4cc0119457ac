"""What a broker was told, and what it asked, read from the bytes of an exchange, as the checker wants it."""

from __future__ import annotations

from controller import wire
from tests.faults.checker.history import Asking, Row, Rpc, Stop, Wish
from tests.faults.simulate.network import Exchange

TOLD = (wire.LEADER_AND_ISR, wire.UPDATE_METADATA, wire.STOP_REPLICA)
ASKED = (wire.ALTER_PARTITION, wire.CONTROLLED_SHUTDOWN)


def rpc_of(exchange: Exchange, at_ms: int) -> Rpc:
    """What a broker was told, by its bytes."""
    answer = wire.decode(exchange.answer, wire.Answer)
    kind = exchange.path.rpartition("/")[2]
    rows: tuple[Row, ...] = ()
    stops: tuple[Stop, ...] = ()
    is_full = False
    if exchange.path == wire.STOP_REPLICA:
        stopped = wire.decode(exchange.body, wire.StopReplicaRequest)
        stops = tuple(
            Stop(t.topic_id, s.partition, s.leader_epoch, s.delete) for t in stopped.topics for s in t.partitions
        )
    else:
        told = wire.decode(exchange.body, wire.StatesRequest)
        is_full = told.full
        rows = tuple(
            Row(t.topic_id, r.partition, r.leader, r.leader_epoch, r.isr, r.version, r.controller_epoch, r.is_new)
            for t in told.topics
            for r in t.partitions
        )
    heads = exchange.headers
    return Rpc(
        at_ms=at_ms,
        broker_id=int(exchange.receiver.partition(":")[0][1:]),
        broker_epoch=int(heads[wire.BROKER_EPOCH]),
        controller_id=int(heads[wire.CONTROLLER_ID]),
        controller_epoch=int(heads[wire.CONTROLLER_EPOCH]),
        kind=kind,
        error_code=answer.error_code,
        event_id=heads.get(wire.EVENT_ID),
        is_full=is_full,
        rows=rows,
        stops=stops,
        refused=frozenset((one.topic_id, one.partition) for one in answer.partitions),
        sent_zxid=exchange.sent_zxid,
        sent_late_s=exchange.sent_late_s,
    )


def asking_of(exchange: Exchange, at_ms: int) -> Asking:
    """What a broker asked of who it believed to control, with the answer."""
    sender_id, sender_epoch = map(int, exchange.headers[wire.SENDER].split(" "))
    kind = exchange.path.rpartition("/")[2]
    if exchange.path == wire.CONTROLLED_SHUTDOWN:
        left = wire.decode(exchange.answer, wire.ControlledShutdownAnswer)
        remaining = tuple((one.topic, one.partition) for one in left.remaining)
        return Asking(at_ms, kind, sender_id, sender_epoch, left.error_code, remaining=remaining)
    answer = wire.decode(exchange.answer, wire.AlterPartitionAnswer)
    granted = {(t.topic_id, r.partition): r.version for t in answer.topics for r in t.partitions if r.error_code == 0}
    wishes = tuple(
        Wish(t.topic_id, r.partition, tuple((m.broker_id, m.broker_epoch) for m in r.isr),
             granted.get((t.topic_id, r.partition)))
        for t in wire.decode(exchange.body, wire.AlterPartitionRequest).topics
        for r in t.partitions
    )  # fmt: skip
    return Asking(at_ms, kind, sender_id, sender_epoch, answer.error_code, wishes)
