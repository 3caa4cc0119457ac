"""Which followers leave the ISR, which are taken back, and how a request stays the same until it is answered."""

from __future__ import annotations

import pytest

from brokerstub.isr import REFUSED_AGAIN_MS, IsrKeeper
from controller.core.codes import Code
from controller.wire.bodies import BrokerEntry
from tests.brokerstub.leader import LAG_MS, Leader
from tests.brokerstub.support import broker, fetch, row

KEY = ("id-orders", 0)


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def settled(leader: Leader) -> Leader:
    """Both followers have caught up with partition 0; 1 s has passed."""
    leader.tell(row())
    leader.pass_time(1_000)
    leader.fetched(2, (0, 0))
    leader.fetched(3, (0, 0))
    assert leader.is_idle()
    return leader


def test_followers_have_the_lag_time_to_list_a_partition_after_a_new_leadership(leader: Leader) -> None:
    leader.tell(row())
    leader.pass_time(LAG_MS)
    assert leader.is_idle()
    leader.fetched(2, (0, 0))
    leader.pass_time(1)
    assert leader.proposals() == {0: [(1, 100), (2, 200)]}


def test_a_follower_that_goes_silent_leaves_after_the_lag_time(settled: Leader) -> None:
    settled.pass_time(LAG_MS)
    settled.fetched(3, sequence=1)
    assert settled.is_idle()
    settled.pass_time(1)
    assert settled.proposals() == {0: [(1, 100), (3, 300)]}


def test_empty_fetches_keep_a_follower_in(settled: Leader) -> None:
    for sequence in range(1, 100):
        settled.pass_time(500)
        assert settled.fetched(2, sequence=sequence) == Code.NONE
        assert settled.fetched(3, sequence=sequence) == Code.NONE
    assert settled.is_idle()


