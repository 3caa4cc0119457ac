"""One partition's replication: each of its rules by itself. `test_replication_model.py` has them all together."""

from __future__ import annotations

import pytest

from brokerstub.records.errors import (
    FencedError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StaleFollowerError,
    UnknownEpochError,
)
from brokerstub.records.log import Log, LogConfig
from brokerstub.records.replication import Fetch, Follower, Leader, Truncated
from tests.fakes.disk import SimulatedDisk
from tests.records.support import START, a_batch, offsets_in

LAG_MS = 10_000
LARGE = 1 << 20
CONFIG = LogConfig(segment_bytes=400)


def a_log(*epochs: int) -> Log:
    """A record of each of these leader epochs."""
    log = Log(SimulatedDisk(), "orders-0", CONFIG)
    for epoch in epochs:
        log.append(a_batch(), epoch, START)
    return log


def leading(log: Log, epoch: int = 1, isr: tuple[int, ...] = (1, 2, 3), *, high_watermark: int = 0) -> Leader:
    return Leader(
        log, 1, epoch, replicas=(1, 2, 3), isr=isr, high_watermark=high_watermark, lag_ms=LAG_MS, now_ms=START
    )


def following(
    log: Log, broker_id: int = 2, epoch: int = 1, *, broker_epoch: int = 7, high_watermark: int = 0
) -> Follower:
    return Follower(log, broker_id, broker_epoch, epoch, high_watermark)


def exchange(leader: Leader, follower: Follower, now_ms: int = START) -> Truncated | None:
    asked = follower.fetch()
    return follower.take(asked, leader.fetched(asked, LARGE, now_ms), now_ms)


def in_the_isr(leader: Leader, now_ms: int = START) -> tuple[int, ...]:
    return leader.wanted_isr(now_ms, lambda _, __: True)


def test_a_record_is_seen_when_all_of_the_isr_have_it() -> None:
    leader, two, three = leading(a_log()), following(a_log()), following(a_log(), 3)
    appended = leader.append(a_batch(), START)
    for follower, is_replicated in ((two, False), (two, False), (three, False), (three, True)):
        exchange(leader, follower)
        assert leader.is_replicated(appended, 2) == is_replicated
        assert bool(leader.read(0, LARGE)) == is_replicated
    assert (two.high_watermark, three.high_watermark) == (0, 1)
    exchange(leader, two)
    assert two.high_watermark == 1
    assert leader.ends() == {1: 1, 2: 1, 3: 1}


def test_a_follower_out_of_the_isr_is_not_waited_for() -> None:
    leader, two = leading(a_log(), isr=(1, 2)), following(a_log())
    leader.append(a_batch(), START)
    exchange(leader, two)
    exchange(leader, two)
    assert leader.high_watermark == 1
    assert leader.ends() == {1: 1, 2: 1, 3: -1}


def test_a_requested_isr_member_is_waited_for_at_once() -> None:
    """The controller may have granted it already, and it may be elected."""
    leader, two = leading(a_log(), isr=(1,)), following(a_log())
    exchange(leader, two)
    assert in_the_isr(leader) == (1, 2)
    leader.ask((1, 2))
    leader.append(a_batch(), START)
    assert leader.high_watermark == 0
    leader.take_isr((1,))
    assert leader.high_watermark == 1


def test_a_smaller_isr_that_was_only_asked_for_changes_nothing() -> None:
    leader = leading(a_log(0))
    leader.ask((1,))
    assert leader.high_watermark == 0
    leader.take_isr((1,))
    assert leader.high_watermark == 1


def test_too_few_in_the_isr() -> None:
    leader, two = leading(a_log(), isr=(1, 2)), following(a_log())
    with pytest.raises(NotEnoughReplicasError, match="replicas is 3"):
        leader.append(a_batch(), START, min_isr=3)
    assert leader.log.end_offset == 0
    appended = leader.append(a_batch(), START, min_isr=2)
    leader.take_isr((1,))
    with pytest.raises(NotEnoughReplicasAfterAppendError):
        leader.is_replicated(appended, 2)
    exchange(leader, two)
    assert leader.is_replicated(appended, 1)


def test_a_lagging_follower_leaves_and_returns_with_the_leaders_records() -> None:
    leader, two, three = leading(a_log()), following(a_log()), following(a_log(), 3)
    leader.append(a_batch(), START)
    for _ in range(2):
        exchange(leader, two)
    at = leader.lagging_at(3)
    assert at == START + LAG_MS + 1
    assert in_the_isr(leader, at - 1) == (1, 2, 3)
    assert in_the_isr(leader, at) == (1, 2)
    leader.take_isr((1, 2))
    exchange(leader, two, at)
    leader.append(a_batch(), at)
    exchange(leader, three, at)
    assert in_the_isr(leader, at) == (1, 2), "it asked for what it misses"
    exchange(leader, two, at)
    exchange(leader, two, at)
    exchange(leader, three, at)
    assert in_the_isr(leader, at) == (1, 2, 3)
    assert leader.wanted_isr(at, lambda broker_id, epoch: (broker_id, epoch) != (3, 7)) == (1, 2)


