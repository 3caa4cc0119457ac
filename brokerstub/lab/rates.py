"""`klamm rates`: an idempotent producer with `acks=all` and a consumer on a topic of the lab, their rates each second,
and in the end what became of every acknowledged record.

Both are librdkafka, so that nothing here was written to suit these brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from secrets import token_bytes
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from brokerstub.lab.settings import LabError

PATIENCE_S: Final = 60.0
TICK_S: Final = 0.02
#: at once, out of the consumer
CONSUMED_MAX: Final = 1_000
_NO_GROUP: Final = {
    "group.id": "none",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "log_level": 2,
}
_SOON: Final = {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1_000}

#: where a record is
Place = tuple[int, int]


class Rates(NamedTuple):
    """Records of one second."""

    acknowledged: int
    consumed: int


class Book:
    """The fate of the records, which are numbered from 0 on."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, Place] = {}
        self.refused: list[str] = []
        self.read: dict[Place, int] = {}

    def faults(self) -> Iterator[str]:
        """Yield what a clean election must never do."""
        lost = [number for number, place in self.acknowledged.items() if self.read.get(place) != number]
        if lost:
            yield f"{len(lost)} acknowledged records are lost, the first is number {min(lost)}"
        if doubled := len(self.read) - len({*self.read.values()}):
            yield f"{doubled} records are there more than once"
        last: dict[int, int] = {}
        out_of_order = 0
        for (partition, _), number in sorted(self.read.items()):
            out_of_order += number < last.get(partition, -1)
            last[partition] = max(number, last.get(partition, -1))
        if out_of_order:
            yield f"{out_of_order} records are out of order"
        if self.refused:
            yield f"{len(self.refused)} records were refused, the first because {self.refused[0]}"

    @property
    def verdict(self) -> str:
        faults = list(self.faults())
        count = f"{len(self.acknowledged):,} records acknowledged"
        return f"{count}: {'; '.join(faults)}" if faults else f"{count}: each was read once, in order"


class Traffic:
    """A producer and a consumer. Use as a context; `run` yields the rates of each second."""

    def __init__(self, servers: str, topic: str, per_s: int) -> None:
        self.book = Book()
        self._topic = topic
        self._per_s = per_s
        self._key = token_bytes(8)
        self._consumer = Consumer({"bootstrap.servers": servers, **_NO_GROUP, **_SOON})
        self._partitions = self._assigned()
        self._producer = Producer({
            "bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
            "log_level": 2, **_SOON,
        })  # fmt: skip
        self._sent = 0

    def close(self) -> None:
        self._consumer.close()

    def run(self, is_over: Callable[[], bool]) -> Iterator[Rates]:
        begun = told_at = time.monotonic()
        told = Rates(0, 0)
        while not is_over():
            now = time.monotonic()
            while self._sent < (now - begun) * self._per_s:
                self._send()
            self._turn()
            if now - told_at >= 1:
                told_at += 1
                have = Rates(len(self.book.acknowledged), len(self.book.read))
                yield Rates(have.acknowledged - told.acknowledged, have.consumed - told.consumed)
                told = have

    def finish(self) -> None:
        """Wait until every record has its answer, and the consumer has read as far as they go."""
        end = time.monotonic() + PATIENCE_S
        while len(self._producer) and time.monotonic() < end:
            self._turn()
        if left := len(self._producer):
            self.book.refused += [f"they were not answered within {PATIENCE_S:g} s"] * left
        while time.monotonic() < end and not self.book.read.keys() >= {*self.book.acknowledged.values()}:
            self._turn()

    def _assigned(self) -> list[int]:
        """The partitions of the topic; the consumer begins where they end now."""
        try:
            known = self._consumer.list_topics(self._topic, timeout=PATIENCE_S).topics[self._topic]
            if known.error is not None:
                raise LabError(f"topic {self._topic} cannot be used: {known.error.str()}")
            places = [TopicPartition(self._topic, number) for number in known.partitions]
            for one in places:
                _, one.offset = self._consumer.get_watermark_offsets(one, timeout=PATIENCE_S)
        except KafkaException as error:
            raise LabError(f"no broker answers about topic {self._topic}: {error.args[0].str()}") from None
        self._consumer.assign(places)
        return sorted(known.partitions)

    def _send(self) -> None:
        partition = self._partitions[self._sent % len(self._partitions)]
        try:
            self._producer.produce(self._topic, b"%d" % self._sent, self._key, partition, self._on_answer)
        except BufferError:  # nothing has gone out for long
            self._producer.poll(TICK_S)
            return
        self._sent += 1

    def _turn(self) -> None:
        self._producer.poll(0)
        for message in self._consumer.consume(CONSUMED_MAX, TICK_S):
            partition, offset, value = message.partition(), message.offset(), message.value()
            # not what was there before: a consumer may begin again with the first record
            is_ours = message.error() is None and message.key() == self._key
            if is_ours and partition is not None and offset is not None:
                self.book.read[partition, offset] = int(value or b"-1")

    def _on_answer(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or offset is None:
            self.book.refused.append("nobody said why" if error is None else error.str())
        else:
            self.book.acknowledged[int(value or b"-1")] = partition, offset