def test_a_follower_that_forgets_a_partition_leaves_after_the_lag_time(settled: Leader) -> None:
    settled.pass_time(1_000)
    settled.sessions.take(2, 200, fetch(session=7, sequence=1), settled.now_ms)
    _, moved = settled.sessions.take(2, 200, fetch(session=7, sequence=2, forgotten=(0,)), settled.now_ms)
    settled.isr.on_moved(moved, settled.now_ms)
    for sequence in range(3, 3 + LAG_MS // 1_000):
        settled.pass_time(1_000)
        settled.fetched(2, sequence=sequence)
        settled.fetched(3, sequence=sequence - 2)
        assert settled.is_idle()
    settled.pass_time(1)
    assert settled.proposals() == {0: [(1, 100), (3, 300)]}


def test_the_leader_never_leaves_its_own_isr(leader: Leader) -> None:
    leader.tell(row())
    leader.pass_time(LAG_MS + 1)
    assert leader.proposals() == {0: [(1, 100)]}


def test_until_the_answer_the_isr_is_unchanged(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    assert settled.proposals() == {0: [(1, 100)]}
    assert settled.replicas.told[KEY].isr == (1, 2, 3)
    settled.answer(isr=(1,))
    assert (settled.replicas.told[KEY].isr, settled.replicas.told[KEY].version) == ((1,), 1)
    assert settled.is_idle()


def test_followers_that_caught_up_are_taken_back_in_the_order_of_the_replicas(leader: Leader) -> None:
    leader.tell(row(isr=(1,), replicas=(3, 1, 2)))
    leader.fetched(2, (0, 0))
    leader.fetched(3, (0, 0))
    assert leader.proposals() == {0: [(1, 100), (3, 300), (2, 200)]}


def test_a_follower_without_the_leader_epoch_has_not_caught_up(leader: Leader) -> None:
    leader.tell(row(epoch=4, isr=(1, 3)))
    leader.fetched(2, (0, 3))
    assert leader.is_idle()
    leader.fetched(2, (0, 4), sequence=1)
    assert leader.proposals() == {0: [(1, 100), (3, 300), (2, 200)]}


def test_a_follower_ahead_of_the_leader_has_caught_up_when_the_leader_gets_there(leader: Leader) -> None:
    leader.fetched(2, (0, 4))
    leader.tell(row(epoch=4, isr=(1, 3)))
    assert leader.proposals() == {0: [(1, 100), (3, 300), (2, 200)]}


def test_a_follower_that_stays_in_an_old_leader_epoch_leaves(settled: Leader) -> None:
    settled.tell(row(epoch=1, version=1))
    settled.fetched(3, (0, 1))
    for sequence in range(1, 3 + LAG_MS // 1_000):
        settled.pass_time(1_000)
        settled.fetched(2, sequence=sequence)
        settled.fetched(3, sequence=sequence)
    assert settled.proposals() == {0: [(1, 100), (3, 300)]}


@pytest.mark.parametrize("entry", [None, broker(2, state="draining"), broker(2, state="gone"), broker(2, 199)])
def test_a_follower_of_another_incarnation_is_not_taken_back(leader: Leader, entry: BrokerEntry | None) -> None:
    """S16; after KAFKA-14140 (M54) and KIP-903 (M62)."""
    leader.brokers = {one: two for one, two in leader.brokers.items() if one != 2} | ({2: entry} if entry else {})
    leader.isr = IsrKeeper(leader.replicas, leader.sessions, leader.brokers.get, lag_ms=LAG_MS)
    leader.isr.begin(100)
    leader.tell(row(isr=(1, 3)))
    leader.fetched(2, (0, 0))
    assert leader.is_idle()
    leader.on_broker(broker(2))
    assert leader.proposals() == {0: [(1, 100), (3, 300), (2, 200)]}


def test_a_later_incarnation_ends_the_session_of_an_earlier_one(leader: Leader) -> None:
    leader.tell(row(isr=(1, 3)))
    leader.fetched(2, (0, 0))
    leader.on_broker(broker(2, 250))
    assert leader.sessions.of(2) is None
    assert leader.is_idle()
    leader.fetched(2, (0, 0), epoch=250)
    assert leader.proposals() == {0: [(1, 100), (3, 300), (2, 250)]}


def test_members_outside_the_assignment_are_left_out(leader: Leader) -> None:
    """After KAFKA-1097 (M58)."""
    leader.tell(row(isr=(1, 2, 4), replicas=(1, 2)))
    assert leader.proposals() == {0: [(1, 100), (2, 200)]}


def test_a_question_is_the_same_until_it_is_answered(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    question = settled.ask()
    body = question.body if question else b""
    settled.fetched(2, (0, 0))
    settled.tell(row(1, isr=(1, 4), replicas=(1,)))
    settled.pass_time(60_000)
    assert settled.ask() is question
    assert question is not None
    assert question.body == body
    settled.answer(isr=(1,))
    assert settled.proposals() == {1: [(1, 100)]}


def test_all_partitions_of_the_moment_are_in_one_question_up_to_the_limit() -> None:
    leader = Leader(partitions_max=2)
    leader.tell(*(row(partition, isr=(1, 9)) for partition in range(5)))
    assert list(leader.proposals()) == [0, 1]
    leader.answer(isr=(1,))
    assert list(leader.proposals()) == [2, 3]


@pytest.mark.parametrize("code", [Code.NONE, Code.INVALID_UPDATE_VERSION, Code.INELIGIBLE_REPLICA])
def test_whatever_the_code_the_standing_state_is_adopted_and_then_asked_anew(settled: Leader, code: Code) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.answer(code, isr=(1, 2), version=5)
    assert settled.replicas.told[KEY].version == 5
    assert settled.proposals() == {0: [(1, 100)]}


def test_a_refusal_that_teaches_nothing_is_not_asked_again_at_once(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.answer(Code.INELIGIBLE_REPLICA, version=0)
    assert settled.is_idle()
    settled.pass_time(REFUSED_AGAIN_MS - 1)
    assert settled.is_idle()
    settled.pass_time(1)
    assert settled.proposals() == {0: [(1, 100)]}


def test_a_partition_that_is_not_answered_for_is_asked_about_again(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.isr.take_answer([], settled.now_ms)
    settled.pass_time(REFUSED_AGAIN_MS)
    assert settled.proposals() == {0: [(1, 100)]}


def test_a_new_leadership_closes_the_question(settled: Leader) -> None:
    """After KAFKA-12686 (M60): a pending ISR always resolves."""
    settled.pass_time(LAG_MS + 1)
    question = settled.ask()
    settled.tell(row(epoch=1, version=1))
    assert settled.isr.question is not question
    assert settled.is_idle()
    settled.answer(epoch=0, isr=(1,), version=9)
    assert settled.replicas.told[KEY] == row(epoch=1, version=1)


def test_a_new_leadership_of_one_partition_leaves_the_question_open_for_the_others(leader: Leader) -> None:
    leader.tell(row(0, isr=(1, 9)), row(1, isr=(1, 9)))
    question = leader.ask()
    leader.tell(row(0, epoch=1, version=1))
    assert leader.ask() is question
    assert question is not None
    assert question.open_rows.keys() == {("id-orders", 1)}


def test_a_leader_and_isr_that_crosses_the_answer_does_not_take_it_back(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.answer(isr=(1,), version=1)
    settled.tell(row(version=0))
    assert settled.replicas.told[KEY].isr == (1,)


def test_a_follower_asks_nothing(settled: Leader) -> None:
    settled.tell(row(leader=2, epoch=1, version=1))
    settled.pass_time(10 * LAG_MS)
    assert settled.is_idle()


def test_a_new_incarnation_has_no_questions(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.replicas.begin()
    settled.sessions.begin()
    settled.isr.begin(101)
    settled.pass_time(10 * LAG_MS)
    assert settled.is_idle()


def test_a_follower_that_comes_back_after_the_lag_time_begins_anew_and_is_taken_back(settled: Leader) -> None:
    settled.pass_time(LAG_MS + 1)
    settled.ask()
    settled.answer(isr=(1,))
    assert settled.fetched(2, sequence=1) == Code.FETCH_SESSION_ID_NOT_FOUND
    settled.fetched(2, (0, 0))
    assert settled.proposals() == {0: [(1, 100), (2, 200)]}
