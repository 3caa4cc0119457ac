"""Random lives of a cluster: brokers come and go, topics and states are written by us and by others, terms change.

After every event the judge of `world.py` holds the invariants against everything that was written, told and believed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.changes.cluster import StateDecided
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.events import AlterPartitionAsked, CreateTopicAsked, StatesSeen, TopicsSeen
from controller.core.formats import encode_state, encode_topic
from controller.core.model import NO_LEADER, Assignment, Leadership
from controller.core.project.znodes import state_path, topic_path
from tests.builders import a_broker, a_proposal
from tests.core.world import World

NAMES = ("orders", "payments", "users")
BROKER_IDS = range(1, 6)


def picked(bits: int, ids: Any) -> list[int]:
    """The members of `ids` whose bit is set."""
    return [one for at, one in enumerate(ids) if bits >> at & 1]


class Life:
    """A world, and the verbs that a drawn sequence is made of; each takes three small numbers."""

    def __init__(self) -> None:
        self.world = World()
        self.seen: list[TopicsSeen | StatesSeen] = []

    def partition(self, a: int) -> tuple[str, int] | None:
        known = [(one.topic, one.partition) for one, _ in self.world.cluster.all_partitions()]
        return known[a % len(known)] if known else None

    def brokers(self, a: int, b: int, _c: int) -> None:
        zookeeper = self.world.zookeeper
        live = set(picked(a, BROKER_IDS))
        for broker_id in BROKER_IDS:
            known = f"/brokers/ids/{broker_id}" in zookeeper.nodes
            if known and broker_id not in live:
                zookeeper.remove(f"/brokers/ids/{broker_id}")
            elif broker_id in live and (not known or broker_id in picked(b, BROKER_IDS)):
                zookeeper.register(a_broker(broker_id))
        self.world.happens(zookeeper.brokers_seen())

    def ask_for_a_topic(self, a: int, b: int, c: int) -> None:
        asked = CreateTopicAsked(NAMES[a % 3], partitions=b % 4, replication_factor=c % 4)
        self.world.happens(asked)

    def write_a_topic(self, a: int, b: int, c: int) -> None:
        """Another tool makes a topic, or adds a partition; sometimes it knows nothing of topic ids."""
        name = NAMES[a % 3]
        zookeeper, known = self.world.zookeeper, self.world.cluster.topics.get(name)
        old = known.partitions if known is not None else {}
        assignment = {number: Assignment(one.replicas) for number, one in old.items()}
        if len(assignment) < 5:
            assignment[len(assignment)] = Assignment(tuple(picked(b, BROKER_IDS)) or (1 + c % 5,))
        drawn = draw_topic_id(Random(f"a tool at {zookeeper.zxid}"))
        topic_id = "" if c % 3 == 0 else (known and known.topic_id) or drawn
        zookeeper.put(topic_path(name), encode_topic(topic_id, assignment))
        self.look_at_topics()

    def remove_a_topic(self, a: int, b: int, c: int) -> None:
        self.world.zookeeper.remove(topic_path(NAMES[a % 3]))
        self.world.unseen = {one for one in self.world.unseen if one[0] != NAMES[a % 3]}
        if c % 2:
            self.world.zookeeper.put(topic_path(NAMES[a % 3]), encode_topic("", {0: Assignment((1 + b % 5,))}))
        self.look_at_topics()

    def look_at_topics(self) -> None:
        event = self.world.zookeeper.topics_seen()
        self.seen.append(TopicsSeen(event.facts, event.zxid))
        self.world.happens(event)

    def proposal(self, a: int, b: int, c: int) -> None:
        """A leader asks; `c` spoils some of the questions."""
        cluster = self.world.cluster
        where = self.partition(a)
        state = where and cluster.topics[where[0]].partitions[where[1]].state
        if where is None or state is None:
            return
        replicas = cluster.topics[where[0]].partitions[where[1]].replicas
        isr = {one for one in picked(b, replicas) if one in cluster.live_ids} | {state.leader}
        proposal = a_proposal(cluster, *where, *(one for one in replicas if one in isr))
        ways: list[dict[str, Any]] = [
            {},
            {},
            {},
            {"version": proposal.version + 1 - b % 3},
            {"leader_epoch": proposal.leader_epoch + 1 - b % 3},
            {"recovery": 1},
            {"isr": (*proposal.isr, (1 + b % 5, 0))},
            {"isr": tuple((one, epoch + b % 2) for one, epoch in proposal.isr)},
            {"topic_id": "?" * 22},
        ]
        proposal = msgspec.structs.replace(proposal, **ways[c % 9])
        sender = 1 + b % 5 if c % 10 == 9 else state.leader
        epoch = cluster.brokers[sender].epoch if sender in cluster.brokers else 0
        for one in self.world.happens(AlterPartitionAsked(sender, epoch, [proposal])):
            if isinstance(one.change, StateDecided) and one.change.by_leader:
                assert sender == state.leader, "only the leader may ask"
                registered = {broker_id: broker.epoch for broker_id, broker in cluster.brokers.items()}
                assert all(registered[broker_id] == epoch for broker_id, epoch in proposal.isr), "S16"

    def write_a_state(self, a: int, b: int, c: int) -> None:
        """Another client writes a sound state; every other time without an announcement."""
        where = self.partition(a)
        if where is None:
            return
        partition = self.world.cluster.topics[where[0]].partitions[where[1]]
        isr = tuple(picked(b, partition.replicas)) or partition.replicas[:1]
        leader = NO_LEADER if c % 4 == 3 else isr[c % len(isr)]
        leader_epoch = partition.state.leader_epoch + c % 2 if partition.state else 0
        state = Leadership(leader, leader_epoch, isr, self.world.epoch)
        self.world.zookeeper.put(state_path(*where), encode_state(state))
        self.notice(where, is_announced=c % 2 == 0)

    def lose_a_state(self, a: int, _b: int, _c: int) -> None:
        where = self.partition(a)
        if where is not None:
            self.world.zookeeper.remove(state_path(*where))
            self.notice(where, is_announced=True)

    def write_nonsense(self, a: int, b: int, c: int) -> None:
        where = self.partition(a)
        if b % 4 == 0:
            self.world.zookeeper.put(topic_path(NAMES[a % 3]), b'{"partitions":{"0":[]}}')
            self.look_at_topics()
        elif where is not None:
            self.world.zookeeper.put(state_path(*where), b"{")
            self.notice(where, is_announced=c % 2 == 0)

    def notice(self, where: tuple[str, int], *, is_announced: bool) -> None:
        if is_announced:
            self.world.unseen.discard(where)
            event = self.world.zookeeper.states_seen(where)
            self.seen.append(event)
            self.world.happens(event)
        else:
            self.world.unseen.add(where)

    def hear_old_news(self, a: int, _b: int, _c: int) -> None:
        """A fact that was read before our own latest write to its znode."""
        if not self.seen:
            return
        topics = self.world.cluster.topics
        match self.seen[a % len(self.seen)]:
            case TopicsSeen(facts=topic_facts, zxid=zxid):
                known = [one for one in topic_facts if one.name in topics and one.zxid < topics[one.name].zxid]
                self.world.happens(TopicsSeen(known, zxid))
            case StatesSeen(facts=facts):
                old = [
                    one
                    for one in facts
                    if (known_one := self.world.cluster.partition(one.topic, one.partition))
                    and one.zxid < known_one.zxid
                ]
                self.world.happens(StatesSeen(old))

    def begin_a_term(self, _a: int, _b: int, _c: int) -> None:
        self.world.new_term()


VERBS: list[Callable[[Life, int, int, int], None]] = [
    Life.brokers,
    Life.brokers,
    Life.brokers,
    Life.ask_for_a_topic,
    Life.write_a_topic,
    Life.proposal,
    Life.proposal,
    Life.write_a_state,
    Life.remove_a_topic,
    Life.lose_a_state,
    Life.write_nonsense,
    Life.hear_old_news,
    Life.begin_a_term,
]

small = st.integers(0, 31)
deeds = st.tuples(st.sampled_from(VERBS), small, small, small)
lives = st.integers(1, 50).flatmap(lambda length: st.lists(deeds, min_size=length, max_size=length))


#: sequences of up to 50 events: the more of them the likelier a rare one
LIVES = 5_000 if os.environ.get("KLAMM_HYPOTHESIS") == "full" else 500


@settings(max_examples=LIVES)
@pytest.mark.timeout(900)
@given(lives)
def test_whatever_happens_the_invariants_hold(deeds_of_a_life: list[tuple[Any, int, int, int]]) -> None:
    life = Life()
    life.brokers(0b00111, 0, 0)
    for verb, a, b, c in deeds_of_a_life:
        verb(life, a, b, c)
    for where, _ in list(life.world.cluster.all_partitions()):
        life.world.look_at(*where)
