"""What `klamm rates` says in the end of the records that it wrote."""

from __future__ import annotations

import pytest

from brokerstub.lab.rates import Book, Place


def a_book(read: dict[Place, int], refused: list[str] | None = None) -> Book:
    """The numbers from 0 to 3 were acknowledged in two partitions."""
    book = Book()
    book.acknowledged = {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1)}
    book.read = read
    book.refused = refused or []
    return book


ALL = {(0, 0): 0, (0, 1): 2, (1, 0): 1, (1, 1): 3}


def test_every_record_once_and_in_order() -> None:
    book = a_book(ALL)
    assert list(book.faults()) == []
    assert book.verdict == "4 records acknowledged: each was read once, in order"


@pytest.mark.parametrize(
    ("book", "faults"),
    [
        (a_book({**ALL, (0, 1): 9}), ["1 acknowledged records are lost, the first is number 2"]),
        (a_book({(0, 0): 0}), ["3 acknowledged records are lost, the first is number 1"]),
        (a_book({**ALL, (0, 2): 2}), ["1 records are there more than once"]),
        (a_book({**ALL, (1, 2): 8, (1, 3): 7}), ["1 records are out of order"]),
        (a_book(ALL, ["it timed out", "so did it"]), ["2 records were refused, the first because it timed out"]),
    ],
)
def test_what_a_clean_election_must_not_do(book: Book, faults: list[str]) -> None:
    assert list(book.faults()) == faults
    assert book.verdict == f"4 records acknowledged: {faults[0]}"
