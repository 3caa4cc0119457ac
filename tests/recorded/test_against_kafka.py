"""Our decisions against those of two real Kafka 3.9.1 clusters, at every moment of their histories.

Belief is loaded from ZooKeeper as it stood just before, the event is fed, and the state after it is compared with
Kafka's when the next event happened: leader, ISR with its order, recovery state and assignment of every partition, and
the topics, markers and configurations. Each difference must be listed below, with its reason.

Where Kafka raises a leader epoch so must we, by at least one and by no more than Kafka; `STEPS` says where by less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from controller.core.formats import ControllerZnode, decode
from controller.core.model import Assignment, Leadership
from controller.core.project.znodes import CONFIG_TOPICS, CONTROLLER
from tests.recorded.moments import Kind, Moment, balances_of, moments_of
from tests.recorded.player import Picture, Seen, picture_of, played, zookeeper_of
from tests.recordings import RECORDINGS, Recording

SAME_TARGET = "a reassignment to what is there already: Kafka raises the leader epoch and moves nothing, we do nothing"

#: recording -> difference -> at how many partitions
DIFFERENCES = {
    "kafka-3.9.1": {SAME_TARGET: 4},
    "kafka-3.9.1-info": {},
}

#: kind of moment -> (Kafka's rise of the leader epoch, ours) -> at how many partitions of both recordings. Kafka goes
#: replica by replica: a new controller takes the dead leader off, then elects; a reassignment that ends takes a step
#: for the leader and one for each replica removed. We decide once.
STEPS = {
    Kind.CONTROLLER_CHANGED: {(1, 1): 335, (2, 1): 314},
    Kind.BROKER_GONE: {(1, 1): 343},
    Kind.BROKER_CAME: {(1, 1): 54},
    Kind.TOPIC_CREATED: {(1, 1): 128},
    Kind.TOPIC_GROWN: {(1, 1): 21},
    Kind.REASSIGNED: {(1, 1): 101, (1, 0): 4, (2, 1): 9},
    Kind.LEADER_ASKED: {(1, 1): 55, (2, 1): 28, (3, 1): 8},
    Kind.SHUTDOWN_ASKED: {(1, 1): 179},
    Kind.ELECTION_ASKED: {(1, 1): 96},
    Kind.BALANCED: {(1, 1): 212},
}

everywhere = pytest.mark.parametrize("recording", RECORDINGS, ids=repr)


class Comparison(msgspec.Struct, frozen=True):
    """One moment: the state before, Kafka's after it, and ours."""

    moment: Moment
    before: Picture
    kafka: Picture
    ours: Picture


@cache
def comparisons(recording: Recording) -> list[Comparison]:
    moments = moments_of(recording)
    trees = dict(recording.trees({zxid for one in moments for zxid in (one.zxid - 1, one.zxid, one.end)}))
    pictures = {zxid: picture_of(zookeeper_of(tree, zxid)) for zxid, tree in trees.items()}
    return [
        Comparison(
            one,
            before=pictures[one.zxid - 1],
            kafka=pictures[one.end],
            ours=picture_of(played(one, trees[one.zxid - 1], trees[one.zxid])),
        )
        for one in moments
    ]


def differences(one: Comparison) -> Iterator[str]:
    """In words; expected differences in those of the table."""
    where = f"{one.moment.kind}, zxid {one.moment.zxid}:"
    for path in sorted(one.ours.nodes ^ one.kafka.nodes):
        if path in one.ours.nodes or not path.startswith(CONFIG_TOPICS):  # Kafka's tools write it before the topic
            yield f"{where} only {'we have' if path in one.ours.nodes else 'Kafka has'} {path}"
    for name in sorted(one.kafka.partitions.keys() & one.ours.partitions.keys()):
        before, kafka, ours = (without_epochs(each.partitions.get(name)) for each in (one.before, one.kafka, one.ours))
        if kafka != ours:
            yield f"{where} {name} was {before}: Kafka {kafka}, we {ours}"
        steps = steps_of(one, name)
        if steps == (0, 0) or 1 <= steps[1] <= steps[0]:
            continue
        if one.moment.kind is Kind.REASSIGNED and steps == (1, 0) and before == kafka:
            yield SAME_TARGET
        else:
            yield f"{where} the leader epoch of {name} rises by {steps}"


