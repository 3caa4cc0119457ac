"""Placement of replicas: Kafka's golden vectors, and properties of every placement."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.codes import Code
from controller.core.decide.placement import (
    Place,
    place,
    place_at_random,
    placement_trouble,
)
from controller.core.model import Replicas

FIVE = [Place(broker_id) for broker_id in range(5)]
SIX_IN_RACKS = [Place(0, "r1"), Place(1, "r3"), Place(2, "r3"), Place(3, "r2"), Place(4, "r2"), Place(5, "r1")]
ONE_ALONE = [Place(0, "a"), Place(1, "a"), Place(2, "a"), Place(3, "b")]


def placed(text: str) -> dict[int, Replicas]:
    """`"0:[0,1,2] 1:[1,2,3]"` as the reference prints it."""
    pairs = (one.split(":") for one in text.split())
    return {int(number): tuple(int(one) for one in replicas.strip("[]").split(",")) for number, replicas in pairs}


GOLDEN = [
    pytest.param(
        FIVE,
        {"partitions": 10, "replication_factor": 3},
        "0:[0,1,2] 1:[1,2,3] 2:[2,3,4] 3:[3,4,0] 4:[4,0,1] 5:[0,2,3] 6:[1,3,4] 7:[2,4,0] 8:[3,0,1] 9:[4,1,2]",
        id="without racks",
    ),
    pytest.param(
        SIX_IN_RACKS,
        {"partitions": 12, "replication_factor": 3},
        "0:[0,3,1] 1:[3,1,5] 2:[1,5,4] 3:[5,4,2] 4:[4,2,0] 5:[2,0,3] 6:[0,4,2]"
        " 7:[3,2,0] 8:[1,0,3] 9:[5,3,1] 10:[4,1,5] 11:[2,5,4]",
        id="racks of two",
    ),
    pytest.param(
        FIVE,
        {"partitions": 2, "replication_factor": 3, "first_partition": 3},
        "3:[3,4,0] 4:[4,0,1]",
        id="partitions added",
    ),
    pytest.param(
        SIX_IN_RACKS,
        {"partitions": 6, "replication_factor": 2, "start": 2, "shift": 2},
        "0:[1,4] 1:[5,2] 2:[4,0] 3:[2,3] 4:[0,1] 5:[3,5]",
        id="racks with start and shift",
    ),
    pytest.param(
        ONE_ALONE,
        {"partitions": 5, "replication_factor": 3},
        "0:[0,3,1] 1:[3,1,2] 2:[1,3,2] 3:[2,3,1] 4:[0,3,1]",
        id="racks of uneven size",
    ),
]


@pytest.mark.parametrize(("places", "counts", "expected"), GOLDEN)
def test_kafkas_golden_vectors(places: list[Place], counts: dict[str, int], expected: str) -> None:
    assert place(places, **{"start": 0, "shift": 0, **counts}) == placed(expected)


@pytest.mark.parametrize(
    ("places", "order"),
    [
        (SIX_IN_RACKS, [0, 3, 1, 5, 4, 2]),
        (SIX_IN_RACKS[:5], [0, 3, 1, 4, 2]),
        ([Place(broker_id, f"r{broker_id // 3}") for broker_id in range(9)], [0, 3, 6, 1, 4, 7, 2, 5, 8]),
    ],
)
def test_brokers_alternate_over_the_racks(places: list[Place], order: list[int]) -> None:
    leaders = place(places, len(places), 1, start=0, shift=0)
    assert [replicas[0] for replicas in leaders.values()] == order


def test_the_order_in_which_brokers_are_listed_does_not_matter() -> None:
    counts = {"partitions": 7, "replication_factor": 3, "start": 1, "shift": 2}
    assert place(SIX_IN_RACKS[::-1], **counts) == place(SIX_IN_RACKS, **counts)


def test_a_cluster_labelled_by_half_is_placed_without_racks() -> None:
    half = [Place(0, "a"), *FIVE[1:]]
    counts = {"partitions": 5, "replication_factor": 3, "start": 0, "shift": 0}
    assert place(half, **counts) == place(FIVE, **counts)


def test_one_broker_takes_every_partition() -> None:
    assert place([Place(7)], 3, 1, start=0, shift=0) == {0: (7,), 1: (7,), 2: (7,)}


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ((3, 0, 1), Code.INVALID_PARTITIONS),
        ((3, -1, 1), Code.INVALID_PARTITIONS),
        ((3, 1, 0), Code.INVALID_REPLICATION_FACTOR),
        ((3, 1, 4), Code.INVALID_REPLICATION_FACTOR),
        ((0, 1, 1), Code.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_that_cannot_be_placed_are_refused_with_kafkas_code(counts: tuple[int, int, int], code: Code) -> None:
    trouble = placement_trouble(*counts)
    assert trouble is not None
    assert trouble[0] is code


def test_counts_that_can_be_placed_are_no_trouble() -> None:
    assert placement_trouble(3, 1, 3) is None


def test_start_and_shift_are_drawn_from_the_seed_alone() -> None:
    assert place_at_random(FIVE, 9, 3, Random(4)) == place_at_random(FIVE, 9, 3, Random(4))
    assert len({place_at_random(FIVE, 1, 2, Random(seed))[0] for seed in range(200)}) == 5 * 4


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[Place], int, int, dict[int, Replicas]]:
    racks: list[str | None] = draw(st.sampled_from([[None], ["a"], ["a", "b"], ["a", "b", "c"]]))
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True))
    places = [Place(broker_id, draw(st.sampled_from(racks))) for broker_id in ids]
    partitions, factor = draw(st.integers(1, 30)), draw(st.integers(1, len(ids)))
    start, shift = draw(st.integers(0, len(ids) - 1)), draw(st.integers(0, len(ids) - 1))
    return places, partitions, factor, place(places, partitions, factor, start=start, shift=shift)


@given(placements())
def test_every_placement_is_one(drawn: tuple[list[Place], int, int, dict[int, Replicas]]) -> None:
    places, partitions, factor, result = drawn
    assert list(result) == list(range(partitions))
    assert all(len(set(one)) == len(one) == factor for one in result.values())
    assert {b for one in result.values() for b in one} <= {one.broker_id for one in places}


@given(placements())
def test_leaders_are_spread_evenly(drawn: tuple[list[Place], int, int, dict[int, Replicas]]) -> None:
    places, _, _, result = drawn
    led = Counter({one.broker_id: 0 for one in places})
    led.update(one[0] for one in result.values())
    assert max(led.values()) - min(led.values()) <= 1


@given(placements())
def test_a_partition_uses_as_many_racks_as_it_can(drawn: tuple[list[Place], int, int, dict[int, Replicas]]) -> None:
    places, _, factor, result = drawn
    rack_of = {one.broker_id: one.rack for one in places}
    racks = set(rack_of.values())
    for one in result.values():
        assert len({rack_of[broker_id] for broker_id in one}) == min(factor, len(racks))
