"""Third-party clients on a real cluster during faults: librdkafka's idempotent producer with `acks=all`, and its
consumer. They record the fate of their records for the checker.

The module trusts clients and disks, and asks no broker of ours. It judges only whether all partitions can be read to
their ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from brokerstub.logs import FOLDER
from tests.faults.chaos.foreign import ForeignProducer, Program
from tests.faults.checker.records import Copy, Kept, LogKey, Records, Relied, Sent, records_in
from tests.integration.cluster import Broker

TOPIC: Final = "ledger"
PARTITIONS: Final = 3
#: from one record to the next
PAUSE_S: Final = 0.01
#: a producer gives no record up while its round lasts
MESSAGE_TIMEOUT_MS: Final = 600_000
#: of the producer's last records, and of reading all of them, once everything is healed
END_S: Final = 90.0
POLL_S: Final = 0.2
SETTLED_S: Final = 2.0
_SILENT: Final = logging.getLogger("tests.faults.chaos.clients")  # broken connections are part of the test
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
#: the broker id for an unknown broker
NOBODY: Final = 0


class ForeignClients:
    """A producer and a consumer, each in a thread of its own. `start` once, `finish` when all is healed."""

    def __init__(self, servers: str, topic_id: str, programs: Sequence[Program] = ()) -> None:
        self.evidence = Records()
        self.bugs: list[str] = []
        self._servers = servers
        self._topic_id = topic_id
        self._is_over = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        key = TOPIC, topic_id
        self._others = [ForeignProducer(one, servers, key, PARTITIONS, self.evidence) for one in programs]
        #: offset and name of each record of each partition, and where it ended, as a consumer read them in the end
        self._read: dict[int, list[tuple[int, str]]] = {}
        self._ends: dict[int, int] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        self._tasks = [group.create_task(asyncio.to_thread(run)) for run in (self._write, self._read_on)]
        self._tasks += [group.create_task(asyncio.to_thread(one.run, self._is_over, END_S)) for one in self._others]

    def stop(self) -> None:
        """Begin nothing more, however the round ends: the threads end only by themselves."""
        self._is_over.set()

    async def finish(self) -> None:
        """Wait until every request has its answer."""
        self.stop()
        await asyncio.gather(*self._tasks)
        self.bugs += [bug for one in self._others for bug in one.bugs]

    async def read_all(self) -> None:
        """From the beginning, once more, at rest."""
        await asyncio.to_thread(self._read_all)

    def take_copies(self, brokers: list[Broker]) -> None:
        """The logs on disks, when the brokers have ended."""
        for number in range(PARTITIONS):
            key = self._topic_id, number
            for broker in brokers:
                if folders := [one for one in _folders_of(broker, key) if one.is_dir()]:
                    kept = tuple(record for folder in folders for record in _kept_in(folder))
                    self.evidence.copies.append(Copy(broker.broker_id, key, self._ends.get(number, 0), kept))

    # ------------------------------------------------------------------ in threads

    def _write(self) -> None:
        """Records one after the other, by one producer until it will not go on, and then by another."""
        number, life = 0, 0
        while not self._is_over.is_set():
            life += 1
            producer = Producer({
                "bootstrap.servers": self._servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS, "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500, "logger": _SILENT,
            })  # fmt: skip
            has_ended = False
            while not self._is_over.is_set() and not has_ended:
                number += 1
                name = f"w{life} {number}"
                self.evidence.sent.append(Sent(name, f"w{life}", number, is_idempotent=True, acks=-1))
                try:
                    producer.produce(TOPIC, name.encode(), partition=number % PARTITIONS, on_delivery=self._on_answer)
                except (KafkaException, BufferError):  # it met an error that ends it, or nothing goes out any more
                    has_ended = True
                producer.poll(PAUSE_S)
                time.sleep(PAUSE_S)  # it may return at once
            left = producer.flush(1.0 if has_ended else END_S)
            if left and not has_ended:
                self.bugs.append(f"no rest: {left} records were not answered {END_S:g} s after healing")

    def _on_answer(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is None and partition is not None and offset is not None and value is not None:
            self._rely("acknowledged", partition, offset, value)

    def _read_on(self) -> None:
        """All partitions, from the beginning; after a truncation again from where the client begins again."""
        consumer = self._consumer()
        try:
            while not self._is_over.is_set():
                message = consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    self._take(message)
        finally:
            consumer.close()

    def _read_all(self) -> None:
        """Until every partition has ended, and nothing more comes: a new leader's high watermark may rise yet."""
        self._read = {number: [] for number in range(PARTITIONS)}
        consumer, end, heard = self._consumer(), time.monotonic() + END_S, time.monotonic()
        try:
            while (now := time.monotonic()) < end and (len(self._ends) < PARTITIONS or now - heard < SETTLED_S):
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                error, partition, offset = message.error(), message.partition(), message.offset()
                if partition is None or offset is None:
                    continue
                if error is None:
                    heard = now
                    self._take(message)
                    self._read[partition].append((offset, (message.value() or b"").decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends[partition] = offset
        finally:
            consumer.close()
        if missing := sorted(set(range(PARTITIONS)) - self._ends.keys()):
            self.bugs.append(f"no rest: partitions {missing} were not read to their ends within {END_S:g} s")

    def unread(self) -> Iterator[str]:
        """Yield the partitions whose records on disk, below the high watermark, differ from those that the consumer
        read."""
        for number in self._ends:
            logs = [one for one in self.evidence.copies if one.key == (self._topic_id, number)]
            read = self._read[number]
            for one in logs:
                kept = [(each.offset, each.name) for each in one.batches if each.offset < one.high_watermark]
                if kept != read:
                    parted = next((pair for pair in zip(kept, read, strict=False) if pair[0] != pair[1]), None)
                    sizes = f"{len(kept)} and {len(read)} records" if parted is None else f"{parted[0]} and {parted[1]}"
                    yield f"{TOPIC}-{number}: the disk of broker {one.broker_id} and a consumer have {sizes}"

    def _consumer(self) -> Consumer:
        consumer = Consumer({
            "bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "enable.partition.eof": True, "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 500, "logger": _SILENT,
        })  # fmt: skip
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        return consumer

    def _take(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if partition is not None and offset is not None and value is not None:
            self._rely("read", partition, offset, value)

    def _rely(self, how: str, partition: int, offset: int, value: bytes) -> None:
        key = self._topic_id, partition
        self.evidence.relied.append(Relied(how, key, offset, value.decode(), NOBODY))  # type: ignore[arg-type]


def _folders_of(broker: Broker, key: LogKey) -> list[Path]:
    """Where a replica may be: in each of the broker's log directories."""
    return [folder / FOLDER / f"{key[0]}-{key[1]}" for folder in (broker.folder, broker.folder / "disk-1")]


def _kept_in(folder: Path) -> Iterator[Kept]:
    yield from records_in(b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))))
