"""Failed log directories: the brokers asked, the meaning of answers, and a successor's belief until they come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, Committed, NotificationRead
from controller.core.changes.duties import (
    DeletionQueued,
    FailedDirsFound,
    FailedDirsNoted,
    ReplicasProbed,
)
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, LeaderAndIsrAnswered, LogDirsSeen, TermStarted, TopicsSeen
from controller.core.model import NO_LEADER, RECOVERING
from controller.core.project.requests import requests_for
from tests.builders import (
    LOADED,
    Settled,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    a_topic_fact,
    brokers,
    brokers_seen,
    settle,
    state_of,
    steps_of,
    topic_id_of,
    zookeeper_of,
)
from tests.support.znodes import generic

EVENT = "/log_dir_event_notification/log_dir_event_0000000000"
FAILED_DIRS_OF_1 = "/klamm/failed_dirs/1"


def believing(cluster: Cluster, *changes: Change) -> Cluster:
    cluster.apply(Committed(change, 1, 101) for change in changes)
    return cluster


def suspecting(cluster: Cluster, *broker_ids: int) -> Cluster:
    """As after a failover: these had bad directories under the controller before."""
    cluster.duties.suspect_ids = frozenset(broker_ids)
    return cluster


def replicas(names: Sequence[str]) -> frozenset[tuple[str, int]]:
    pairs = [name.rsplit("-", 1) for name in names]
    return frozenset((topic_id_of(topic), int(number)) for topic, number in pairs)


def answered(
    broker_id: int = 1, *, served: str = "", failed: str = "", epoch: int | None = None
) -> LeaderAndIsrAnswered:
    epoch = 10 + broker_id if epoch is None else epoch
    return LeaderAndIsrAnswered(broker_id, epoch, replicas(served.split()), replicas(failed.split()))


def failed_at(cluster: Cluster, broker_id: int = 1) -> set[str]:
    return {f"{topic}-{number}" for topic, number in cluster.duties.failed_dirs.get(broker_id, ())}


def reasons(settled: Settled) -> set[str]:
    return {one.reason for one in settled.of_states()}


# ---------------------------------------------------------------------- being told, and asking


def test_a_broker_with_a_failed_directory_is_asked_for_all_its_replicas_and_no_other_is() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 3]], users=[[2, 1]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(EVENT, b'{"version":1,"broker":1,"event":1}')
    settled = settle(cluster, LogDirsSeen(frozenset({1}), {EVENT: 0}), zookeeper)
    assert settled.steps == [[ReplicasProbed(1)], [NotificationRead(EVENT)]]
    asked = settled.tellings[0].leaderships
    assert {broker_id: {topic: set(rows) for (topic, _), rows in one.items()} for broker_id, one in asked.items()} == {
        1: {"orders": {0}, "users": {0}}
    }
    assert EVENT not in zookeeper.nodes


@pytest.mark.parametrize("broker_ids", [(), (9,), (-1,)])
def test_an_announcement_that_names_no_live_broker_is_only_removed(broker_ids: Sequence[int]) -> None:
    assert steps_of(a_cluster(orders=[[1]]), LogDirsSeen(frozenset(broker_ids), {EVENT: 0})) == [
        [NotificationRead(EVENT)]
    ]


# ---------------------------------------------------------------------- its answers


def test_failed_replicas_lose_their_leaderships_and_leave_the_isr() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 1, 3], [1, 3]])
    settled = settle(cluster, answered(served="orders-2", failed="orders-0 orders-1"))
    assert settled.states == {"orders-0": a_leadership(2, [2, 3], 1), "orders-1": a_leadership(2, [2, 3], 1)}
    assert reasons(settled) == {"log directory of broker 1"}
    assert failed_at(cluster) == {"orders-0", "orders-1"}


def test_that_a_broker_has_failed_directories_is_written_down_before_anything_moves() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    settled = settle(cluster, answered(failed="orders-0"), zookeeper)
    assert generic(zookeeper.nodes[FAILED_DIRS_OF_1].data) == {"broker_epoch": 11}
    assert [type(change) for change in settled.steps[0]] == [FailedDirsFound, FailedDirsNoted]


def test_everybody_is_told_which_replicas_are_offline_and_which_are_no_more() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]])
    telling = settle(cluster, answered(failed="orders-0")).tellings[-1]
    assert telling.failed_dirs == {1: {("orders", 0)}}
    settled = settle(cluster, answered(served="orders-0"))
    assert [set(rows) for rows in settled.tellings[0].metadata.values()] == [{0}]
    assert settled.tellings[0].failed_dirs == {}


def test_the_last_in_sync_replica_on_a_failed_directory_leaves_no_leader_and_stays_in_the_isr() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    assert settle(cluster, answered(failed="orders-0")).states == {"orders-0": a_leadership(NO_LEADER, [1], 1)}


def test_where_it_is_allowed_a_failed_directory_leads_to_an_unclean_election() -> None:
    cluster = a_cluster(orders=[[1, 2]], unclean=True, states={"orders-0": a_leadership(1, [1])})
    settled = settle(cluster, answered(failed="orders-0"))
    assert settled.states == {"orders-0": a_leadership(2, [2], 1, recovery=RECOVERING)}
    assert reasons(settled) == {"log directory of broker 1; unclean election"}


def test_a_mended_replica_that_was_the_last_in_sync_leads_again() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])})
    zookeeper = zookeeper_of(cluster)
    settle(cluster, answered(failed="orders-0"), zookeeper)
    settled = settle(cluster, answered(served="orders-0"), zookeeper)
    assert settled.states == {"orders-0": a_leadership(1, [1], 2)}
    assert (failed_at(cluster), FAILED_DIRS_OF_1 in zookeeper.nodes) == (set(), False)


def test_an_answer_counts_only_for_the_replicas_it_names() -> None:
    cluster = a_cluster(orders=[[1, 2]] * 4)
    settle(cluster, answered(failed="orders-0 orders-1"))
    settle(cluster, answered(served="orders-0", failed="orders-2"))
    assert failed_at(cluster) == {"orders-1", "orders-2"}


def test_an_answer_without_news_decides_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2], [1, 2]])
    assert steps_of(cluster, answered(served="orders-0 orders-1")) == []
    settle(cluster, answered(failed="orders-0"))
    assert steps_of(cluster, answered(served="orders-1", failed="orders-0")) == []


@pytest.mark.parametrize("answer", [answered(failed="orders-0", epoch=5), answered(9, failed="orders-0")])
def test_an_answer_of_another_life_means_nothing(answer: LeaderAndIsrAnswered) -> None:
    assert steps_of(a_cluster(orders=[[1, 2]]), answer) == []


def test_an_answer_about_a_forgotten_topic_means_nothing() -> None:
    assert steps_of(a_cluster(orders=[[1, 2]]), answered(failed="users-0")) == []


def test_an_answer_about_a_partition_that_does_not_exist_changes_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    assert settle(cluster, answered(failed="orders-0 orders-7")).states == {"orders-0": a_leadership(2, [2], 1)}


def test_a_topic_on_its_way_out_is_not_led_elsewhere() -> None:
    cluster = believing(a_cluster(orders=[[1, 2]]), DeletionQueued("orders", False))
    assert settle(cluster, answered(failed="orders-0")).states == {}


# ---------------------------------------------------------------------- as long as it is failed


def test_an_isr_does_not_grow_by_a_failed_replica() -> None:
    cluster = a_cluster(orders=[[2, 1], [2, 1]], states={"orders-1": a_leadership(2, [2])})
    settle(cluster, answered(failed="orders-0"))
    asked = AlterPartitionAsked(2, 12, [a_proposal(cluster, "orders", number, 2, 1) for number in (0, 1)])
    settled = settle(cluster, asked)
    assert [(one.partition, one.code) for one in settled.refusals] == [(0, Code.INELIGIBLE_REPLICA)]
    assert set(settled.states) == {"orders-1"}


def test_a_failed_replica_is_not_elected_and_a_sound_one_of_the_same_broker_is() -> None:
    cluster = a_cluster(orders=[[2, 1], [2, 1]])
    believing(cluster, FailedDirsFound(1, 11, frozenset({("orders", 0)})))
    settled = settle(cluster, brokers_seen(1, 3))
    assert {name: state.leader for name, state in settled.states.items()} == {"orders-0": NO_LEADER, "orders-1": 1}


def test_failed_replicas_are_forgotten_with_the_topic() -> None:
    """One made anew under its name has new replicas, which may lie elsewhere."""
    cluster = believing(
        a_cluster(orders=[[1]], users=[[1]]), FailedDirsFound(1, 11, frozenset({("orders", 0), ("users", 0)}))
    )
    settle(cluster, TopicsSeen([a_topic_fact("users", [1])], LOADED + 20, frozenset({"users"})))
    assert failed_at(cluster) == {"users-0"}


@pytest.mark.parametrize("seen", [(2, 3), (a_broker(1, epoch=99), 2, 3)])
def test_failed_replicas_are_forgotten_with_the_registration(seen: tuple[int, ...]) -> None:
    cluster = believing(a_cluster(orders=[[1, 2]]), FailedDirsFound(1, 11, frozenset({("orders", 0)})))
    settle(cluster, brokers_seen(*seen))
    assert failed_at(cluster) == set()


# ---------------------------------------------------------------------- over a failover


def test_a_suspect_is_elected_only_without_another_candidate() -> None:
    cluster = suspecting(a_cluster(orders=[[3, 1, 2], [3, 1]]), 1)
    settled = settle(cluster, brokers_seen(1, 2))
    assert {name: state.leader for name, state in settled.states.items()} == {"orders-0": 2, "orders-1": 1}


@pytest.mark.parametrize("failed", ["", "orders-0"])
def test_a_suspect_that_answered_is_none_any_more(failed: str) -> None:
    cluster = suspecting(a_cluster(orders=[[1, 2]]), 1, 2)
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(FAILED_DIRS_OF_1, b'{"broker_epoch":11}')
    settle(cluster, answered(served="" if failed else "orders-0", failed=failed), zookeeper)
    assert cluster.duties.suspect_ids == {2}
    assert (FAILED_DIRS_OF_1 in zookeeper.nodes) is bool(failed)


def test_a_suspect_that_goes_is_none_any_more() -> None:
    cluster = suspecting(a_cluster(orders=[[1, 2]]), 1)
    settle(cluster, brokers_seen(2, 3))
    assert cluster.duties.suspect_ids == frozenset()


def test_a_suspect_is_named_to_its_outbox_before_it_has_said_anything() -> None:
    cluster = suspecting(a_cluster(orders=[[1, 2]]), 1)
    assert requests_for(cluster, []).failed_dirs == {1: frozenset()}


def test_a_new_term_forgets_the_failures_of_an_earlier_incarnation() -> None:
    cluster = a_cluster(live=(), orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(FAILED_DIRS_OF_1, b'{"broker_epoch":5}')
    settle(cluster, TermStarted(brokers(1, 2), 200, stale_ids=frozenset({1})), zookeeper)
    assert FAILED_DIRS_OF_1 not in zookeeper.nodes
    assert state_of(cluster, "orders").leader == 1
