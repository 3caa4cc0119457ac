"""Producer ids: brokers give them to idempotent producers, a block at a time, and no id is ever given twice.

A block is granted by the write of its bounds at the version known: another writer in between (brokers below protocol
level 3.0 take theirs themselves) makes that a conflict, and the next block is drawn from the new value.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from controller.core.changes.cluster import Refused
from controller.core.changes.duties import (
    OperatorErrorReported,
    ProducerIdsFound,
    ProducerIdsGranted,
    broker_subject,
)
from controller.core.codes import Code
from controller.core.decide.work import Context, Decided, Work
from controller.core.events import ProducerIdsAsked, ProducerIdsSeen

BLOCK_SIZE = 1_000
MAX_PRODUCER_ID = 2**63 - 1


def on_producer_ids_seen(context: Context, event: ProducerIdsSeen) -> Iterator[Work]:
    found = ProducerIdsFound(event.next_id, event.version)
    yield Work(found.subject, partial(_believe, found, event.trouble))


def on_producer_ids_asked(context: Context, event: ProducerIdsAsked) -> Iterator[Work]:
    granted = ProducerIdsGranted(event.broker_id, context.cluster.duties.next_producer_id, BLOCK_SIZE)
    yield Work(granted.subject, partial(_grant, context, event, granted))


def _believe(found: ProducerIdsFound, trouble: str | None) -> Iterator[Decided]:
    yield 0, found
    if trouble is not None:
        yield 0, OperatorErrorReported(found.subject, trouble)


def _grant(context: Context, event: ProducerIdsAsked, granted: ProducerIdsGranted) -> Iterator[Decided]:
    broker = context.cluster.brokers.get(event.broker_id)
    if broker is None:
        yield 0, Refused(broker_subject(event.broker_id), Code.BROKER_ID_NOT_REGISTERED, "not registered")
    elif broker.epoch != event.broker_epoch:
        yield 0, Refused(broker_subject(event.broker_id), Code.STALE_BROKER_EPOCH, "not the present registration")
    elif not 0 <= granted.start <= MAX_PRODUCER_ID - granted.size:
        yield 0, Refused(granted.subject, Code.UNKNOWN_SERVER_ERROR, "there are no producer ids left, or none known")
    else:
        yield 0, granted
