"""What-if predicts the real outcome, and changes nothing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller.core.belief.cluster import Cluster
from controller.core.model import NO_LEADER
from controller.core.questions.whatif import LeaderMove, StateMoves, WhatIf, what_if
from tests.builders import Settled, a_cluster, a_leadership, believed, brokers_seen, settle, snapshot
from tests.core.duty_clusters import clusters, ids


def kill(cluster: Cluster, *broker_ids: int) -> WhatIf:
    return what_if(cluster, frozenset(broker_ids), 0, 0)


def killed(cluster: Cluster, *broker_ids: int) -> Settled:
    """The same for good."""
    return settle(cluster, brokers_seen(*(cluster.live_ids - set(broker_ids))))


def requests_in(settled: Settled) -> int:
    """The number of requests on the wire, if none were merged or cut."""
    total = 0
    for telling in settled.tellings:
        total += len(telling.live_ids) * (telling.brokers_changed + bool(telling.metadata)) + len(telling.leaderships)
    return total


def test_the_new_leaders_the_offline_and_the_endangered_partitions() -> None:
    cluster = a_cluster(orders=[[1, 2, 3], [2, 3, 1], [1], [3, 1]])
    assert kill(cluster, 1, 2) == WhatIf(
        kill=[1, 2],
        moves=[LeaderMove("orders", 0, 1, 3, (3,)), LeaderMove("orders", 1, 2, 3, (3,))],
        offline=["orders-2"],
        last_in_sync=["orders-0", "orders-1", "orders-3"],
        state_writes=4,
        transactions=1,
        requests=3,
        unclean_elections=0,
        state_moves=[
            StateMoves("replica", "OnlineReplica", "OfflineReplica", 6),
            StateMoves("partition", "OnlinePartition", "OfflinePartition", 3),
            StateMoves("partition", "OfflinePartition", "OnlinePartition", 2),
            StateMoves("partition", "OfflinePartition", "OfflinePartition", 1),
        ],
    )


def test_unclean_elections_are_counted_where_they_are_allowed() -> None:
    states = {"orders-0": a_leadership(1, [1])}
    assert kill(a_cluster(orders=[[1, 2]], states=states), 1).unclean_elections == 0
    assert kill(a_cluster(orders=[[1, 2]], states=states, unclean=True), 1).unclean_elections == 1


def test_killing_no_live_broker_costs_nothing() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    nothing = WhatIf([], [], [], [], 0, 0, 0, 0)
    assert kill(cluster) == nothing
    assert kill(cluster, 9) == WhatIf([9], [], [], [], 0, 0, 0, 0)


def test_killing_all_brokers_leaves_none_to_tell() -> None:
    found = kill(a_cluster(orders=[[1, 2], [2, 3]]), 1, 2, 3)
    assert (found.offline, found.requests) == (["orders-0", "orders-1"], 0)


def test_large_decisions_take_several_transactions() -> None:
    cluster = a_cluster(orders=[[1, 2]] * 1_001)
    found = kill(cluster, 1)
    assert (found.state_writes, found.transactions, len(found.moves)) == (1_001, 3, 1_001)


@given(clusters(), st.frozensets(ids, max_size=3))
def test_what_if_is_what_then_happens(cluster: Cluster, kill_ids: frozenset[int]) -> None:
    before = snapshot(cluster)
    found = kill(cluster, *kill_ids)
    assert snapshot(cluster) == before, "nothing is believed that did not happen"
    leaders = {name: one.state.leader for name, one in believed(cluster).items() if one.state is not None}
    happened = killed(cluster, *kill_ids)
    assert found.state_writes == len(happened.of_states())
    assert found.offline == [name for name, state in happened.states.items() if state.leader == NO_LEADER]
    assert found.last_in_sync == [
        name for name, state in happened.states.items() if state.leader != NO_LEADER and len(state.isr) == 1
    ]
    assert {f"{one.topic}-{one.partition}": (one.source, one.target, one.isr) for one in found.moves} == {
        name: (leaders[name], state.leader, state.isr)
        for name, state in happened.states.items()
        if state.leader not in (NO_LEADER, leaders[name])
    }
    assert found.unclean_elections == sum(one.is_unclean for one in happened.of_states())
    assert found.requests == requests_in(happened)
    made: Counter[tuple[str, str]] = Counter()
    for move in happened.moves:
        made[move.source.value, move.target.value] += move.count
    assert {(one.source, one.target): one.count for one in found.state_moves} == made
