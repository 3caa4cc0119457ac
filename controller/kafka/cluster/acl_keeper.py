"""The ACLs of Kafka's brokers as they are in ZooKeeper, read again whenever a notification there tells of a change.

It reads and never writes: brokers write rules. The rules that were read last go on being asked while there is no
session. Before the first reading nothing is answered. A znode that cannot be read closes its resource to everybody but
super users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from controller.core.acls import CLOSED, KINDS, Acl, Authorizer, Resource, acls_in
from controller.core.formats import FormatError
from controller.zookeeper.port import (
    Denied,
    NotSentError,
    OutcomeUnknownError,
    SessionLostError,
    WatchEvent,
    ZooKeeper,
    ZooKeeperError,
    connected,
)

log = structlog.get_logger()

ACLS: Final = "/kafka-acl"
PREFIXED: Final = "/kafka-acl-extended/prefixed"
#: a child is made below one of these after each change
NOTIFIED: Final = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
RETRY_S: Final = 1.0


class AuthorizerSettings(msgspec.Struct, frozen=True):
    """As brokers have them. `is_open`: a resource without a rule is open to everybody."""

    super_users: frozenset[str] = frozenset()
    is_open: bool = False
    auto_creates: bool = True


class AclKeeper:
    """`keep` runs until it is cancelled; `on_session` for each session."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        self._settings = settings
        self._zk: ZooKeeper | None = None
        self._wanted = asyncio.Event()
        self._loaded = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._rules: dict[str, tuple[int, tuple[Acl, ...]]] = {}  # by path, with the transaction that wrote it
        self._authorizer = Authorizer({})

    def on_session(self, zk: ZooKeeper) -> None:
        self._zk = zk
        zk.on_watch(self._note)
        self._wanted.set()

    async def authorizer(self) -> Authorizer:
        await self._loaded.wait()
        return self._authorizer

    async def changed(self) -> None:
        """Rules were changed through us, and have been written: they apply from now on."""
        try:
            await self._load(is_synced=True)
        except ZooKeeperError as error:
            log.warning("acls.delayed", reason=str(error))
            self._wanted.set()

    async def keep(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._load(is_synced=False)
            except SessionLostError as error:
                log.info("acls.kept", reason=str(error))  # the next session reads them
            except (NotSentError, OutcomeUnknownError):
                await self._on_connection()
            except ZooKeeperError as error:
                log.error("acls.unread", reason=str(error), mend=f"let controllers read {ACLS}")
                await asyncio.sleep(RETRY_S)
                self._wanted.set()

    async def _on_connection(self) -> None:
        assert self._zk is not None
        try:
            await connected(self._zk)
        except SessionLostError as error:
            log.info("acls.kept", reason=str(error))
        else:
            self._wanted.set()

    def _note(self, event: WatchEvent) -> None:
        if event.path in NOTIFIED:
            self._wanted.set()

    async def _load(self, *, is_synced: bool) -> None:
        async with self._one_at_a_time:
            zk = self._zk
            if zk is None:
                raise NotSentError("there is no session")
            if is_synced:
                await zk.sync()
            for path in NOTIFIED:  # before the rules are read: no change is missed
                if await zk.children(path, watch=True) is None:
                    await zk.exists(path, watch=True)
            found = {**await _resources_below(zk, ACLS, is_prefix=False)}
            found.update(await _resources_below(zk, PREFIXED, is_prefix=True))
            nodes = await zk.get_many(list(found))
            rules: dict[str, tuple[int, tuple[Acl, ...]]] = {}
            for path, node in zip(found, nodes, strict=True):
                if node is None:
                    continue  # deleted meanwhile
                if isinstance(node, Denied):
                    rules[path] = 0, CLOSED
                    log.error("acl.unread", path=path, code=node.code)
                    continue
                known = self._rules.get(path)
                is_known = known is not None and known[0] == node.stat.mzxid
                rules[path] = known if known is not None and is_known else (node.stat.mzxid, _read(path, node.data))
            self._rules = rules
            self._authorizer = Authorizer(
                {found[path]: acls for path, (_, acls) in rules.items()},
                self._settings.super_users,
                is_open=self._settings.is_open,
            )
            self._loaded.set()
            log.info("acls.read", resources=len(rules))


def _read(path: str, data: bytes) -> tuple[Acl, ...]:
    try:
        return acls_in(data)
    except FormatError as error:
        log.error("acl.unread", path=path, reason=str(error))
        return CLOSED


async def _resources_below(zk: ZooKeeper, root: str, *, is_prefix: bool) -> dict[str, Resource]:
    """Returns resources by path. A kind that is not known here is asked about by no request."""
    names = await _names(zk, root)
    kinds = [name for name in names if name in KINDS]
    below = await zk.children_many([f"{root}/{kind}" for kind in kinds])
    found = {}
    for kind, children in zip(kinds, below, strict=True):
        if isinstance(children, Denied):
            raise ZooKeeperError(f"{root}/{kind} may not be listed (code {children.code})")
        for name in () if children is None else children.names:
            found[f"{root}/{kind}/{name}"] = Resource(KINDS[kind], name, is_prefix)
    return found


async def _names(zk: ZooKeeper, path: str) -> Sequence[str]:
    children = await zk.children(path)
    return () if children is None else children.names
