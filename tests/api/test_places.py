"""Places for connections, without connections."""

from __future__ import annotations

import pytest

from controller.base.config import LIMITS
from controller.base.connection_slots import ConnectionSlots, NoSlotError, allow_files, limits_within


def nothing() -> None:
    """Connections that give way in these tests are not real."""


def test_the_connection_silent_for_longest_gives_way_and_is_counted_no_more() -> None:
    places, gone = ConnectionSlots(3, 3), list[int]()
    opened = [places.open("a", lambda number=number: gone.append(number)) for number in range(3)]  # type: ignore[misc]
    opened[0].hear()
    opened[1].work(is_reading=True)
    places.open("b", nothing)
    assert gone == [2]
    opened[1].rest()
    for expected in ([2, 0], [2, 0], [2, 0, 1]):  # the second time one of the new ones
        places.open("b", nothing)
        assert (gone, places.taken) == (expected, 3)
    for one in opened:
        one.leave()
        one.rest()
        one.hear()
    assert places.taken == 3


@pytest.mark.parametrize(("in_all", "of_peer", "is_of_peer"), [(2, 9, False), (9, 2, True)])
def test_where_all_connections_work_none_gives_way(in_all: int, of_peer: int, is_of_peer: bool) -> None:
    places = ConnectionSlots(in_all, of_peer)
    for _ in range(2):
        places.open("a", nothing).work(is_reading=False)
    with pytest.raises(NoSlotError) as full:
        places.open("a", nothing)
    assert full.value.is_of_peer is is_of_peer


def test_one_peer_takes_no_place_of_another() -> None:
    places = ConnectionSlots(100, 2)
    other = places.open("b", nothing)
    for _ in range(50):
        places.open("a", nothing)
    assert places.taken == 3
    other.leave()
    assert places.taken == 2


def test_connections_leave_files_for_everything_else() -> None:
    few = limits_within(400)
    assert (few.connections, few.connections_per_peer) == (100, 100)
    assert (few.kafka_connections, few.kafka_connections_per_peer) == (100, 100)
    assert limits_within(allow_files()) == limits_within(allow_files())
    assert limits_within(1_000_000) == LIMITS
