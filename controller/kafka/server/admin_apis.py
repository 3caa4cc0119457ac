"""The requests of administrators to the controller in Kafka's protocol: topics, reassignments and elections. Each
becomes an event.

Parsing and answering only. Where our own requests are idempotent and Kafka's are not, the answer is Kafka's. An answer
waits until brokers were told of the decision, at most for the caller's time-out. Validating without doing
(`validate_only`) asks `decide`, and nothing is written.

Clients ask every broker for its groups and transactions, and add them up. The controller hosts none, and says so: if it
passed these questions on, a broker's groups would be counted twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from controller.api.ports import ControllerHandle
from controller.base.clock import monotonic_ms
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Refused
from controller.core.codes import Code
from controller.core.decide.dispatch import decide
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, ElectAsked, Event, GrowTopicAsked, ReassignAsked
from controller.core.model import NO_LEADER, Partition
from controller.kafka.protocol.codec import NO_UUID, Reader, Writer, tagged, topic_id_of, uuid_of
from controller.kafka.server.broker_apis import asked
from controller.kafka.server.listener import Api
from controller.loop.inbox import OutcomesReply, PartitionOutcome, Reply

WAIT_MAX_MS: Final = 30_000
TOLD_MAX_MS: Final = 1_000


async def told(handle: ControllerHandle, timeout_ms: int) -> None:
    """Waits until brokers have the decision, so that the caller finds it on any broker."""
    term = handle.term
    if term is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_ms, TOLD_MAX_MS) / 1_000):
                await term.told()


async def believed(handle: ControllerHandle, is_so: Callable[[], bool], timeout_ms: int) -> None:
    """Until belief says so, or the term is over. At most for so long, and in no case for longer than the longest."""
    term = handle.term
    with suppress(TimeoutError):
        async with asyncio.timeout(min(timeout_ms, WAIT_MAX_MS) / 1_000):
            while term is not None and not term.is_over and not is_so():
                await term.believed.wait()


def coded(writer: Writer, code: Code, detail: str) -> None:
    """Writes a code, and its explanation unless it is NONE."""
    writer.i16(code).string((detail or code.name) if code is not Code.NONE else None).tags()


def dry_run(handle: ControllerHandle, event: Event) -> Reply:
    """Returns the present answer to a request. Nothing is written, told or kept."""
    cluster = handle.cluster
    if cluster is None:
        return Reply(Code.NOT_CONTROLLER, "this is not the active controller")
    pieces = list(decide(cluster, event, monotonic_ms(), 0))
    refusals = (change for piece in pieces for change in piece.changes if isinstance(change, Refused))
    refusal = next(refusals, None)
    return Reply(Code.NONE, "") if refusal is None else Reply(refusal.code, refusal.detail)


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


CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
#: a count that is left to the controller
UNSAID: Final = -1


class TopicRequest(NamedTuple):
    """One topic of a CreateTopics or CreatePartitions request."""

    name: str
    partitions: int
    replication_factor: int = -1
    assignment: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str | None] = {}


class TopicApis:
    """Handlers. `partitions` and `factor`: of topics that are asked for without."""

    def __init__(self, handle: ControllerHandle, *, partitions: int = 1, factor: int = 1) -> None:
        self._handle = handle
        self._defaults = partitions, factor

    def table(self) -> dict[int, Api]:
        return {
            CREATE_TOPICS: Api(2, 7, 5, self.create_topics),
            DELETE_TOPICS: Api(1, 6, 4, self.delete_topics),
            CREATE_PARTITIONS: Api(0, 3, 2, self.create_partitions),
        }

    async def create_topics(self, version: int, reader: Reader, writer: Writer) -> None:
        requests = reader.array(lambda: _creation(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one, await self._create(one, is_trial=is_trial)) for one in requests]
        await self._led([one.name for one, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: self._created(version, *one, writer))
        writer.tags()

    async def _create(self, request: TopicRequest, *, is_trial: bool) -> Reply:
        cluster = self._handle.cluster
        if cluster is not None and request.name in cluster.topics:
            return Reply(Code.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
        if missing := [name for name, value in request.configs.items() if value is None]:
            return Reply(Code.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
        counts = request.partitions, request.replication_factor
        configs = {name: value for name, value in request.configs.items() if value is not None}
        if request.assignment is not None:
            if counts != (UNSAID, UNSAID):
                return Reply(Code.INVALID_REQUEST, "counts and an assignment cannot be given together")
            event = CreateTopicAsked(request.name, assignment=request.assignment, configs=configs)
        else:
            partitions, factor = (
                own if count == UNSAID else count for own, count in zip(self._defaults, counts, strict=True)
            )
            event = CreateTopicAsked(request.name, partitions, factor, configs=configs)
        return dry_run(self._handle, event) if is_trial else await asked(self._handle, event)

    def _created(self, version: int, request: TopicRequest, reply: Reply, writer: Writer) -> None:
        cluster = self._handle.cluster
        topic = None if cluster is None or reply.code is not Code.NONE else cluster.topics.get(request.name)
        writer.string(request.name)
        if version >= 7:
            writer.raw(uuid_of("" if topic is None else topic.topic_id or ""))
        writer.i16(reply.code).string(reply.detail or None)
        if version >= 5:
            factors = [-1] if topic is None else [len(one.replicas) for one in topic.partitions.values()]
            writer.i32(-1 if topic is None else len(topic.partitions)).i16(max(factors, default=-1)).array((), id)
        writer.tags()

    async def delete_topics(self, version: int, reader: Reader, writer: Writer) -> None:
        wanted = reader.array(lambda: _named(reader) if version >= 6 else (reader.string(), NO_UUID))
        timeout_ms = reader.i32()
        reader.tags()
        answers: list[tuple[str | None, bytes, Reply]] = []
        for given, uuid in wanted:
            cluster = self._handle.cluster
            name = given if given or cluster is None else cluster.names_by_id.get(topic_id_of(uuid))
            if name:
                answers.append((name, uuid, await asked(self._handle, DeleteTopicAsked(name))))
            elif cluster is None:
                answers.append((given, uuid, Reply(Code.NOT_CONTROLLER, "this is not the active controller")))
            else:
                answers.append((given, uuid, Reply(Code.UNKNOWN_TOPIC_ID, "no topic has this id")))
        await self._leaving([name for name, _, reply in answers if name and reply.code is Code.NONE], timeout_ms)
        writer.i32(0)
        writer.array(answers, lambda one: self._deleted(version, *one, writer))
        writer.tags()

    def _deleted(self, version: int, name: str | None, uuid: bytes, reply: Reply, writer: Writer) -> None:
        is_late = reply.code is Code.NONE and not self._is_leaving(name or "")
        writer.string(name)
        if version >= 6:
            writer.raw(uuid)
        writer.i16(Code.REQUEST_TIMED_OUT if is_late else reply.code)
        if version >= 5:
            writer.string("the deletion waits, and goes on by itself" if is_late else reply.detail or None)
        writer.tags()

    async def create_partitions(self, version: int, reader: Reader, writer: Writer) -> None:
        requests = reader.array(lambda: _growth(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one.name, await self._grow(one, is_trial=is_trial)) for one in requests]
        await self._led([name for name, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: coded(writer.string(one[0]), one[1].code, one[1].detail))
        writer.tags()

    async def _grow(self, request: TopicRequest, *, is_trial: bool) -> Reply:
        cluster = self._handle.cluster
        known = (
            0 if cluster is None or request.name not in cluster.topics else len(cluster.topics[request.name].partitions)
        )
        if known and request.partitions <= known:
            return Reply(Code.INVALID_PARTITIONS, f"Topic already has {known} partitions.")
        assignment = None
        if request.assignment is not None:
            assignment = {known + number: replicas for number, replicas in request.assignment.items()}
        event = GrowTopicAsked(request.name, request.partitions, assignment)
        return dry_run(self._handle, event) if is_trial else await asked(self._handle, event)

    async def _led(self, names: Sequence[str], timeout_ms: int, *, is_trial: bool) -> None:
        """Wait, as Kafka does, until new partitions are led and everybody was told; at most the caller's time."""

        def are_led() -> bool:
            cluster = self._handle.cluster
            return cluster is None or all(_is_led(cluster, name) for name in names)

        if names and not is_trial:
            await believed(self._handle, are_led, timeout_ms)
            await told(self._handle, timeout_ms)

    async def _leaving(self, names: Sequence[str], timeout_ms: int) -> None:
        """Wait, as Kafka does, until deletions have begun and everybody was told to forget the topics."""
        if names:
            await believed(self._handle, lambda: all(map(self._is_leaving, names)), timeout_ms)
            await told(self._handle, timeout_ms)

    def _is_leaving(self, name: str) -> bool:
        cluster = self._handle.cluster
        return cluster is None or name not in cluster.topics or cluster.duties.is_leaving(name)


