"""Which replicas of a real broker refuse a leader epoch: read by an independent codec, answered as Kafka fences."""

from __future__ import annotations

import pytest

from controller.core.model import LEADER_EPOCH_MAX, Partition
from controller.kafka.protocol.codec import WireError
from controller.tell.dialects.kafka import ASKED_MAX, Search, codes_in
from tests.seat.epochs_support import ORDERS, Kafka, rows


def search_for(told: dict[tuple[str, str], dict[int, Partition]], broker_id: int = 1) -> Search:
    return Search(told, [("id-orders", number) for number in told[ORDERS]], broker_id)


def test_a_leader_epoch_that_a_broker_has_already_is_no_refusal() -> None:
    kafka = Kafka((4, True), (5, False))
    assert kafka.refuses(search_for(rows((1, 4, 7), (2, 5, 7)))) == {}
    assert kafka.questions == [2]


@pytest.mark.parametrize("own", [1, 2, 3, 17, 100_000, LEADER_EPOCH_MAX])
def test_a_higher_leader_epoch_is_found_in_few_questions_and_never_too_low(own: int) -> None:
    kafka = Kafka((own, True), (0, True))
    found = kafka.refuses(search_for(rows((1, 0, 7), (1, 0, 7))))
    assert list(found) == [0]
    assert own <= found[0] <= min(2 * own, LEADER_EPOCH_MAX)
    assert len(kafka.questions) <= 34


def test_another_leader_in_the_same_leader_epoch_is_refused_too() -> None:
    kafka = Kafka((4, False), (5, True))
    assert kafka.refuses(search_for(rows((1, 4, 7), (2, 5, 7)))) == {0: 4, 1: 5}


def test_those_written_last_are_asked_about_first_and_not_too_many() -> None:
    count = ASKED_MAX + 5
    kafka = Kafka(*[(0, True)] * (count - 1), (9, True))
    stamps = [(1, 0, 7)] * (count - 1) + [(1, 0, 8)]
    assert list(kafka.refuses(search_for(rows(*stamps)))) == [count - 1]
    assert kafka.questions[0] == ASKED_MAX


def test_answers_that_make_no_sense_are_wire_errors() -> None:
    search = search_for(rows((1, 4, 7)))
    frame = Kafka((4, True)).answer(search.question("klamm", 3), 3)
    with pytest.raises(WireError, match="request 3, not 4"):
        codes_in(frame, 4)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            codes_in(frame[:size], 3)
