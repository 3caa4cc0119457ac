"""The fate of partitions when brokers die, against their fate on recorded clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import elections as ours
from controller.core.model import Leadership
from sparkjobs.history.as_of import histories_in
from sparkjobs.history.cluster import NOBODY, Broker, BrokerStep, Cluster, Name, Partition, PartitionStep, Step
from sparkjobs.history.elections import PartitionFate, fates, rule_of, safe_order, without

DATA = Path(__file__).parents[1] / "data"


def as_it_stands(cluster: Cluster) -> Cluster:
    configs = {target: dict(settings) for target, settings in cluster.configs.items()}
    return msgspec.structs.replace(
        cluster, partitions=dict(cluster.partitions), brokers=dict(cluster.brokers), configs=configs
    )


def walked(folder: str, mode: str) -> Iterator[tuple[Cluster, Step, Cluster]]:
    """Each step with the cluster before and after it."""
    (history,) = (one for one in histories_in([str(DATA / folder)]) if one.mode == mode)
    replay = history.replay()
    before = as_it_stands(replay.cluster)
    for step in replay.steps():
        yield before, step, replay.cluster
        before = as_it_stands(replay.cluster)


def result(partition: Partition) -> tuple[int, frozenset[int], frozenset[int], bool]:
    return partition.leader, frozenset(partition.isr), frozenset(partition.elr), partition.is_recovering


@pytest.mark.parametrize(("folder", "least"), [("kraft/4.3.1", 16), ("kraft/3.9.1-migration", 5)])
def test_the_prediction_is_what_kraft_did_when_it_fenced_a_broker(folder: str, least: int) -> None:
    count = 0
    for before, step, after in walked(folder, "kraft"):
        fenced = {
            one.broker
            for one in step.changes
            if isinstance(one, BrokerStep) and one.before and one.after and one.before.is_serving > one.after.is_serving
        }
        if not fenced or any(isinstance(one, BrokerStep) and one.broker not in fenced for one in step.changes):
            continue
        found = fates(before, fenced)
        changed = {one.name for one in step.changes if isinstance(one, PartitionStep)}
        assert {one.name for one in found} == changed, step.position
        for one in found:
            expected = [result(each.partition) for each in one.outcomes]
            assert one.refused or result(after.partitions[one.name]) in expected, (step.position, one)
        count += 1
    assert count >= least


@pytest.mark.parametrize(("folder", "least"), [("kafka-3.9.1", 250), ("kafka-3.9.1-info", 250)])
def test_the_prediction_is_what_a_zookeeper_mode_controller_came_to(folder: str, least: int) -> None:
    """It writes a partition more than once: its last state counts, before the next broker comes or goes."""
    waiting: dict[Name, PartitionFate] = {}
    dead: set[int] = set()
    count = 0
    for before, step, after in walked(folder, "zookeeper"):
        gone = {one.broker for one in step.changes if isinstance(one, BrokerStep) and one.after is None}
        if any(isinstance(one, BrokerStep) for one in step.changes):
            waiting = {one.name: one for one in fates(before, gone) if not one.refused}
            dead = gone
        for change in step.changes:
            if not isinstance(change, PartitionStep) or change.name not in waiting or change.after is None:
                continue
            is_between = change.after.leader == NOBODY and set(change.after.isr) & after.brokers.keys()
            if is_between or (set(change.after.isr) & dead and change.after.leader not in (NOBODY, *after.brokers)):
                continue
            fate = waiting.pop(change.name)
            expected = [(one.partition.leader, set(one.partition.isr)) for one in fate.outcomes]
            if set(change.after.isr) & dead and change.after.leader != NOBODY:
                waiting[change.name] = fate  # led by another already; the dead brokers leave the ISR in another write
                continue
            assert (change.after.leader, set(change.after.isr)) in expected, (step.position, fate, change.after)
            count += 1
    assert count >= least


def a_cluster(mode: str = "zookeeper", *, elr: bool = False, least: int = 1, **partitions: Partition) -> Cluster:
    brokers = {one: Broker(1) for one in range(1, 6)}
    configs = {("broker", ""): {"min.insync.replicas": str(least)}}
    if elr:
        configs["feature", ""] = {"eligible.leader.replicas.version": "1"}
    named = {(name, 0): one for name, one in partitions.items()}
    return Cluster("kraft" if mode == "kraft" else "zookeeper", partitions=named, brokers=brokers, configs=configs)


def a_partition(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], elr: tuple[int, ...] = ()) -> Partition:
    return Partition(leader, 5, isr, replicas, 9, elr=elr)


@given(
    replicas=st.permutations([1, 2, 3, 4]),
    in_sync=st.sets(st.integers(1, 4), min_size=1),
    live=st.sets(st.integers(1, 4)),
    unclean=st.booleans(),
)
def test_in_zookeeper_mode_one_death_ends_as_our_own_controller_would_decide(
    replicas: list[int], in_sync: set[int], live: set[int], unclean: bool
) -> None:
    """The controller of this project follows Kafka's rule; the two are written apart and must agree."""
    isr = tuple(sorted(in_sync))
    before = a_partition(isr[0], isr, tuple(replicas))
    cluster = a_cluster(t=before)
    cluster.configs["topic", "t"] = {"unclean.leader.election.enable": str(unclean).lower()}
    cluster.brokers = {one: Broker(1) for one in {*live, *isr}}
    found = without(cluster, ("t", 0), before, isr[0])
    decided = ours.repaired(
        tuple(replicas), Leadership(isr[0], 5, isr, 1), {*live, *isr} - {isr[0]}, 1, allow_unclean=unclean
    )
    assert decided is not None
    assert (found.leader, found.isr) == (decided.leader, decided.isr)


