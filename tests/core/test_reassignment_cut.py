"""A controller that dies in the middle of a reassignment, and lives in which everything happens at once.

Each decision is cut everywhere: the first k steps stand, and any subset of the next one. A fresh term starts from
there, all brokers come into sync, and the end is the same; of a request that was never answered, or of the state
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.changes.cluster import Change
from controller.core.codes import Code
from controller.core.decide.reassignment import due_after
from controller.core.decide.reassignment_plan import is_reassigning, origin_of, target_of
from controller.core.events import AlterPartitionAsked, Event, ReassignAsked
from controller.core.formats import encode_targets
from controller.core.model import NO_LEADER, Replicas
from controller.core.project.znodes import REASSIGN
from tests.builders import a_proposal, commit, steps_of
from tests.core.model_zookeeper import ModelZooKeeper
from tests.core.reassign_support import Field, node_seen

TARGETS: dict[tuple[str, int], Replicas] = {("orders", 0): (4, 5), ("orders", 1): (3, 1), ("payments", 0): (2, 3)}
#: replicas, ISR and leader of each partition
End = dict[str, tuple[Replicas, Replicas, int]]


def prepared() -> Field:
    return Field(orders=[[1, 2], [2, 1], [1, 2]], payments=[[1, 2]])


def under_way() -> Field:
    field = prepared()
    field.happens(ReassignAsked(dict(TARGETS)))
    for number in range(2):
        partition = field.partition(number=number)
        assert partition.state is not None
        field.sync(*dict.fromkeys((*partition.state.isr, partition.adding[0])), at=number)
    return field


def begin() -> tuple[Field, Event]:
    return prepared(), ReassignAsked(dict(TARGETS))


def override() -> tuple[Field, Event]:
    return under_way(), ReassignAsked({("orders", 0): (5, 6), ("payments", 0): (6,)})


def cancel() -> tuple[Field, Event]:
    return under_way(), ReassignAsked(dict.fromkeys(TARGETS))


def cancel_a_leader_that_is_dropped() -> tuple[Field, Event]:
    field = under_way()
    field.kill(1)
    assert field.state().leader == 4
    return field, ReassignAsked({("orders", 0): None})


def override_what_the_node_asked_for() -> tuple[Field, Event]:
    field = prepared()
    field.zookeeper.put(REASSIGN, encode_targets(TARGETS))
    field.see_node()
    return field, ReassignAsked({("orders", 0): (6,), ("orders", 1): None})


def complete() -> tuple[Field, Event]:
    field = under_way()
    proposals = [a_proposal(field.cluster, "orders", 0, 1, 2, 4, 5), a_proposal(field.cluster, "payments", 0, 1, 2, 3)]
    return field, AlterPartitionAsked(1, field.cluster.brokers[1].epoch, proposals)


def node_is_seen() -> tuple[Field, Event]:
    field = prepared()
    field.zookeeper.put(REASSIGN, encode_targets({**TARGETS, ("orders", 2): (2, 1), ("nothing", 0): (1,)}))
    return field, node_seen(field.zookeeper)


def complete_what_the_node_asked_for() -> tuple[Field, Event]:
    field, event = node_is_seen()
    field.happens(event)
    proposal = a_proposal(field.cluster, "orders", 0, 1, 2, 4, 5)
    return field, AlterPartitionAsked(1, field.cluster.brokers[1].epoch, [proposal])


def subsets(changes: list[Change]) -> Iterator[tuple[Change, ...]]:
    for size in range(len(changes) + 1):
        yield from combinations(changes, size)


def cuts(make: Callable[[], tuple[Field, Event]]) -> Iterator[ModelZooKeeper]:
    """Yields ZooKeeper's content after each cut of an event and its due work; the last is uncut."""
    field, first = make()
    event: Event | None = first
    while event is not None:
        committed = []
        for step in steps_of(field.cluster, event):
            writing = [change for change in step if change.writes(field.cluster)]
            for subset in subsets(writing):
                zookeeper = field.zookeeper.copy()
                commit(field.cluster, zookeeper, subset, [])
                yield zookeeper
            stood = commit(field.cluster, field.zookeeper, step, [])
            field.cluster.apply(stood)
            committed += stood
        event = due_after(field.cluster, committed)
    yield field.zookeeper


def end_of(zookeeper: ModelZooKeeper) -> End:
    """Returns the end that a fresh term reaches once all replicas are in sync; there is nothing left to do."""
    field = prepared()
    field.zookeeper, field.epoch = zookeeper, 10
    field.new_term()
    field.start(*(one for one in range(1, 7) if one not in field.cluster.live_ids))
    for _ in range(2):
        field.sync_all()
    assert not field.cluster.reassigning
    assert not field.has_node
    ends: End = {}
    for topic, number in field.all_states:
        one = field.partition(topic, number)
        assert one.state is not None
        ends[f"{topic}-{number}"] = (one.replicas, tuple(sorted(one.state.isr)), one.state.leader)
    return ends


