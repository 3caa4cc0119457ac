"""A controller, brokers and a ZooKeeper for tests of reassignments: events are followed up as the loop does it.

`Field` acts; the ZooKeeper judges every transaction (S8, S12, S13, S20, S22, S25), the field every telling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controller.core.codes import Code
from controller.core.decide.reassignment import due_after
from controller.core.decide.reassignment_plan import target_of
from controller.core.events import AlterPartitionAsked, Event, ReassignAsked, ReassignNodeSeen
from controller.core.formats import FormatError, ReassignZnode, decode, decode_state, decode_topic, encode_topic
from controller.core.model import NO_LEADER, Assignment, Leadership, Partition, Replicas
from controller.core.project.znodes import (
    REASSIGN,
    TOPICS,
    Ensure,
    Put,
    Write,
    broker_path,
    state_path,
    topic_path,
)
from tests.builders import Settled, a_broker, a_proposal, settle, topic_id_of
from tests.core.model_zookeeper import ModelZooKeeper

MAX_ROUNDS = 12


def node_seen(zookeeper: ModelZooKeeper) -> ReassignNodeSeen:
    """`/admin/reassign_partitions` as a store reads it."""
    node = zookeeper.nodes.get(REASSIGN)
    if node is None:
        return ReassignNodeSeen({}, None)
    try:
        znode = decode(node.data, ReassignZnode)
    except FormatError as error:
        return ReassignNodeSeen({}, node.version, str(error))
    return ReassignNodeSeen({(one.topic, one.partition): one.replicas for one in znode.partitions}, node.version)


class JudgedZooKeeper(ModelZooKeeper):
    """Says no to nothing, but fails the test at the first transaction that breaks an invariant."""

    def __init__(self, zxid: int = 0) -> None:
        super().__init__(zxid)
        #: the last foreign write: to put back the state that it lost moves nothing
        self.foreign: set[str] = set()

    def copy(self) -> JudgedZooKeeper:
        other = JudgedZooKeeper(self.zxid)
        other.nodes = self.nodes.copy()
        return other

    def commit(self, writes: Iterable[Write]) -> bool:
        before = {name: self._topic(name) for name in self.children(TOPICS)}
        writes = list(writes)
        done = super().commit(writes)
        restored = self.foreign & {write.path for write in writes}
        self.foreign -= restored
        for name, (topic_id, assignment, states) in before.items():
            now_id, now, now_states = self._topic(name)
            assert topic_id in (now_id, None), "S25"
            assert list(now) == list(range(len(now))), "S20"
            for number, one in now.items():
                was = None if topic_path(name) in restored else assignment.get(number)
                self._judge(one, now_states.get(number), was, states.get(number))
        return done

    def put(self, path: str, data: bytes) -> None:
        """Foreign writes are not judged."""
        self.foreign.add(path)
        parents = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
        assert super().commit([*(Ensure(parent) for parent in parents), Put(path, data)])

    def _topic(self, name: str) -> tuple[str | None, dict[int, Assignment], dict[int, Leadership]]:
        topic_id, assignment = decode_topic(self.nodes[topic_path(name)].data)
        paths = {number: state_path(name, number) for number in assignment}
        states = {number: decode_state(self.nodes[path].data) for number, path in paths.items() if path in self.nodes}
        return topic_id, assignment, states

    def _judge(
        self, one: Assignment, state: Leadership | None, was: Assignment | None, before: Leadership | None
    ) -> None:
        assert one.replicas, "S20"
        if state is None:
            return
        assert state.isr, "S12"
        assert set(state.isr) <= set(one.replicas), "S13"
        if before is not None and state != before:
            assert state.leader_epoch - before.leader_epoch in (0, 1), "S8"
        if was is None or one == was or before is None:
            return
        assert before.leader_epoch < state.leader_epoch, "brokers take new replicas only with a new leader epoch"
        ended = Partition(was.replicas, was.adding, was.removing)
        if was.adding and not one.adding and one.replicas == target_of(ended):
            assert set(one.replicas) <= set(state.isr), "S22"


class Field:
    """Six brokers unless told otherwise, and topics led by their first replicas."""

    def __init__(self, live: Iterable[int] = range(1, 7), **topics: Sequence[Sequence[int]]) -> None:
        self.zookeeper: ModelZooKeeper = JudgedZooKeeper()
        self.epoch = 0
        self.seed = 0
        for broker_id in live:
            self.zookeeper.register(a_broker(broker_id))
        for name, replicas in topics.items():
            assignment = {number: Assignment(tuple(one)) for number, one in enumerate(replicas)}
            self.zookeeper.put(topic_path(name), encode_topic(topic_id_of(name), assignment))
        self.new_term()

    @property
    def all_states(self) -> list[tuple[str, int]]:
        return [(one.topic, one.partition) for one, _ in self.cluster.all_partitions()]

    def new_term(self) -> None:
        self.epoch += 1
        self.cluster, event = self.zookeeper.new_term(self.epoch)
        self.happens(event)
        self.see_node()

    def happens(self, event: Event) -> Settled:
        """An event and all that becomes due by it; after a conflict everything is read again, and a request repeated.
        Returns all of it as one."""
        whole = Settled()
        for _ in range(MAX_ROUNDS):
            settled = self._settle(event, whole)
            if not settled.conflicts:
                return whole
            for fact in (self.zookeeper.topics_seen(), self.zookeeper.states_seen(*self.all_states)):
                self._settle(fact, whole)
            self._settle(node_seen(self.zookeeper), whole)
            if not isinstance(event, ReassignAsked):
                return whole
        raise AssertionError(f"still conflicts: {event}")

    def _settle(self, event: Event, whole: Settled) -> Settled:
        first = settled = self._once(event, whole)
        for _ in range(MAX_ROUNDS):
            due = due_after(self.cluster, settled.committed)
            if due is None:
                return first
            settled = self._once(due, whole)
        raise AssertionError(f"always something due: {due}")

    def _once(self, event: Event, whole: Settled) -> Settled:
        self.seed += 1
        settled = settle(self.cluster, event, self.zookeeper, seed=self.seed)
        for name in ("steps", "committed", "conflicts", "writes", "tellings", "lines_by_step"):
            getattr(whole, name).extend(getattr(settled, name))
        assert not self.cluster.parked, self.cluster.parked
        for telling in settled.tellings:
            for broker_id, stops in telling.stops.items():
                for (topic, _), rows in stops.items():
                    for number in rows:
                        assert broker_id not in self.partition(topic, number).replicas, "S22"
        return settled

    # ------------------------------------------------------------------ actions of people and brokers

    def asked(self, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> list[Code]:
        wanted = {key: None if one is None else tuple(one) for key, one in targets.items()}
        return [one.code for one in self.happens(ReassignAsked(wanted)).refusals]

    def move(self, *target: int, at: int = 0) -> Settled:
        """Ask for new replicas of a partition of `orders`."""
        return self.happens(ReassignAsked({("orders", at): target}))

    def cancel(self, at: int = 0) -> Settled:
        return self.happens(ReassignAsked({("orders", at): None}))

    def put_node(self, data: bytes) -> Settled:
        self.zookeeper.put(REASSIGN, data)
        return self.see_node()

    def see_node(self) -> Settled:
        return self.happens(node_seen(self.zookeeper))

    def kill(self, *broker_ids: int) -> Settled:
        for broker_id in broker_ids:
            self.zookeeper.remove(broker_path(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def start(self, *broker_ids: int) -> Settled:
        for broker_id in broker_ids:
            self.zookeeper.register(a_broker(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def sync(self, *isr: int, at: int = 0, topic: str = "orders") -> Settled:
        """The leader asks for this ISR; without one, for all live assigned replicas."""
        partition = self.partition(topic, at)
        members = isr or tuple(one for one in partition.replicas if one in self.cluster.live_ids)
        if partition.state is None or partition.state.leader == NO_LEADER:
            return Settled()
        leader = partition.state.leader
        proposal = a_proposal(self.cluster, topic, at, *members, recovery=0)
        return self.happens(AlterPartitionAsked(leader, self.cluster.brokers[leader].epoch, [proposal]))

    def sync_all(self) -> None:
        for topic, number in self.all_states:
            self.sync(at=number, topic=topic)

    # ------------------------------------------------------------------ observations

    def partition(self, topic: str = "orders", number: int = 0) -> Partition:
        return self.cluster.topics[topic].partitions[number]

    def state(self, number: int = 0) -> Leadership:
        state = self.partition(number=number).state
        assert state is not None
        return state

    def history(self, number: int = 0) -> tuple[Replicas, int, Replicas, int]:
        """Replicas, leader, ISR, leader epoch."""
        state = self.state(number)
        return self.partition(number=number).replicas, state.leader, state.isr, state.leader_epoch

    @property
    def has_node(self) -> bool:
        return REASSIGN in self.zookeeper.nodes


def stops_of(settled: Settled) -> dict[int, set[Any]]:
    """Returns for each broker the replicas that it is told to delete, by topic and partition."""
    told: dict[int, set[Any]] = {}
    for telling in settled.tellings:
        for broker_id, stops in telling.stops.items():
            for (topic, _), rows in stops.items():
                told.setdefault(broker_id, set()).update(
                    (topic, n, one.leader_epoch) for n, one in rows.items() if one.delete
                )
    return told
