"""Brokers that refuse requests: the new decision, how often it is made, and the effect on belief."""

from __future__ import annotations

import itertools

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.changes.duties import RefusalsFound
from controller.core.codes import Code
from controller.core.decide.broker_refusals import (
    METADATA,
    RETRY_MAX_MS,
    STEPS_MAX,
    read_first,
)
from controller.core.events import DeleteTopicAsked, Event, ReassignAsked, RefusalsAnswered, TimePassed, ToldRefused
from controller.core.model import LEADER_EPOCH_MAX
from tests.builders import Settled, a_cluster, a_leadership, brokers_seen, settle, topic_id_of, zookeeper_of

ORDERS = topic_id_of("orders")


def refused(code: int = 11, told: int = 0, known: int = -1, request: str = "LeaderAndIsr") -> ToldRefused:
    return ToldRefused(request, code, told, known)


def by(broker_id: int, told: ToldRefused, *numbers: int) -> RefusalsAnswered:
    return RefusalsAnswered(broker_id, 10 + broker_id, {(ORDERS, number): told for number in numbers or (0,)})


def obeyed(broker_id: int, *numbers: int) -> RefusalsAnswered:
    return RefusalsAnswered(broker_id, 10 + broker_id, {}, frozenset((ORDERS, number) for number in numbers or (0,)))