def without_epochs(seen: Seen | None) -> tuple[object, ...]:
    if seen is None or seen.state is None:
        return (seen,)
    return seen.assignment, seen.state.leader, seen.state.isr, seen.state.recovery


def steps_of(one: Comparison, name: str) -> tuple[int, int]:
    """By how much the leader epoch rises: Kafka's, and ours."""
    before, kafka, ours = (epoch_of(picture.partitions.get(name)) for picture in (one.before, one.kafka, one.ours))
    return kafka - before, ours - before


def epoch_of(seen: Seen | None) -> int:
    return -1 if seen is None or seen.state is None else seen.state.leader_epoch


@everywhere
def test_every_moment_ends_as_with_kafka(recording: Recording) -> None:
    found = Counter(difference for one in comparisons(recording) for difference in differences(one))
    assert found == DIFFERENCES[recording.name]


def test_leader_epochs_rise_where_kafkas_do_by_no_more_steps() -> None:
    found: dict[Kind, Counter[tuple[int, int]]] = {}
    for one in (one for recording in RECORDINGS for one in comparisons(recording)):
        for name in one.kafka.partitions.keys() & one.ours.partitions.keys():
            if (steps := steps_of(one, name)) != (0, 0):
                found.setdefault(one.moment.kind, Counter())[steps] += 1
    assert found == STEPS


@everywhere
def test_there_are_moments_of_every_kind(recording: Recording) -> None:
    assert {one.moment.kind for one in comparisons(recording)} == {*Kind}


@everywhere
def test_an_automatic_election_that_moved_nothing_moves_nothing(recording: Recording) -> None:
    """Balanced, or not unbalanced enough."""
    held = balances_of(recording)
    begun = [one.moment.begun_ms for one in comparisons(recording) if one.moment.kind is Kind.BALANCED]
    moved = [max(one for one in held if one[0] <= at_ms) for at_ms in begun]
    quiet = 0
    for at_ms, controller_id in sorted({*held} - {*moved}):
        zxid = max(group[0].zxid for group in recording.transactions if group[0].at_ms <= at_ms)
        ((_, tree),) = recording.trees([zxid])
        if decode(tree[CONTROLLER].data, ControllerZnode).brokerid != controller_id:
            continue  # deposed while it was frozen: its writes were refused
        assert picture_of(played(Moment(Kind.BALANCED, zxid), tree, tree)) == picture_of(zookeeper_of(tree, zxid)), zxid
        quiet += 1
    assert quiet >= 7


BEFORE = Leadership(1, 4, (1, 2, 3), 7)
AFTER = Leadership(2, 5, (2, 3), 7)


@pytest.mark.parametrize(
    ("ours", "is_equal"),
    [
        (AFTER, True),
        (msgspec.structs.replace(AFTER, leader=3), False),
        (msgspec.structs.replace(AFTER, isr=(3, 2)), False),
        (msgspec.structs.replace(AFTER, recovery=1), False),
        (msgspec.structs.replace(AFTER, leader_epoch=4), False),
        (msgspec.structs.replace(AFTER, leader_epoch=6), False),
        (BEFORE, False),
        (None, False),
    ],
)
def test_the_comparison_sees_a_difference(ours: Leadership | None, is_equal: bool) -> None:
    before, kafka, played_ours = (
        Picture({"orders-0": Seen(Assignment((1, 2, 3)), state)}, frozenset()) for state in (BEFORE, AFTER, ours)
    )
    found = list(differences(Comparison(Moment(Kind.BROKER_GONE, 1), before, kafka, played_ours)))
    assert (found == []) == is_equal
