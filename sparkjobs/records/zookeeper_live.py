"""A live ZooKeeper, read as if it were one of its snapshots: the znodes by which Kafka's cluster stands.

Nothing is written and no watch is set. Nodes change while others are read, as while ZooKeeper writes a snapshot.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aiozk import ZKClient, exc  # type: ignore[import-untyped]

from sparkjobs.records import RecordError
from sparkjobs.records.discovery import Source
from sparkjobs.records.zookeeper_files import Operation, Snapshot, Znode
from sparkjobs.records.zookeeper_history import Bridge

SCHEME: Final = "zookeeper://"
_SERVER: Final = r"(?:[\w.-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}"
_ADDRESS: Final = re.compile(rf"({_SERVER}(?:,{_SERVER})*)((?:/[^/\s]+)*)/?", re.ASCII)
_CONNECT_S: Final = 10
_READ_S: Final = 300
_AT_ONCE: Final = 500
#: whose children matter
_LISTED: Final = ("/brokers/ids", "/brokers/topics", "/config/topics", "/config/brokers", "/admin/delete_topics")
_SINGLE: Final = ("/controller", "/controller_epoch")


class Live(NamedTuple):
    """The tree below a chroot, in place of a history."""

    servers: str
    chroot: str
    bridge: Bridge

    def steps(self) -> Iterator[list[Operation] | Bridge]:
        yield self.bridge


def live_tree(address: str) -> Live:
    """Reads `zookeeper://HOST:PORT,HOST:PORT/CHROOT`. Raises RecordError, with the reason."""
    found = _ADDRESS.fullmatch(address.removeprefix(SCHEME))
    if found is None:
        raise RecordError(f"{address!r}; write a ZooKeeper's address like zookeeper://host:2181/chroot")
    servers, chroot = found[1], found[2]
    znodes = asyncio.run(_read(servers, chroot))
    if not any("/brokers/" in one.path for one in znodes):
        where = f"{servers} has no cluster of Kafka at {chroot or '/'}"
        raise RecordError(f"{where}: name its chroot, as in {SCHEME}{servers}/kafka")
    zxid = max(one.mzxid for one in znodes)
    source = Source(f"{SCHEME}{servers}{chroot}", "zookeeper snapshot", zxid + 1)
    return Live(servers, chroot, Bridge(zxid, source, Snapshot({}, znodes)))


async def _read(servers: str, chroot: str) -> list[Znode]:
    logging.getLogger("aiozk").setLevel(logging.CRITICAL)  # it logs each refused connection with its traceback
    client = ZKClient(servers)
    try:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await client.start()
        except (TimeoutError, OSError, exc.ZKError):
            raise RecordError(f"no ZooKeeper answers at {servers}") from None
        try:
            async with asyncio.timeout(_READ_S):
                return await _tree(client, chroot)
        except (TimeoutError, OSError, exc.ZKError) as error:
            raise RecordError(f"ZooKeeper at {servers}: {type(error).__name__} {error}".rstrip()) from None
    finally:
        await _closed(client)


async def _closed(client: Any) -> None:
    try:
        async with asyncio.timeout(_CONNECT_S):
            await client.close()
    except (TimeoutError, OSError, exc.ZKError):
        return  # its session ends by itself


async def _tree(client: Any, chroot: str) -> list[Znode]:
    paths = [f"{chroot}{path}" for path in _SINGLE]
    for path in _LISTED:
        paths += [f"{chroot}{path}/{name}" for name in await _children(client, f"{chroot}{path}")]
    found = await _nodes(client, paths)
    states = [
        f"{one.path}/partitions/{number}/state"
        for one in found
        if one.path.startswith(f"{chroot}/brokers/topics/")
        for number in _partitions_in(one.data)
    ]
    return found + await _nodes(client, states)


def _partitions_in(data: bytes | None) -> list[str]:
    try:
        said = json.loads(data or b"")
    except (ValueError, RecursionError):
        return []  # the replay counts it
    partitions = said.get("partitions") if isinstance(said, dict) else None
    return [one for one in partitions if one.isdecimal()] if isinstance(partitions, dict) else []


async def _children(client: Any, path: str) -> list[str]:
    try:
        return sorted(await client.get_children(path))
    except exc.NoNode:
        return []


async def _nodes(client: Any, paths: Sequence[str]) -> list[Znode]:
    found: list[Znode] = []
    for start in range(0, len(paths), _AT_ONCE):
        some = await asyncio.gather(*(_node(client, path) for path in paths[start : start + _AT_ONCE]))
        found += [one for one in some if one is not None]
    return found


async def _node(client: Any, path: str) -> Znode | None:
    try:
        data, stat = await client.get(path)
    except exc.NoNode:
        return None
    return Znode(path, data, stat.version, stat.ephemeral_owner, stat.created, stat.modified, stat.last_modified_zxid)
