"""What administrators ask the controller in Kafka's protocol about topics: made, grown, deleted. Each becomes an event.

Parsing and answering only. Where our own requests are idempotent and Kafka's are not, the answer is Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from controller.api.ports import ControllerHandle
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, GrowTopicAsked
from controller.core.model import NO_LEADER
from controller.kafka.protocol.codec import (
    NO_UUID,
    Reader,
    Writer,
    topic_id_of,
    uuid_of,
)
from controller.kafka.server.answering import (
    believed,
    coded,
    dry_run,
    tagged,
    told,
)
from controller.kafka.server.broker_apis import asked
from controller.kafka.server.listener import Api
from controller.loop.inbox import Reply

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
#: a count that is left to the controller
UNSAID: Final = -1


class TopicWish(NamedTuple):
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
        wishes = reader.array(lambda: _creation(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one, await self._create(one, is_trial=is_trial)) for one in wishes]
        await self._led([one.name for one, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: self._created(version, *one, writer))
        writer.tags()

    async def _create(self, wish: TopicWish, *, is_trial: bool) -> Reply:
        cluster = self._handle.cluster
        if cluster is not None and wish.name in cluster.topics:
            return Reply(Code.TOPIC_ALREADY_EXISTS, f"Topic '{wish.name}' already exists.")
        if missing := [name for name, value in wish.configs.items() if value is None]:
            return Reply(Code.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
        counts = wish.partitions, wish.replication_factor
        configs = {name: value for name, value in wish.configs.items() if value is not None}
        if wish.assignment is not None:
            if counts != (UNSAID, UNSAID):
                return Reply(Code.INVALID_REQUEST, "counts and an assignment cannot be given together")
            event = CreateTopicAsked(wish.name, assignment=wish.assignment, configs=configs)
        else:
            partitions, factor = (
                own if count == UNSAID else count for own, count in zip(self._defaults, counts, strict=True)
            )
            event = CreateTopicAsked(wish.name, partitions, factor, configs=configs)
        return dry_run(self._handle, event) if is_trial else await asked(self._handle, event)

    def _created(self, version: int, wish: TopicWish, reply: Reply, writer: Writer) -> None:
        cluster = self._handle.cluster
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
        wishes = reader.array(lambda: _growth(reader))
        timeout_ms, is_trial = reader.i32(), reader.boolean()
        reader.tags()
        replies = [(one.name, await self._grow(one, is_trial=is_trial)) for one in wishes]
        await self._led([name for name, reply in replies if reply.code is Code.NONE], timeout_ms, is_trial=is_trial)
        writer.i32(0)
        writer.array(replies, lambda one: coded(writer.string(one[0]), one[1].code, one[1].detail))
        writer.tags()

    async def _grow(self, wish: TopicWish, *, is_trial: bool) -> Reply:
        cluster = self._handle.cluster
        known = 0 if cluster is None or wish.name not in cluster.topics else len(cluster.topics[wish.name].partitions)
        if known and wish.partitions <= known:
            return Reply(Code.INVALID_PARTITIONS, f"Topic already has {known} partitions.")
        assignment = None
        if wish.assignment is not None:
            assignment = {known + number: replicas for number, replicas in wish.assignment.items()}
        event = GrowTopicAsked(wish.name, wish.partitions, assignment)
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


def _creation(reader: Reader) -> TopicWish:
    name, partitions, factor = reader.string(), reader.i32(), reader.i16()
    assignment = dict(reader.array(lambda: tagged(reader, (reader.i32(), reader.ids()))))
    configs = dict(reader.array(lambda: tagged(reader, (reader.string(), reader.nullable_string()))))
    reader.tags()
    return TopicWish(name, partitions, factor, assignment or None, configs)


def _growth(reader: Reader) -> TopicWish:
    name, count = reader.string(), reader.i32()
    rows = reader.nullable_array(lambda: tagged(reader, reader.ids()))
    reader.tags()
    return TopicWish(name, count, assignment=None if rows is None else dict(enumerate(rows)))


def _named(reader: Reader) -> tuple[str | None, bytes]:
    return tagged(reader, (reader.nullable_string(), reader.uuid()))
