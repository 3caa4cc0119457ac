"""A controller on the model ZooKeeper, with all other writers, and a judge of the controller's acts.

The judge checks the invariants of the hazards list (S8 to S16, S20, S25, S29) on every commit, and compares belief with
the znodes after every event. It never reads the core's tables: it knows only the invariants.
"""

from __future__ import annotations

from controller.core.changes.cluster import (
    Change,
    Committed,
    NotificationRead,
    Refused,
    StateDecided,
    StateFound,
    SubjectParked,
    TopicCreated,
    TopicFound,
    TopicGone,
    TopicWritten,
)
from controller.core.elections import status_of
from controller.core.events import CreateTopicAsked, Event, TermStarted
from controller.core.formats import FormatError, decode_state
from controller.core.model import NO_LEADER, Broker, Leadership
from controller.core.project.requests import Telling
from controller.core.project.znodes import state_path, topic_path
from controller.core.states import PartitionStatus, ReplicaStatus
from tests.builders import Settled, believed, knowing, settle, snapshot, steps_of
from tests.core.model_zookeeper import ModelZooKeeper

MAX_ROUNDS = 6


class World:
    """The real data (`zookeeper`), the believed data (`cluster`), and the states that others changed (`unseen`)."""

    def __init__(self) -> None:
        self.zookeeper = ModelZooKeeper()
        self.epoch = 0
        self.seed = 0
        self.unseen: set[tuple[str, int]] = set()
        #: every state that ever stood, by path and version
        self.stood: set[tuple[str, int, bytes]] = set()
        #: topic ids by incarnation; a writer of nonsense may have wiped one, so a term is compared with the id that it
        #: read
        self.ids: dict[tuple[str, int], str] = {}
        #: the last requests to brokers, whether or not they arrived: broker id -> topic -> its id
        self.knowing: dict[int, dict[str, str]] = {}
        self.asked: list[tuple[Broker, dict[str, str]]] = []
        self.new_term()

    def new_term(self) -> None:
        self.epoch += 1
        self.cluster, event = self.zookeeper.new_term(self.epoch)
        self.unseen.clear()
        self.ids.clear()
        self.happens(event)

    def happens(self, event: Event) -> list[Committed]:
        """Settle an event and the events that its conflicts cause, as the loop does. Judge each round."""
        committed: list[Committed] = []
        for _ in range(MAX_ROUNDS):
            settled = self._round(event)
            committed += settled.committed
            if not settled.conflicts:
                break
            partitions, topics = concerned(settled)
            self.unseen -= partitions
            if topics or isinstance(event, CreateTopicAsked):
                self._round(self.zookeeper.topics_seen())
            if not isinstance(event, CreateTopicAsked):
                event = self.zookeeper.states_seen(*partitions)
        else:
            raise AssertionError(f"still conflicts after {MAX_ROUNDS} rounds: {event}")
        self._judge_belief()
        while self.asked:
            broker, ids = self.asked.pop()
            committed += self.happens(knowing(broker, **ids))
        return committed

    def _hear(self, telling: Telling) -> None:
        """Receive requests as the brokers do: a question is about the requests before it."""
        for broker_id, names in telling.questions.items():
            known = self.knowing.get(broker_id, {})
            self.asked.append((self.cluster.brokers[broker_id], {name: known.get(name, "") for name in names}))
        joined = {one.broker_id for one in telling.joined}
        for broker_id in telling.live_ids:
            rows = [(telling.everything or {}) if broker_id in joined else telling.metadata]
            known = {} if broker_id in joined else self.knowing.get(broker_id, {})
            known = {name: one for name, one in known.items() if (name, one) not in telling.removed}
            self.knowing[broker_id] = known | {name: topic_id for one in rows for name, topic_id in one}

    def look_at(self, topic: str, partition: int) -> None:
        self.unseen.discard((topic, partition))
        self.happens(self.zookeeper.states_seen((topic, partition)))

    def _round(self, event: Event) -> Settled:
        self.seed += 1
        self._note_states()
        before = snapshot(self.cluster)
        list(steps_of(self.cluster, event, seed=self.seed))
        assert snapshot(self.cluster) == before, "a decision changed belief"
        known = {name: one.state for name, one in believed(self.cluster).items()}
        settled = settle(self.cluster, event, self.zookeeper, seed=self.seed)
        self._note_states()
        assert not settled.of(SubjectParked), settled.of(SubjectParked)
        self._judge_states(known, settled)
        for telling in settled.tellings:
            self._judge_telling(telling)
            self._hear(telling)
        if not settled.conflicts and not isinstance(event, TermStarted):
            again = [change for step in steps_of(self.cluster, event) for change in step]
            assert [c for c in again if not isinstance(c, Refused | NotificationRead)] == [], f"decided twice: {again}"
        return settled

    def _note_states(self) -> None:
        for path, node in self.zookeeper.nodes.items():
            if path.endswith("/state"):
                self.stood.add((path, node.version, node.data))

    # ------------------------------------------------------------------ the judge

    def _judge_states(self, known: dict[str, Leadership | None], settled: Settled) -> None:
        for one in settled.committed:
            match one.change:
                case StateFound(topic=topic, partition=number, state=state):
                    known[f"{topic}-{number}"] = state
                case TopicGone(name=name, partitions=partitions):
                    for number in partitions:
                        known.pop(f"{name}-{number}", None)
                case StateDecided(topic=topic, partition=number) as change:
                    self._judge_state(change, known.get(f"{topic}-{number}"))
                    known[f"{topic}-{number}"] = change.state
                case _:
                    pass

    def _judge_state(self, change: StateDecided, before: Leadership | None) -> None:
        state = change.state
        partition = self.cluster.partition(change.topic, change.partition)
        assert partition is not None
        assert state.isr, f"S12: {change}"
        assert set(state.isr) <= set(partition.replicas), f"S13: {change}"
        assert state.leader == NO_LEADER or state.leader in state.isr, f"S11: {change}"
        assert state.controller_epoch == self.epoch, f"S9: {change}"
        assert state.leader == NO_LEADER or state.leader in self.cluster.live_ids, f"S15: {change}"
        if before is None:
            assert state.leader_epoch == 0, f"S8: {change}"
            return
        assert state.controller_epoch >= before.controller_epoch, f"S9: {change}"
        if change.by_leader:
            assert (state.leader, state.leader_epoch) == (before.leader, before.leader_epoch), f"S8: {change}"
            assert set(state.isr) - set(before.isr) <= self.cluster.live_ids, f"S16: {change}"
        else:
            assert state.leader_epoch == before.leader_epoch + 1, f"S8: {change}"
            # a vanished state begins anew when no member of its ISR is assigned any more
            is_anew = change.source is PartitionStatus.NEW and not set(before.isr) & set(partition.replicas)
            assert is_anew or set(state.isr) <= set(before.isr), f"S14: {change}"

    def _judge_telling(self, telling: Telling) -> None:
        everywhere = [telling.everything or {}, telling.metadata, *telling.leaderships.values()]
        for rows in everywhere:
            for (topic, topic_id), partitions in rows.items():
                assert topic_id
                for number, one in partitions.items():
                    assert one.state is not None
                    told = {(version, data) for path, version, data in self.stood if path == state_path(topic, number)}
                    same = [data for version, data in told if version == one.version]
                    assert any(_is_state(data, one.state) for data in same), f"S29: {topic}-{number} {one}"
        assert set(telling.leaderships) <= telling.live_ids

    def _judge_belief(self) -> None:
        cluster, zookeeper = self.cluster, self.zookeeper
        assert cluster.brokers == zookeeper.brokers()
        assert cluster.live_ids == cluster.brokers.keys()
        for name, topic in cluster.topics.items():
            node = zookeeper.nodes[topic_path(name)]
            if (name, None) not in cluster.unreadable:
                assert (topic.version, topic.czxid) == (node.version, node.czxid), name
            assert list(topic.partitions) == sorted(topic.partitions), f"S20: {name}"
            if topic.topic_id is None:
                assert cluster.duties.ids.is_undecided(name), f"nobody is asked for the id of {name}"
                continue
            assert self.ids.setdefault((name, topic.czxid), topic.topic_id) == topic.topic_id, f"S25: {name}"
            for number in topic.partitions:
                self._judge_partition(name, number)
        assert cluster.names_by_id == {
            one.topic_id: name for name, one in cluster.topics.items() if one.topic_id is not None
        }
        hosted: dict[int, dict[str, set[int]]] = {}
        for (name, number), one in cluster.all_partitions():
            for broker_id in one.replicas:
                hosted.setdefault(broker_id, {}).setdefault(name, set()).add(number)
        assert cluster.hosted == hosted
        self._judge_kept_states()

    def _judge_kept_states(self) -> None:
        """Wherever a state can be derived, it is the one that is kept."""
        cluster = self.cluster
        for (name, number), one in cluster.all_partitions():
            if cluster.duties.is_leaving(name) or cluster.topics[name].topic_id is None:
                continue
            if (name, None) in cluster.unreadable or (name, number) in cluster.unreadable:
                continue
            if (name, number) in self.unseen or cluster.duties.departed_of(name, number):
                continue  # the decision about it did not stand yet
            kept = cluster.states.of_partition(name, number)
            if one.state is None or set(one.state.isr) & set(one.replicas):
                assert kept is status_of(one.state, cluster.live_ids), f"{name}-{number} is kept as {kept}: {one}"
            for broker_id in one.replicas:
                status = cluster.states.of_replica(name, number, broker_id)
                if broker_id not in cluster.live_ids:
                    assert status is ReplicaStatus.OFFLINE, f"{name}-{number} on {broker_id}: {status}"
                elif one.state is not None and broker_id in one.state.isr:
                    assert status is ReplicaStatus.ONLINE, f"{name}-{number} on {broker_id}: {status}"
                else:
                    assert status in (ReplicaStatus.ONLINE, ReplicaStatus.NEW), f"{name}-{number} on {broker_id}"

    def _judge_partition(self, topic: str, number: int) -> None:
        if (topic, number) in self.unseen or (topic, number) in self.cluster.unreadable:
            return
        one = self.cluster.topics[topic].partitions[number]
        node = self.zookeeper.nodes.get(state_path(topic, number))
        online = self.cluster.live_ids & set(one.replicas)
        if one.state is None:
            # a state that stood while the topic's znode was malformed is found when a broker can lead again
            assert not online, f"{topic}-{number} could be led: {one}"
            return
        assert node is not None
        assert (decode_state(node.data), node.version) == (one.state, one.version), f"{topic}-{number}"
        if not set(one.state.isr) & set(one.replicas):
            return  # a tool assigned it to brokers that have no data: there is no right answer
        live_isr = online & set(one.state.isr)
        assert one.state.leader in (live_isr or {NO_LEADER}), f"{topic}-{number}: {one}"


def concerned(settled: Settled) -> tuple[set[tuple[str, int]], set[str]]:
    """Return the partitions and topics to read again: those that met a conflict, and those dropped because of it."""
    dropped = [change for step in settled.steps[len(settled.tellings) :] for change in step]
    partitions: set[tuple[str, int]] = set()
    topics: set[str] = set()
    changes: list[Change] = [*settled.conflicts, *dropped]
    for change in changes:
        match change:
            case StateDecided(topic=topic, partition=number):
                partitions.add((topic, number))
            case TopicCreated(name=name) | TopicWritten(name=name):
                topics.add(name)
            case TopicFound(fact=fact):
                topics.add(fact.name)
            case _:
                pass
    return partitions, topics


def _is_state(data: bytes, state: Leadership) -> bool:
    try:
        return decode_state(data) == state
    except FormatError:
        return False
