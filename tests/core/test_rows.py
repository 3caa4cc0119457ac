"""Writes and tellings stay inside the rows of both tables; no row says more than the stories show."""

from __future__ import annotations

import pytest

from controller.core import states
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerGone, Committed
from controller.core.states import Cost, Item, PartitionStatus, ReplicaStatus
from tests.builders import a_cluster, a_leadership, brokers_seen, settle
from tests.core.rows import judging
from tests.faults.mutants.rows import complaint, mutants

P, R = PartitionStatus, ReplicaStatus


def test_the_stories_show_every_write_and_request_of_every_row_and_no_other() -> None:
    assert complaint() is None


def test_what_stands_in_no_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(states.REPLICA_MOVES, (R.ONLINE, R.OFFLINE), Cost())
    with judging() as judge:
        settle(a_cluster(orders=[[1, 2]]), brokers_seen(1, 3))
    assert [one.partition(":")[0] for one in judge.outside] == [
        "state of orders-0",
        "LeaderAndIsr of orders-0 to 1",
        "UpdateMetadata of orders-0 to 1",
        "UpdateMetadata of orders-0 to 3",
    ]


def test_a_receiver_that_its_row_does_not_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's death is told to those that remain: the row names no others."""
    narrow = states.REPLICA_MOVES[R.ONLINE, R.OFFLINE]
    own = tuple(one for one in narrow.tells if one.item is not Item.LEADER_AND_ISR)
    to_its_broker = states.Tells(Item.LEADER_AND_ISR, states.Receivers.OWN)
    monkeypatch.setitem(states.REPLICA_MOVES, (R.ONLINE, R.OFFLINE), Cost(narrow.writes, (*own, to_its_broker)))
    with judging() as judge:
        settle(a_cluster(orders=[[1, 2]]), brokers_seen(1, 3))
    assert [one.partition(":")[0] for one in judge.outside] == ["LeaderAndIsr of orders-0 to 1"]


def test_there_are_mutants_of_each_row() -> None:
    made = list(mutants())
    assert {row for kind, row, _ in made if kind == "removed"} == {*states.PARTITION_MOVES, *states.REPLICA_MOVES}
    everything = {*states.PARTITION_MOVES, *states.REPLICA_MOVES, *states.WITHOUT_A_MOVE}
    assert {row for kind, row, _ in made if kind == "added"} == everything
    listed = sum(
        len(cost.writes) + len(cost.tells)
        for table in (states.PARTITION_MOVES, states.REPLICA_MOVES, states.WITHOUT_A_MOVE)
        for cost in table.values()
    )
    assert sum(kind == "left out" for kind, *_ in made) == listed


def test_a_replica_that_returns_while_its_partition_is_led_on_carries_no_state() -> None:
    """The ISR still has the broker that comes back: the write that took it out was refused."""
    cluster = a_cluster(orders=[[1, 3]], states={"orders-0": a_leadership(1, [1, 3])})
    cluster.apply([Committed(BrokerGone(3, 13, "registration gone", Cause.BROKER_GONE))])
    with judging() as judge:
        settled = settle(cluster, brokers_seen(1, 2, 3))
    assert [one.isr for one in settled.states.values()] == [(1,)]
    assert judge.outside == []
