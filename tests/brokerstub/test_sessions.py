"""Fetch sessions, on both sides: listed partitions, partitions that count, and how the two stay in step."""

from __future__ import annotations

from itertools import count

import pytest

from brokerstub.fetch import Following
from brokerstub.fetch_sessions import SESSIONS_MAX, CountingChange, FetchSessions
from controller.core.codes import Code
from controller.wire.bodies import FetchAnswer, FetchRequest, FetchRow
from tests.brokerstub.support import fetch

KEYS = [("id-orders", partition) for partition in range(5)]
FOLLOWER, EPOCH = 2, 200


class Leader:
    """A leader's sessions; it leads partitions 0 and 1 of `orders` with leader epoch 3."""

    def __init__(self) -> None:
        ids = count(7)
        self.leader_epochs = {KEYS[0]: 3, KEYS[1]: 3}
        self.sessions = FetchSessions(self.leader_epochs.get, lambda: next(ids))
        self.moved: list[CountingChange] = []

    def take(
        self, request: FetchRequest, *, follower: int = FOLLOWER, epoch: int = EPOCH, now_ms: int = 0
    ) -> FetchAnswer:
        answer, self.moved = self.sessions.take(follower, epoch, request, now_ms)
        return answer

    @property
    def counting(self) -> list[int]:
        return [key[1] for key in KEYS if self.sessions.is_counting(key, FOLLOWER)]


@pytest.fixture
def leader() -> Leader:
    return Leader()


def refusals(answer: FetchAnswer) -> list[tuple[int, int]]:
    return [(one.partition, one.error_code) for one in answer.partitions]


def test_session_0_lists_all_and_gets_an_id(leader: Leader) -> None:
    answer = leader.take(fetch((0, 3), (1, 3)))
    assert (answer.error_code, answer.session, refusals(answer)) == (0, 7, [])
    assert leader.counting == [0, 1]
    assert [one.key for one in leader.moved] == KEYS[:2]


def test_an_empty_fetch_means_all_as_before(leader: Leader) -> None:
    leader.take(fetch((0, 3)))
    answer = leader.take(fetch(session=7, sequence=1), now_ms=500)
    assert (answer, leader.moved, leader.counting) == (FetchAnswer(0, 7, []), [], [0])
    session = leader.sessions.of(FOLLOWER)
    assert session is not None
    assert session.fetched_ms == 500


def test_later_fetches_list_only_changes(leader: Leader) -> None:
    leader.take(fetch((0, 3)))
    leader.take(fetch((1, 3), session=7, sequence=1, forgotten=(0,)), now_ms=9)
    assert leader.counting == [1]
    assert sorted((one.key, one.caught_up_ms) for one in leader.moved) == [(KEYS[0], 0), (KEYS[1], 0)]


def test_a_row_that_does_not_count_is_refused_until_listed_anew_or_forgotten(leader: Leader) -> None:
    answer = leader.take(fetch((0, 2), (1, 4), (2, 0)))
    refused = [(0, Code.FENCED_LEADER_EPOCH), (1, Code.UNKNOWN_LEADER_EPOCH), (2, Code.NOT_LEADER_OR_FOLLOWER)]
    assert refusals(answer) == refused
    assert (leader.counting, leader.moved) == ([], [])
    assert refusals(leader.take(fetch(session=7, sequence=1))) == refused
    answer = leader.take(fetch((0, 3), session=7, sequence=2, forgotten=(2,)))
    assert (refusals(answer), leader.counting) == ([(1, Code.UNKNOWN_LEADER_EPOCH)], [0])


def test_an_entry_begins_to_count_when_the_leader_gets_there(leader: Leader) -> None:
    leader.take(fetch((0, 4), (2, 0)))
    leader.leader_epochs |= {KEYS[0]: 4, KEYS[2]: 0}
    moved = [*leader.sessions.judge_again(KEYS[0]), *leader.sessions.judge_again(KEYS[2])]
    assert ([one.key for one in moved], leader.counting) == ([KEYS[0], KEYS[2]], [0, 2])
    assert refusals(leader.take(fetch(session=7, sequence=1))) == []


def test_an_entry_ceases_to_count_when_the_leader_epoch_moves_on(leader: Leader) -> None:
    leader.take(fetch((0, 3)))
    leader.leader_epochs[KEYS[0]] = 4
    assert [one.key for one in leader.sessions.judge_again(KEYS[0])] == [KEYS[0]]
    assert refusals(leader.take(fetch(session=7, sequence=1))) == [(0, Code.FENCED_LEADER_EPOCH)]


