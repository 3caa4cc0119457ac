"""A set of small numbers as the bits of one integer: there is one for each broker and topic, and a `set` takes 200
bytes before its first member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Final

#: more partitions do not fit into a topic's znode; a larger number would be a bit of its own terabyte
PARTITION_MAX: Final = 999_999


class Bitset(MutableSet[int]):
    """Partitions of a topic. Iterated in order."""

    __slots__ = ("bits",)

    def __init__(self, numbers: Iterable[int] = (), *, bits: int = 0) -> None:
        self.bits = bits
        for number in numbers:
            self.bits |= 1 << number

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number >= 0 and bool(self.bits >> number & 1)

    def __iter__(self) -> Iterator[int]:
        return (number for number, bit in enumerate(bin(self.bits)[:1:-1]) if bit == "1")

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __repr__(self) -> str:
        return f"Bitset({list(self)})"

    def add(self, value: int) -> None:
        self.bits |= 1 << value

    def discard(self, value: int) -> None:
        self.bits &= ~(1 << value)
