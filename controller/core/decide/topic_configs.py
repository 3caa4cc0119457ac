"""A topic's configuration as Kafka's brokers take it: names, types and ranges, as of 3.9. Pure.

A broker of Kafka that finds anything else in ZooKeeper does not start any more, so it is refused before it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?")
_THROTTLED = re.compile(r"\*|([0-9]+:[0-9]+(\s*,\s*[0-9]+:[0-9]+)*)?")
_BITS: Final = {"INT": 31, "LONG": 63}

#: why a value is none, in Kafka's words; None when it is one
Rule = Callable[[str], str | None]


def _number(kind: str, least: int | None = None, most: int | None = None, also: tuple[int, ...] = ()) -> Rule:
    def trouble(value: str) -> str | None:
        if _WHOLE.fullmatch(value) is None or not -(1 << _BITS[kind]) <= (number := int(value)) < 1 << _BITS[kind]:
            return f"Not a number of type {kind}"
        if number not in also and least is not None and number < least:
            return f"Value must be at least {least}"
        return f"Value must be no more than {most}" if most is not None and number > most else None

    return trouble


def _int(least: int, most: int | None = None, also: tuple[int, ...] = ()) -> Rule:
    return _number("INT", least, most, also)


def _long(least: int | None = None) -> Rule:
    return _number("LONG", least)


def _ratio(value: str) -> str | None:
    if _DECIMAL.fullmatch(value) is None:
        return "Not a number of type DOUBLE"
    return None if 0 <= float(value) <= 1 else "Value must be between 0 and 1"


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "Expected value to be either true or false"


def _one_of(*words: str) -> Rule:
    return lambda value: None if value in words else f"String must be one of: {', '.join(words)}"


def _some_of(*words: str) -> Rule:
    def trouble(value: str) -> str | None:
        wrong = [one for one in re.split(r"\s*,\s*", value) if value and one not in words]
        return f"String must be one of: {', '.join(words)}" if wrong else None

    return trouble


def _like(pattern: re.Pattern[str], what: str) -> Rule:
    return lambda value: None if pattern.fullmatch(value) else what


_throttled = _like(_THROTTLED, "must be the literal '*' or a list of replicas in the form [partitionId]:[brokerId],…")
RULES: Final[Mapping[str, Rule]] = {
    "cleanup.policy": _some_of("compact", "delete"),
    "compression.gzip.level": _int(1, 9, also=(-1,)),
    "compression.lz4.level": _int(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int(-131_072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "follower.replication.throttled.replicas": _throttled,
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": _throttled,
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.downconversion.enable": _boolean,
    "message.format.version": _like(_RELEASE, "Version is not a valid version"),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.difference.max.ms": _long(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _boolean,
    "remote.log.copy.disable": _boolean,
    "remote.log.delete.on.disable": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _long(),
    "retention.ms": _long(-1),
    "segment.bytes": _int(14),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _boolean,
}


def trouble_with(configs: Mapping[str, str]) -> str | None:
    """Why Kafka would refuse this configuration; None when it would not."""
    for name, value in configs.items():
        if (rule := RULES.get(name)) is None:
            return f"Unknown topic config name: {name}"
        if (trouble := rule(value.strip())) is not None:
            return f"Invalid value {value} for configuration {name}: {trouble}"
    return None
