"""Reading nodes of operators and brokers for the controller: markers, request nodes, configuration, announcements.

Half of the `Reader`, with the same rules: a watch is armed before its node is read, nothing is decided, nothing is
written. Malformed content is told as such, never guessed; a node that may not be read stays as it was believed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import structlog

from controller.core import formats
from controller.core.belief.duties import CLUSTER_DEFAULT, Drain
from controller.core.events import (
    ConfigsSeen,
    DeletionsSeen,
    DrainAsked,
    ElectionNodeSeen,
    LogDirsSeen,
    ProducerIdsSeen,
    ReassignNodeSeen,
)
from controller.core.model import NO_VERSION
from controller.core.project.znodes import (
    CONFIG_BROKERS,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    DELETE_TOPICS,
    DRAINING,
    FAILED_DIRS,
    KNOWN_BROKERS,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    PRODUCER_IDS,
    REASSIGN,
    TERMS,
    numbers_in,
)
from controller.loop.unreadable_nodes import UnreadableNodes, shown, trouble_with
from controller.loop.watched_nodes import ABSENT, WatchedNodes
from controller.zookeeper.port import (
    THROTTLED,
    Brief,
    Denied,
    Node,
    RefusedError,
    ZooKeeper,
)

log = structlog.get_logger()

#: a reader of the list removes change notifications when another one is so much younger (Kafka's own constant)
NOTIFICATIONS_KEPT_MS = 15 * 60 * 1000

Configs = dict[str, Mapping[str, str]]
_Z = TypeVar("_Z")

_CONFIGS: Final = {"topics": CONFIG_TOPICS, "brokers": CONFIG_BROKERS}
_OWN: dict[str, type[msgspec.Struct]] = {
    DRAINING: formats.DrainZnode,
    FAILED_DIRS: formats.FailedDirsZnode,
    KNOWN_BROKERS: formats.KnownBrokerZnode,
    TERMS: formats.TermZnode,
}


class AdminLoaded(msgspec.Struct):
    """A term's first reading, beside topics and brokers."""

    topic_configs: Configs
    broker_configs: Configs
    markers: Mapping[str, bool]
    reassign: ReassignNodeSeen
    election: ElectionNodeSeen | None
    drains: Mapping[int, Drain]
    failed_dirs: Mapping[int, int]  # broker id -> broker epoch
    log_dir_events: Mapping[str, int]
    terms: Mapping[int, formats.TermZnode]
    noted: Mapping[int, formats.KnownBrokerZnode]
    producer_ids: ProducerIdsSeen


