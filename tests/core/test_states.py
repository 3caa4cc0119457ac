"""Both state machines, walked over the full product of states against a second list, written by hand per target.

The lists are Kafka's (`validPreviousStates` of PartitionState and ReplicaState), not derived from our tables.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from controller.core import states
from controller.core.changes.cluster import Refused, SubjectParked
from controller.core.elections import status_of
from controller.core.events import CreateTopicAsked, DeleteTopicAsked, ElectAsked, Event, ReassignAsked
from controller.core.states import (
    NEVER_MADE,
    PARTITION_MOVES,
    REPLICA_MOVES,
    IllegalMoveError,
    PartitionStatus,
    ReplicaStatus,
    Status,
    partition_move,
    replica_move,
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


@pytest.mark.parametrize(("source", "target"), list(product(P, P)), ids=lambda status: status.value)
def test_a_partition_moves_only_as_kafka_lets_it(source: PartitionStatus, target: PartitionStatus) -> None:
    if source in PARTITION_SOURCES[target]:
        assert partition_move(source, target) is PARTITION_MOVES[source, target]
    else:
        with pytest.raises(IllegalMoveError, match=f"from {source.value} to {target.value}"):
            partition_move(source, target)


@pytest.mark.parametrize(("source", "target"), list(product(R, R)), ids=lambda status: status.value)
def test_a_replica_moves_only_as_kafka_lets_it(source: ReplicaStatus, target: ReplicaStatus) -> None:
    if source in REPLICA_SOURCES[target]:
        assert replica_move(source, target) is REPLICA_MOVES[source, target]
    else:
        with pytest.raises(IllegalMoveError, match=f"from {source.value} to {target.value}"):
            replica_move(source, target)


def test_the_hand_written_lists_name_every_state() -> None:
    assert set(PARTITION_SOURCES) == set(P)
    assert set(REPLICA_SOURCES) == set(R)


@pytest.mark.parametrize(
    ("move", "writes", "requests"),
    [
        ((P.NON_EXISTENT, P.NEW), (), ()),
        ((P.NEW, P.ONLINE), ("partitions", "partitions/P", "state"), ("LeaderAndIsr", "UpdateMetadata")),
        ((P.ONLINE, P.ONLINE), ("state",), ("LeaderAndIsr", "UpdateMetadata")),
        ((P.OFFLINE, P.ONLINE), ("state",), ("LeaderAndIsr", "UpdateMetadata")),
    ],
)
def test_a_partition_move_costs_what_kafka_pays(
    move: tuple[PartitionStatus, PartitionStatus], writes: tuple[str, ...], requests: tuple[str, ...]
) -> None:
    cost = PARTITION_MOVES[move]
    assert (cost.writes, cost.requests) == (writes, requests)


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


def test_every_row_of_both_tables_is_made_in_some_story_and_nothing_else_is() -> None:
    stories = Path(__file__).parents[1] / "scenarios"
    made = {
        (match[1], match[2])
        for path in stories.glob("*.txt")
        for match in re.finditer(
            r"^  move   .*: (\w+) -> (\w+) \(\w+\)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    rows = {(source.value, target.value) for source, target in (*PARTITION_MOVES, *REPLICA_MOVES)}
    assert made == rows - {(source.value, target.value) for source, target in NEVER_MADE}


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
