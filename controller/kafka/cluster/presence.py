"""The places of controllers that are no brokers: an ephemeral `/klamm/controllers/<id>` for each.

So a standby finds the active one, and two with one id find each other. Nothing else rests on it; `/controller` says
which process is the controller. Beside the seat it is the only node that such a process writes on its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from controller.base.config import ConfigError
from controller.core.project.znodes import CONTROLLERS, KLAMM, controller_path
from controller.wire.signing import Incarnation
from controller.zookeeper.layout import ensure_paths
from controller.zookeeper.port import (
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

POLL_S: Final = 0.1
REFUSED_S: Final = 1.0
#: a foreign owner of our id has this many session time-outs to go
PATIENCE_IN_SESSION_TIMEOUTS: Final = 1.5


class ControllerZnode(msgspec.Struct, frozen=True):
    endpoints: tuple[str, ...]


class Presence:
    """Our own."""

    def __init__(self, controller_id: int, endpoint: str, session_timeout_ms: int) -> None:
        self._id = controller_id
        self._endpoint = endpoint
        self._patience_s = session_timeout_ms / 1000 * PATIENCE_IN_SESSION_TIMEOUTS
        self._epoch: int | None = None

    def own(self) -> Incarnation:
        return Incarnation(self._id, self._epoch)

    async def announce(self, zk: ZooKeeper) -> None:
        """In a session that has just begun. Raises ConfigError when another process goes on having our id."""
        self._epoch = None
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience_s
        refusal = ""
        while self._epoch is None:
            try:
                self._epoch = await self._registered(zk)
            except (NotSentError, OutcomeUnknownError):
                await connected(zk)
            except RefusedError as error:
                if not (isinstance(error, NoNodeError) and await ensure_paths(zk)):
                    if refusal != str(error):
                        refusal = str(error)
                        log.error("presence.refused", reason=refusal, mend=f"allow controllers to write {CONTROLLERS}")
                    await asyncio.sleep(REFUSED_S)
                give_up_at = loop.time() + self._patience_s  # no broker with our id was seen
                continue
            if self._epoch is None:
                if loop.time() >= give_up_at:
                    raise ConfigError(f"another controller of ours has the id {self._id}: give this one another --id")
                await asyncio.sleep(POLL_S)

    async def _registered(self, zk: ZooKeeper) -> int | None:
        """Returns the epoch of our registration; None while another session has our id."""
        for path in (KLAMM, CONTROLLERS):
            if (await zk.exists(path)).stat is None:
                await _made(zk, path, b"", ephemeral=False)
        path, own = controller_path(self._id), msgspec.json.encode(ControllerZnode((self._endpoint,)))
        await _made(zk, path, own, ephemeral=True)
        node = await zk.get(path)
        return node.stat.czxid if node is not None and node.stat.ephemeral_owner == zk.session_id else None


async def _made(zk: ZooKeeper, path: str, data: bytes, *, ephemeral: bool) -> None:
    with suppress(NodeExistsError):  # whose it is, is read next
        await zk.create(path, data, ephemeral=ephemeral)
