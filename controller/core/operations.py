"""The operations of a ZooKeeper transaction, as plain data.

The projections of the core produce them, `controller/zookeeper/client.py` packs them into bytes. They know nothing of
Kafka.
"""

from __future__ import annotations

import msgspec


class Create(msgspec.Struct, frozen=True, gc=False):
    """Create a znode; `ephemeral` ties it to the session, `sequential` appends ZooKeeper's counter to the path."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Set(msgspec.Struct, frozen=True, gc=False):
    """Replace a znode's data if it still has `version`."""

    path: str
    data: bytes
    version: int


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Delete a znode if it still has `version`."""

    path: str
    version: int


class Check(msgspec.Struct, frozen=True, gc=False):
    """Change nothing, but refuse the whole transaction unless the znode has `version`."""

    path: str
    version: int


Op = Create | Set | Delete | Check
