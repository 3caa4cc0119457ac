"""The judge of a soak finds the violations in a bad history, and none in a good one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sparkjobs.records.zookeeper_files import Operation
from tests.real_brokers.past import Dead, Past

OURS, THEIRS = 100, 1
STATE = "/brokers/topics/orders/partitions/0/state"


class Told:
    """A history as it is told, by the millisecond: broker N has session N, our controller's is 100."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.zxid = 0

    def do(self, at_ms: int, session: int, *operations: tuple[str, str | None, object]) -> Told:
        self.zxid += 1
        for kind, path, value in operations:
            data = None if value is None else json.dumps(value).encode()
            self.operations.append(
                Operation(zxid=self.zxid, session=session, at_ms=at_ms, kind=kind, path=path, data=data)  # type: ignore[arg-type]
            )
        return self

    def claim(self, at_ms: int, broker_id: int, epoch: int, *before: tuple[str, str | None, object]) -> Told:
        seat = ("create", "/controller", {"brokerid": broker_id})
        return self.do(at_ms, broker_id, *before, seat, ("set", "/controller_epoch", epoch))

    def end(self, at_ms: int, session: int, *paths: str) -> Told:
        self.zxid += 1
        self.operations.append(Operation(zxid=self.zxid, session=session, at_ms=at_ms, kind="close", paths=paths))
        return self

    def decide(self, at_ms: int, leader: int, isr: Sequence[int], epoch: int, by: int = OURS, term: int = 1) -> Told:
        state = {"leader": leader, "isr": list(isr), "leader_epoch": epoch, "controller_epoch": term, "version": 1}
        return self.do(
            at_ms, by, ("create" if not any(one.path == STATE for one in self.operations) else "set", STATE, state)
        )


def a_history() -> Told:
    """Three brokers, our controller, and a topic that is led by broker 2 from 20 ms on."""
    told = Told()
    for broker_id in (1, 2, 3):
        told.do(0, broker_id, ("create", f"/brokers/ids/{broker_id}", {}))
    told.claim(5, OURS, 1)
    told.do(10, OURS, ("create", "/brokers/topics/orders", {"partitions": {"0": [2, 1, 3]}}))
    return told.decide(20, 2, [2, 1, 3], 0)


def longest(past: Past) -> tuple[int, dict[int | None, int]]:
    wait = max((wait for _, wait in past.waits), key=lambda one: one.total_ms)
    return wait.total_ms, dict(wait.undecided_ms)


def test_in_a_good_history_nothing_is_wrong_and_a_topic_waits_from_its_creation_on() -> None:
    past = Past.of(a_history().decide(50, 1, [1, 3], 1).operations)
    assert past.wrong == []
    assert longest(past) == (10, {OURS: 10})


def test_a_death_counts_from_the_death_on_and_is_undecided_from_the_end_of_the_session_on() -> None:
    told = a_history().end(5_000, 2, "/brokers/ids/2").decide(5_300, 1, [1, 3], 1).decide(5_400, 1, [1], 1)
    past = Past.of(told.operations, [Dead(2, 1_000)])
    assert (past.wrong, longest(past)) == ([], (4_300, {OURS: 300}))


def test_while_the_seats_holder_is_dead_unnoticed_no_controller_could_decide() -> None:
    told = a_history().end(5_000, 2, "/brokers/ids/2").end(9_000, OURS, "/controller")
    told.claim(9_400, THEIRS, 2).decide(9_900, 1, [1, 3], 1, by=THEIRS, term=2)
    told.do(9_900, THEIRS, ("create", "/else", None))
    past = Past.of(told.operations, [Dead(2, 1_000, 30_000), Dead(OURS, 4_000, 30_000)])
    assert (past.wrong, longest(past)) == ([], (8_900, {None: 400, THEIRS: 500}))


def test_a_bug_of_kafkas_controller_is_not_taken_for_ours_nor_its_broker_for_dead() -> None:
    told = a_history().claim(30, THEIRS, 2, ("delete", "/controller", None)).end(1_000, 2, "/brokers/ids/2")
    told.claim(9_000, OURS, 3, ("delete", "/controller", None)).decide(9_100, 1, [1, 3], 1, term=3)
    told.do(9_200, 1, ("create", "/else", None))
    past = Past.of(told.operations, [Dead(2, 1_000)], [Dead(THEIRS, 500, 9_000)])
    assert (past.wrong, longest(past)) == ([], (8_100, {OURS: 100}))


def test_a_partition_without_a_leader_at_the_end_has_waited_until_then() -> None:
    told = a_history().decide(100, -1, [2], 1).do(900, 1, ("create", "/else", None))
    assert longest(Past.of(told.operations)) == (800, {OURS: 800})


def test_a_broker_that_stood_still_is_alive_again_when_it_goes_on() -> None:
    told = a_history().do(3_000, 1, ("create", "/else", None)).do(9_000, 1, ("create", "/more", None))
    assert longest(Past.of(told.operations, [Dead(2, 1_000, 2_500)])) == (1_500, {})


def test_below_2_7_a_leader_writes_its_isr_and_nothing_else() -> None:
    """With any epoch of the controller that told it to lead."""
    told = a_history().claim(30, THEIRS, 2, ("delete", "/controller", None)).decide(40, 2, [2, 1], 0, by=2)
    assert Past.of(told.operations, leaders_write=True).wrong == []
    assert len(Past.of(told.operations).wrong) == 1
    for leader, epoch, by in ((1, 0, 2), (2, 1, 2), (2, 0, 3)):
        other = a_history().decide(40, leader, [2, 1], epoch, by=by)
        assert Past.of(other.operations, leaders_write=True).wrong


def test_a_topic_that_is_to_be_deleted_waits_for_no_leader() -> None:
    told = a_history().do(100, 1, ("create", "/admin/delete_topics/orders", None)).decide(200, -1, [2], 1)
    assert longest(Past.of(told.do(9_000, 1, ("create", "/else", None)).operations))[0] == 10


@pytest.mark.parametrize(
    ("told", "said"),
    [
        pytest.param(
            a_history().claim(30, THEIRS, 2, ("delete", "/controller", None)).decide(40, 1, [1, 3], 1),
            "written with controller epoch 1 by session 0x64, not by Seat(broker_id=1",
            id="a write of a deposed controller",
        ),
        pytest.param(a_history().decide(40, 1, [1], 1, by=THEIRS), "by session 0x1, not by Seat", id="of nobody"),
        pytest.param(
            a_history().end(30, OURS, "/controller").decide(40, 1, [1, 3], 1),
            "not by None",
            id="after the seat is gone",
        ),
        pytest.param(a_history().decide(40, 1, [1, 3], 0), "led by 1 with epoch 0", id="a leader without an epoch"),
        pytest.param(
            a_history().decide(40, 1, [1, 3], 1).decide(50, 2, [2, 1], 2),
            "led by 2, which was not in sync: [1, 3]",
            id="a leader that may lack records",
        ),
        pytest.param(a_history().decide(40, 1, [3], 1), "its leader 1 is out of sync", id="a leader out of its ISR"),
        pytest.param(
            a_history().claim(30, THEIRS, 2, ("delete", "/controller", None)).decide(40, 2, [2, 1, 3], 0, THEIRS, 2),
            "written again with nothing new, by the controller of epoch 2",
            id="a write only because the writer changed",
        ),
    ],
)
def test_a_violation_is_named(told: Told, said: str) -> None:
    wrong: list[Any] = Past.of(told.operations).wrong
    assert any(said in one for one in wrong), wrong