def test_each_order_of_deaths_that_matters_is_an_outcome() -> None:
    cluster = a_cluster(t=a_partition(1, (1, 2), (1, 2, 3)))
    (fate,) = fates(cluster, {1, 2})
    assert [(one.order, one.partition.leader, one.partition.isr) for one in fate.outcomes] == [
        ((1, 2), NOBODY, (2,)), ((2, 1), NOBODY, (1,))
    ]  # fmt: skip
    (fate,) = fates(cluster, {1})
    assert [(one.order, one.partition.leader, one.partition.isr) for one in fate.outcomes] == [((), 2, (2,))]
    assert fates(cluster, {3}) == []


def test_with_eligible_leader_replicas_the_last_that_left_stay_eligible() -> None:
    cluster = a_cluster("kraft", elr=True, least=2, t=a_partition(1, (1, 2, 3), (1, 2, 3)))
    assert rule_of(cluster) == "kraft with ELR"
    (fate,) = fates(cluster, {1, 2, 3})
    assert {one.partition.elr for one in fate.outcomes} == {(1, 2), (1, 3), (2, 3)}
    assert {(one.partition.leader, one.partition.isr) for one in fate.outcomes} == {(NOBODY, ())}
    assert fate.is_offline
    (fate,) = fates(cluster, {1, 2})
    assert [(one.order, one.partition.leader, one.partition.isr, one.partition.elr) for one in fate.outcomes] == [
        ((1, 2), 3, (3,), (2,)),
        ((2, 1), 3, (3,), (1,)),
    ]


def test_an_eligible_replica_leads_when_none_is_in_sync() -> None:
    cluster = a_cluster("kraft", elr=True, least=2, t=a_partition(1, (1,), (1, 2, 3), elr=(3,)))
    (fate,) = fates(cluster, {1})
    (outcome,) = fate.outcomes
    assert (outcome.partition.leader, outcome.partition.isr, outcome.partition.elr) == (3, (3,), (1,))


def test_a_case_beyond_the_plain_one_is_refused_by_name() -> None:
    moving = msgspec.structs.replace(a_partition(1, (1, 2), (1, 2, 3)), adding=(3,))
    (fate,) = fates(a_cluster(t=moving), {1})
    assert fate.refused == "it is being reassigned: deaths may end that, too"
    cluster = a_cluster("kraft", t=a_partition(1, (1, 2), (1, 2)))
    cluster.brokers[2] = Broker(1, has_lost_disks=True)
    (fate,) = fates(cluster, {1})
    assert fate.refused is not None
    assert "broker 2 lost a log directory" in fate.refused


def test_each_order_of_deaths_is_of_one_outcome() -> None:
    cluster = a_cluster("kraft", elr=True, least=2, t=a_partition(1, (1, 2, 3), (1, 2, 3)))
    (fate,) = fates(cluster, {1, 2, 3})
    assert sorted(order for one in fate.outcomes for order in one.orders) == sorted(permutations((1, 2, 3)))
    (fate,) = fates(cluster, {1})
    assert [one.orders for one in fate.outcomes] == [()]
    assert fate.is_moved
    (fate,) = fates(cluster, {3})
    assert (fate.is_shrunk, fate.is_moved, fate.is_offline) == (True, False, False)


def test_a_broker_that_has_shut_down_leaves_nothing_open() -> None:
    """Only while it is shutting down its leaderships are on their way."""
    cluster = a_cluster("kraft", t=a_partition(1, (1, 2), (1, 2, 3)))
    cluster.brokers[3] = Broker(1, is_leaving=True)
    (fate,) = fates(cluster, {1})
    assert fate.refused == "broker 3 is shutting down: its leaderships are on their way"
    cluster.brokers[3] = Broker(1, is_leaving=True, is_fenced=True)
    (fate,) = fates(cluster, {1})
    assert [one.partition.leader for one in fate.outcomes] == [2]


def test_brokers_stop_in_an_order_that_leaves_no_partition_without_a_leader() -> None:
    cluster = a_cluster(a=a_partition(1, (1, 2), (1, 2)), b=a_partition(3, (3,), (3, 4)))
    found = safe_order(cluster, [3, 2, 1])
    assert found.order == [1]
    assert found.blocked == {2: [("a", 0)], 3: [("b", 0)]}
    assert safe_order(cluster, [4]).order == [4]