@pytest.mark.parametrize("make", [complete, node_is_seen, complete_what_the_node_asked_for])
def test_wherever_it_is_cut_the_successor_comes_to_the_same_end(make: Callable[[], tuple[Field, Event]]) -> None:
    ends = [end_of(zookeeper) for zookeeper in cuts(make)]
    assert len(ends) > 4
    for end in ends:
        assert {name: one[:2] for name, one in end.items()} == {name: one[:2] for name, one in ends[-1].items()}


def test_the_node_lists_its_plan_until_it_is_done() -> None:
    for zookeeper in cuts(complete_what_the_node_asked_for):
        listed = node_seen(zookeeper).targets
        for number, one in zookeeper.topic_fact("orders").assignment.items():
            assert not one.adding or ("orders", number) in listed


@pytest.mark.parametrize(
    "make", [begin, override, cancel, cancel_a_leader_that_is_dropped, override_what_the_node_asked_for]
)
def test_a_request_that_was_cut_has_its_effect_or_not_partition_by_partition(
    make: Callable[[], tuple[Field, Event]],
) -> None:
    before = end_of(make()[0].zookeeper)
    ends = [end_of(zookeeper) for zookeeper in cuts(make)]
    assert {name: one[0] for name, one in before.items()} != {name: one[0] for name, one in ends[-1].items()}
    for end in ends:
        for name, (replicas, isr, leader) in end.items():
            assert replicas in (before[name][0], ends[-1][name][0]), name
            assert set(isr) == set(replicas), name
            assert leader in replicas, name


# ---------------------------------------------------------------------- random lives


def picked(bits: int, ids: range | Replicas) -> Replicas:
    return tuple(one for at, one in enumerate(ids) if bits >> at & 1)


class Life:
    """Verbs of a drawn sequence. `acked` is the target each partition was last acknowledged to have (S21)."""

    def __init__(self) -> None:
        self.field = prepared()
        self.acked = {key: self.field.partition(*key).replicas for key in self.field.all_states}

    def reassign(self, a: int, b: int, c: int) -> None:
        key = self.field.all_states[a % 4]
        wanted = picked(b, range(1, 7))
        wanted = wanted[c % 7 :] + wanted[: c % 7]
        if self.field.asked({key: wanted}) in ([], [Code.NONE]):
            self.acked[key] = wanted

    def cancel(self, a: int, _b: int, _c: int) -> None:
        key = self.field.all_states[a % 4]
        origin = origin_of(self.field.partition(*key))
        if self.field.asked({key: None}) in ([], [Code.NONE]):
            self.acked[key] = origin

    def write_the_node(self, a: int, b: int, c: int) -> None:
        wanted = picked(b, range(1, 7))[: 1 + c % 3]
        targets = {key: wanted for at, key in enumerate(self.field.all_states) if a >> at & 1}
        self.field.zookeeper.put(REASSIGN, encode_targets(targets))
        if c % 2:
            self.field.new_term()
        else:
            self.field.see_node()
        for key in targets:
            self.acked[key] = target_of(self.field.partition(*key))

    def sync(self, a: int, b: int, _c: int) -> None:
        topic, number = self.field.all_states[a % 4]
        partition = self.field.partition(topic, number)
        if partition.state is not None and partition.state.leader != NO_LEADER:
            live = self.field.cluster.live_ids
            isr = {one for one in picked(b, partition.replicas) if one in live} | {partition.state.leader}
            self.field.sync(*sorted(isr), at=number, topic=topic)

    def brokers(self, a: int, b: int, _c: int) -> None:
        live = self.field.cluster.live_ids
        gone, come = [one for one in picked(a, range(1, 6)) if one in live], picked(b, range(1, 7))
        self.field.kill(*gone)
        self.field.start(*(one for one in come if one not in self.field.cluster.live_ids or b % 5 == 0))

    def new_term(self, _a: int, _b: int, _c: int) -> None:
        self.field.new_term()


VERBS: list[Callable[[Life, int, int, int], None]] = [
    Life.reassign,
    Life.reassign,
    Life.cancel,
    Life.write_the_node,
    Life.sync,
    Life.sync,
    Life.brokers,
    Life.new_term,
]
small = st.integers(0, 63)
deeds = st.tuples(st.sampled_from(VERBS), small, small, small)


@pytest.mark.timeout(900)
@given(st.lists(deeds, min_size=1, max_size=30))
def test_whatever_happens_the_end_is_the_last_target_that_was_acknowledged(
    deeds_of_a_life: list[tuple[Callable[[Life, int, int, int], None], int, int, int]],
) -> None:
    life = Life()
    field = life.field
    for verb, a, b, c in deeds_of_a_life:
        verb(life, a, b, c)
        for key, target in life.acked.items():
            assert target_of(field.partition(*key)) == target, f"S21: {key}"
    field.start(*(one for one in range(1, 7) if one not in field.cluster.live_ids))
    for _ in range(2):
        field.sync_all()
    for key, target in life.acked.items():
        one = field.partition(*key)
        assert (one.replicas, is_reassigning(one)) == (target, False), key
        assert one.state is not None
        assert set(one.state.isr) == set(target), key
    assert not field.has_node
