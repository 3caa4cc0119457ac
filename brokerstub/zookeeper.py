"""The process's sessions with ZooKeeper, one after the other, and whether its registration still stands.

Each session is saved before any node is registered under it, so that the next start can close it: the nodes that a
process left behind go at once, not after a session time-out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Container
from contextlib import suppress
from typing import TypedDict

import structlog

from brokerstub.identity import DataDirectory
from controller.base.config import BrokerConfig, ConfigError
from controller.core.project.znodes import broker_path
from controller.loop.watched_nodes import LOOK_EVERY_S
from controller.security.tls import zookeeper_context_for
from controller.zookeeper.client import ZooKeeperClient, connect, parse_connect
from controller.zookeeper.layout import ensure_chroot
from controller.zookeeper.port import (
    NoAuthError,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    SessionState,
    WatchEvent,
    ZooKeeperError,
    connected,
)

log = structlog.get_logger()


class _Identity(TypedDict):
    """A session's credentials, and whether its nodes are its own."""

    auth: str | None
    owns: bool
    tls: ssl.SSLContext | None


class RegistrationLostError(Exception):
    """Our registration's node went though the session lives: a tool deleted it."""


class Sessions:
    """At most one at a time."""

    def __init__(self, config: BrokerConfig, directory: DataDirectory, auth: str | None = None) -> None:
        self._config = config
        if config.zookeeper_set_acl and auth is None:
            raise ConfigError("property zookeeper.set.acl: ZooKeeper must know who we are: set KLAMM_ZOOKEEPER_AUTH")
        self._identity: _Identity = {
            "auth": auth,
            "owns": config.zookeeper_set_acl,
            "tls": zookeeper_context_for(config),
        }
        self._directory = directory
        self._own_ids: set[int] = set()
        self._zk: ZooKeeperClient | None = None

    @property
    def own_ids(self) -> Container[int]:
        """All sessions this data directory ever had, as far as known: their nodes are ours."""
        return self._own_ids

    async def first(self) -> ZooKeeperClient:
        """At a start: the earlier process's session is closed. ZooKeeper out of reach is an error."""
        await self._close_earlier()
        return await self._new()

    async def next(self) -> ZooKeeperClient:
        """After a lost one, and for ever: a broker outlives its ZooKeeper."""
        await self.close()
        while True:
            try:
                return await self._new()
            except ZooKeeperError as error:
                log.warning("session.delayed", reason=str(error))

    async def close(self) -> None:
        if self._zk is not None:
            await self._zk.close()

    async def _close_earlier(self) -> None:
        """Closes the sessions of the process before this one, so that its nodes go at once, not after a session
        time-out."""
        earlier = self._directory.earlier_session()
        if earlier is None:
            return
        self._own_ids.add(earlier.session_id)
        try:
            zk = await self._connect(resume=(earlier.session_id, earlier.password))
        except SessionLostError:
            return  # it has expired by itself
        await zk.close()

    async def _new(self) -> ZooKeeperClient:
        """Returns a session, saved before anything is registered under it."""
        self._zk = await self._connect()
        self._own_ids.add(self._zk.session_id)
        self._directory.save_session(self._zk.session_id, self._zk.password)
        return self._zk

    async def _connect(self, resume: tuple[int, bytes] | None = None) -> ZooKeeperClient:
        servers, chroot = parse_connect(self._config.zookeeper_connect)
        timeout_ms = self._config.zookeeper_session_timeout_ms
        connect_timeout_ms = self._config.first_session_timeout_ms
        if chroot and resume is None:
            root = await connect(
                servers, session_timeout_ms=timeout_ms, connect_timeout_ms=connect_timeout_ms, **self._identity
            )
            await ensure_chroot(root, chroot)
            await root.close()
        return await connect(
            servers,
            chroot=chroot,
            session_timeout_ms=timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            **self._identity,
            resume=resume,
        )


async def end_when_unregistered(zk: ZooKeeperClient, broker_id: int) -> None:
    """Looks at our own node whenever it changes, after each reconnect, and now and then: a client that may not read the
    node receives no event, and is registered all the same."""
    path, changed = broker_path(broker_id), asyncio.Event()

    def on_watch(event: WatchEvent) -> None:
        if event.path == path:
            changed.set()

    def on_state(state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            changed.set()

    zk.on_watch(on_watch)
    zk.on_state(on_state)
    try:
        while True:
            changed.clear()
            try:
                stat = (await zk.exists(path, watch=True)).stat
            except (NotSentError, OutcomeUnknownError):
                await connected(zk)
                continue
            except NoAuthError:
                pass  # of what is not there ZooKeeper says so
            else:
                if stat is None or stat.ephemeral_owner != zk.session_id:
                    raise RegistrationLostError(f"{path} is gone or not ours")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await changed.wait()
    finally:
        zk.remove_handler(on_watch)
        zk.remove_handler(on_state)
