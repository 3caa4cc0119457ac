"""The requests of brokers to their controller: ISR changes, producer ids, and leave to shut down. Each becomes an
event.

Parsing and answering only; the same events come by HTTP from stub brokers.
"""

from __future__ import annotations

import msgspec

from controller.api.ports import BusyError, ControllerHandle, NotControllerError, term_of
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, DrainAsked, Event, IsrProposal, ProducerIdsAsked
from controller.kafka.protocol.codec import (
    Reader,
    WireError,
    Writer,
    topic_id_of,
    uuid_of,
)
from controller.kafka.server.listener import Api
from controller.loop.inbox import IsrReply, ProducerIdsReply, Reply, ShutdownReply
from controller.wire import bodies

ALTER_PARTITION, ALLOCATE_PRODUCER_IDS, CONTROLLED_SHUTDOWN = 56, 67, 7
UNSAID_EPOCH = -1
#: before version 2 the refusal of a replica that may not join has this code
INELIGIBLE_BEFORE = {Code.INELIGIBLE_REPLICA: Code.OPERATION_NOT_ATTEMPTED}


class BrokerApis:
    """Handlers."""

    def __init__(self, handle: ControllerHandle, partitions_max: int) -> None:
        self._handle = handle
        self._partitions_max = partitions_max

    def table(self) -> dict[int, Api]:
        return {
            ALTER_PARTITION: Api(0, 3, 0, self.alter_partition),
            ALLOCATE_PRODUCER_IDS: Api(0, 0, 0, self.allocate_producer_ids),
            CONTROLLED_SHUTDOWN: Api(3, 3, 3, self.controlled_shutdown),
        }

    async def alter_partition(self, version: int, reader: Reader, writer: Writer) -> None:
        broker_id = reader.i32()
        broker_epoch = reader.i64()
        topics = reader.array(lambda: self._topic_wishes(version, reader))
        reader.tags()
        proposals = [proposal for topic in topics for proposal in topic]
        if len(proposals) > self._partitions_max:
            raise WireError(f"{len(proposals)} partitions in one request; at most {self._partitions_max}")
        reply = await asked(self._handle, AlterPartitionAsked(broker_id, broker_epoch, proposals))
        altered = reply.topics if isinstance(reply, IsrReply) else ()
        writer.i32(0).i16(reply.code)
        writer.array(altered, lambda topic: self._altered_topic(version, topic, writer))
        writer.tags()

    def _topic_wishes(self, version: int, reader: Reader) -> list[IsrProposal]:
        topic_id = topic_id_of(reader.uuid()) if version >= 2 else self._id_of(reader.string())
        proposals = reader.array(lambda: self._proposal(version, topic_id, reader))
        reader.tags()
        return proposals

    def _proposal(self, version: int, topic_id: str, reader: Reader) -> IsrProposal:
        number = reader.i32()
        leader_epoch = reader.i32()
        if version >= 3:
            members = reader.array(lambda: _member(reader))
        else:
            members = [(broker_id, UNSAID_EPOCH) for broker_id in reader.ids()]
        recovery = reader.i8() if version >= 1 else 0
        state_version = reader.i32()
        reader.tags()
        isr = tuple(self._registered(member) for member in members)
        return IsrProposal(topic_id, number, leader_epoch, state_version, recovery, isr)

    def _registered(self, member: tuple[int, int]) -> tuple[int, int]:
        """A leader below protocol level 3.5 cannot say which registration it means: the present one then."""
        broker_id, epoch = member
        cluster = self._handle.cluster
        known = None if cluster is None else cluster.brokers.get(broker_id)
        return (broker_id, known.epoch) if epoch == UNSAID_EPOCH and known is not None else member

    def _id_of(self, name: str) -> str:
        cluster = self._handle.cluster
        topic = None if cluster is None else cluster.topics.get(name)
        return "" if topic is None else topic.topic_id or ""

    def _altered_topic(self, version: int, topic: bodies.AlteredTopic, writer: Writer) -> None:
        if version >= 2:
            writer.raw(uuid_of(topic.topic_id))
        else:
            cluster = self._handle.cluster
            writer.string("" if cluster is None else cluster.names_by_id.get(topic.topic_id, ""))
        writer.array(topic.partitions, lambda row: _altered_row(version, row, writer))
        writer.tags()

    async def allocate_producer_ids(self, version: int, reader: Reader, writer: Writer) -> None:
        broker_id = reader.i32()
        broker_epoch = reader.i64()
        reader.tags()
        reply = await asked(self._handle, ProducerIdsAsked(broker_id, broker_epoch))
        start, size = (reply.start, reply.size) if isinstance(reply, ProducerIdsReply) else (0, 0)
        writer.i32(0).i16(reply.code).i64(start).i32(size).tags()

    async def controlled_shutdown(self, version: int, reader: Reader, writer: Writer) -> None:
        broker_id = reader.i32()
        epoch = reader.i64()
        reader.tags()
        event = DrainAsked(broker_id, None if epoch == UNSAID_EPOCH else epoch, is_shutdown=True)
        reply = await asked(self._handle, event)
        remaining = reply.remaining if isinstance(reply, ShutdownReply) else ()
        writer.i16(reply.code)
        writer.array(remaining, lambda one: writer.string(one.topic).i32(one.partition).tags())
        writer.tags()


async def asked(handle: ControllerHandle, event: Event) -> Reply:
    """Returns the reply. Where there is none, a code after which Kafka's clients try again."""
    try:
        reply = await term_of(handle).ask(event)
    except NotControllerError as error:
        return Reply(Code.NOT_CONTROLLER, str(error))
    except BusyError as error:
        return Reply(Code.REQUEST_TIMED_OUT, str(error))
    if reply.is_unknown:
        return msgspec.structs.replace(reply, code=Code.REQUEST_TIMED_OUT)
    return reply


def _member(reader: Reader) -> tuple[int, int]:
    broker_id = reader.i32()
    broker_epoch = reader.i64()
    reader.tags()
    return broker_id, broker_epoch


def _altered_row(version: int, row: bodies.AlteredRow, writer: Writer) -> None:
    code = row.error_code if version >= 2 else INELIGIBLE_BEFORE.get(Code(row.error_code), row.error_code)
    writer.i32(row.partition).i16(code).i32(row.leader).i32(row.leader_epoch).ids(row.isr)
    if version >= 1:
        writer.i8(row.recovery)
    writer.i32(row.version).tags()
