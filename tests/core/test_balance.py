"""Elections on request: preferred ones by hand, by request node and by the clock; unclean ones by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause
from controller.core.changes.cluster import (
    Change,
    Committed,
    Refused,
    StateDecided,
    TopicWritten,
)
from controller.core.changes.duties import (
    DeletionQueued,
    DrainGranted,
    ElectionsFailed,
    FailedDirsFound,
    NodeRemoved,
    OperatorErrorReported,
)
from controller.core.codes import Code
from controller.core.elections import preferred
from controller.core.events import ElectAsked, ElectionNodeSeen, TimePassed
from controller.core.model import NO_LEADER, RECOVERING, Assignment
from controller.core.project.requests import requests_for
from controller.core.project.znodes import PREFERRED_ELECTION
from tests.builders import (
    EPOCH,
    Settled,
    a_cluster,
    a_leadership,
    settle,
    state_of,
    steps_of,
    zookeeper_of,
)
from tests.core.model_zookeeper import ModelZooKeeper


def believing(cluster: Cluster, *changes: Change) -> Cluster:
    """The cluster, with these changes believed as if they stood."""
    cluster.apply(Committed(change, 1, 101) for change in changes)
    return cluster


def moved(count: int, of: int) -> Cluster:
    """Topic `orders`: `of` partitions of brokers 1 and 2, the first `count` of them led by 2; 3 leads its own."""
    states = {f"orders-{number}": a_leadership(2, [1, 2], 4) for number in range(count)}
    return a_cluster(orders=[[1, 2]] * of + [[3, 1]], states=states)


def elect(cluster: Cluster, *partitions: tuple[str, int], is_unclean: bool = False) -> Settled:
    return settle(cluster, ElectAsked(is_unclean, partitions or None))


def codes(settled: Settled) -> dict[str, Code]:
    return {f"{one.subject.removeprefix('topic ')}-{one.partition}": one.code for one in settled.refusals}


# ---------------------------------------------------------------------- preferred


def test_the_first_replica_leads_again_and_the_isr_keeps_its_order() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]], states={"orders-0": a_leadership(2, [3, 2, 1], 4)})
    [change] = elect(cluster, ("orders", 0)).of_states()
    assert change.state == a_leadership(1, [3, 2, 1], 5)
    assert change.reason == "preferred election asked"


def test_a_recovering_leadership_is_still_recovering_after_a_preferred_election() -> None:
    state = a_leadership(2, [2, 1], 4, recovery=RECOVERING)
    assert preferred((1, 2), state, frozenset({1, 2}), EPOCH) == a_leadership(1, [2, 1], 5, recovery=RECOVERING)


def test_all_replicas_that_live_are_told_the_new_leader() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]], live=(1, 2), states={"orders-0": a_leadership(2, [2, 1], 4)})
    [telling] = elect(cluster, ("orders", 0)).tellings
    assert set(telling.leaderships) == {1, 2}
    assert set(telling.metadata) == set(telling.leaderships[1])


@pytest.mark.parametrize("broken", ["gone", "out of sync", "draining", "bad directory"])
def test_an_election_that_the_first_replica_cannot_win_changes_nothing(broken: str) -> None:
    isr = [2] if broken == "out of sync" else [1, 2]
    live = (2, 3) if broken == "gone" else (1, 2, 3)
    cluster = a_cluster(orders=[[1, 2]], live=live, states={"orders-0": a_leadership(2, isr, 4)})
    if broken == "draining":
        believing(cluster, DrainGranted(1, 11, is_shutdown=False))
    if broken == "bad directory":
        believing(cluster, FailedDirsFound(1, 11, frozenset({("orders", 0)})))
    settled = elect(cluster, ("orders", 0))
    assert codes(settled) == {"orders-0": Code.PREFERRED_LEADER_NOT_AVAILABLE}
    assert settled.writes == [[]]
    assert state_of(cluster, "orders") == a_leadership(2, isr, 4)


def test_an_election_that_is_not_needed_raises_no_leader_epoch() -> None:
    settled = elect(a_cluster(orders=[[1, 2]]), ("orders", 0))
    assert codes(settled) == {"orders-0": Code.ELECTION_NOT_NEEDED}
    assert settled.writes == [[]]


def test_each_partition_of_a_request_has_its_own_answer_and_one_that_fails_stops_no_other() -> None:
    states = {"orders-1": a_leadership(2, [2, 1]), "users-0": None, "ended-0": a_leadership(2, [2, 1])}
    cluster = a_cluster(orders=[[1, 2], [1, 2]], users=[[9]], ended=[[1, 2]], states=states)
    believing(cluster, DeletionQueued("ended", False))
    wanted = [("orders", 1), ("orders", 0), ("orders", 7), ("orders", -1), ("users", 0), ("ended", 0), ("nothing", 0)]
    settled = elect(cluster, *wanted)
    assert set(settled.states) == {"orders-1"}
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(settled) == {
        "orders-0": Code.ELECTION_NOT_NEEDED,
        "orders-7": unknown,
        "orders--1": unknown,
        "users-0": unknown,
        "ended-0": Code.INVALID_TOPIC_EXCEPTION,
        "nothing-0": unknown,
    }


def test_a_partition_named_twice_is_elected_once() -> None:
    cluster = moved(1, of=1)
    assert len(elect(cluster, ("orders", 0), ("orders", 0)).changes) == 1


def test_a_request_for_all_is_quiet_about_those_that_need_nothing() -> None:
    assert set(elect(moved(2, of=4)).states) == {"orders-0", "orders-1"}
    assert elect(moved(2, of=4)).refusals == []


def test_a_request_for_all_names_those_that_need_an_election_and_cannot_have_one() -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]], live=(2,), states={"orders-0": a_leadership(2, [2], 1)})
    assert codes(elect(cluster)) == {"orders-0": Code.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_decided_election_is_not_decided_again() -> None:
    cluster = moved(1, of=1)
    elect(cluster)
    assert steps_of(cluster, ElectAsked(False)) == []


# ---------------------------------------------------------------------- unclean


def test_an_unclean_election_by_hand_is_marked_and_recovering() -> None:
    cluster = a_cluster(
        orders=[[1, 2, 3], [1, 2]],
        live=(2, 3),
        states={"orders-0": a_leadership(NO_LEADER, [1], 4), "orders-1": a_leadership(NO_LEADER, [1], 4)},
    )
    [change] = elect(cluster, ("orders", 0), is_unclean=True).of_states()
    assert change.state == a_leadership(2, [2], 5, recovery=RECOVERING)
    assert change.reason == "unclean election asked; unclean election"
    assert state_of(cluster, "orders", 1).leader == NO_LEADER, "only the named partition"


def test_an_unclean_election_leaves_a_partition_with_a_leader_alone() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2], 4)})
    assert codes(elect(cluster, ("orders", 0), is_unclean=True)) == {"orders-0": Code.ELECTION_NOT_NEEDED}


def test_an_unclean_election_without_an_online_replica_elects_none_and_writes_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]], live=(3,), states={"orders-0": a_leadership(NO_LEADER, [1], 4)})
    settled = elect(cluster, ("orders", 0), is_unclean=True)
    assert codes(settled) == {"orders-0": Code.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert settled.writes == [[]]


def test_an_unclean_election_passes_over_a_replica_on_a_bad_directory() -> None:
    cluster = a_cluster(orders=[[1, 2, 3]], live=(2, 3), states={"orders-0": a_leadership(NO_LEADER, [1], 4)})
    believing(cluster, FailedDirsFound(2, 12, frozenset({("orders", 0)})))
    assert elect(cluster, ("orders", 0), is_unclean=True).states["orders-0"].leader == 3


# ---------------------------------------------------------------------- the request node


def node_seen(cluster: Cluster, event: ElectionNodeSeen) -> tuple[Settled, ModelZooKeeper]:
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(PREFERRED_ELECTION, b"whatever")
    return settle(cluster, event, zookeeper), zookeeper


def test_the_request_node_is_carried_out_first_and_removed_after() -> None:
    cluster = moved(2, of=3)
    settled, zookeeper = node_seen(cluster, ElectionNodeSeen([("orders", 0), ("orders", 1), ("orders", 2)], 0))
    assert [[type(change) for change in step] for step in settled.steps] == [
        [StateDecided, StateDecided, Refused, ElectionsFailed],
        [NodeRemoved],
    ]
    assert PREFERRED_ELECTION not in zookeeper.nodes
    assert settled.conflicts == []


@pytest.mark.parametrize("partitions", [[], [("nothing", 0)], [("orders", 99)], [("orders", -5), ("orders", -5)]])
def test_a_request_node_that_asks_for_nothing_possible_is_removed_once(partitions: Sequence[tuple[str, int]]) -> None:
    settled, zookeeper = node_seen(moved(0, of=1), ElectionNodeSeen(partitions, 0))
    assert len(settled.of(NodeRemoved)) == 1
    assert PREFERRED_ELECTION not in zookeeper.nodes
    assert settled.of_states() == []


def test_a_request_node_that_makes_no_sense_is_reported_and_removed() -> None:
    settled, zookeeper = node_seen(moved(1, of=1), ElectionNodeSeen((), 0, "not a PartitionsZnode: b'{'"))
    [reported] = settled.of(OperatorErrorReported)
    assert reported.trouble == "not a PartitionsZnode: b'{'"
    assert [line.reason for line in settled.lines] == [f"node {PREFERRED_ELECTION}: not a PartitionsZnode: b'{{'"]
    assert PREFERRED_ELECTION not in zookeeper.nodes


def test_a_request_node_that_was_replaced_meanwhile_is_not_removed() -> None:
    cluster = moved(1, of=1)
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(PREFERRED_ELECTION, b"old")
    zookeeper.put(PREFERRED_ELECTION, b"new")
    settled = settle(cluster, ElectionNodeSeen([("orders", 0)], 0), zookeeper)
    assert set(settled.states) == {"orders-0"}
    assert settled.conflicts == [NodeRemoved(PREFERRED_ELECTION, 0, "carried out")]
    assert zookeeper.nodes[PREFERRED_ELECTION].data == b"new"


# ---------------------------------------------------------------------- by the clock


def balanced(cluster: Cluster, percentage: int = 10) -> set[str]:
    cluster.imbalance_percentage = percentage
    return set(settle(cluster, TimePassed(is_balance_due=True)).states)


def test_a_ratio_of_exactly_the_percentage_is_balanced_and_more_is_not() -> None:
    assert balanced(moved(1, of=10)) == set()
    assert balanced(moved(2, of=10)) == {"orders-0", "orders-1"}
    assert balanced(moved(1, of=9)) == {"orders-0"}
    assert balanced(moved(1, of=10), percentage=9) == {"orders-0"}
    assert balanced(moved(1, of=10), percentage=0) == {"orders-0"}


def test_the_ratio_is_that_of_one_broker_not_of_the_cluster() -> None:
    """Broker 1 leads none of its two; broker 3 leads 19 of its 20: just 5 per cent."""
    states = {f"orders-{number}": a_leadership(2, [1, 2, 3], 4) for number in (0, 1, 2)}
    cluster = a_cluster(orders=[[1, 2, 3]] * 2 + [[3, 1, 2]] * 20, states=states)
    assert balanced(cluster) == {"orders-0", "orders-1"}


def test_the_clock_alone_balances_nothing() -> None:
    assert steps_of(moved(5, of=5), TimePassed(is_balance_due=False)) == []


def test_the_automatic_election_gives_its_reason_and_tries_only_replicas_that_can_win() -> None:
    states = {"orders-0": a_leadership(2, [2], 4), "orders-1": a_leadership(2, [1, 2], 4)}
    cluster = a_cluster(orders=[[1, 2], [1, 2]], states=states)
    [change] = settle(cluster, TimePassed(is_balance_due=True)).of_states()
    assert (change.partition, change.reason) == (1, "leader imbalance")


@pytest.mark.parametrize("drained_ids", [(2,), (2, 3)])
def test_a_partition_that_a_drain_moves_in_the_same_tick_is_not_balanced_too(drained_ids: tuple[int, ...]) -> None:
    """Found by simulated schedule 1000447: both wrote the leader epoch that follows the same belief."""
    cluster = a_cluster(orders=[[1, 2, 3]], states={"orders-0": a_leadership(2, [2, 1, 3], 4)})
    believing(cluster, *(DrainGranted(broker_id, cluster.brokers[broker_id].epoch, False) for broker_id in drained_ids))
    [change] = settle(cluster, TimePassed(is_balance_due=True)).of_states()
    assert change.state == a_leadership(1, [2, 1, 3], 5)


def test_topics_on_their_way_out_are_not_balanced() -> None:
    cluster = believing(moved(5, of=5), DeletionQueued("orders", False))
    assert balanced(cluster) == set()


def adding_first(isr: Sequence[int], leader: int) -> Cluster:
    """One partition of brokers 2 and 3 that is moved to 1 and 2: 1 is first, and still being added."""
    cluster = a_cluster(orders=[[2, 3]], states={"orders-0": a_leadership(leader, isr, 4)})
    wanted = Assignment((1, 2, 3), adding=(1,), removing=(3,))
    topic_id = cluster.topics["orders"].topic_id
    assert topic_id is not None
    written = TopicWritten(
        "orders", topic_id, {0: wanted}, "test", Cause.REASSIGNMENT, touched=(0,), is_reassignment=True
    )
    return believing(cluster, written)


def test_a_first_replica_being_added_counts_once_it_is_in_sync() -> None:
    assert balanced(adding_first([2, 3], leader=2)) == set()
    assert balanced(adding_first([2, 3, 1], leader=2)) == {"orders-0"}
    assert balanced(adding_first([2, 3, 1], leader=1)) == set()


def test_an_elected_leader_is_told_as_it_was_written() -> None:
    cluster = moved(1, of=1)
    settled = elect(cluster)
    [telling] = settled.tellings
    assert requests_for(cluster, settled.committed).leaderships == telling.leaderships
    [[row]] = [list(rows.values()) for rows in telling.leaderships[1].values()]
    assert (row.state, row.version) == (a_leadership(1, [1, 2], 5), 1)
