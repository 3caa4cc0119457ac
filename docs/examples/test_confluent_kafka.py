"""What confluent-kafka (librdkafka) does when its cluster has trouble: `pytest docs/examples/test_confluent_kafka.py`.

The fixture `klamm_cluster` comes with Klamm: real brokers on this machine, a real controller, a real ZooKeeper.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

DEADLINE_S = 60


def produced(servers: str, topic: str, count: int, **settings: object) -> None:
    """So many numbered records, all of them acknowledged."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "retry.backoff.ms": 100, **settings})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def consumer_of(servers: str, topic: str, **settings: object) -> Consumer:
    """From the first record on. A group has to be named, and is not used: nothing is committed to it."""
    of_no_group = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, "enable.partition.eof": True, **of_no_group, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def all_records(servers: str, topic: str, at_least: int) -> list[int]:
    """Up to the end, which comes too early from a leader that has not heard yet that it leads no more."""
    consumer, found, end = consumer_of(servers, topic), [], time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        message = consumer.poll(1)
        error = None if message is None else message.error()
        if message is not None and error is None:
            found.append(int(message.value()))
        elif error is not None and error.code() == KafkaError._PARTITION_EOF and len(found) >= at_least:
            break
    consumer.close()
    return found


def test_an_idempotent_producer_whose_answers_are_lost_writes_nothing_twice(klamm_cluster) -> None:
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    klamm_cluster.trouble("lost-answers", topic, 0, seed="1")
    produced(servers, topic, 100, **{"enable.idempotence": True})
    assert all_records(servers, topic, 100) == list(range(100))


def test_a_producer_that_is_not_idempotent_does(klamm_cluster) -> None:
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    klamm_cluster.trouble("lost-answers", topic, 0, seed="1")
    produced(servers, topic, 100, **{"enable.idempotence": False})
    found = all_records(servers, topic, 100)
    assert set(found) == set(range(100))
    assert len(found) > 100


def test_a_leader_that_moves_in_the_middle_of_batches_loses_and_reorders_nothing(klamm_cluster) -> None:
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    writing = threading.Thread(
        target=produced, args=(servers, topic, 20_000), kwargs={"enable.idempotence": True, "linger.ms": 50}
    )
    writing.start()
    for seed in ("1", "2", "3"):
        klamm_cluster.trouble("move-leader", topic, 0, seed=seed)
    writing.join()
    assert all_records(servers, topic, 20_000) == list(range(20_000))


def test_a_silent_leader_costs_time_and_no_records(klamm_cluster) -> None:
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    klamm_cluster.trouble("silent-broker", topic, 0, for_ms=2_000)
    produced(servers, topic, 100, **{"enable.idempotence": True})
    assert all_records(servers, topic, 100) == list(range(100))


def test_a_stale_leader_takes_records_that_the_next_one_never_had(klamm_cluster) -> None:
    """With `acks=all` nobody is told that they are written: whoever was, finds them."""
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    produced(servers, topic, 10, **{"enable.idempotence": True})
    klamm_cluster.trouble("stale-leader", topic, 0, for_ms=2_000)
    produced(servers, topic, 10, **{"enable.idempotence": True, "socket.timeout.ms": 2_000})
    assert all_records(servers, topic, 20) == [*range(10), *range(10)]


def test_a_consumer_notices_that_what_it_read_was_truncated(klamm_cluster) -> None:
    """A leader is elected that has less: with `auto.offset.reset=error` the consumer says so instead of guessing."""
    topic, servers = klamm_cluster.topic(), klamm_cluster.bootstrap_servers
    consumer = consumer_of(servers, topic, **{"auto.offset.reset": "error"})
    with records_all_the_time(servers, topic):
        trouble = threading.Thread(target=klamm_cluster.trouble, args=("unclean-election", topic, 0))
        trouble.start()
        truncations = []
        end = time.monotonic() + DEADLINE_S
        while not truncations and time.monotonic() < end:
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                truncations += [message.error()] if "truncat" in message.error().str() else []
        trouble.join()
    consumer.close()
    assert truncations, "the consumer went on as if nothing had happened"


@contextmanager
def records_all_the_time(servers: str, topic: str) -> Iterator[None]:
    """One after the other, acknowledged by whoever leads."""
    is_over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "acks": 1, "message.timeout.ms": 5_000})
        number = 0
        while not is_over.is_set():
            producer.produce(topic, b"%d" % number, partition=0)
            producer.poll(0.01)
            number += 1
        producer.flush(10)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        is_over.set()
        writing.join()
