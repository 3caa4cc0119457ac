"""A real broker's answers about leader epochs, by an independent codec."""

from __future__ import annotations

from controller.core.model import Leadership, Partition
from controller.tell.dialects.kafka import OFFSET_FOR_LEADER_EPOCH, OFFSETS_VERSION, Search
from tests.kafka.kafka_support import (
    error,
    no_throttle,
    read,
    request_header,
    schema,
    written,
)

ORDERS = ("orders", "id-orders")
NONE, NOT_LEADER, FENCED, UNKNOWN = 0, 6, 74, 75


def rows(*leaderships: tuple[int, int, int]) -> dict[tuple[str, str], dict[int, Partition]]:
    """Partitions by leader, leader epoch and controller epoch."""
    states = [Leadership(leader, epoch, (1, 2), stamp) for leader, epoch, stamp in leaderships]
    return {ORDERS: {number: Partition((1, 2), state=state) for number, state in enumerate(states)}}


class Kafka:
    """A broker, by the state that its replicas act by: leader epoch, and whether it leads."""

    def __init__(self, *replicas: tuple[int, bool]) -> None:
        self.replicas = replicas
        self.questions: list[int] = []

    def answer(self, question: bytes, correlation_id: int) -> bytes:
        head = request_header(OFFSET_FOR_LEADER_EPOCH, OFFSETS_VERSION, correlation_id, "klamm", header_version=1)
        assert question.startswith(head)
        m = schema("offset_for_leader_epoch", OFFSETS_VERSION, "request")
        asked = read(m.OffsetForLeaderEpochRequest, question[len(head) :])
        r = schema("offset_for_leader_epoch", OFFSETS_VERSION, "response")
        topics = tuple(
            r.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    r.EpochEndOffset(error_code=error(self.code(one)), partition=one.partition)
                    for one in topic.partitions
                ),
            )
            for topic in asked.topics
        )
        self.questions.append(sum(len(topic.partitions) for topic in asked.topics))
        body = written(r.OffsetForLeaderEpochResponse(throttle_time=no_throttle(), topics=topics))
        return correlation_id.to_bytes(4, "big") + body

    def code(self, asked: object) -> int:
        number, epoch = getattr(asked, "partition"), getattr(asked, "current_leader_epoch")  # noqa: B009
        own, leads = self.replicas[number]
        return FENCED if epoch < own else UNKNOWN if epoch > own else NONE if leads else NOT_LEADER

    def refuses(self, search: Search) -> dict[int, int]:
        for number in range(100):
            if search.is_over:
                return {number: epoch for (_, number), epoch in search.found.items()}
            search.take(self.answer(search.question("klamm", number), number), number)
        raise AssertionError("it asks for ever")
