"""What administrators ask the controller in Kafka's protocol: topics, reassignments, elections. Each becomes an event.

Parsing and answering only. Where our own requests are idempotent and Kafka's are not, the answer is Kafka's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from controller.api.view import ControllerDoor
from controller.core.cluster import Cluster
from controller.core.codes import Code
from controller.core.events import (
    CreateTopicAsked,
    DeleteTopicAsked,
    ElectAsked,
    GrowTopicAsked,
    ReassignAsked,
)
from controller.core.model import NO_LEADER, Partition
from controller.dialects.kafka_codec import NO_UUID, Reader, Writer, topic_id_of, uuid_of
from controller.inbox import PartitionOutcome, Reply
from controller.kafka.broker_apis import asked
from controller.kafka.server import Api
from controller.kafka.trial import tried

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS = 19, 20, 37, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
WAIT_MAX_MS: Final = 30_000
POLL_S: Final = 0.01
T = TypeVar("T")


class TopicWish(NamedTuple):
    """One topic of a CreateTopics or CreatePartitions request."""

    name: str
    partitions: int
    replication_factor: int = -1
    assignment: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str] = {}


class AdminApis:
    """Handlers."""

    def __init__(self, door: ControllerDoor) -> None:
        self._door = door

    def table(self) -> dict[int, Api]:
        return {
            CREATE_TOPICS: Api(2, 7, 5, self.create_topics),
            DELETE_TOPICS: Api(1, 6, 4, self.delete_topics),
            CREATE_PARTITIONS: Api(0, 3, 2, self.create_partitions),
            ELECT_LEADERS: Api(0, 2, 2, self.elect_leaders),
            ALTER_REASSIGNMENTS: Api(0, 0, 0, self.alter_reassignments),
            LIST_REASSIGNMENTS: Api(0, 0, 0, self.list_reassignments),
        }

    async def create_topics(self, version: int, reader: Reader, writer: Writer) -> None:
        wishes = reader.array(lambda: _creation(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one, await self._create(one, is_trial=is_trial)) for one in wishes]
        await self._led([one.name for one, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: self._created(version, *one, writer))
        writer.tags()

    async def _create(self, wish: TopicWish, *, is_trial: bool) -> Reply:
        cluster = self._door.cluster
        if cluster is not None and wish.name in cluster.topics:
            return Reply(Code.TOPIC_ALREADY_EXISTS, f"Topic '{wish.name}' already exists.")
        partitions, factor = max(wish.partitions, 1), max(wish.replication_factor, 1)
        if wish.assignment is not None:
            event = CreateTopicAsked(wish.name, assignment=wish.assignment, configs=wish.configs)
        elif 0 in (wish.partitions, wish.replication_factor):
            return Reply(Code.INVALID_PARTITIONS, "a topic has a partition and a replica at least")
        else:
            event = CreateTopicAsked(wish.name, partitions, factor, configs=wish.configs)
        return tried(self._door, event) if is_trial else await asked(self._door, event)

    def _created(self, version: int, wish: TopicWish, reply: Reply, writer: Writer) -> None:
        cluster = self._door.cluster
        topic = None if cluster is None or reply.code is not Code.NONE else cluster.topics.get(wish.name)
        writer.string(wish.name)
        if version >= 7:
            writer.raw(uuid_of("" if topic is None else topic.topic_id or ""))
        writer.i16(reply.code).string(reply.detail or None)
        if version >= 5:
            factors = [-1] if topic is None else [len(one.replicas) for one in topic.partitions.values()]
            writer.i32(-1 if topic is None else len(topic.partitions)).i16(max(factors, default=-1)).array((), id)
        writer.tags()

    async def delete_topics(self, version: int, reader: Reader, writer: Writer) -> None:
        wanted = reader.array(lambda: _named(reader) if version >= 6 else (reader.string(), NO_UUID))
        reader.i32()
        reader.tags()
        answers: list[tuple[str | None, bytes, Reply]] = []
        for given, uuid in wanted:
            cluster = self._door.cluster
            name = given if given or cluster is None else cluster.names_by_id.get(topic_id_of(uuid))
            if name:
                answers.append((name, uuid, await asked(self._door, DeleteTopicAsked(name))))
            else:
                answers.append((given, uuid, Reply(Code.UNKNOWN_TOPIC_ID, "no topic has this id")))
        writer.i32(0)
        writer.array(answers, lambda one: _deleted(version, *one, writer))
        writer.tags()

    async def create_partitions(self, version: int, reader: Reader, writer: Writer) -> None:
        wishes = reader.array(lambda: _growth(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one.name, await self._grow(one, is_trial=is_trial)) for one in wishes]
        await self._led([name for name, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: _coded(writer.string(one[0]), one[1].code, one[1].detail))
        writer.tags()

    async def _grow(self, wish: TopicWish, *, is_trial: bool) -> Reply:
        cluster = self._door.cluster
        known = 0 if cluster is None or wish.name not in cluster.topics else len(cluster.topics[wish.name].partitions)
        if known and wish.partitions <= known:
            return Reply(Code.INVALID_PARTITIONS, f"Topic already has {known} partitions.")
        assignment = None
        if wish.assignment is not None:
            assignment = {known + number: replicas for number, replicas in wish.assignment.items()}
        event = GrowTopicAsked(wish.name, wish.partitions, assignment)
        return tried(self._door, event) if is_trial else await asked(self._door, event)

    async def elect_leaders(self, version: int, reader: Reader, writer: Writer) -> None:
        is_unclean = version >= 1 and reader.i8() == 1
        topics = reader.nullable_array(lambda: _numbers(reader))
        timeout_ms = reader.i32()
        reader.tags()
        wanted = None if topics is None else [(name, number) for name, numbers in topics for number in numbers]
        reply = await asked(self._door, ElectAsked(is_unclean, wanted))
        outcomes = outcomes_of(reply)
        if wanted is None:
            outcomes = [one for one in outcomes if one.code is not Code.ELECTION_NOT_NEEDED]
        await self._told(timeout_ms)
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
        reply = await asked(self._door, ReassignAsked(targets))
        outcomes = outcomes_of(reply)
        await self._told(timeout_ms)
        writer.i32(0).i16(reply.code).string(reply.detail or None)
        _by_topic(writer, outcomes)
        writer.tags()

    async def list_reassignments(self, version: int, reader: Reader, writer: Writer) -> None:
        reader.i32()
        topics = reader.nullable_array(lambda: _numbers(reader))
        reader.tags()
        cluster = self._door.cluster
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

    async def _led(self, names: Sequence[str], timeout_ms: int, *, is_trial: bool) -> None:
        """Wait, as Kafka does, until new partitions are led and everybody was told; at most the caller's time."""

        def are_led() -> bool:
            cluster = self._door.cluster
            return cluster is None or all(_is_led(cluster, name) for name in names)

        if names and not is_trial:
            await _wait(are_led, timeout_ms)
            await self._told(timeout_ms)

    async def _told(self, timeout_ms: int) -> None:
        await _wait(lambda: all(not one.depth for one in self._door.outboxes().values()), min(timeout_ms, 1_000))


