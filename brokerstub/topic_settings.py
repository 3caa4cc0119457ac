"""The configuration of topics, as a broker needs it of the topics that it has: read from ZooKeeper and watched.

Until a topic's configuration was read, no client may write to it: `min.insync.replicas` may be higher than the default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from brokerstub.records.log import LogConfig
from controller.base.config import BrokerConfig
from controller.core.formats import ConfigZnode, FormatError, decode
from controller.core.project.znodes import CONFIG_TOPICS
from controller.zookeeper.port import (
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    WatchEvent,
    ZooKeeper,
    connected,
)

MIN_ISR: Final = "min.insync.replicas"
#: a read that ZooKeeper refuses is repeated after so long
REFUSED_AGAIN_S: Final = 1.0

log = structlog.get_logger()


class TopicSettings(msgspec.Struct, frozen=True):
    """Of one topic. `values` are those that the topic itself was given."""

    log: LogConfig
    min_isr: int
    values: Mapping[str, str] = {}


def settings_for(config: BrokerConfig, name: str, values: Mapping[str, str]) -> TopicSettings:
    """Returns a topic's own values over the broker's. For a malformed value the broker's stands, and a warning is
    logged."""
    own = {
        "segment.bytes": config.log_segment_bytes,
        "retention.ms": config.log_retention_ms,
        "retention.bytes": config.log_retention_bytes,
        "flush.messages": config.log_flush_interval_messages,
        "max.message.bytes": config.message_max_bytes,
    }
    if config.log_flush_interval_ms is not None:
        own["flush.ms"] = config.log_flush_interval_ms
    try:
        settled = msgspec.convert({**own, **values}, LogConfig, strict=False)
        return TopicSettings(settled, max(1, int(values.get(MIN_ISR, config.min_insync_replicas))), dict(values))
    except ValueError as error:  # msgspec's, too
        log.warning("topic_config.ignored", topic=name, reason=str(error))
        return TopicSettings(msgspec.convert(own, LogConfig), config.min_insync_replicas, dict(values))


class TopicConfigs:
    """`begin` with each session, `want` for each topic, `run` once."""

    def __init__(self, config: BrokerConfig, on_settings: Callable[[str, TopicSettings], None]) -> None:
        self._config = config
        self._on_settings = on_settings
        self._zk: ZooKeeper | None = None
        self._wanted: set[str] = set()
        self._unread: dict[str, None] = {}
        self._woken = asyncio.Event()

    def begin(self, zk: ZooKeeper | None) -> None:
        """Watches belong to a session: all is read again."""
        if self._zk is not None:
            self._zk.remove_handler(self._on_watch)
        self._zk = zk
        if zk is not None:
            zk.on_watch(self._on_watch)
        self._unread = dict.fromkeys(self._wanted)
        self._woken.set()

    def want(self, name: str) -> None:
        """From now on."""
        if name not in self._wanted:
            self._wanted.add(name)
            self._unread[name] = None
            self._woken.set()

    def unwant(self, name: str) -> None:
        self._wanted.discard(name)
        self._unread.pop(name, None)

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._zk is not None and self._unread:
                zk, name = self._zk, next(iter(self._unread))
                del self._unread[name]
                try:
                    settings = await self._read(zk, name)
                except SessionLostError:
                    break  # `begin` comes with the next one
                if self._zk is zk and name in self._wanted:
                    self._on_settings(name, settings)

    async def values_of(self, name: str) -> Mapping[str, str] | None:
        """Returns the configuration of any topic, read now; None while ZooKeeper cannot be asked."""
        zk = self._zk
        if zk is None:
            return None
        try:
            node = await zk.get(f"{CONFIG_TOPICS}/{name}")
            return {} if node is None else decode(node.data, ConfigZnode).config
        except (SessionLostError, NotSentError, OutcomeUnknownError, RefusedError, FormatError):
            return None

    async def _read(self, zk: ZooKeeper, name: str) -> TopicSettings:
        while True:
            try:
                node = await zk.get(f"{CONFIG_TOPICS}/{name}", watch=True)
                values = {} if node is None else decode(node.data, ConfigZnode).config
                return settings_for(self._config, name, values)
            except FormatError as error:
                log.warning("topic_config.ignored", topic=name, reason=str(error))
                return settings_for(self._config, name, {})
            except (NotSentError, OutcomeUnknownError):
                await connected(zk)
            except RefusedError as error:
                log.warning("topic_config.refused", topic=name, reason=str(error), mend="allow brokers to read it")
                await asyncio.sleep(REFUSED_AGAIN_S)

    def _on_watch(self, event: WatchEvent) -> None:
        folder, _, name = event.path.rpartition("/")
        if folder == CONFIG_TOPICS and name in self._wanted:
            self._unread[name] = None
            self._woken.set()