class AdminReader:
    """Built anew for each term."""

    def __init__(self, zk: ZooKeeper, unread: UnreadableNodes, watched: WatchedNodes, *, watch: bool = True) -> None:
        self._zk = zk
        self._unread = unread
        self._watched = watched
        #: topics that have a configuration, as read last
        self.configured: list[str] = []
        self._watch = watch
        #: the zxid that made the newest notification read
        self._newest_change = 0

    async def load(self) -> AdminLoaded:
        names = await self._names(CONFIG_CHANGES) or []
        notifications = await self._zk.get_many([f"{CONFIG_CHANGES}/{name}" for name in names])
        self._newest_change = _newest_of(notifications)
        self.configured = await self._names(CONFIG_TOPICS, watch=False) or []
        topics = await self.topic_configs(self.configured)
        noted = await self._by_number(KNOWN_BROKERS, formats.KnownBrokerZnode)
        broker_names = await self._names(CONFIG_BROKERS, watch=False)
        if broker_names is None:
            broker_names = [CLUSTER_DEFAULT, *map(str, noted)]
        brokers = await self._configs(CONFIG_BROKERS, broker_names)
        markers = await self.see_deletions(self.configured)
        log_dir_events = await self._names(LOG_DIR_EVENTS) or []
        return AdminLoaded(
            topic_configs=topics,
            broker_configs={name: values for name, values in brokers.items() if values},
            markers=markers.markers,
            reassign=await self.see_reassign_node() or ReassignNodeSeen({}, None),
            election=await self.see_election_node(),
            drains={
                broker_id: Drain(znode.broker_epoch, znode.by == "shutdown")
                for broker_id, znode in (await self._by_number(DRAINING, formats.DrainZnode)).items()
            },
            failed_dirs={
                broker_id: znode.broker_epoch
                for broker_id, znode in (await self._by_number(FAILED_DIRS, formats.FailedDirsZnode)).items()
            },
            log_dir_events=await versions_of(self._zk, [f"{LOG_DIR_EVENTS}/{name}" for name in log_dir_events]),
            terms=await self._by_number(TERMS, formats.TermZnode),
            noted=noted,
            producer_ids=await self.see_producer_ids(),
        )

    async def topic_configs(self, names: Iterable[str]) -> Configs:
        """Of topics that have overrides."""
        return {name: values for name, values in (await self._configs(CONFIG_TOPICS, names)).items() if values}

    async def see_deletions(self, known: Iterable[str]) -> DeletionsSeen:
        """Returns all markers; if they may not be listed, those of the topics that are known."""
        names = await self._names(DELETE_TOPICS)
        asked = sorted(known) if names is None else names
        nodes = await self._zk.get_many([f"{DELETE_TOPICS}/{name}" for name in asked])
        markers: dict[str, bool] = {}
        zxid = 0
        for name, node in zip(asked, nodes, strict=True):
            if self._is_readable(f"{DELETE_TOPICS}/{name}", node) and isinstance(node, Node):
                markers[name] = formats.decode_marker(node.data)
            elif isinstance(node, Denied) and names is not None:
                markers[name] = False  # that it is there is all that Kafka's says
            zxid = zxid if node is None else max(zxid, node.zxid)
        return DeletionsSeen(markers, zxid)

    async def see_reassign_node(self) -> ReassignNodeSeen | None:
        node = await self._get(REASSIGN, watch=self._watch)
        if isinstance(node, Denied):
            return None
        if node is None:
            return ReassignNodeSeen({}, None)
        try:
            znode = formats.decode(node.data, formats.ReassignZnode)
        except formats.FormatError as error:
            return ReassignNodeSeen({}, node.stat.version, str(error))
        return ReassignNodeSeen({(o.topic, o.partition): o.replicas for o in znode.partitions}, node.stat.version)

    async def see_election_node(self) -> ElectionNodeSeen | None:
        node = await self._get(PREFERRED_ELECTION, watch=self._watch)
        if node is None or isinstance(node, Denied):
            return None
        try:
            znode = formats.decode(node.data, formats.PartitionsZnode)
        except formats.FormatError as error:
            return ElectionNodeSeen((), node.stat.version, str(error))
        return ElectionNodeSeen([(one.topic, one.partition) for one in znode.partitions], node.stat.version)

    async def see_producer_ids(self) -> ProducerIdsSeen:
        """Not watched: only a conflict makes it worth reading again. Brokers make it empty."""
        node = await self._get(PRODUCER_IDS, watch=False)
        if isinstance(node, Denied):
            return ProducerIdsSeen(-1, NO_VERSION, trouble_with(node))
        if node is None or not node.data:
            return ProducerIdsSeen(0, None if node is None else node.stat.version)
        try:
            return ProducerIdsSeen(formats.decode_producer_ids(node.data), node.stat.version)
        except formats.FormatError as error:
            return ProducerIdsSeen(-1, node.stat.version, str(error))

    async def see_changes(self, changed: set[str]) -> dict[str, int]:
        """Adds the configurations that changed since the last notification read. Returns old notifications, which have
        had their time, with the versions read. Their age is the time by which the newest was made later: ZooKeeper's
        own stamps, and no clock of ours."""
        names = await self._names(CONFIG_CHANGES)
        if names is None:
            return {}
        paths = [f"{CONFIG_CHANGES}/{name}" for name in names]
        nodes = await self._zk.get_many(paths)
        made_ms = {path: node.stat.ctime_ms for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)}
        newest_ms = max(made_ms.values(), default=0)
        expired = {}
        for path, node in zip(paths, nodes, strict=True):
            is_late = path in self._unread  # it may be read at last
            if not self._is_readable(path, node) or not isinstance(node, Node):
                continue
            # by zxid: the numbers in the names begin anew when the parent is made anew
            if is_late or node.stat.czxid > self._newest_change:
                kind, entity = _entity_in(path, node)
                if parent := _CONFIGS.get(kind):
                    changed.add(f"{parent}/{entity}")
            if newest_ms - made_ms[path] > NOTIFICATIONS_KEPT_MS:
                expired[path] = node.stat.version
        self._newest_change = max(self._newest_change, _newest_of(nodes))
        return expired

    async def see_configs_at(self, paths: Collection[str], expired: Mapping[str, int]) -> ConfigsSeen | None:
        """Configurations that changed, or that could not be read or were malformed, by their own paths."""
        found: dict[str, Configs] = {}
        for parent in _CONFIGS.values():
            names = {path[len(parent) + 1 :] for path in paths if path.startswith(f"{parent}/")}
            if parent in paths:
                names.update(await self._names(parent, watch=False) or ())
            found[parent] = await self._configs(parent, sorted(names)) if names else {}
        topics, brokers = found[CONFIG_TOPICS], found[CONFIG_BROKERS]
        return ConfigsSeen(topics, brokers, expired) if topics or brokers or expired else None

    async def see_own(self, paths: Collection[str]) -> list[DrainAsked]:
        """Znodes of ours that could not be read, read again. Drains are taken up; the rest is for the next term."""
        asked: list[DrainAsked] = []
        for parent, kind in _OWN.items():
            if any(path == parent or path.startswith(f"{parent}/") for path in paths):
                for number, znode in (await self._by_number(parent, kind)).items():
                    is_meant = parent in paths or f"{parent}/{number}" in paths
                    if is_meant and isinstance(znode, formats.DrainZnode):
                        asked.append(DrainAsked(number, znode.broker_epoch, znode.by == "shutdown", is_found=True))
        return asked

    async def see_log_dirs(self) -> LogDirsSeen | None:
        names = await self._names(LOG_DIR_EVENTS)
        if names is None:
            return None
        paths = [f"{LOG_DIR_EVENTS}/{name}" for name in names]
        broker_ids: set[int] = set()
        read: dict[str, int] = {}
        for path, node in zip(paths, await self._zk.get_many(paths), strict=True):
            if not self._is_readable(path, node) or isinstance(node, Denied):
                continue  # it stays until it was heard
            read[path] = 0 if node is None else node.stat.version
            try:
                broker_ids.add(formats.decode(b"" if node is None else node.data, formats.LogDirEventZnode).broker)
            except formats.FormatError as error:
                log.warning("notification.unreadable", path=shown(path), trouble=str(error))
        return LogDirsSeen(frozenset(broker_ids), read)

    async def _names(self, path: str, *, watch: bool = True) -> list[str] | None:
        """Children in order; a missing parent has none, and with `watch` its creation is told. None: they may not be
        read."""
        watch = watch and self._watch
        try:
            while (found := await self._zk.children(path, watch=watch)) is None:
                if not watch or (await self._zk.exists(path, watch=True)).stat is None:
                    self._unread.keep(path, ())
                    if watch:
                        self._watched.read_list(path, ABSENT)
                    return []
        except RefusedError as refused:
            self._note(path, refused)
            return None
        self._unread.keep(path, found.names)
        if watch:
            self._watched.read_list(path, found.zxid)
        return sorted(found.names)

    async def _get(self, path: str, *, watch: bool) -> Node | Denied | None:
        """As one of many."""
        try:
            node = await self._zk.get(path, watch=watch)
        except RefusedError as refused:
            self._note(path, refused)
            return Denied(refused.refusal, 0)
        self._unread.good(path)
        if watch:
            self._watched.read_node(path, ABSENT if node is None else node.zxid)
        return node

    def _note(self, path: str, refused: RefusedError) -> None:
        if refused.refusal == THROTTLED:
            raise refused  # that is nothing about this path
        self._unread.put(path, trouble_with(refused))

    def _is_readable(self, path: str, node: Node | Denied | None) -> bool:
        """Returns whether it was read, or is not there; otherwise it is in the book now."""
        if isinstance(node, Denied):
            self._unread.put(path, trouble_with(node))
            return False
        self._unread.good(path)
        return True

    async def _configs(self, parent: str, names: Iterable[str]) -> Configs:
        """Returns overrides by entity; an empty map where there are none, or where they are malformed. Unreadable ones
        are left out."""
        wanted = [name for name in names if name and "/" not in name]
        nodes = await self._zk.get_many([f"{parent}/{name}" for name in wanted])
        found: Configs = {}
        for name, node in zip(wanted, nodes, strict=True):
            path = f"{parent}/{name}"
            if isinstance(node, Denied):
                self._unread.put(path, trouble_with(node))
                continue
            try:
                found[name] = formats.decode(b"{}" if node is None else node.data, formats.ConfigZnode).config
                self._unread.good(path)
            except formats.FormatError as error:
                self._unread.put(path, str(error))
                found[name] = {}
        return found

    async def _by_number(self, parent: str, kind: type[_Z]) -> dict[int, _Z]:
        """Znodes of ours, one for each broker or epoch."""
        names = await self._names(parent, watch=False) or []
        numbers = numbers_in(names)
        for name in set(names).difference(map(str, numbers)):
            self._unread.put(f"{parent}/{name}", "it is none of this controller's: remove it, unless a tool needs it")
        paths = [f"{parent}/{number}" for number in numbers]
        found: dict[int, _Z] = {}
        for number, path, node in zip(numbers, paths, await self._zk.get_many(paths), strict=True):
            if not self._is_readable(path, node) or not isinstance(node, Node):
                continue
            try:
                found[number] = formats.decode(node.data, kind)
            except formats.FormatError as error:
                self._unread.put(path, str(error))
        return found


async def versions_of(zk: ZooKeeper, paths: Sequence[str]) -> dict[str, int]:
    """Returns the version of each of these notifications. One that is gone, or may not be read, was not made by a tool
    that rewrites it."""
    briefs = await zk.brief_many(paths) if paths else []
    return {path: brief.version if isinstance(brief, Brief) else 0 for path, brief in zip(paths, briefs, strict=True)}


def _newest_of(nodes: Iterable[Node | Denied | None]) -> int:
    """Returns the zxid that made the newest of these znodes."""
    return max((node.stat.czxid for node in nodes if isinstance(node, Node)), default=0)


def _entity_in(path: str, node: Node) -> tuple[str, str]:
    """Returns the entity whose configuration changed: kind and name; empty when the notification is malformed."""
    try:
        znode = formats.decode(node.data, formats.ConfigChangeZnode)
    except formats.FormatError as error:
        log.warning("notification.unreadable", path=path, trouble=str(error))
        return "", ""
    named = f"{znode.entity_type or ''}/{znode.entity_name or ''}" if znode.entity_path is None else znode.entity_path
    kind, _, entity = named.partition("/")
    if not kind or not entity:
        log.warning("notification.unreadable", path=path, trouble="it names no entity")
    return kind, entity