def test_a_follower_that_keeps_up_with_a_busy_leader_stays() -> None:
    """It never has everything; it has the records that existed when it asked before."""
    leader, two = leading(a_log(), isr=(1, 2)), following(a_log())
    for step in range(10):
        now_ms = START + step * LAG_MS // 2
        leader.append(a_batch(), now_ms)
        exchange(leader, two, now_ms)
        assert in_the_isr(leader, now_ms) == (1, 2)


def test_a_stuck_follower_leaves_though_it_fetches() -> None:
    leader, two = leading(a_log(), isr=(1, 2)), following(a_log())
    leader.append(a_batch(), START)
    stuck = two.fetch()
    for seconds in range(11):
        leader.append(a_batch(), START + 1_000 * seconds)
        leader.fetched(stuck, LARGE, START + 1_000 * seconds)
    assert in_the_isr(leader, START + 10_000) == (1, 2)
    assert in_the_isr(leader, START + 10_001) == (1,)


def test_a_follower_with_less_than_the_leaders_start_may_not_join() -> None:
    """Its predecessor may have acknowledged it, and this leader does not know yet that it was."""
    leader, two = leading(a_log(0, 0), isr=(1, 3)), following(a_log(0))
    exchange(leader, two)
    assert leader.high_watermark == 0
    assert in_the_isr(leader) == (1, 3)
    exchange(leader, two)
    assert in_the_isr(leader) == (1, 3, 2), "staying members first, then the returning one"


def test_an_earlier_incarnation_counts_for_nothing() -> None:
    leader, two = leading(a_log(0), isr=(1,)), following(a_log(0), broker_epoch=7)
    late = two.fetch()
    exchange(leader, following(a_log(), broker_epoch=8))
    assert leader.ends()[2] == 0
    with pytest.raises(StaleFollowerError):
        leader.fetched(late, LARGE, START)
    assert in_the_isr(leader) == (1,)
    assert (leader.broker_epoch_of(2), leader.broker_epoch_of(3)) == (8, -1)


def test_strangers_and_other_leader_epochs_are_refused() -> None:
    leader = leading(a_log(), 5)
    for fetch, refusal in (
        (Fetch(2, 7, 4, 0, -1), FencedError),
        (Fetch(2, 7, 6, 0, -1), UnknownEpochError),
        (Fetch(4, 7, 5, 0, -1), StaleFollowerError),
        (Fetch(2, 7, 5, 0, 6), UnknownEpochError),
    ):
        with pytest.raises(refusal):
            leader.fetched(fetch, LARGE, START)
    leader.check_epoch(-1)


def test_an_answer_that_comes_late_is_passed_over() -> None:
    leader, two = leading(a_log(0, 0)), following(a_log())
    asked = two.fetch()
    answer = leader.fetched(asked, LARGE, START)
    two.take(asked, answer, START)
    assert two.take(asked, answer, START) is None
    assert two.log.end_offset == 2


def test_records_that_the_leader_does_not_have_go() -> None:
    """Of equal length, and different: only leader epochs tell."""
    leader, two = leading(a_log(0, 0, 2, 2), 3), following(a_log(0, 0, 1, 1), epoch=3, high_watermark=3)
    assert exchange(leader, two) == Truncated(2, 4, 1)
    assert (two.log.end_offset, two.high_watermark) == (2, 2)
    assert leader.ends()[2] == -1, "what it asked with was no log of the leader's"
    exchange(leader, two)
    assert two.log.read(0, LARGE) == leader.log.read(0, LARGE)


def test_several_epochs_may_have_to_go_one_after_the_other() -> None:
    leader, two = leading(a_log(0, 0, 0, 6), 7), following(a_log(0, 0, 3, 4, 5, 5), epoch=7)
    lost = []
    while len(lost) < 5 and (truncated := exchange(leader, two)):
        lost.append(truncated)
    assert lost[0].end == 6
    assert lost[-1].start == 2
    exchange(leader, two)
    assert two.log.read(0, LARGE) == leader.log.read(0, LARGE)


def test_a_leader_that_wrote_nothing_follows_one_that_did() -> None:
    log = a_log(0)
    leading(log, 1)
    leader, two = leading(a_log(0, 0, 0), 2), following(log, epoch=2)
    for _ in range(3):
        assert exchange(leader, two) is None
    assert two.log.end_offset == 3


def test_a_follower_begins_where_the_leader_still_has_records() -> None:
    ahead = a_log(*[0] * 12)
    ahead.advance_start(9)
    leader, two = leading(ahead, high_watermark=12), following(a_log(0, 0))
    exchange(leader, two)
    assert (two.log.start_offset, two.log.end_offset) == (9, 9)
    for _ in range(2):  # a segment each
        exchange(leader, two)
    assert (two.log.start_offset, two.log.end_offset) == (9, 12)
    assert offsets_in(two.log.read(9, LARGE)) == [(9, 10), (10, 11), (11, 12)]
    leader.log.advance_start(11)
    exchange(leader, two)
    assert (two.log.start_offset, two.high_watermark) == (11, 12)


def test_a_follower_that_knows_no_epoch_and_has_more_is_cut() -> None:
    behind = Log(SimulatedDisk(), "orders-0", CONFIG, start_offset=500)
    leader, two = leading(a_log(0)), following(behind)
    exchange(leader, two)
    assert (two.log.start_offset, two.log.end_offset) == (0, 0)
