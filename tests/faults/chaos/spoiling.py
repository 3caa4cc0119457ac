"""F17 on the data that a real controller trusts: nonsense in a topic, a state or a configuration, and its repair.

The field keeps the repairs: a repair that ZooKeeper could not take is made when everything is healed.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError

from tests.faults.chaos.target_cluster import Field, Injury
from tests.faults.malformed_znodes import CONFIG, Target, can_be_spoiled, nonsense_for, target_for
from tests.faults.operations import TOPICS


class Spoiled(NamedTuple):
    """The original data of a znode (of this czxid), and the nonsense that it has now."""

    target: Target
    czxid: int
    before: bytes
    nonsense: bytes


async def spoil(field: Field, draw: Random, kind: str) -> Injury | None:
    """None when there is nothing like it."""
    target = target_for(kind, {topic: list(field.assignments.get(topic, ())) for topic in TOPICS}, draw)
    if target is None or target.path in field.spoiled:
        return None
    with suppress(KazooException):  # ZooKeeper is away, or another writer was faster
        data, stat = await field.cluster.zookeeper("get", target.path)
        if target.path in field.spoiled or not can_be_spoiled(kind, data):
            return None  # spoiled by another hand, which waited for ZooKeeper, too
        spoiled = Spoiled(target, stat.czxid, data, nonsense_for(data, draw))
        field.spoiled[target.path] = lambda: _put_right(field, spoiled)  # before: the answer may get lost
        await field.cluster.zookeeper("set", target.path, spoiled.nonsense, stat.version)
        # the controller finds a malformed state at its next write there; a configuration is changed by a tool that
        # announces it
        if kind == CONFIG or draw.random() < 0.5:
            await _announce(field, target)
        return Injury("spoil", target.path, lambda: True, lambda: repair(field, target.path))
    await repair(field, target.path)  # it may have been written all the same
    return None


async def repair(field: Field, path: str) -> None:
    """Unless it was healed already. ZooKeeper may be away: then it is for `restore`."""
    if (put_right := field.spoiled.get(path)) is not None:
        with suppress(KazooException):
            await put_right()


async def _put_right(field: Field, spoiled: Spoiled) -> None:
    path = spoiled.target.path
    with suppress(NoNodeError):
        data, stat = await field.cluster.zookeeper("get", path)
        if (stat.czxid, data) == (spoiled.czxid, spoiled.nonsense):
            with suppress(BadVersionError):  # written already, if an answer was lost
                await field.cluster.zookeeper("set", path, spoiled.before, stat.version)
            await _announce(field, spoiled.target)
    field.spoiled.pop(path, None)


async def _announce(field: Field, target: Target) -> None:
    if target.parent:
        path = f"{target.parent}/{target.prefix}"
        await field.cluster.zookeeper("create", path, target.notice, sequence=True)
