"""ZooKeeper's history replayed: the tree at each zxid, and the meaning of each commit for the controller's world.

A commit becomes a `Step`: its writer, the seat's holder before and after, and the states, topics, registrations and
markers that changed. A commit that does not fit onto the tree is refused (`HistoryError`). It judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from tests.faults.checker.history import Commit, History, HistoryError, Write, config_of, json_of, object_of

#: a number as Kafka writes it; another name is of no broker and no partition
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_NUMBER_MAX = 2**31 - 1
STATE = re.compile(rf"/brokers/topics/([^/]+)/partitions/{_NUMBER}/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_BROKER = re.compile(rf"/brokers/ids/{_NUMBER}")
_DRAIN = re.compile(rf"/klamm/draining/{_NUMBER}")
_MARKER = re.compile(r"/admin/delete_topics/([^/]+)")

Key = tuple[str, int]
EPOCH_DIGITS_MAX = 11


class State(NamedTuple):
    """A state znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery: int
    version: int


class Assigned(NamedTuple):
    """One partition's place in a topic znode."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def target_of(place: Assigned) -> tuple[int, ...]:
    """Returns the brokers that are to have it in the end."""
    return tuple(one for one in place.replicas if one not in place.removing)


class Topic(NamedTuple):
    """A topic znode; `incarnation` is its czxid."""

    incarnation: int
    topic_id: str | None
    partitions: dict[int, Assigned]


class StateChange(NamedTuple):
    """A state znode before and after; `last` is its last content in this topic's life, also if it is gone since."""

    key: Key
    topic_id: str | None
    before: State | None
    after: State | None
    last: State | None


class TopicChange(NamedTuple):
    name: str
    before: Topic | None
    after: Topic | None


class Registration(NamedTuple):
    """`until_ms` None: it stands."""

    broker_id: int
    epoch: int
    session: int
    from_ms: int
    until_ms: int | None = None


class _Node(msgspec.Struct):
    data: bytes
    version: int
    czxid: int
    session: int


class Step(msgspec.Struct):
    """One commit and its meaning."""

    commit: Commit
    seat_before: int | None
    seat_after: int | None
    epoch_before: int | None
    epoch_after: int | None
    #: the highest epoch claimed before, whether or not its node still exists
    claimed_before: int
    states: list[StateChange]
    topics: list[TopicChange]
    gone_markers: list[str]

    @property
    def is_claim(self) -> bool:
        return any((one.kind, one.path) == ("create", "/controller") for one in self.commit.writes)


class World(msgspec.Struct):
    """Everything as of the last step."""

    nodes: dict[str, _Node] = {}
    states: dict[Key, State] = {}
    last_states: dict[Key, State] = {}
    topics: dict[str, Topic] = {}
    registered: dict[int, Registration] = {}
    past: list[Registration] = []
    draining: dict[int, tuple[int, str]] = {}
    #: sessions of processes of ours: they registered, or held the seat
    sessions: dict[int, int] = {}
    seat: int | None = None
    #: None: it is not there, or is malformed
    epoch: int | None = None
    claimed: int = 0
    #: topics that a tool took the id from before any broker was told: only the term that made them knows it
    known_by_term: set[str] = set()
    #: topics with ids that a tool gave them, which no process believes
    rewritten_ids: frozenset[tuple[str, str]] = frozenset()

    def is_live(self, broker_id: int, at_ms: int, slack_ms: int) -> bool:
        """Registered now, or so lately that a controller may not have heard."""
        if broker_id in self.registered:
            return True
        return any(
            one.broker_id == broker_id and one.until_ms is not None and at_ms - one.until_ms <= slack_ms
            for one in reversed(self.past)
        )

    def is_draining(self, broker_id: int, *, for_good: bool = False) -> bool:
        drain, here = self.draining.get(broker_id), self.registered.get(broker_id)
        if drain is None or here is None or drain[0] != here.epoch:
            return False
        return drain[1] == "shutdown" if for_good else True

    def is_unclean_allowed(self, topic: str, default: bool) -> bool:
        for path in (f"/config/topics/{topic}", "/config/brokers/<default>"):
            node = self.nodes.get(path)
            said = {} if node is None else config_of(node.data)
            if (value := said.get("unclean.leader.election.enable")) is not None:
                return bool(value.strip().lower() == "true")
        return default


def replay(history: History) -> Iterator[tuple[Step, World]]:
    """Step by step; the world is as of after the step, and changes with the next one."""
    history.check_order()
    world = World(rewritten_ids=history.rewritten_ids)
    for commit in history.commits:
        yield _take(world, commit), world


def _take(world: World, commit: Commit) -> Step:
    step = Step(commit, world.seat, None, world.epoch, None, world.claimed, [], [], [])
    for write in commit.writes:
        if write.kind == "check":
            continue
        before = world.nodes.get(write.path)
        _apply(world, commit, write, before)
        _note(world, step, commit, write)
    # assignments come with the states of the same commit: a state's topic is looked up when all of it stands
    step.states = [one._replace(topic_id=_id_of(world, step, one.key[0])) for one in step.states]
    step.seat_after, step.epoch_after = world.seat, world.epoch
    if step.is_claim:
        world.claimed = max(world.claimed, world.epoch or 0)
        _forget_ids(world)
    return step


