"""Configurations of topics as Kafka 3.9 takes them."""

from __future__ import annotations

import pytest

from controller.core.decide.topic_configs import RULES, trouble_with

GOOD = [
    ("cleanup.policy", "compact,delete"), ("cleanup.policy", " compact , delete "), ("compression.gzip.level", "-1"),
    ("compression.gzip.level", "9"), ("compression.type", "zstd"), ("compression.zstd.level", "-131072"),
    ("flush.messages", "9223372036854775807"), ("leader.replication.throttled.replicas", "0:1,1:2"),
    ("follower.replication.throttled.replicas", "*"), ("local.retention.ms", "-2"), ("max.message.bytes", " 1048588 "),
    ("message.format.version", "3.0-IV1"), ("message.timestamp.type", "LogAppendTime"), ("preallocate", "TRUE"),
    ("min.cleanable.dirty.ratio", "0.5"), ("min.cleanable.dirty.ratio", "1"), ("retention.bytes", "-5"),
    ("retention.ms", "-1"), ("segment.bytes", "14"),
]  # fmt: skip
BAD = [
    ("cleanup.policy", "shred"), ("compression.gzip.level", "0"), ("compression.gzip.level", "10"),
    ("compression.lz4.level", "18"), ("compression.type", "ZSTD"), ("compression.zstd.level", "23"),
    ("flush.messages", "9223372036854775808"), ("leader.replication.throttled.replicas", "0-1"),
    ("local.retention.ms", "-3"), ("max.message.bytes", "2147483648"), ("max.message.bytes", "1_000"),
    ("max.message.bytes", ""), ("message.format.version", "new"), ("message.timestamp.type", "now"),
    ("preallocate", "yes"), ("min.cleanable.dirty.ratio", "1.1"), ("min.cleanable.dirty.ratio", "nan"),
    ("retention.ms", "-2"), ("retention.ms", "1.5"), ("retention.ms", "\u0661"), ("segment.bytes", "13"),
    ("segment.ms", "0"), ("Retention.ms", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_kafka_takes_is_no_trouble(name: str, value: str) -> None:
    assert trouble_with({name: value}) is None


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_kafka_refuses_is_named(name: str, value: str) -> None:
    assert name in (trouble_with({"retention.ms": "1", name: value} if name != "retention.ms" else {name: value}) or "")


@pytest.mark.parametrize("name", RULES)
def test_nonsense_is_a_value_of_no_name(name: str) -> None:
    assert trouble_with({name: "?"}) is not None
