"""The nodes that every cluster has before anything is below them, made again when they are removed.

A process that registers or claims and finds a parent gone makes all of them; while a term lasts its controller watches
them. Each is made empty, as Kafka's brokers do at their start; nothing that exists is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from controller.core.formats import ClusterIdZnode
from controller.core.operations import Create
from controller.core.project.znodes import CLUSTER_ID
from controller.zookeeper.port import (
    EventKind,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    WatchEvent,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

#: only its version matters
SEQUENCE_PATH: Final = "/brokers/seqid"
#: parents first; Kafka's own, then ours
TOP_LEVEL_PATHS: Final = (
    "/consumers",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    SEQUENCE_PATH,
    "/config",
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/cluster",
    "/klamm",
)
_ROOT: Final = "/"
#: the removal of a whole tree goes on for a while: it is looked at again after so long
RETRY_MIN_S, RETRY_MAX_S = 0.25, 5.0


async def ensure_paths(zk: ZooKeeper, *, watch: bool = False) -> bool:
    """All top-level paths exist, and the chroot. Returns whether they do: one that ZooKeeper does not let us make is
    left out and said. With `watch`, told of the removal of each that exists."""
    while True:
        try:
            missing = await _missing(zk, watch=watch)
            if not missing:
                return True
            if (await zk.transact([Create(path, b"") for path in missing])).refused is None:
                log.info("paths.made", paths=missing)
            elif not await _are_made(zk, missing):
                return False
        except (NotSentError, OutcomeUnknownError):
            await connected(zk)


async def ensure_chroot(zk: ZooKeeper, chroot: str) -> None:
    """Make the chroot, by a session that has none, unless it exists."""
    parts = chroot.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        await _ensure(zk, "/" + "/".join(parts[:depth]))


async def _ensure(zk: ZooKeeper, path: str) -> None:
    """It is looked up again when the connection broke meanwhile."""
    while True:
        try:
            if (await zk.exists(path)).stat is None:
                await zk.create(path, b"")
            return
        except NodeExistsError:
            return
        except (NotSentError, OutcomeUnknownError):
            await connected(zk)


async def ensure_cluster_id(zk: ZooKeeper, cluster_id: str, *, watch: bool = False) -> None:
    """Make `/cluster/id` hold an id; if it was removed, the id that this process knows."""
    while True:
        try:
            if await _is_there(zk, CLUSTER_ID, watch):
                return
            await zk.create(CLUSTER_ID, msgspec.json.encode(ClusterIdZnode(cluster_id)))
        except (NotSentError, OutcomeUnknownError):
            await connected(zk)
        except NodeExistsError:
            continue
        except RefusedError as error:
            log.warning("cluster_id.unwritten", reason=str(error))
            return


async def keep_paths(zk: ZooKeeper, cluster_id: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Make again the paths that are removed, for as long as this runs."""
    changed = asyncio.Event()

    def on_watch(event: WatchEvent) -> None:
        if event.kind is EventKind.DELETED and (event.path in TOP_LEVEL_PATHS or event.path == CLUSTER_ID):
            changed.set()

    zk.on_watch(on_watch)
    pause_s = RETRY_MIN_S
    try:
        while True:
            changed.clear()
            is_whole = await ensure_paths(zk, watch=True)
            await ensure_cluster_id(zk, cluster_id, watch=True)
            if is_whole:
                pause_s = RETRY_MIN_S
                await changed.wait()
            else:
                await sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
    finally:
        zk.remove_handler(on_watch)


async def _missing(zk: ZooKeeper, *, watch: bool) -> list[str]:
    """Parents first, the chroot before all."""
    paths = (_ROOT, *TOP_LEVEL_PATHS)
    if not watch:  # in one request; a node that may not be read exists
        nodes = await zk.get_many(paths)
        return [path for path, node in zip(paths, nodes, strict=True) if node is None]
    found = await asyncio.gather(*(_is_there(zk, path, watch) for path in paths))
    return [path for path, is_there in zip(paths, found, strict=True) if not is_there]


async def _is_there(zk: ZooKeeper, path: str, watch: bool) -> bool:
    try:
        return (await zk.exists(path, watch=watch)).stat is not None
    except NoAuthError:
        return True  # of a missing node ZooKeeper says so to every client


async def _are_made(zk: ZooKeeper, paths: Sequence[str]) -> bool:
    """One by one: another process makes some of them at the same time, or this one may not make one of them. Raises
    SessionLostError when the parent of the chroot is gone: a new session makes all of it."""
    is_whole = True
    for path in paths:
        try:
            await zk.create(path, b"")
        except NodeExistsError:
            continue
        except NoNodeError:
            if path == _ROOT:
                await zk.close()
                raise SessionLostError("the chroot is gone, and what it was below") from None
            is_whole = False
        except RefusedError as error:
            log.error("path.unmade", path=path, reason=f"{error}: allow brokers and controllers to make it")
            is_whole = False
    return is_whole
