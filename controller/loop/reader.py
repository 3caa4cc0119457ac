"""Reading ZooKeeper into facts: everything once (`load`), or dirty paths (`see`).

Each reading arms the watch that tells of the next change, before it reads; told not to watch, it arms none. It decides
nothing and writes nothing. State znodes are not watched: the controller is their one writer, and others announce
themselves. Unreadable and malformed nodes are listed (`UnreadableNodes`) and stop nothing else: where a list may not
be read, its known names are asked for one by one, and no broker is taken for gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial

import msgspec
import structlog

from controller.core import formats
from controller.core.belief.duties import Duties
from controller.core.decide.topics import name_trouble
from controller.core.events import (
    BrokersSeen,
    ConfigsSeen,
    DeletionsSeen,
    Event,
    StateFact,
    StatesSeen,
    TopicFact,
    TopicsSeen,
)
from controller.core.model import NO_VERSION, Assignment, Broker, Leadership, Replicas
from controller.core.project.znodes import (
    BROKER_IDS,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    ISR_NOTIFICATIONS,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    PRODUCER_IDS,
    REASSIGN,
    TOPICS,
    broker_path,
    numbers_in,
    state_path,
    topic_path,
)
from controller.loop.admin_reader import AdminLoaded, AdminReader, versions_of
from controller.loop.unreadable_nodes import UnreadableNodes, shown, trouble_with
from controller.loop.watched_nodes import ABSENT, WatchedNodes
from controller.zookeeper.port import (
    THROTTLED,
    Brief,
    Denied,
    Node,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

STATES_PER_PAUSE = 5_000
#: the wait before a read that ZooKeeper had no time for is sent again
THROTTLED_S = 0.5


class Loaded(msgspec.Struct):
    """A term's first reading. Brokers were read last, so brokers that died meanwhile are not in it."""

    topics: list[TopicFact]
    states: list[StateFact]
    notifications: Mapping[str, int]
    brokers: dict[int, Broker]
    zxid: int
    admin: AdminLoaded

    def forget_partitions(self) -> None:
        """They are believed by now."""
        self.topics.clear()
        self.states.clear()

    def duties(self) -> Duties:
        """Returns the predecessor's notes, as far as they concern brokers that are still registered like that."""
        admin, epochs = self.admin, {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}
        duties = Duties()
        duties.topic_configs, duties.broker_configs = dict(admin.topic_configs), dict(admin.broker_configs)
        duties.drains = {b: drain for b, drain in admin.drains.items() if epochs.get(b) == drain.epoch}
        duties.terms, duties.noted = dict(admin.terms), dict(admin.noted)
        duties.suspect_ids = frozenset(b for b, epoch in admin.failed_dirs.items() if epochs.get(b) == epoch)
        return duties