def _is_led(cluster: Cluster, name: str) -> bool:
    topic = cluster.topics.get(name)
    return topic is not None and all(
        one.state is not None and one.state.leader != NO_LEADER for one in topic.partitions.values()
    )


def _creation(reader: Reader) -> TopicRequest:
    name, partitions, factor = reader.string(), reader.i32(), reader.i16()
    assignment = dict(reader.array(lambda: tagged(reader, (reader.i32(), reader.ids()))))
    configs = dict(reader.array(lambda: tagged(reader, (reader.string(), reader.nullable_string()))))
    reader.tags()
    return TopicRequest(name, partitions, factor, assignment or None, configs)


def _growth(reader: Reader) -> TopicRequest:
    name, count = reader.string(), reader.i32()
    rows = reader.nullable_array(lambda: tagged(reader, reader.ids()))
    reader.tags()
    return TopicRequest(name, count, assignment=None if rows is None else dict(enumerate(rows)))


def _named(reader: Reader) -> tuple[str | None, bytes]:
    return tagged(reader, (reader.nullable_string(), reader.uuid()))


LIST_GROUPS, LIST_TRANSACTIONS = 16, 66


async def list_groups(version: int, reader: Reader, writer: Writer) -> None:
    if version >= 1:
        writer.i32(0)
    writer.i16(Code.NONE).array((), writer.string).tags()


async def list_transactions(version: int, reader: Reader, writer: Writer) -> None:
    writer.i32(0).i16(Code.NONE).array((), writer.string).array((), writer.string).tags()


HOSTED: Final = {LIST_GROUPS: Api(0, 5, 3, list_groups), LIST_TRANSACTIONS: Api(0, 1, 0, list_transactions)}
