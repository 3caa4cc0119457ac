"""Reading what operators and brokers leave for the controller: markers, request nodes, configuration, announcements.

Half of the `Reader`, with the same rules: a watch is armed before what it watches is read, nothing is decided, nothing
is written. Content that makes no sense is told as such, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import structlog

from controller.core import formats
from controller.core.duties import Drain
from controller.core.events import (
    ConfigsSeen,
    DeletionsSeen,
    ElectionNodeSeen,
    LogDirsSeen,
    ProducerIdsSeen,
    ReassignNodeSeen,
)
from controller.core.znodes import (
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
)
from controller.zk_model import Node, ZooKeeper

log = structlog.get_logger()

#: change notifications older than this are removed by whoever reads the list (Kafka's own constant)
NOTIFICATIONS_KEPT_MS = 15 * 60 * 1000

Configs = dict[str, Mapping[str, str]]
_Z = TypeVar("_Z")


class AdminLoaded(msgspec.Struct):
    """What a term starts from, beside topics and brokers."""

    topic_configs: Configs
    broker_configs: Configs
    markers: Mapping[str, bool]
    reassign: ReassignNodeSeen
    election: ElectionNodeSeen | None
    drains: Mapping[int, Drain]
    failed_dirs: Mapping[int, int]  # broker id -> broker epoch
    log_dir_events: Sequence[str]
    terms: Mapping[int, formats.TermZnode]
    noted: Mapping[int, formats.KnownBrokerZnode]
    producer_ids: ProducerIdsSeen


class AdminReader:
    """Built anew for each term."""

    def __init__(self, zk: ZooKeeper, now_ms: Callable[[], int], *, watch: bool = True) -> None:
        self._zk = zk
        self._watch = watch
        self._now_ms = now_ms
        self._newest_change = -1

    async def load(self) -> AdminLoaded:
        names = await self._names(CONFIG_CHANGES)
        self._newest_change = max((_sequence_of(name) for name in names), default=-1)
        topics = await self.topic_configs(await self._names(CONFIG_TOPICS, watch=False))
        brokers = await self._configs(CONFIG_BROKERS, await self._names(CONFIG_BROKERS, watch=False))
        markers = await self.see_deletions()
        log_dir_events = await self._names(LOG_DIR_EVENTS)
        return AdminLoaded(
            topic_configs=topics,
            broker_configs={name: values for name, values in brokers.items() if values},
            markers=markers.markers,
            reassign=await self.see_reassign_node(),
            election=await self.see_election_node(),
            drains={
                broker_id: Drain(znode.broker_epoch, znode.by == "shutdown")
                for broker_id, znode in (await self._by_number(DRAINING, formats.DrainZnode)).items()
            },
            failed_dirs={
                broker_id: znode.broker_epoch
                for broker_id, znode in (await self._by_number(FAILED_DIRS, formats.FailedDirsZnode)).items()
            },
            log_dir_events=[f"{LOG_DIR_EVENTS}/{name}" for name in log_dir_events],
            terms=await self._by_number(TERMS, formats.TermZnode),
            noted=await self._by_number(KNOWN_BROKERS, formats.KnownBrokerZnode),
            producer_ids=await self.see_producer_ids(),
        )

    async def topic_configs(self, names: Iterable[str]) -> Configs:
        """Of topics that have overrides."""
        return {name: values for name, values in (await self._configs(CONFIG_TOPICS, names)).items() if values}

    async def see_deletions(self) -> DeletionsSeen:
        names = await self._names(DELETE_TOPICS)
        nodes = await self._zk.get_many([f"{DELETE_TOPICS}/{name}" for name in names])
        present = [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]
        zxid = max((node.zxid for _, node in present), default=0)
        return DeletionsSeen({name: formats.decode_marker(node.data) for name, node in present}, zxid)

    async def see_reassign_node(self) -> ReassignNodeSeen:
        node = await self._zk.get(REASSIGN, watch=self._watch)
        if node is None:
            return ReassignNodeSeen({}, None)
        try:
            znode = formats.decode(node.data, formats.ReassignZnode)
        except formats.FormatError as error:
            return ReassignNodeSeen({}, node.stat.version, str(error))
        return ReassignNodeSeen({(o.topic, o.partition): o.replicas for o in znode.partitions}, node.stat.version)

    async def see_election_node(self) -> ElectionNodeSeen | None:
        node = await self._zk.get(PREFERRED_ELECTION, watch=self._watch)
        if node is None:
            return None
        try:
            znode = formats.decode(node.data, formats.PartitionsZnode)
        except formats.FormatError as error:
            return ElectionNodeSeen((), node.stat.version, str(error))
        return ElectionNodeSeen([(one.topic, one.partition) for one in znode.partitions], node.stat.version)

    async def see_producer_ids(self) -> ProducerIdsSeen:
        """Not watched: only a conflict makes it worth reading again. Brokers make it empty."""
        node = await self._zk.get(PRODUCER_IDS)
        if node is None or not node.data:
            return ProducerIdsSeen(0, None if node is None else node.stat.version)
        try:
            return ProducerIdsSeen(formats.decode_producer_ids(node.data), node.stat.version)
        except formats.FormatError as error:
            return ProducerIdsSeen(-1, node.stat.version, str(error))

    async def see_configs(self) -> ConfigsSeen:
        """What changed since the last notification read; old notifications have had their time."""
        names = await self._names(CONFIG_CHANGES)
        paths = [f"{CONFIG_CHANGES}/{name}" for name in names]
        nodes = await self._zk.get_many(paths)
        oldest_ms = self._now_ms() - NOTIFICATIONS_KEPT_MS
        changed: dict[str, set[str]] = {"topics": set(), "brokers": set()}
        expired = []
        for name, path, node in zip(names, paths, nodes, strict=True):
            if node is None:
                continue
            if _sequence_of(name) > self._newest_change:
                kind, entity = _entity_in(path, node)
                changed.get(kind, set()).add(entity)
            if node.stat.mtime_ms < oldest_ms:
                expired.append(path)
        self._newest_change = max([self._newest_change, *map(_sequence_of, names)])
        topics = await self._configs(CONFIG_TOPICS, sorted(changed["topics"]))
        brokers = await self._configs(CONFIG_BROKERS, sorted(changed["brokers"]))
        return ConfigsSeen(topics, brokers, expired)

    async def see_log_dirs(self) -> LogDirsSeen:
        paths = [f"{LOG_DIR_EVENTS}/{name}" for name in await self._names(LOG_DIR_EVENTS)]
        broker_ids: set[int] = set()
        for path, node in zip(paths, await self._zk.get_many(paths), strict=True):
            try:
                broker_ids.add(formats.decode(b"" if node is None else node.data, formats.LogDirEventZnode).broker)
            except formats.FormatError as error:
                log.warning("notification.unreadable", path=path, trouble=str(error))
        return LogDirsSeen(frozenset(broker_ids), paths)

    async def _names(self, path: str, *, watch: bool = True) -> list[str]:
        """Children in order; a missing parent has none, and with `watch` its creation is told."""
        watch = watch and self._watch
        while (found := await self._zk.children(path, watch=watch)) is None:
            if not watch or (await self._zk.exists(path, watch=True)).stat is None:
                return []
        return sorted(found.names)

    async def _configs(self, parent: str, names: Iterable[str]) -> Configs:
        """Overrides by entity; an empty map where there are none, or where they make no sense."""
        wanted = [name for name in names if name and "/" not in name]
        nodes = await self._zk.get_many([f"{parent}/{name}" for name in wanted])
        found: Configs = {}
        for name, node in zip(wanted, nodes, strict=True):
            try:
                found[name] = formats.decode(b"{}" if node is None else node.data, formats.ConfigZnode).config
            except formats.FormatError as error:
                log.warning("config.unreadable", path=f"{parent}/{name}", trouble=str(error))
                found[name] = {}
        return found

    async def _by_number(self, parent: str, kind: type[_Z]) -> dict[int, _Z]:
        """Znodes of ours, one for each broker or epoch."""
        names = [name for name in await self._names(parent, watch=False) if name.isdecimal()]
        found: dict[int, _Z] = {}
        for name, node in zip(names, await self._zk.get_many([f"{parent}/{name}" for name in names]), strict=True):
            try:
                found[int(name)] = formats.decode(b"" if node is None else node.data, kind)
            except formats.FormatError as error:
                log.warning("node.unreadable", path=f"{parent}/{name}", trouble=str(error))
        return found


def _sequence_of(name: str) -> int:
    """The number ZooKeeper appended."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1


def _entity_in(path: str, node: Node) -> tuple[str, str]:
    """Whose configuration changed: kind and name; empty when the notification makes no sense."""
    try:
        znode = formats.decode(node.data, formats.ConfigChangeZnode)
    except formats.FormatError as error:
        log.warning("notification.unreadable", path=path, trouble=str(error))
        return "", ""
    named = f"{znode.entity_type or ''}/{znode.entity_name or ''}" if znode.entity_path is None else znode.entity_path
    kind, _, entity = named.partition("/")
    if not kind or not entity:
        log.warning("notification.unreadable", path=path, trouble="it names nobody")
    return kind, entity