def _apply(world: World, commit: Commit, write: Write, before: _Node | None) -> None:
    where = f"{write.path} at {commit.zxid:#x}"
    if write.kind == "create":
        if before is not None:
            raise HistoryError(f"{where} is created and was there already: something is missing before")
        parent = write.path.rpartition("/")[0]
        if parent and parent not in world.nodes:
            raise HistoryError(f"{where} is created below nothing: something is missing before")
        world.nodes[write.path] = _Node(write.data, 0, commit.zxid, commit.session if write.is_ephemeral else 0)
        return
    if before is None:
        raise HistoryError(f"{where}: a {write.kind} of what is not there: something is missing before")
    if write.kind == "delete":
        del world.nodes[write.path]
        return
    version = before.version + 1
    if write.version not in (None, version):
        raise HistoryError(f"{where} has version {write.version} after {before.version}: something is missing between")
    world.nodes[write.path] = msgspec.structs.replace(before, data=write.data, version=version)


def _note(world: World, step: Step, commit: Commit, write: Write) -> None:
    path, node = write.path, world.nodes.get(write.path)
    if path == "/controller":
        world.seat = commit.session if node is not None else None
        if node is not None:
            said = object_of(node.data).get("brokerid")
            world.sessions[commit.session] = said if isinstance(said, int) else -1
    elif path == "/controller_epoch":
        world.epoch = epoch_in(node.data) if node is not None else None
    elif (match := STATE.fullmatch(path)) and int(match[2]) <= _NUMBER_MAX:
        _note_state(world, step, (match[1], int(match[2])), node)
    elif match := _TOPIC.fullmatch(path):
        _note_topic(world, step, match[1], node)
    elif (match := _BROKER.fullmatch(path)) and int(match[1]) <= _NUMBER_MAX:
        _note_broker(world, commit, int(match[1]), node)
    elif match := _DRAIN.fullmatch(path):
        drain = {} if node is None else object_of(node.data)
        world.draining.pop(int(match[1]), None)
        if drain.keys() >= {"broker_epoch", "by"}:
            world.draining[int(match[1])] = (drain["broker_epoch"], drain["by"])
    elif (match := _MARKER.fullmatch(path)) and node is None:
        step.gone_markers.append(match[1])


def _note_state(world: World, step: Step, key: Key, node: _Node | None) -> None:
    before, last = world.states.pop(key, None), world.last_states.get(key)
    after = None if node is None else state_of(node.data, node.version)
    if after is not None:
        world.states[key] = world.last_states[key] = after
    step.states.append(StateChange(key, None, before, after, last))


def _note_topic(world: World, step: Step, name: str, node: _Node | None) -> None:
    after = None if node is None else topic_of(node.data, node.czxid)
    known = world.topics.get(name)
    if after is None and node is not None and known is not None and known.incarnation == node.czxid:
        return  # spoiled by an operator: all that believe in it keep the last content
    if after is not None and known is not None and (name, after.topic_id) in world.rewritten_ids:
        after = after._replace(topic_id=known.topic_id)
    was_led = any(key[0] == name for key in world.last_states)
    is_same = after is not None and known is not None and known.incarnation == after.incarnation
    is_known = was_led or world.seat is not None
    if after is not None and known is not None and is_same and is_known and not after.topic_id:
        if not was_led:
            world.known_by_term.add(name)
        after = after._replace(topic_id=known.topic_id)  # dropped by a tool of old: brokers that were told know it
    before = world.topics.pop(name, None)
    if after is not None:
        world.topics[name] = after
    else:
        for key in [key for key in world.last_states if key[0] == name]:
            del world.last_states[key]
    step.topics.append(TopicChange(name, before, after))


def _forget_ids(world: World) -> None:
    """A term began: it draws another id for a topic that was never led, if the one before has not written it again."""
    for name in world.known_by_term & world.topics.keys() - {key[0] for key in world.last_states}:
        if not object_of(world.nodes[f"/brokers/topics/{name}"].data).get("topic_id"):
            world.topics[name] = world.topics[name]._replace(topic_id=None)
    world.known_by_term.clear()


def _note_broker(world: World, commit: Commit, broker_id: int, node: _Node | None) -> None:
    here = world.registered.pop(broker_id, None)
    if here is not None and node is None:
        world.past.append(here._replace(until_ms=commit.at_ms))
    elif here is not None:
        world.registered[broker_id] = here
    elif node is not None:
        world.registered[broker_id] = Registration(broker_id, commit.zxid, commit.session, commit.at_ms)
        world.sessions[commit.session] = broker_id


def _id_of(world: World, step: Step, name: str) -> str | None:
    topic = world.topics.get(name) or next((one.before for one in step.topics if one.name == name), None)
    return None if topic is None else topic.topic_id


def epoch_in(data: bytes) -> int | None:
    """Returns None for a content that is no epoch."""
    return int(data) if data.isdigit() and len(data) < EPOCH_DIGITS_MAX else None


def state_of(data: bytes, version: int) -> State | None:
    """Returns None for a content that is no state."""
    said: Any = json_of(data)
    try:
        recovery = said.get("leader_recovery_state", 0)
        return State(
            said["leader"], said["leader_epoch"], tuple(said["isr"]), said["controller_epoch"], recovery, version
        )
    except (AttributeError, KeyError, TypeError):
        return None


def topic_of(data: bytes, czxid: int) -> Topic | None:
    """Returns None for a content that is no topic."""
    said: Any = json_of(data)
    try:
        adding, removing = said.get("adding_replicas") or {}, said.get("removing_replicas") or {}
        partitions = {
            int(number): Assigned(tuple(replicas), tuple(adding.get(number, ())), tuple(removing.get(number, ())))
            for number, replicas in said["partitions"].items()
        }
        return Topic(czxid, said.get("topic_id"), partitions)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