@pytest.mark.parametrize(
    ("request_", "epoch", "code"),
    [
        (fetch(session=8, sequence=1), EPOCH, Code.FETCH_SESSION_ID_NOT_FOUND),
        (fetch(session=7, sequence=2), EPOCH, Code.INVALID_FETCH_SESSION_EPOCH),
        (fetch(session=7, sequence=0), EPOCH, Code.INVALID_FETCH_SESSION_EPOCH),
        (fetch(session=7, sequence=1), EPOCH + 1, Code.FETCH_SESSION_ID_NOT_FOUND),
        (fetch(session=7, sequence=1), EPOCH - 1, Code.STALE_BROKER_EPOCH),
        (fetch((0, 3)), EPOCH - 1, Code.STALE_BROKER_EPOCH),
    ],
)
def test_a_fetch_out_of_step_is_refused_and_changes_nothing(
    leader: Leader, request_: FetchRequest, epoch: int, code: Code
) -> None:
    leader.take(fetch((0, 3)))
    assert leader.take(request_, epoch=epoch, now_ms=9).error_code == code
    assert (leader.moved, leader.counting) == ([], [0])
    session = leader.sessions.of(FOLLOWER)
    assert session is not None
    assert session.fetched_ms == 0


def test_a_new_session_replaces_the_old_one_of_that_follower(leader: Leader) -> None:
    leader.take(fetch((0, 3), (1, 3)))
    assert leader.take(fetch((1, 3)), epoch=EPOCH + 1).session == 8
    assert leader.counting == [1]
    assert {one.key for one in leader.moved} == set(KEYS[:2])


def test_a_silent_follower_is_forgotten_with_the_time_it_was_last_heard(leader: Leader) -> None:
    leader.take(fetch((0, 3)), now_ms=100)
    leader.take(fetch((0, 3)), follower=3, now_ms=200)
    assert leader.sessions.drop_silent(before_ms=100) == []
    assert leader.sessions.drop_silent(before_ms=101) == [CountingChange(KEYS[0], FOLLOWER, 100)]
    assert leader.take(fetch(session=7, sequence=1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_incarnation_of_the_leader_knows_no_session(leader: Leader) -> None:
    leader.take(fetch((0, 3)))
    leader.sessions.begin()
    assert leader.take(fetch(session=7, sequence=1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_are_bounded_and_the_least_recent_one_goes(leader: Leader) -> None:
    for follower in range(SESSIONS_MAX + 1):
        leader.take(fetch((0, 3)), follower=follower + 10, now_ms=follower)
    assert leader.sessions.of(10) is None
    assert leader.sessions.of(11) is not None


class Pair:
    """A follower and its leader, in step; the test chooses the messages lost between them."""

    def __init__(self, partitions_max: int = 10_000) -> None:
        self.leader = Leader()
        self.following = Following(1, partitions_max)
        self.listed: list[int] = []

    def exchange(self, *, lose: str = "") -> bool:
        request = self.following.request()
        self.listed = [row.partition for topic in request.topics for row in topic.partitions]
        answer = None if lose == "request" else self.leader.take(request)
        if answer is None or lose == "answer":
            self.following.on_no_answer()
            return False
        return self.following.on_answer(answer)

    def want(self, *partitions: int) -> None:
        for partition in partitions:
            self.following.want("id-orders", FetchRow(partition, 3, "log"))


def test_a_follower_sends_only_changed_partitions() -> None:
    pair = Pair()
    pair.want(0, 1)
    assert pair.exchange()
    assert pair.listed == [0, 1]
    assert pair.exchange()
    assert pair.listed == []
    pair.following.unwant(KEYS[0])
    assert pair.exchange()
    assert pair.leader.counting == [1]


def test_a_long_list_is_said_in_several_requests() -> None:
    pair = Pair(partitions_max=1)
    pair.want(0, 1)
    pair.exchange()
    assert (pair.listed, pair.following.has_unsent_changes) == ([0], True)
    pair.exchange()
    assert (pair.listed, pair.following.has_unsent_changes, pair.leader.counting) == ([1], False, [0, 1])


def test_a_lost_request_is_made_up_for_by_the_next_one() -> None:
    pair = Pair()
    pair.want(0)
    pair.exchange()
    pair.want(1)
    assert not pair.exchange(lose="request")
    assert pair.exchange()
    assert (pair.listed, pair.leader.counting) == ([1], [0, 1])


def test_after_a_lost_answer_the_sequence_tells_and_all_is_listed_again() -> None:
    pair = Pair()
    pair.want(0)
    pair.exchange()
    pair.want(1)
    assert not pair.exchange(lose="answer")
    assert pair.exchange()  # refused with 71: the next one may go at once
    assert pair.exchange()
    assert (pair.listed, pair.leader.counting) == ([0, 1], [0, 1])


def test_a_refused_first_request_waits_for_its_time() -> None:
    pair = Pair()
    pair.want(0)
    assert not pair.following.on_answer(FetchAnswer(Code.STALE_BROKER_EPOCH))


def test_news_that_come_during_a_request_are_said_by_the_next_one() -> None:
    pair = Pair()
    pair.want(0)
    request = pair.following.request()
    pair.following.want("id-orders", FetchRow(0, 4, "log"))
    pair.following.on_answer(pair.leader.take(request))
    assert pair.following.has_unsent_changes
    pair.exchange()
    assert pair.listed == [0]
