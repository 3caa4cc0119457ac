"""Rows that several brokers receive: made once of the very same partition, by the first outbox that sends it.

It owns which rows serve again. A dialect owns the form of a row; the outbox owns how long rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Final

import msgspec

from controller.core.model import Partition
from controller.core.project.requests import TopicKey

#: no partition of a telling, nor the None of one that is removed
_NEVER: Final = Partition(())


class PartitionSubset(Mapping[int, Partition]):
    """Some of a topic's partitions, out of a mapping that never changes: equal by the mapping's identity."""

    __slots__ = ("_members", "numbers", "whole")

    def __init__(self, whole: Mapping[int, Partition | None], numbers: Sequence[int]) -> None:
        self.whole = whole
        self.numbers = numbers
        #: the numbers as a set: most parts are only ever iterated, and need none
        self._members: frozenset[int] | None = None

    def __getitem__(self, number: int) -> Partition:
        if self._members is None:
            self._members = frozenset(self.numbers)
        partition = self.whole[number] if number in self._members else None
        if partition is None:
            raise KeyError(number)
        return partition

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def items(self) -> ItemsView[int, Partition]:
        return _SubsetItems(self)

    def piece(self, start: int, end: int) -> PartitionSubset:
        """Returns the partitions between two positions."""
        return PartitionSubset(self.whole, self.numbers[start:end])


class _SubsetItems(ItemsView[int, Partition]):
    """Iterated without looking any number up."""

    _mapping: PartitionSubset

    def __iter__(self) -> Iterator[tuple[int, Partition]]:
        whole, numbers = self._mapping.whole, self._mapping.numbers
        return ((number, one) for number in numbers if (one := whole[number]) is not None)


class CachedRows(msgspec.Struct):
    """The rows that a dialect made of a topic's partitions, by number: each serves again for the same partition."""

    partitions: dict[int, Partition | None]
    rows: dict[int, bytes]
    #: all of this is among them
    whole: Mapping[int, Partition | None] | None = None


#: by topic, and whether the replicas are new on the receiver
RowCache = dict[tuple[TopicKey, bool], CachedRows]
#: a row for each of these partitions in their order, empty for one never led; and whether they are new on the receiver
MakeRows = Callable[[Mapping[int, Partition | None], bool], Iterable[bytes]]


def whole_and_numbers(
    partitions: Mapping[int, Partition | None],
) -> tuple[Mapping[int, Partition | None], Iterable[int]]:
    """Returns the mapping and the numbers to look up in it: faster than a `PartitionSubset` by itself."""
    if type(partitions) is PartitionSubset:  # `isinstance` would ask its abstract class, which is slow
        return partitions.whole, partitions.numbers
    return partitions, partitions


def rows_for(
    row_cache: RowCache | None,
    key: TopicKey,
    partitions: Mapping[int, Partition | None],
    new: Collection[tuple[str, int]],
    make: MakeRows,
) -> Iterable[bytes]:
    """Returns a row for each of a topic's partitions that was ever led or is removed."""
    topic_id = key[1]
    fresh = [number for number in partitions if (topic_id, number) in new] if new else []
    if not fresh or len(fresh) == len(partitions):
        return filter(None, _rows(row_cache, key, partitions, make, is_new=bool(fresh)))
    rows = dict(zip(partitions, _rows(row_cache, key, partitions, make, is_new=False), strict=True))
    some = {number: partitions[number] for number in fresh}
    rows |= dict(zip(fresh, _rows(row_cache, key, some, make, is_new=True), strict=True))
    return filter(None, rows.values())


def _rows(
    row_cache: RowCache | None,
    key: TopicKey,
    partitions: Mapping[int, Partition | None],
    make: MakeRows,
    *,
    is_new: bool,
) -> Iterable[bytes]:
    """The hot loop of a failover, hence by maps."""
    known = None if row_cache is None else row_cache.get((key, is_new))
    if known is None:
        known = CachedRows({}, {})
        if row_cache is not None:
            row_cache[key, is_new] = known
    whole, numbers = whole_and_numbers(partitions)
    if whole is not known.whole:
        wanted = list(map(whole.__getitem__, numbers))
        if not all(map(is_, map(known.partitions.get, numbers, repeat(_NEVER)), wanted)):
            every = zip(numbers, wanted, strict=True)
            missing = {number: one for number, one in every if known.partitions.get(number, _NEVER) is not one}
            known.partitions.update(missing)
            known.rows.update(zip(missing, make(missing, is_new), strict=True))
            known.whole = None
        if whole is partitions:
            known.whole = whole
    return map(known.rows.__getitem__, numbers)