async def _wait(is_so: Callable[[], bool], timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + min(timeout_ms, WAIT_MAX_MS) / 1000
    while not is_so() and loop.time() < give_up_at:  # noqa: ASYNC110 - belief and outboxes have no events
        await asyncio.sleep(POLL_S)


def _is_led(cluster: Cluster, name: str) -> bool:
    topic = cluster.topics.get(name)
    return topic is not None and all(
        one.state is not None and one.state.leader != NO_LEADER for one in topic.partitions.values()
    )


def outcomes_of(reply: Reply) -> list[PartitionOutcome]:
    return msgspec.convert(reply.body or [], list[PartitionOutcome]) if reply.code is Code.NONE else []


def _creation(reader: Reader) -> TopicWish:
    name, partitions, factor = reader.string(), reader.i32(), reader.i16()
    assignment = dict(reader.array(lambda: _tagged(reader, (reader.i32(), reader.ids()))))
    configs = dict(reader.array(lambda: _tagged(reader, (reader.string(), reader.nullable_string() or ""))))
    reader.tags()
    return TopicWish(name, partitions, factor, assignment or None, configs)


def _growth(reader: Reader) -> TopicWish:
    name, count = reader.string(), reader.i32()
    rows = reader.nullable_array(lambda: _tagged(reader, reader.ids()))
    reader.tags()
    return TopicWish(name, count, assignment=None if rows is None else dict(enumerate(rows)))


def _tagged(reader: Reader, value: T) -> T:
    reader.tags()
    return value


def _named(reader: Reader) -> tuple[str | None, bytes]:
    return _tagged(reader, (reader.nullable_string(), reader.uuid()))


def _numbers(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return _tagged(reader, (reader.string(), reader.ids()))


def _targets(reader: Reader) -> tuple[str, list[tuple[int, tuple[int, ...] | None]]]:
    def one() -> tuple[int, tuple[int, ...] | None]:
        number, replicas = reader.i32(), reader.nullable_array(reader.i32)
        return _tagged(reader, (number, None if replicas is None else tuple(replicas)))

    return _tagged(reader, (reader.string(), reader.array(one)))


def _deleted(version: int, name: str | None, uuid: bytes, reply: Reply, writer: Writer) -> None:
    writer.string(name)
    if version >= 6:
        writer.raw(uuid)
    writer.i16(reply.code)
    if version >= 5:
        writer.string(reply.detail or None)
    writer.tags()


def _coded(writer: Writer, code: Code, detail: str) -> None:
    writer.i16(code).string((detail or code.name) if code is not Code.NONE else None).tags()


def _by_topic(writer: Writer, outcomes: Iterable[PartitionOutcome]) -> None:
    """Partitions with their codes, as elections and reassignments are answered."""
    topics: dict[str, list[PartitionOutcome]] = {}
    for one in outcomes:
        topics.setdefault(one.topic, []).append(one)

    def write(topic: tuple[str, list[PartitionOutcome]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], lambda one: _coded(writer.i32(one.partition), Code(one.code), one.detail))
        writer.tags()

    writer.array(list(topics.items()), write)


def _running(writer: Writer, name: str, partitions: Sequence[tuple[int, Partition]]) -> None:
    def write(one: tuple[int, Partition]) -> None:
        number, known = one
        writer.i32(number).ids(known.replicas).ids(known.adding).ids(known.removing).tags()

    writer.string(name).array(partitions, write).tags()
