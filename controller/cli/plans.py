"""Kafka's JSON files about partitions: read, written, and a plan made by Kafka's own arithmetic. Sends no request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

import msgspec

from controller.cli.output import CliError, Item, WrongUsageError
from controller.core.decide.placement import Place, place_at_random, placement_trouble


class PlannedPartition(msgspec.Struct, frozen=True):
    """An entry of a reassignment file."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] | None = None


class Plan(msgspec.Struct, frozen=True):
    """A reassignment file."""

    partitions: tuple[PlannedPartition, ...]
    version: int = 1


class _Name(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class _Names(msgspec.Struct, frozen=True):
    partitions: tuple[_Name, ...]


class _Topic(msgspec.Struct, frozen=True):
    topic: str


class _Topics(msgspec.Struct, frozen=True):
    topics: tuple[_Topic, ...]


_T = TypeVar("_T")


def read_plan(raw: bytes, name: str) -> Plan:
    """Returns a reassignment file; one that names a partition twice, or none, is none."""
    plan = _decode(raw, name, Plan)
    counted = Counter((one.topic, one.partition) for one in plan.partitions)
    twice = next((f"{topic}-{number}" for (topic, number), count in counted.items() if count > 1), None)
    if twice is not None or not counted:
        raise WrongUsageError(f"{name}: " + ("it names no partition" if twice is None else f"{twice} is in it twice"))
    return plan


def names_in(raw: bytes, name: str) -> list[dict[str, object]]:
    """Returns which partitions a file is about: an election file, or a reassignment file."""
    found = _decode(raw, name, _Names).partitions
    return [{"topic": one.topic, "partition": one.partition} for one in found]


def topics_in(raw: bytes, name: str) -> list[str]:
    """Kafka's file of topics to move."""
    return [one.topic for one in _decode(raw, name, _Topics).topics]


def plan_of_now(partitions: Iterable[Item]) -> Plan:
    """Returns the present assignment, as a plan that leads back to it."""
    return Plan(tuple(PlannedPartition(one["topic"], one["partition"], target_of(one)) for one in partitions))


def plan_for(partitions: Iterable[Item], places: Sequence[Place], seed: int | None) -> Plan:
    """These topics laid out anew over the brokers, each as a new topic would be."""
    by_topic: dict[str, list[Item]] = {}
    for one in partitions:
        by_topic.setdefault(one["topic"], []).append(one)
    entropy = Random(seed)
    planned = []
    for topic, members in sorted(by_topic.items()):
        factor = len(target_of(members[0]))
        if (trouble := placement_trouble(len(places), len(members), factor)) is not None:
            raise CliError(f"{topic}: {trouble[1]} ({trouble[0].name})")
        placed = place_at_random(places, len(members), factor, entropy)
        numbers = sorted(one["partition"] for one in members)
        planned += [
            PlannedPartition(topic, number, replicas, ("any",) * len(replicas))
            for number, replicas in zip(numbers, placed.values(), strict=True)
        ]
    return Plan(tuple(planned))


def target_of(partition: Item) -> tuple[int, ...]:
    """Returns where its replicas are or, while it is reassigned, will be."""
    return tuple(broker_id for broker_id in partition["replicas"] if broker_id not in partition["removing"])


def as_document(plan: Plan) -> dict[str, object]:
    """As Kafka's tool writes it."""
    return {
        "version": plan.version,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "replicas": list(one.replicas),
                "log_dirs": list(one.log_dirs or ("any",) * len(one.replicas)),
            }
            for one in plan.partitions
        ],
    }


def as_file(plan: Plan) -> bytes:
    return msgspec.json.encode(as_document(plan)) + b"\n"


def state_for(planned: PlannedPartition, running: Mapping[tuple[str, int], Item], now: Item | None) -> str:
    """Returns the progress of one partition of a plan. `running` was read before `now`, so that no running move is
    missed."""
    moving = running.get((planned.topic, planned.partition), now)
    if moving is None:
        return "unknown"
    if moving["adding"] or moving["removing"]:
        return "running" if target_of(moving) == planned.replicas else "overridden"
    return "complete" if tuple(moving["replicas"]) == planned.replicas else "different"


def _decode(raw: bytes, name: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WrongUsageError(f"{name} is not a file of the kind that is expected here: {error}") from None
    except RecursionError:
        raise WrongUsageError(f"{name} is nested too deeply") from None