class Reader:
    """Reads on one session, and remembers which data watches it has armed. Built anew for each term."""

    def __init__(
        self,
        zk: ZooKeeper,
        is_ours: Callable[[Broker], bool] = lambda _: True,
        *,
        watch: bool = True,
    ) -> None:
        self._zk = zk
        self._watch = watch
        self._is_ours = is_ours
        #: registered, but not to be spoken to: to everybody else they are not there
        self.foreign_brokers: dict[int, Broker] = {}
        #: nodes that are left out of everything read here
        self.unread = UnreadableNodes()
        self.watched = WatchedNodes()
        self._admin = AdminReader(zk, self.unread, self.watched, watch=watch)
        #: as read last, strangers too; and every broker ever heard of
        self._brokers: dict[int, Broker] = {}
        self._broker_ids: set[int] = set()
        self._watched_brokers: dict[int, int] = {}
        self._nonsense: set[str] = set()

    async def load(self) -> Loaded:
        """Returns the whole cluster: lists first, each with its watch, then topics, states, and brokers last."""
        # markers before topics: a topic that is made and marked in between must not look unknown
        admin = await self._admin.load()
        listed, _ = await self._children(TOPICS)
        names = self._admin.configured if listed is None else listed  # Kafka's tools configure every topic they make
        names_announced, _ = await self._children(ISR_NOTIFICATIONS)
        notifications = await versions_of(self._zk, [f"{ISR_NOTIFICATIONS}/{name}" for name in names_announced or ()])
        placed: dict[Replicas, Assignment] = {}
        topics = await self._read_topics(names, placed)
        wanted = [(fact.name, number) for fact in topics for number in fact.assignment]
        states = await self.read_states(wanted, placed)
        if listed is None:  # an unknown topic has no undone work
            admin.markers = {name: admin.markers[name] for name in self._known_topics if name in admin.markers}
        if CONFIG_TOPICS in self.unread:
            admin.topic_configs = await self._admin.topic_configs([fact.name for fact in topics])
        self._broker_ids.update(admin.noted, *(one.replicas for one in placed.values()))
        brokers, zxid = await self._read_brokers()
        there = [fact for fact in states if fact.version != NO_VERSION or fact.trouble is not None]
        return Loaded(topics, there, notifications, brokers, zxid, admin)

    async def load_surely(self) -> Loaded:
        """`load`, from the start again whenever the connection broke in the middle."""
        while True:
            try:
                return await self.load()
            except (NotSentError, OutcomeUnknownError, RefusedError) as error:
                await self._ready_again(error)

    async def see_surely(self, dirty: Iterable[str]) -> list[Event]:
        """`see`, again whenever the connection broke in the middle: neither a dirty path is ever forgotten, nor what
        followed from it."""
        paths = set(dirty)
        while True:
            try:
                return await self.see(paths)
            except (NotSentError, OutcomeUnknownError, RefusedError) as error:
                await self._ready_again(error)

    async def _ready_again(self, error: NotSentError | OutcomeUnknownError | RefusedError) -> None:
        """Wait until it is worth asking again."""
        if not isinstance(error, RefusedError):
            await connected(self._zk)
        elif error.refusal == THROTTLED:
            log.warning("reading.throttled")
            await asyncio.sleep(THROTTLED_S)
        else:
            raise error

    async def see(self, paths: set[str]) -> list[Event]:
        """Read the dirty paths, with all that follows, in the order in which it has to be decided. What follows is
        added to `paths` as soon as it is known: whoever reads again after an error reads it again, too."""
        events: list[Event] = []
        if _has_below(paths, BROKER_IDS):
            brokers, zxid = await self._read_brokers()
            events.append(BrokersSeen(brokers, zxid))
        expired = await self._admin.see_changes(paths) if _has_below(paths, CONFIG_CHANGES) else {}
        if (configs := await self._admin.see_configs_at(paths, expired)) is not None:
            events.append(configs)
        deletions = None
        if TOPICS in paths and TOPICS in self.unread:
            paths.add(DELETE_TOPICS)  # markers of topics that were not known were passed over
        if _has_below(paths, DELETE_TOPICS):
            deletions = await self._admin.see_deletions(self._known_topics)
            paths.add(TOPICS)  # read after the markers, decided before them: as in `load`
        topics = [path.split("/") for path in sorted(paths) if path.startswith(f"{TOPICS}/")]
        renewed = [parts[3] for parts in topics if len(parts) == 4]
        states = [(parts[3], int(parts[5])) for parts in topics if len(parts) == 7 and parts[6] == "state"]
        if TOPICS in paths or renewed:
            before = set(self._nonsense)
            seen = await self._see_topics(renewed, with_list=TOPICS in paths)
            events.append(seen)
            # states of a topic that was malformed were never read
            mended = [fact for fact in seen.facts if fact.name in before and fact.trouble is None]
            states += [(fact.name, number) for fact in mended for number in fact.assignment]
            paths.update(topic_path(fact.name) for fact in seen.facts)
            paths.update(state_path(*one) for one in states)
            # Kafka's tools announce no configuration that a topic was created with
            if overrides := await self._admin.topic_configs([fact.name for fact in seen.facts]):
                events.append(ConfigsSeen(overrides, {}))
            if seen.names is None and deletions is not None:
                known = {name: how for name, how in deletions.markers.items() if name in self._known_topics}
                deletions = DeletionsSeen(known, deletions.zxid)
        if states:
            events.append(StatesSeen(await self.read_states(states)))
        events += [] if deletions is None else [deletions]
        events += await self._see_admin(paths)
        if _has_below(paths, ISR_NOTIFICATIONS) and (announced := await self._see_isr_notifications()) is not None:
            events.append(announced)
        return events

    @property
    def _known_topics(self) -> set[str]:
        return self.watched.topics.keys() | self._nonsense

    async def _see_admin(self, paths: Collection[str]) -> list[Event]:
        events: list[Event] = []
        if REASSIGN in paths and (asked := await self._admin.see_reassign_node()) is not None:
            events.append(asked)
        if PREFERRED_ELECTION in paths and (node := await self._admin.see_election_node()) is not None:
            events.append(node)
        if PRODUCER_IDS in paths:
            events.append(await self._admin.see_producer_ids())
        if _has_below(paths, LOG_DIR_EVENTS) and (failed := await self._admin.see_log_dirs()) is not None:
            events.append(failed)
        return [*events, *await self._admin.see_own(paths)]

    async def read_states(
        self, wanted: Sequence[tuple[str, int]], placed: Mapping[Replicas, Assignment] | None = None
    ) -> list[StateFact]:
        """State znodes as facts, absent ones too; pauses so that a long reading does not hold the event loop. States
        that are alike are decoded, and kept, once."""
        paths = [CONTROLLER_EPOCH, *(state_path(topic, number) for topic, number in wanted)]
        first, *found = await self._zk.brief_many(paths)
        position = 0 if first is None else first.zxid
        facts = []
        has_unread = bool(self.unread)  # asked once: entries that are added here are of other znodes
        decode = cache(partial(formats.decode_state, placed=placed))
        for index, ((topic, number), brief) in enumerate(zip(wanted, found, strict=True), start=1):
            if isinstance(brief, Denied):
                trouble = trouble_with(brief)
                self.unread.put(paths[index], trouble, is_believed=True)
                facts.append(StateFact(topic, number, None, NO_VERSION, brief.zxid, trouble=trouble))
            else:
                fact = _state_fact(topic, number, brief, position, decode)
                if fact.trouble is not None:
                    self.unread.put(paths[index], fact.trouble, is_believed=True)  # no watch tells of a state
                elif has_unread:
                    self.unread.good(paths[index])
                facts.append(fact)
            if index % STATES_PER_PAUSE == 0:
                await asyncio.sleep(0)
        return facts

    async def _children(self, path: str) -> tuple[tuple[str, ...] | None, int]:
        """Names below a node, watched, and the zxid they were read at; a missing node (an empty ZooKeeper) has none,
        and its creation is watched. None: they may not be read, and nothing is known of them."""
        try:
            while (found := await self._zk.children(path, watch=self._watch)) is None:
                existence = await self._zk.exists(path, watch=self._watch)
                if existence.stat is None:
                    self.unread.keep(path, ())
                    self.watched.read_list(path, ABSENT)
                    return (), existence.zxid
        except RefusedError as refused:
            if refused.refusal == THROTTLED:
                raise
            self.unread.put(path, trouble_with(refused))
            return None, 0
        self.unread.keep(path, found.names)
        self.watched.read_list(path, found.zxid)
        return found.names, found.zxid

    async def _get_many(self, paths: Sequence[str]) -> tuple[int, list[Node | Denied | None]]:
        """Nodes, and a position: all of them were read at it or later. The epoch's node is always there to tell."""
        first, *nodes = await self._zk.get_many([CONTROLLER_EPOCH, *paths])
        return (0 if first is None else first.zxid), nodes

    async def _read_brokers(self) -> tuple[dict[int, Broker], int]:
        """All registrations in one reading. One whose data is missing or malformed is not alive; one that may not be
        read any more stays as it was. Where the list may not be read, the known brokers are asked for."""
        names, _ = await self._children(BROKER_IDS)
        broker_ids = sorted(self._broker_ids) if names is None else numbers_in(names)
        for name in set(names or ()).difference(map(str, broker_ids)):
            self.unread.put(f"{BROKER_IDS}/{name}", "no broker can have such an id: remove it, unless a tool needs it")
        self._broker_ids.update(broker_ids)
        position, nodes = await self._get_many([broker_path(broker_id) for broker_id in broker_ids])
        brokers: dict[int, Broker] = {}
        for broker_id, node in zip(broker_ids, nodes, strict=True):
            path = broker_path(broker_id)
            if isinstance(node, Denied):
                self.unread.put(path, trouble_with(node))
                if broker_id in self._brokers:
                    brokers[broker_id] = self._brokers[broker_id]
                continue
            self.unread.good(path)
            if node is None:
                continue
            try:
                brokers[broker_id] = formats.decode_broker(node.data, broker_id, node.stat.czxid)
            except formats.FormatError as error:
                self.unread.put(path, str(error))
        self._brokers = brokers
        unwatched = [b.broker_id for b in brokers.values() if self._watched_brokers.get(b.broker_id) != b.epoch]
        absent = [one for one, node in zip(broker_ids, nodes, strict=True) if node is None] if names is None else []
        if (unwatched or absent) and self._watch:
            here, missing = [broker_path(one) for one in unwatched], [broker_path(one) for one in absent]
            await self._zk.watch_many(here, missing, position)
        self._watched_brokers = {broker.broker_id: broker.epoch for broker in brokers.values()}
        self.watched.read_brokers(map(broker_path, brokers), position)
        foreign_brokers = {broker.broker_id: broker for broker in brokers.values() if not self._is_ours(broker)}
        if foreign_brokers != self.foreign_brokers:
            log.warning("brokers.left_out", broker_ids=sorted(foreign_brokers))
            self.foreign_brokers = foreign_brokers
        return {
            broker_id: broker for broker_id, broker in brokers.items() if broker_id not in foreign_brokers
        }, position

    def forget_watch(self, path: str) -> None:
        """A data watch has fired: the next reading arms it again."""
        parent, _, name = path.rpartition("/")
        if parent == BROKER_IDS:
            for broker_id in numbers_in([name]):
                self._watched_brokers.pop(broker_id, None)
        elif parent == TOPICS:
            self.watched.forget_topics([name])

    async def _see_topics(self, renewed: Sequence[str], *, with_list: bool) -> TopicsSeen:
        listed: frozenset[str] | None = None
        wanted, zxid = set(renewed), 0
        if with_list:
            names, zxid = await self._children(TOPICS)
            if names is not None:
                listed = frozenset(names)
                wanted |= listed - self.watched.topics.keys()
                self.watched.forget_topics(self.watched.topics.keys() - listed)
        return TopicsSeen(await self._read_topics(sorted(wanted)), zxid, listed)

    async def _read_topics(
        self, names: Sequence[str], placed: dict[Replicas, Assignment] | None = None
    ) -> list[TopicFact]:
        position, nodes = await self._get_many([topic_path(name) for name in names])
        present = [(name, node) for name, node in zip(names, nodes, strict=True) if isinstance(node, Node)]
        if self._watch:
            await self._zk.watch_many([topic_path(name) for name, _ in present], [], position)
        self.watched.forget_topics(names)
        self.watched.read_topics([name for name, _ in present], position)
        facts = [_topic_fact(name, node, placed) for name, node in present]
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, Denied):
                facts.append(TopicFact(name, NO_VERSION, 0, node.zxid, trouble=trouble_with(node)))
                self.unread.put(topic_path(name), trouble_with(node), is_believed=True)
            elif self.unread:
                self.unread.good(topic_path(name))
        self._nonsense = {*self._nonsense.difference(names), *(fact.name for fact in facts if fact.trouble is not None)}
        return facts

    async def _see_isr_notifications(self) -> StatesSeen | None:
        """Returns the states that other writers announced: the partitions that the notifications name, read now."""
        names, _ = await self._children(ISR_NOTIFICATIONS)
        if names is None:
            return None
        read: dict[str, int] = {}
        wanted: set[tuple[str, int]] = set()
        paths = [f"{ISR_NOTIFICATIONS}/{name}" for name in sorted(names)]
        _, nodes = await self._get_many(paths)
        for path, node in zip(paths, nodes, strict=True):
            if isinstance(node, Denied):  # it stays until it was heard
                self.unread.put(path, trouble_with(node))
                continue
            self.unread.good(path)
            read[path] = 0 if node is None else node.stat.version
            try:
                znode = formats.decode(b"{}" if node is None else node.data, formats.PartitionsZnode)
            except formats.FormatError as error:
                log.warning("notification.unreadable", path=shown(path), trouble=str(error))
                continue
            wanted.update((one.topic, one.partition) for one in znode.partitions)
        return StatesSeen(await self.read_states(sorted(wanted)), read)


def _has_below(paths: Collection[str], parent: str) -> bool:
    """A child alone is dirty when a removal of it did not stand."""
    return any(path == parent or path.startswith(f"{parent}/") for path in paths)


def _topic_fact(name: str, node: Node, placed: dict[Replicas, Assignment] | None) -> TopicFact:
    stat = node.stat
    if (trouble := name_trouble(name)) is not None:
        return TopicFact(name, stat.version, stat.czxid, node.zxid, trouble=trouble)
    try:
        topic_id, assignment = formats.decode_topic(node.data, placed)
    except formats.FormatError as error:
        return TopicFact(name, stat.version, stat.czxid, node.zxid, trouble=str(error))
    return TopicFact(name, stat.version, stat.czxid, node.zxid, topic_id, assignment)


def _state_fact(
    topic: str, number: int, brief: Brief | None, position: int, decode: Callable[[bytes], Leadership]
) -> StateFact:
    if brief is None:
        return StateFact(topic, number, None, NO_VERSION, position)
    try:
        state = decode(brief.data)
    except formats.FormatError as error:
        return StateFact(topic, number, None, brief.version, brief.zxid, brief.mtime_ms, str(error))
    return StateFact(topic, number, state, brief.version, brief.zxid, brief.mtime_ms)
