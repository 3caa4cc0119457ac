"""A set of partitions' numbers, in one integer, is a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.core.bitset import Bitset

SETS = st.frozensets(st.integers(0, 300))


@given(SETS, SETS)
def test_numbers_are_a_set_in_order(some: frozenset[int], others: frozenset[int]) -> None:
    numbers = Bitset(some)
    assert numbers == some
    assert list(numbers) == sorted(some)
    assert len(numbers) == len(some)
    assert bool(numbers) == bool(some)
    assert all((number in numbers) == (number in some) for number in others)
    for number in others:
        numbers.add(number)
    assert numbers == some | others
    for number in some:
        numbers.discard(number)
    assert numbers == others - some


def test_a_value_that_is_no_number_is_not_a_member() -> None:
    assert -1 not in Bitset([1])
    assert "1" not in Bitset([1])
