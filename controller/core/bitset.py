"""A set of small numbers as the bits of one integer: there is one for each broker and topic, and a `set` takes 200
bytes before its first member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet, Sequence
from itertools import compress
from typing import Final

#: more partitions do not fit into a topic's znode; a larger number would be a bit of its own terabyte
PARTITION_MAX: Final = 999_999


_DIGITS: Final = bytes.maketrans(b"01", b"\0\1")
_ONE: Final = ord("1")


def numbers_of(bits: int) -> Sequence[int]:
    """Returns which bits are set, in order. All digits are read and picked at once: one by one takes twice as long."""
    if not bits & (bits - 1):
        return (bits.bit_length() - 1,) if bits else ()
    return list(compress(range(bits.bit_length()), bin(bits)[:1:-1].encode().translate(_DIGITS)))


def bits_of(numbers: Iterable[int]) -> int:
    """Made at once, of digits: bit by bit would be quadratic."""
    listed = list(numbers)
    if len(listed) <= 1:
        return 1 << listed[0] if listed else 0
    digits = bytearray(b"0") * (max(listed) + 1)
    for number in listed:
        digits[~number] = _ONE
    return int(digits, 2)


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
        return iter(numbers_of(self.bits))

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
