"""Idempotent producers of one log: nothing twice, nothing left out."""

from __future__ import annotations

import pytest

from brokerstub.records.batches import Header, produced, stamped
from brokerstub.records.errors import OutOfOrderSequenceError, StaleProducerError
from brokerstub.records.state import Producers
from tests.records.support import START, a_batch

SEQUENCE_MAX = (1 << 31) - 1


def header_of(sequence: int, *, count: int = 2, epoch: int = 0, producer_id: int = 7, offset: int = 0) -> Header:
    data = a_batch([b"x"] * count, producer=(producer_id, epoch, sequence))
    return produced(stamped(data, offset, 0), 1 << 20)


def after(*headers: Header) -> Producers:
    producers = Producers()
    for header in headers:
        assert producers.check(header) is None
        producers.take(header)
    return producers


def test_each_of_the_last_five_batches_is_known_again() -> None:
    producers = after(*(header_of(2 * index, offset=100 + 2 * index) for index in range(6)))
    for index in range(1, 6):
        kept = producers.check(header_of(2 * index))
        assert kept is not None
        assert (kept.first_offset, kept.last_offset) == (100 + 2 * index, 101 + 2 * index)
    with pytest.raises(OutOfOrderSequenceError, match="12 is expected, not 0"):
        producers.check(header_of(0))


@pytest.mark.parametrize("sequence", [1, 3, 5])
def test_a_gap_and_an_overlap_are_refused(sequence: int) -> None:
    with pytest.raises(OutOfOrderSequenceError, match="4 is expected"):
        after(header_of(0), header_of(2)).check(header_of(sequence))
    with pytest.raises(OutOfOrderSequenceError):
        after(header_of(0), header_of(2)).check(header_of(2, count=3))


def test_sequence_numbers_go_round() -> None:
    producers = after(header_of(SEQUENCE_MAX - 2), header_of(SEQUENCE_MAX), header_of(1))
    assert producers.check(header_of(SEQUENCE_MAX)) is not None
    assert producers.check(header_of(3)) is None
    assert after(header_of(SEQUENCE_MAX - 1)).check(header_of(0)) is None


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    producers = after(header_of(0), header_of(2))
    with pytest.raises(OutOfOrderSequenceError, match="0 is expected"):
        producers.check(header_of(4, epoch=1))
    assert producers.check(header_of(0, epoch=1)) is None
    producers.take(header_of(0, epoch=1))
    with pytest.raises(StaleProducerError, match="has epoch 1"):
        producers.check(header_of(4))
    assert producers.check(header_of(0, epoch=1)) is not None


def test_an_unknown_producer_begins_anywhere() -> None:
    assert Producers().check(header_of(12)) is None


def test_batches_without_a_producer_are_never_known() -> None:
    header = produced(stamped(a_batch(), 0, 0), 1 << 20)
    producers = after(header, header)
    assert producers.all() == []


def test_a_silent_producer_is_forgotten_and_so_are_too_many() -> None:
    producers = Producers(producers_max=2)
    for producer_id in (1, 2, 1, 3):
        producers.take(header_of(0, producer_id=producer_id))
    assert [one.producer_id for one in producers.all()] == [1, 3]
    producers.forget_silent(START)
    assert len(producers.all()) == 2
    producers.forget_silent(START + 1)
    assert producers.all() == []