class Played:
    """A cluster and its ZooKeeper, for one event after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.zookeeper, self.now_ms = cluster, zookeeper_of(cluster), 0

    def happens(self, event: Event, *, after_ms: int = 0) -> Settled:
        self.now_ms += after_ms
        return settle(self.cluster, event, self.zookeeper, now_ms=self.now_ms)

    def epoch(self, number: int = 0) -> int:
        state = self.cluster.topics["orders"].partitions[number].state
        assert state is not None
        return state.leader_epoch


@pytest.mark.parametrize("code", [Code.STALE_CONTROLLER_EPOCH, Code.FENCED_LEADER_EPOCH])
def test_a_leader_epoch_too_low_is_raised_above_the_brokers_own_at_once(code: Code) -> None:
    played = Played(a_cluster(orders=[[1, 2, 3], [2, 3, 1]]))
    settled = played.happens(by(3, refused(code, told=0, known=6)))
    assert settled.states == {"orders-0": a_leadership(1, [1, 2, 3], epoch=7)}
    assert {broker_id for telling in settled.tellings for broker_id in telling.leaderships} == {1, 2, 3}
    assert [(line.target, line.broker_id, line.error_code) for line in settled.lines if line.kind == "replica"] == [
        ("refused", 3, code)
    ]
    settled = played.happens(obeyed(3))
    assert (settled.states, played.cluster.duties.refusals) == ({}, {})
    assert [(line.target, line.broker_id) for line in settled.lines] == [("obeyed", 3)]


def test_a_replica_that_is_being_added_is_told_again_to_be_new() -> None:
    """Its broker has not made it."""
    played = Played(a_cluster(orders=[[1, 2]], live=(1, 2, 3)))
    played.happens(ReassignAsked({("orders", 0): (1, 3)}))
    played.happens(by(3, refused(-1, told=1)))
    settled = played.happens(TimePassed(), after_ms=RETRY_MAX_MS)
    told = [telling for telling in settled.tellings if 3 in telling.leaderships]
    assert [telling.new_replicas for telling in told] == [{(ORDERS, 0, 3)}]


def test_a_refusal_of_a_state_that_stands_no_more_changes_nothing() -> None:
    """The broker has heard the later decision already."""
    played = Played(a_cluster(orders=[[1, 2, 3]], states={"orders-0": a_leadership(1, [1, 2], epoch=4)}))
    for known in (3, 4):
        assert not played.happens(by(3, refused(told=3, known=known))).changes
    assert not played.happens(by(3, refused(told=2))).changes
    assert not played.happens(RefusalsAnswered(3, 99, {(ORDERS, 0): refused(known=9)})).changes, "another life"
    assert not played.happens(by(3, refused(told=4, known=9), 5)).changes, "no such partition"


def test_a_broker_that_hides_its_leader_epoch_is_told_growing_ones_ever_more_rarely() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3]]))
    epochs, moments = [0], []
    for _ in range(2_000):
        before = played.epoch()
        played.happens(by(3, refused(told=before)))
        played.happens(TimePassed(), after_ms=1_000)
        if played.epoch() != before:
            epochs.append(played.epoch())
            moments.append(played.now_ms)
    steps = [after - before for before, after in itertools.pairwise(epochs)]
    assert steps == [1 << power for power in range(len(steps))]
    assert len(steps) == STEPS_MAX, "bounded"
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETRY_MAX_MS


def test_a_leader_epoch_that_cannot_be_outdone_is_not_written() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3]]))
    assert played.happens(by(3, refused(known=LEADER_EPOCH_MAX))).states == {}
    assert played.cluster.duties.refused_by(3) == 1


def test_other_refusals_are_told_again_to_that_broker_alone_and_never_written() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3], [2, 3, 1]]))
    settled = played.happens(by(2, refused(Code.INCONSISTENT_TOPIC_ID)))
    assert (settled.states, [t.leaderships for t in settled.tellings]) == ({}, [{}])
    told = []
    for _ in range(300):
        settled = played.happens(TimePassed(), after_ms=1_000)
        told += [played.now_ms for t in settled.tellings if t.leaderships]
        assert all(t.leaderships.keys() <= {2} and not t.metadata for t in settled.tellings)
        assert all(set(rows) == {0} for t in settled.tellings for rows in t.leaderships.get(2, {}).values())
    pauses = [later - earlier for earlier, later in zip([0, *told], told, strict=False)]
    assert pauses[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert played.epoch() == 0
    [refusal] = played.cluster.duties.refusals[2]["orders"].values()
    assert refusal.code == Code.INCONSISTENT_TOPIC_ID


def test_metadata_refused_as_a_whole_means_telling_everything_again() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3]]))
    played.happens(RefusalsAnswered(2, 12, {METADATA: refused(-1, told=-1, request="UpdateMetadata")}))
    settled = played.happens(TimePassed(), after_ms=1_000)
    [telling] = [one for one in settled.tellings if not one.is_empty]
    assert [broker.broker_id for broker in telling.joined] == [2]
    assert telling.everything is not None
    assert not telling.brokers_changed
    assert not telling.metadata
    assert not telling.leaderships
    played.happens(RefusalsAnswered(2, 12, {}, frozenset({METADATA})))
    assert played.cluster.duties.refusals == {}


def test_a_stop_refused_is_believed_and_not_repeated_until_the_replica_is_taken_again() -> None:
    played = Played(a_cluster(orders=[[1, 2]]))
    played.happens(by(3, refused(Code.FENCED_LEADER_EPOCH, told=3, request="StopReplica")))
    assert played.cluster.duties.refused_by(3) == 1
    assert not played.happens(TimePassed(), after_ms=RETRY_MAX_MS).changes
    played.happens(obeyed(3))
    assert played.cluster.duties.refusals == {}


def test_refusals_go_with_their_broker_and_with_their_topic() -> None:
    for event in (brokers_seen(1, 2), DeleteTopicAsked("orders")):
        played = Played(a_cluster(orders=[[1, 2, 3]]))
        played.happens(by(3, refused(Code.INCONSISTENT_TOPIC_ID)))
        played.happens(event)
        assert played.cluster.duties.refusals == {}, event


def test_a_refused_state_is_read_before_it_is_decided() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3], [2, 3, 1]]))
    event = by(3, refused(told=0, known=6), 1)
    wanted = {"/brokers/topics/orders", "/brokers/topics/orders/partitions/1/state"}
    assert set(read_first(played.cluster, [event, TimePassed()], 0)) == wanted
    played.happens(event)
    assert not set(read_first(played.cluster, [TimePassed()], 1_999))
    assert set(read_first(played.cluster, [TimePassed()], 2_000)) == wanted


def test_a_leader_epoch_that_another_leader_has_had_is_outdone() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3]]))
    played.happens(by(3, refused(told=0, known=0)))
    assert played.epoch() == 1


def test_a_leadership_outside_its_assignment_is_not_written_again() -> None:
    played = Played(a_cluster(orders=[[1, 2, 3]], states={"orders-0": a_leadership(4, [4], epoch=2)}))
    settled = played.happens(by(3, refused(told=2, known=5)))
    assert settled.states == {}
    assert settled.of(RefusalsFound)
