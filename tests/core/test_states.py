"""Both state machines, walked over the full product of states against a second list, written by hand per target.

The lists are Kafka's (`validPreviousStates` of PartitionState and ReplicaState), not derived from our tables.
"""

from __future__ import annotations

from itertools import product

import pytest

from controller.core import states
from controller.core.changes.cluster import Refused, SubjectParked
from controller.core.elections import status_of
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, ElectAsked, Event, ReassignAsked
from controller.core.states import (
    PARTITION_MOVES,
    PartitionStatus,
    ReplicaStatus,
    Status,
    is_legal,
)
from tests.builders import a_cluster, a_leadership, brokers_seen, settle, snapshot, steps_of

P, R = PartitionStatus, ReplicaStatus

PARTITION_SOURCES = {
    P.NON_EXISTENT: {P.OFFLINE},
    P.NEW: {P.NON_EXISTENT},
    P.ONLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.OFFLINE: {P.NEW, P.ONLINE, P.OFFLINE},
}

REPLICA_SOURCES = {
    R.NON_EXISTENT: {R.DELETION_SUCCESSFUL},
    R.NEW: {R.NON_EXISTENT},
    R.ONLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.OFFLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.DELETION_STARTED: {R.OFFLINE},
    R.DELETION_SUCCESSFUL: {R.DELETION_STARTED},
    R.DELETION_INELIGIBLE: {R.OFFLINE, R.DELETION_STARTED},
}


@pytest.mark.parametrize(("source", "target"), [*product(P, P), *product(R, R)], ids=lambda status: status.value)
def test_a_partition_or_replica_moves_only_as_kafka_lets_it(source: Status, target: Status) -> None:
    sources: dict[Status, set[Status]] = {**PARTITION_SOURCES, **REPLICA_SOURCES}  # type: ignore[dict-item]
    assert is_legal(source, target) is (source in sources[target])


def test_the_hand_written_lists_name_every_state() -> None:
    assert set(PARTITION_SOURCES) == set(P)
    assert set(REPLICA_SOURCES) == set(R)


def test_an_illegal_move_parks_its_subject_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster(orders=[[1, 2], [2, 1]], payments=[[2, 1]])
    before = snapshot(cluster)
    without = {pair: cost for pair, cost in PARTITION_MOVES.items() if pair != (P.OFFLINE, P.ONLINE)}
    monkeypatch.setattr(states, "PARTITION_MOVES", without)
    [changes] = steps_of(cluster, brokers_seen(1, 3))
    parked = [change for change in changes if isinstance(change, SubjectParked)]
    assert [one.subject for one in parked] == ["topic orders", "topic payments"]
    assert "from OfflinePartition to OnlinePartition" in parked[0].trouble
    assert snapshot(cluster) == before


@pytest.mark.parametrize(
    ("event", "row", "parked"),
    [
        (CreateTopicAsked("new", assignment={0: (1, 2)}), (P.NON_EXISTENT, P.NEW), "topic new"),
        (CreateTopicAsked("new", assignment={0: (1, 2)}), (P.NEW, P.ONLINE), "topic new"),
        (CreateTopicAsked("new", assignment={0: (1, 2)}), (R.NON_EXISTENT, R.NEW), "topic new"),
        (CreateTopicAsked("new", assignment={0: (1, 2)}), (R.NEW, R.ONLINE), "topic new"),
        (DeleteTopicAsked("orders"), (P.ONLINE, P.OFFLINE), "topic orders"),
        (DeleteTopicAsked("orders"), (R.ONLINE, R.OFFLINE), "topic orders"),
        (DeleteTopicAsked("orders"), (R.OFFLINE, R.DELETION_STARTED), "topic orders"),
        (brokers_seen(2, 3), (P.OFFLINE, P.ONLINE), "topic orders"),
        (ReassignAsked({("orders", 0): (1,)}), (R.OFFLINE, R.DELETION_STARTED), "topic orders"),
        (ElectAsked(is_unclean=False, partitions=[("late", 0)]), (P.ONLINE, P.ONLINE), "topic late"),
    ],
)
def test_without_its_row_a_move_parks_its_subject_and_nothing_is_written(
    event: Event, row: tuple[Status, Status], parked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_cluster(orders=[[1, 2]], late=[[3, 2]], states={"late-0": a_leadership(2, [2, 3])})
    before = snapshot(cluster)
    for table in ("PARTITION_MOVES", "REPLICA_MOVES"):
        kept = {pair: cost for pair, cost in getattr(states, table).items() if pair != row}
        monkeypatch.setattr(states, table, kept)
    changes = [change for step in steps_of(cluster, event) for change in step]
    assert parked in {change.subject for change in changes if isinstance(change, SubjectParked)}
    assert all(isinstance(one, SubjectParked | Refused) for one in changes if one.subject == parked)
    assert snapshot(cluster) == before


def test_the_moves_of_one_partition_through_its_life() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": None}, live=())
    moves = []
    for live in ((1,), (1, 2), (2,), (1,)):
        moves += [(one.source, one.target) for one in settle(cluster, brokers_seen(*live)).of_states()]
    assert moves == [(P.NEW, P.ONLINE), (P.ONLINE, P.OFFLINE), (P.OFFLINE, P.ONLINE)]


def test_a_partition_is_offline_when_its_state_names_a_leader_that_is_dead() -> None:
    assert status_of(None, {1}) is P.NEW
    assert status_of(a_leadership(1, [1]), {1}) is P.ONLINE
    assert status_of(a_leadership(1, [1]), {2}) is P.OFFLINE
    assert status_of(a_leadership(-1, [1]), {1}) is P.OFFLINE
