"""Brokers that go, join, bounce or change, alone and together: one reading of the registrations decides all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    BrokerChanged,
    BrokerGone,
    BrokerLive,
    StateDecided,
    SubjectParked,
)
from controller.core.changes.duties import BrokerNoted
from controller.core.decide.brokers import RegistrationChanges, registration_changes
from controller.core.events import StatesSeen
from controller.core.formats import encode_state
from controller.core.model import NO_LEADER, RECOVERING
from controller.core.project.znodes import state_path
from controller.core.states import PartitionStatus
from tests.builders import (
    EPOCH,
    a_broker,
    a_cluster,
    a_leadership,
    a_state_fact,
    believed,
    brokers,
    brokers_seen,
    settle,
    snapshot,
    state_of,
    steps_of,
    zookeeper_of,
)
from tests.core.model_zookeeper import ModelZooKeeper

P = PartitionStatus


def test_one_reading_decides_which_brokers_joined_bounced_changed_and_went() -> None:
    changed = registration_changes(brokers(1, 2, 3), brokers(a_broker(1, epoch=99), a_broker(2, port=9), 4))
    assert changed == RegistrationChanges(
        joined=(a_broker(4),),
        bounced=(a_broker(1, epoch=99),),
        changed=(a_broker(2, port=9),),
        gone=(a_broker(3),),
    )


def test_a_reading_that_equals_belief_decides_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    assert steps_of(cluster, brokers_seen(1, 2, 3)) == []


def test_a_dead_leader_is_replaced_and_leaves_the_isr_in_one_write() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 3, 1]])
    assert steps_of(cluster, brokers_seen(2, 3)) == [
        [
            BrokerGone(1, 11, "registration gone", Cause.BROKER_GONE),
            StateDecided(
                "orders", 0, a_leadership(2, [2, 3], 1), P.ONLINE, P.ONLINE, "brokers gone 1", Cause.BROKER_GONE
            ),
            StateDecided(
                "orders", 1, a_leadership(2, [2, 3], 1), P.ONLINE, P.ONLINE, "brokers gone 1", Cause.BROKER_GONE
            ),
        ]
    ]


def test_only_partitions_of_the_broker_concerned_are_touched() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3], [3, 1]])
    assert set(settle(cluster, brokers_seen(1, 3)).states) == {"orders-0", "orders-1"}


def test_a_dead_broker_that_was_out_of_sync_costs_no_write() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    assert steps_of(cluster, brokers_seen(1, 3)) == [[BrokerGone(2, 12, "registration gone", Cause.BROKER_GONE)]]


def test_two_brokers_that_die_together_cost_one_write_per_partition() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [3, 1, 2]])
    settled = settle(cluster, brokers_seen(3))
    assert settled.states == {"orders-0": a_leadership(3, [3], 1), "orders-1": a_leadership(3, [3], 1)}
    assert [one.reason for one in settled.of_states()] == ["brokers gone 1,2"] * 2


def test_an_isr_that_vanishes_together_is_kept_without_a_leader() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [change] = settle(cluster, brokers_seen(3)).of_states()
    assert change.state == a_leadership(NO_LEADER, [1, 2], 1)
    assert (change.source, change.target) == (P.ONLINE, P.OFFLINE)


def test_a_broker_that_joins_is_live_and_leads_partitions_that_waited_for_it() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(2, 3), states={"orders-0": a_leadership(NO_LEADER, [1], 4)})
    assert steps_of(cluster, brokers_seen(1, 2, 3)) == [
        [
            BrokerLive(a_broker(1), "joined", Cause.BROKER_JOINED),
            StateDecided(
                "orders", 0, a_leadership(1, [1], 5), P.OFFLINE, P.ONLINE, "brokers joined 1", Cause.BROKER_JOINED
            ),
        ],
        [BrokerNoted(a_broker(1))],
    ]


def test_a_broker_outside_the_isr_brings_no_leader() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(3,), states={"orders-0": a_leadership(NO_LEADER, [1], 4)})
    assert settle(cluster, brokers_seen(2, 3)).states == {}


def test_a_partition_never_led_is_led_by_the_first_replica_that_joins() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(3,), states={"orders-0": None})
    [change] = settle(cluster, brokers_seen(2, 3)).of_states()
    assert (change.state, change.source, change.target) == (a_leadership(2, [2], 0), P.NEW, P.ONLINE)


def test_a_bounce_is_seen_by_the_registration_and_moves_the_leadership() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]])
    again = a_broker(1, epoch=99)
    assert steps_of(cluster, brokers_seen(again, 2, 3)) == [
        [
            BrokerGone(1, 11, "bounced", Cause.BROKER_BOUNCED),
            BrokerLive(again, "bounced", Cause.BROKER_BOUNCED),
            StateDecided(
                "orders", 0, a_leadership(2, [2], 1), P.ONLINE, P.ONLINE, "brokers bounced 1", Cause.BROKER_BOUNCED
            ),
            StateDecided(
                "orders", 1, a_leadership(2, [2], 1), P.ONLINE, P.ONLINE, "brokers bounced 1", Cause.BROKER_BOUNCED
            ),
        ],
        [BrokerNoted(again)],
    ]


def test_a_bounced_sole_isr_member_leads_again_with_a_higher_leader_epoch() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1], 4)})
    assert settle(cluster, brokers_seen(a_broker(1, epoch=99), 2, 3)).states == {"orders-0": a_leadership(1, [1], 5)}


def test_a_bounce_is_not_forgotten_when_its_write_meets_another_writer() -> None:
    """A leader below protocol level 2.7 shrank its ISR, told no broker yet, and bounced."""
    cluster = a_cluster(orders=[[1, 2, 3]])
    zookeeper = zookeeper_of(cluster)
    shrunk = a_leadership(1, [1, 3])
    zookeeper.put(state_path("orders", 0), encode_state(shrunk))
    settled = settle(cluster, brokers_seen(a_broker(1, epoch=99), 2, 3), zookeeper)
    assert [type(one).__name__ for one in settled.conflicts] == ["StateDecided"]
    found = StatesSeen([a_state_fact("orders", 0, shrunk, 1, zookeeper.zxid)])
    assert settle(cluster, found, zookeeper).states == {"orders-0": a_leadership(3, [3], 1)}
    assert settle(cluster, found, zookeeper).states == {}


def test_a_bounced_sole_isr_member_keeps_leading() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1], 4)})
    settle(cluster, brokers_seen(a_broker(1, epoch=99), 2, 3))
    assert (state_of(cluster, "orders").leader, state_of(cluster, "orders").isr) == (1, (1,))


def test_everybody_bounced_and_everybody_with_a_candidate_leads() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    settle(cluster, brokers_seen(*(a_broker(one, epoch=90 + one) for one in (1, 2, 3))))
    assert (state_of(cluster, "orders").leader, state_of(cluster, "orders").isr) == (1, (1, 2, 3))


def test_a_changed_registration_moves_no_leadership() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    changed = a_broker(1, port=9999)
    assert steps_of(cluster, brokers_seen(changed, 2, 3)) == [[BrokerChanged(changed)], [BrokerNoted(changed)]]


def test_going_joining_bouncing_and_changing_are_one_decision() -> None:
    cluster = a_cluster(orders=[[1, 2, 3, 4]], states={"orders-0": a_leadership(1, [1, 2, 3])})
    seen = brokers_seen(a_broker(2, epoch=99), a_broker(3, port=9), 4)
    [step, noted] = steps_of(cluster, seen)
    assert [type(one).__name__ for one in step] == [
        "BrokerGone",
        "BrokerGone",
        "BrokerLive",
        "BrokerLive",
        "BrokerChanged",
        "StateDecided",
    ]
    assert isinstance(step[-1], StateDecided)
    assert step[-1].state == a_leadership(3, [3], 1)
    assert step[-1].reason == "brokers gone 1; bounced 2; joined 4; changed 3"
    assert noted == [BrokerNoted(one) for one in (a_broker(4), a_broker(2, epoch=99), a_broker(3, port=9))]


def test_belief_after_a_broker_went_remembers_its_registration() -> None:
    cluster = a_cluster()
    settle(cluster, brokers_seen(1, 3))
    assert (set(cluster.brokers), set(cluster.live_ids), cluster.gone) == ({1, 3}, {1, 3}, brokers(2))
    settle(cluster, brokers_seen(1, a_broker(2, epoch=99), 3))
    assert (cluster.brokers[2].epoch, cluster.gone) == (99, {})


def test_an_unclean_choice_is_made_only_where_allowed() -> None:
    states = {"orders-0": a_leadership(1, [1], 4)}
    careful, daring = (a_cluster(orders=[[1, 2]], states=states, unclean=allowed) for allowed in (False, True))
    assert settle(careful, brokers_seen(2, 3)).states == {"orders-0": a_leadership(NO_LEADER, [1], 5)}
    assert settle(daring, brokers_seen(2, 3)).states == {"orders-0": a_leadership(2, [2], 5, recovery=RECOVERING)}


def test_a_state_that_made_no_sense_is_left_alone() -> None:
    cluster = a_cluster(orders=[[1, 2], [1, 2]])
    cluster.unreadable["orders", 0] = ("not a state", 5)
    assert set(settle(cluster, brokers_seen(2, 3)).states) == {"orders-1"}


def go(cluster: Cluster, zookeeper: ModelZooKeeper, live: Sequence[int]) -> None:
    settled = settle(cluster, brokers_seen(*live), zookeeper)
    assert not settled.conflicts
    assert not settled.of(SubjectParked)


@pytest.mark.parametrize("deaths", list(permutations((1, 2, 3))))
def test_the_isr_never_becomes_empty_in_any_order_of_deaths_and_returns(deaths: tuple[int, ...]) -> None:
    """M55: with unclean off, leadership returns only with the last ISR member."""
    for returns in permutations((1, 2, 3)):
        cluster = a_cluster(orders=[[1, 2, 3]], live=(1, 2, 3, 4))
        zookeeper = zookeeper_of(cluster)
        live = [1, 2, 3, 4]
        for broker_id in deaths:
            live.remove(broker_id)
            go(cluster, zookeeper, live)
            assert state_of(cluster, "orders").isr
        last = deaths[-1]
        assert state_of(cluster, "orders") == a_leadership(NO_LEADER, [last], 3)
        for broker_id in returns:
            live.append(broker_id)
            go(cluster, zookeeper, live)
            leads = last if last in live else NO_LEADER
            assert state_of(cluster, "orders") == a_leadership(leads, [last], 3 if leads == NO_LEADER else 4)


def test_a_parked_topic_is_left_out_and_the_others_go_on() -> None:
    cluster = a_cluster(orders=[[1, 2]], payments=[[1, 2]])
    cluster.parked["topic orders"] = "a bug"
    assert set(settle(cluster, brokers_seen(2, 3)).states) == {"payments-0"}


def test_all_brokers_gone_leaves_every_partition_without_a_leader() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 3, 1]])
    settle(cluster, brokers_seen())
    assert {one.state.leader for one in believed(cluster).values() if one.state} == {NO_LEADER}
    settle(cluster, brokers_seen(3))
    assert {one.state.leader for one in believed(cluster).values() if one.state} == {3}


def test_each_write_is_stamped_with_our_controller_epoch() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1, 2], 4, controller_epoch=3)})
    [change] = settle(cluster, brokers_seen(2, 3)).of_states()
    assert change.state.controller_epoch == EPOCH


def test_deciding_leaves_belief_untouched() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]])
    before = snapshot(cluster)
    steps_of(cluster, brokers_seen(a_broker(1, epoch=99), 3, 4))
    assert snapshot(cluster) == before
