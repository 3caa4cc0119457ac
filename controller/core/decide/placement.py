"""Where new replicas go: Kafka's arithmetic, exactly.

Leaders go round robin over the brokers from a drawn start; followers are spread by a shift that grows once per lap,
so that brokers which share a leader do not share all followers. With racks, the broker list alternates over the racks
and a replica avoids racks and brokers already used while others are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from controller.core.codes import Code
from controller.core.model import Replicas


class Place(msgspec.Struct, frozen=True):
    """A broker as placement sees it."""

    broker_id: int
    rack: str | None = None


def placement_trouble(brokers: int, partitions: int, replication_factor: int) -> tuple[Code, str] | None:
    """Why these counts cannot be placed on that many brokers; None when they can."""
    if partitions <= 0:
        return Code.INVALID_PARTITIONS, f"the number of partitions must be larger than 0, not {partitions}"
    if replication_factor <= 0:
        return (
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor must be above 0, not {replication_factor}",
        )
    if replication_factor > brokers:
        return (
            Code.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the {brokers} live brokers",
        )
    return None


def place(
    places: Sequence[Place],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, Replicas]:
    """Replicas for `partitions` partitions from `first_partition` on. The counts have been checked."""
    ordered = sorted(places, key=lambda place: place.broker_id)
    racks = {place.rack for place in ordered if place.rack is not None}
    # A cluster labelled by half is being relabelled: placing without racks beats refusing to place.
    has_racks = bool(racks) and all(place.rack is not None for place in ordered)
    if has_racks:
        ordered = _alternate_racks(ordered)
    placed: dict[int, Replicas] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ordered) == 0:
            shift += 1
        leader = (partition + start) % len(ordered)
        if has_racks:
            placed[partition] = _over_racks(ordered, leader, shift * len(racks), replication_factor, len(racks))
        else:
            indexes = (_follower(leader, shift, k, len(ordered)) for k in range(replication_factor - 1))
            placed[partition] = (ordered[leader].broker_id, *(ordered[i].broker_id for i in indexes))
    return placed


def place_at_random(
    places: Sequence[Place], partitions: int, replication_factor: int, entropy: Random
) -> dict[int, Replicas]:
    """Placement of a new topic: start and shift are two independent draws."""
    start, shift = entropy.randrange(len(places)), entropy.randrange(len(places))
    return place(places, partitions, replication_factor, start=start, shift=shift)


def _follower(leader: int, shift: int, k: int, brokers: int) -> int:
    return (leader + 1 + (shift + k) % (brokers - 1)) % brokers


def _alternate_racks(ordered: Sequence[Place]) -> list[Place]:
    by_rack: dict[str, Iterator[Place]] = {}
    for rack in sorted({place.rack for place in ordered if place.rack is not None}):
        by_rack[rack] = iter([place for place in ordered if place.rack == rack])
    alternating: list[Place] = []
    while len(alternating) < len(ordered):
        for members in by_rack.values():
            alternating.extend(member for member in [next(members, None)] if member is not None)
    return alternating


def _over_racks(ordered: Sequence[Place], leader: int, shift: int, count: int, racks: int) -> Replicas:
    chosen = [ordered[leader]]
    k = 0  # grows with each candidate tried, and is not reset between replicas
    while len(chosen) < count:
        candidate = ordered[_follower(leader, shift, k, len(ordered))]
        k += 1
        used_racks = {place.rack for place in chosen}
        if (candidate.rack not in used_racks or len(used_racks) == racks) and candidate not in chosen:
            chosen.append(candidate)
    return tuple(place.broker_id for place in chosen)
