"""What administrators ask the controller in Kafka's protocol about partitions: reassignments and elections, as events.

Parsing and answering only. Where our own requests are idempotent and Kafka's are not, the answer is Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.api.ports import ControllerHandle
from controller.core.codes import Code
from controller.core.events import ElectAsked, ReassignAsked
from controller.core.model import Partition
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.answering import coded, tagged, told
from controller.kafka.server.broker_apis import asked
from controller.kafka.server.listener import Api
from controller.loop.inbox import OutcomesReply, PartitionOutcome, Reply

ELECT_LEADERS = 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46


class AdminApis:
    """Handlers."""

    def __init__(self, handle: ControllerHandle) -> None:
        self._handle = handle

    def table(self) -> dict[int, Api]:
        return {
            ELECT_LEADERS: Api(0, 2, 2, self.elect_leaders),
            ALTER_REASSIGNMENTS: Api(0, 0, 0, self.alter_reassignments),
            LIST_REASSIGNMENTS: Api(0, 0, 0, self.list_reassignments),
        }

    async def elect_leaders(self, version: int, reader: Reader, writer: Writer) -> None:
        is_unclean = version >= 1 and reader.i8() == 1
        topics = reader.nullable_array(lambda: _numbers(reader))
        timeout_ms = reader.i32()
        reader.tags()
        wanted = None if topics is None else [(name, number) for name, numbers in topics for number in numbers]
        reply = await asked(self._handle, ElectAsked(is_unclean, wanted))
        outcomes = outcomes_of(reply)
        if wanted is None:
            outcomes = [one for one in outcomes if one.code is not Code.ELECTION_NOT_NEEDED]
        await told(self._handle, timeout_ms)
        writer.i32(0)
        if version >= 1:
            writer.i16(reply.code)
        _by_topic(writer, outcomes)
        writer.tags()

    async def alter_reassignments(self, version: int, reader: Reader, writer: Writer) -> None:
        timeout_ms = reader.i32()
        topics = reader.array(lambda: _targets(reader))
        reader.tags()
        targets = {(name, number): replicas for name, partitions in topics for number, replicas in partitions}
        reply = await asked(self._handle, ReassignAsked(targets))
        outcomes = outcomes_of(reply)
        await told(self._handle, timeout_ms)
        writer.i32(0).i16(reply.code).string(reply.detail or None)
        _by_topic(writer, outcomes)
        writer.tags()

    async def list_reassignments(self, version: int, reader: Reader, writer: Writer) -> None:
        reader.i32()
        topics = reader.nullable_array(lambda: _numbers(reader))
        reader.tags()
        cluster = self._handle.cluster
        code = Code.NOT_CONTROLLER if cluster is None else Code.NONE
        running = () if cluster is None else sorted(cluster.reassigning)
        asked_for = None if topics is None else {(name, number) for name, numbers in topics for number in numbers}
        found: dict[str, list[tuple[int, Partition]]] = {}
        for name, number in running:
            known = None if cluster is None else cluster.partition(name, number)
            if known is not None and (asked_for is None or (name, number) in asked_for):
                found.setdefault(name, []).append((number, known))
        writer.i32(0).i16(code).string(None)
        writer.array(sorted(found.items()), lambda topic: _running(writer, *topic))
        writer.tags()


def outcomes_of(reply: Reply) -> Sequence[PartitionOutcome]:
    return reply.outcomes if isinstance(reply, OutcomesReply) else ()


def _numbers(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return tagged(reader, (reader.string(), reader.ids()))


def _targets(reader: Reader) -> tuple[str, list[tuple[int, tuple[int, ...] | None]]]:
    def one() -> tuple[int, tuple[int, ...] | None]:
        number = reader.i32()
        replicas = reader.nullable_array(reader.i32)
        return tagged(reader, (number, None if replicas is None else tuple(replicas)))

    return tagged(reader, (reader.string(), reader.array(one)))


def _by_topic(writer: Writer, outcomes: Iterable[PartitionOutcome]) -> None:
    """Partitions with their codes, as elections and reassignments are answered."""
    topics: dict[str, list[PartitionOutcome]] = {}
    for one in outcomes:
        topics.setdefault(one.topic, []).append(one)

    def write(topic: tuple[str, list[PartitionOutcome]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], lambda one: coded(writer.i32(one.partition), Code(one.code), one.detail))
        writer.tags()

    writer.array(list(topics.items()), write)


def _running(writer: Writer, name: str, partitions: Sequence[tuple[int, Partition]]) -> None:
    def write(one: tuple[int, Partition]) -> None:
        number, known = one
        writer.i32(number).ids(known.replicas).ids(known.adding).ids(known.removing).tags()

    writer.string(name).array(partitions, write).tags()
