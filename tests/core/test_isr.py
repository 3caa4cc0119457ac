"""In-sync replicas: every answer to a leader's request, in Kafka's order, and states of other writers."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    Committed,
    NotificationRead,
    Refused,
    StateDecided,
    StateFound,
    StateLost,
    Unreadable,
)
from controller.core.codes import Code
from controller.core.decide.isr import verdicts_for
from controller.core.events import AlterPartitionAsked, IsrProposal, ReassignAsked, StatesSeen
from controller.core.model import NO_LEADER, NO_VERSION, RECOVERED, RECOVERING
from controller.core.states import PartitionStatus
from tests.builders import (
    EPOCH,
    LOADED,
    Settled,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    a_state_fact,
    brokers_seen,
    settle,
    state_of,
    steps_of,
    zookeeper_of,
)

P = PartitionStatus


def the_cluster(**given: Any) -> Cluster:
    """orders-0 is led by 1, leader epoch 5, version 3, of replicas 1, 2, 3; broker 4 is live too."""
    states = {"orders-0": a_leadership(1, [1, 2], 5)}
    return a_cluster(**{"live": (1, 2, 3, 4), "orders": [[1, 2, 3]], "states": states, "version": 3, **given})


def ask(*proposals: IsrProposal, by: int = 1, epoch: int | None = None) -> AlterPartitionAsked:
    return AlterPartitionAsked(by, a_broker(by).epoch if epoch is None else epoch, proposals)


def code_of(settled: Settled) -> Code:
    [refused] = settled.refusals
    return refused.code


def test_a_leader_grows_its_isr_and_keeps_its_leader_epoch() -> None:
    cluster = the_cluster()
    settled = settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, 2, 3)))
    state = a_leadership(1, [1, 2, 3], 5)
    assert settled.changes == [
        StateDecided("orders", 0, state, P.ONLINE, P.ONLINE, "leader 1 asked", Cause.ISR_ASKED, by_leader=True)
    ]
    assert (cluster.topics["orders"].partitions[0].state, cluster.topics["orders"].partitions[0].version) == (state, 4)


def test_a_leader_shrinks_its_isr() -> None:
    cluster = the_cluster()
    settle(cluster, ask(a_proposal(cluster, "orders", 0, 1)))
    assert state_of(cluster, "orders") == a_leadership(1, [1], 5)


def test_a_granted_isr_is_stamped_with_our_controller_epoch() -> None:
    cluster = the_cluster(states={"orders-0": a_leadership(1, [1, 2], 5, controller_epoch=2)})
    settle(cluster, ask(a_proposal(cluster, "orders", 0, 1)))
    assert state_of(cluster, "orders").controller_epoch == EPOCH


@pytest.mark.parametrize(("by", "epoch"), [(1, 10), (1, 12), (9, 19)])
def test_a_sender_other_than_the_present_registration_is_refused_whole(by: int, epoch: int) -> None:
    cluster = the_cluster()
    [[refused]] = steps_of(cluster, ask(a_proposal(cluster, "orders", 0, 1), by=by, epoch=epoch))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.partition) == (Code.STALE_BROKER_EPOCH, -1)


#: every row of the reference's table in its order; each row but the last also breaks all rules after its own
ROWS: list[tuple[dict[str, Any], Code]] = [
    ({"topic_id": "?" * 22, "version": 9}, Code.UNKNOWN_TOPIC_ID),
    ({"partition": 7, "version": 9}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ({"partition": 1, "version": 9}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ({"version": 4, "leader_epoch": 4, "recovery": RECOVERING}, Code.NOT_CONTROLLER),
    ({"leader_epoch": 6, "version": 2}, Code.NOT_CONTROLLER),
    ({"leader_epoch": 4, "version": 2, "recovery": RECOVERING}, Code.FENCED_LEADER_EPOCH),
    ({"leader_epoch": 4, "isr": ((1, 11), (2, 12))}, Code.FENCED_LEADER_EPOCH),
    ({"version": 3, "isr": ((1, 11), (2, 12))}, Code.NONE),
    ({"version": 0, "isr": ((1, 11), (2, 12))}, Code.NONE),
    ({"version": 2, "recovery": RECOVERING}, Code.INVALID_UPDATE_VERSION),
    ({"recovery": RECOVERING, "isr": ((1, 11), (2, 99))}, Code.INVALID_REQUEST),
    ({"recovery": RECOVERING, "isr": ((1, 11),)}, Code.INVALID_REQUEST),
    ({"isr": ((1, 11), (2, 12), (4, 14))}, Code.INVALID_REQUEST),
    ({"isr": ((2, 12),)}, Code.INVALID_REQUEST),
    ({"isr": ()}, Code.INVALID_REQUEST),
    ({"isr": ((1, 11), (2, 12), (2, 12))}, Code.INVALID_REQUEST),
    ({"isr": ((1, 11), (3, 99))}, Code.INELIGIBLE_REPLICA),
    ({"isr": ((1, 11), (3, -1))}, Code.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(("given", "code"), ROWS)
def test_a_proposal_is_answered_as_the_table_says(given: dict[str, Any], code: Code) -> None:
    cluster = the_cluster(orders=[[1, 2, 3], [1, 2]], states={"orders-0": a_leadership(1, [1, 2], 5), "orders-1": None})
    proposal = a_proposal(cluster, "orders", 0, 1, 2, 3, **given)
    settled = settle(cluster, ask(proposal))
    assert code_of(settled) is code
    assert (settled.refusals[0].topic_id, settled.refusals[0].partition) == (proposal.topic_id, proposal.partition)
    assert state_of(cluster, "orders") == a_leadership(1, [1, 2], 5)


def test_a_sender_that_does_not_lead_is_refused() -> None:
    cluster = the_cluster()
    assert code_of(settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, 2, 3), by=2))) is Code.INVALID_REQUEST
    assert code_of(settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, 2), by=2))) is Code.INVALID_REQUEST


def test_a_member_that_died_cannot_join() -> None:
    """M54: the leader has not noticed yet that broker 3 is gone."""
    cluster = the_cluster()
    proposal = a_proposal(cluster, "orders", 0, 1, 2, 3)
    settle(cluster, brokers_seen(1, 2, 4))
    assert code_of(settle(cluster, ask(proposal))) is Code.INELIGIBLE_REPLICA


def test_a_member_that_came_back_without_its_disk_cannot_slip_in() -> None:
    """M62: caught up, asked for, gone and back before the question is decided."""
    cluster = the_cluster()
    proposal = a_proposal(cluster, "orders", 0, 1, 2, 3)
    settle(cluster, brokers_seen(1, 2, a_broker(3, epoch=99), 4))
    assert code_of(settle(cluster, ask(proposal))) is Code.INELIGIBLE_REPLICA


def test_a_leader_that_recovered_says_so_and_may_then_grow() -> None:
    cluster = the_cluster(states={"orders-0": a_leadership(1, [1], 5, recovery=RECOVERING)})
    assert code_of(settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, 2)))) is Code.INVALID_REQUEST
    settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, 2, recovery=RECOVERED)))
    assert state_of(cluster, "orders") == a_leadership(1, [1, 2], 5)


def test_a_recovery_state_that_does_not_exist_is_refused() -> None:
    cluster = the_cluster()
    assert code_of(settle(cluster, ask(a_proposal(cluster, "orders", 0, 1, recovery=2)))) is Code.INVALID_REQUEST


def test_a_question_repeated_after_a_lost_answer_is_granted_once() -> None:
    """M13: the retry still names the old version."""
    cluster = the_cluster()
    asked = ask(a_proposal(cluster, "orders", 0, 1, 2, 3))
    zookeeper = zookeeper_of(cluster)
    assert len(settle(cluster, asked, zookeeper).states) == 1
    again = settle(cluster, asked, zookeeper)
    assert code_of(again) is Code.NONE
    [verdict] = verdicts_for(cluster, asked, again.refusals, [])
    assert (verdict.code, verdict.state, verdict.version) == (Code.NONE, a_leadership(1, [1, 2, 3], 5), 4)


def test_each_proposal_gets_its_own_verdict_with_the_standing_state() -> None:
    cluster = the_cluster(orders=[[1, 2, 3], [1, 2]], states={})
    asked = ask(a_proposal(cluster, "orders", 0, 1), a_proposal(cluster, "orders", 1, 1, version=1))
    settled = settle(cluster, asked)
    verdicts = verdicts_for(cluster, asked, settled.refusals, settled.of_states())
    assert [(one.partition, one.code, one.version) for one in verdicts] == [
        (0, Code.NONE, 4),
        (1, Code.INVALID_UPDATE_VERSION, 3),
    ]
    assert [one.state and one.state.isr for one in verdicts] == [(1,), (1, 2)]


def test_a_proposal_that_met_another_writer_is_answered_as_a_version_conflict() -> None:
    cluster = the_cluster()
    asked = ask(a_proposal(cluster, "orders", 0, 1))
    verdicts = verdicts_for(cluster, asked, [], [])
    assert [one.code for one in verdicts] == [Code.INVALID_UPDATE_VERSION]


def look(*facts: Any, notifications: tuple[str, ...] = ()) -> StatesSeen:
    return StatesSeen(facts, dict.fromkeys(notifications, 0))


NOTIFICATION = "/isr_change_notification/isr_change_0000000001"


def test_a_state_written_by_another_is_adopted_and_its_announcement_removed_last() -> None:
    cluster = the_cluster()
    state = a_leadership(1, [1, 2, 3], 5)
    found, read = steps_of(cluster, look(a_state_fact("orders", 0, state, 4), notifications=(NOTIFICATION,)))
    assert found == [StateFound("orders", 0, state, 4, LOADED + 1, "written by somebody else", Cause.STATE_WRITTEN)]
    assert read == [NotificationRead(NOTIFICATION)]


def test_an_announcement_of_nothing_known_is_removed() -> None:
    cluster = the_cluster()
    event = look(a_state_fact("gone", 0, a_leadership(1, [1])), notifications=(NOTIFICATION,))
    assert steps_of(cluster, event) == [[NotificationRead(NOTIFICATION)]]


def test_a_state_believed_already_is_no_news() -> None:
    cluster = the_cluster()
    assert steps_of(cluster, look(a_state_fact("orders", 0, state_of(cluster, "orders"), 3))) == []


def test_a_state_fact_older_than_our_own_write_is_passed_over() -> None:
    cluster = the_cluster()
    assert steps_of(cluster, look(a_state_fact("orders", 0, a_leadership(2, [2], 9), 9, zxid=LOADED - 1))) == []


def test_an_adopted_state_that_names_a_dead_leader_is_repaired_on_top() -> None:
    cluster = the_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders/partitions/0/state", _state(leader=9, isr=[9, 2], leader_epoch=5))
    settled = settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert [type(one) for one in settled.changes] == [StateFound, StateDecided]
    assert state_of(cluster, "orders") == a_leadership(2, [2], 6)
    assert settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper).changes == []


def test_a_partition_never_led_adopts_a_state_made_by_another() -> None:
    cluster = the_cluster(states={"orders-0": None})
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders/partitions/0/state", _state(leader=2, isr=[2], leader_epoch=0))
    settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert state_of(cluster, "orders") == a_leadership(2, [2], 0, controller_epoch=1)


def test_a_state_znode_that_vanished_is_made_again_with_a_higher_leader_epoch() -> None:
    cluster = the_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0")
    settled = settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert [type(one) for one in settled.changes] == [StateLost, StateDecided]
    assert state_of(cluster, "orders") == a_leadership(1, [1, 2], 6)
    assert cluster.topics["orders"].partitions[0].version == 0


def test_a_state_znode_that_vanished_without_a_leader_is_made_again_without_one() -> None:
    cluster = the_cluster(live=(3, 4), states={"orders-0": a_leadership(NO_LEADER, [1], 5)})
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0/state")
    settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert state_of(cluster, "orders") == a_leadership(NO_LEADER, [1], 6)


def test_a_state_that_vanished_after_its_leader_died_is_made_again_under_another() -> None:
    """While its znode was malformed it was left alone, dead leader and all."""
    cluster = the_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.put("/brokers/topics/orders/partitions/0/state", b"{")
    settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    settle(cluster, brokers_seen(2, 3, 4), zookeeper)
    assert state_of(cluster, "orders").leader == 1
    zookeeper.remove("/brokers/topics/orders/partitions/0/state")
    settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper)
    assert state_of(cluster, "orders") == a_leadership(2, [2], 6)


def test_a_state_of_nonsense_is_reported_once_and_the_others_are_adopted() -> None:
    cluster = the_cluster(orders=[[1, 2, 3], [1, 2]])
    facts = (
        a_state_fact("orders", 0, None, trouble="not a state"),
        a_state_fact("orders", 1, a_leadership(1, [1], 0), 4),
    )
    assert [type(one) for one in settle(cluster, look(*facts)).changes] == [Unreadable, StateFound]
    assert settle(cluster, look(*facts), zookeeper_of(cluster)).changes == []


def test_a_state_stamped_by_a_later_controller_is_left_alone() -> None:
    cluster = the_cluster()
    fact = a_state_fact("orders", 0, a_leadership(2, [2], 9, controller_epoch=EPOCH + 1), 4)
    [change] = settle(cluster, look(fact)).changes
    assert isinstance(change, Unreadable)
    assert state_of(cluster, "orders").leader == 1


def test_a_state_that_makes_sense_again_is_adopted_and_forgiven() -> None:
    cluster = the_cluster()
    settle(cluster, look(a_state_fact("orders", 0, None, trouble="not a state")))
    settle(cluster, look(a_state_fact("orders", 0, a_leadership(1, [1], 5), 5, zxid=LOADED + 2)))
    assert cluster.unreadable == {}
    assert state_of(cluster, "orders").isr == (1,)


def test_a_state_of_nonsense_that_is_gone_no_longer_blocks_its_partition() -> None:
    cluster = a_cluster(orders=[[1]], live=(2,), states={"orders-0": None})
    settle(cluster, look(a_state_fact("orders", 0, None, trouble="not a state")))
    settle(cluster, look(a_state_fact("orders", 0, None, zxid=LOADED + 2)))
    assert settle(cluster, brokers_seen(1, 2)).states == {"orders-0": a_leadership(1, [1])}


def _state(leader: int, isr: list[int], leader_epoch: int) -> bytes:
    return f'{{"controller_epoch":1,"leader":{leader},"version":1,"leader_epoch":{leader_epoch},"isr":{isr}}}'.encode()


@pytest.mark.parametrize("online", [(1, 2, 3), (2, 3)])
def test_a_state_that_could_not_be_made_again_is_made_from_the_last_one_later(online: tuple[int, ...]) -> None:
    """ZooKeeper refused the write. The state was created as if it had never existed, with the first live broker as
    leader and leader epoch 0."""
    cluster = the_cluster()
    before = state_of(cluster, "orders")
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0")
    fact = a_state_fact("orders", 0, None, NO_VERSION)
    cluster.apply([Committed(StateLost("orders", 0, LOADED + 1))])
    settle(cluster, brokers_seen(*online), zookeeper)
    settle(cluster, StatesSeen([fact]), zookeeper)
    after = state_of(cluster, "orders")
    assert after.leader_epoch > before.leader_epoch
    assert set(after.isr) <= set(before.isr)
    assert cluster.duties.lost_states == {}


def test_a_partition_whose_state_vanished_is_not_moved_before_another_one_stands() -> None:
    """It was taken for one that no broker holds: its replicas were deleted, and new ones began empty."""
    cluster = the_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0")
    cluster.apply([Committed(StateLost("orders", 0, LOADED + 1))])
    settled = settle(cluster, ReassignAsked({("orders", 0): (4,)}), zookeeper)
    assert [one.code for one in settled.refusals] == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.topics["orders"].partitions[0].replicas == (1, 2, 3)
