"""The leader epochs of a log."""

from __future__ import annotations

from brokerstub.records.state import EpochEnd, Epochs

UNKNOWN = EpochEnd(-1, -1)


def of(*entries: tuple[int, int]) -> Epochs:
    epochs = Epochs()
    for epoch, start in entries:
        epochs.begin(epoch, start)
    return epochs


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = of((1, 0), (3, 10), (4, 25))
    ends = {epoch: epochs.end_of(epoch, 30) for epoch in range(6)}
    assert ends == {
        0: EpochEnd(0, 0),
        1: EpochEnd(1, 10),
        2: EpochEnd(1, 10),
        3: EpochEnd(3, 25),
        4: EpochEnd(4, 30),
        5: UNKNOWN,
    }
    assert of().end_of(0, 0) == UNKNOWN


def test_an_epoch_without_records_gives_way_to_the_next() -> None:
    epochs = of((1, 0), (2, 10), (3, 10))
    assert epochs.entries == [(1, 0), (3, 10)]
    assert epochs.end_of(2, 20) == EpochEnd(1, 10)


def test_an_epoch_begins_once() -> None:
    epochs = of((1, 0), (3, 10), (3, 15), (2, 20))
    assert epochs.entries == [(1, 0), (3, 10)]


def test_truncated_epochs_are_forgotten_and_removed_ones_begin_later() -> None:
    epochs = of((1, 0), (3, 10), (4, 25))
    epochs.forget_from(25)
    assert epochs.entries == [(1, 0), (3, 10)]
    epochs.forget_before(5)
    assert epochs.entries == [(1, 5), (3, 10)]
    epochs.forget_before(10)
    assert epochs.entries == [(3, 10)]
    assert epochs.end_of(1, 20) == EpochEnd(1, 10), "of removed records only the end is known"
    epochs.forget_before(12)
    assert epochs.entries == [(3, 12)]
