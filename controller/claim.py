"""The seat: who holds `/controller`, how it is won, and how it is given up.

Winning is one transaction that creates `/controller` and raises `/controller_epoch`, so no two processes can hold one
epoch. Whose node it is, the ephemeral owner says, never the content: a node of our own from an earlier session is
somebody else's. Losing never deletes anything. Beside the store these are the only writes of a controller.
"""

from __future__ import annotations

import msgspec
import structlog

from controller.core import formats
from controller.core.writes import Check, Create, Delete, Set
from controller.core.znodes import CONTROLLER, CONTROLLER_EPOCH
from controller.zk_model import NodeExistsError, OutcomeUnknownError, ZooKeeper, connected

log = structlog.get_logger()


class Seat(msgspec.Struct, frozen=True):
    """`/controller` as read: who sits there, by which session, and the version to release it with."""

    broker_id: int | None  # None: the content makes no sense
    owner: int
    version: int


class Claim(msgspec.Struct, frozen=True):
    """A won seat: the epoch, and the version of `/controller_epoch` that every later write checks."""

    broker_id: int
    controller_epoch: int
    epoch_version: int
    claimed_at_ms: int


async def read_seat(zk: ZooKeeper, *, watch: bool = False) -> Seat | None:
    """Who holds the seat; None when it is vacant. With `watch`, told of the next change either way."""
    node = await zk.get(CONTROLLER, watch=watch)
    if node is None:
        return None
    try:
        broker_id: int | None = formats.decode(node.data, formats.ControllerZnode).brokerid
    except formats.FormatError as error:
        log.warning("seat.unreadable", trouble=str(error))
        broker_id = None
    return Seat(broker_id, node.stat.ephemeral_owner, node.stat.version)


async def claim(zk: ZooKeeper, broker_id: int, now_ms: int) -> Claim | None:
    """Try once to win the vacant seat; None when somebody else was faster."""
    epoch, version = await _read_epoch(zk)
    znode = formats.ControllerZnode(brokerid=broker_id, timestamp=str(now_ms), version=2, kraftControllerEpoch=-1)
    ops = (
        Create(CONTROLLER, formats.encode(znode), ephemeral=True),
        Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
    )
    won = Claim(broker_id, epoch + 1, version + 1, now_ms)
    try:
        answer = await zk.transact(ops)
    except OutcomeUnknownError:
        return won if await _has_landed(zk, won) else None
    return won if answer.refused is None else None


async def release(zk: ZooKeeper, *, epoch_version: int | None = None) -> bool:
    """Give the seat up if our session owns it; with the version of our epoch, only if no other was drawn since."""
    seat = await read_seat(zk)
    if seat is None or seat.owner != zk.session_id:
        return False
    if epoch_version is None:
        _, epoch_version = await _read_epoch(zk)
    ops = (Check(CONTROLLER_EPOCH, epoch_version), Delete(CONTROLLER, seat.version))
    try:
        return (await zk.transact(ops)).refused is None
    except OutcomeUnknownError:
        await connected(zk)
        left = await read_seat(zk)
        return left is None or left.owner != zk.session_id


async def _has_landed(zk: ZooKeeper, won: Claim) -> bool:
    """Whether a claim whose answer was lost had succeeded: the seat is our session's, the epoch is the one we drew."""
    await connected(zk)
    await zk.sync(CONTROLLER)
    seat = await read_seat(zk)
    epoch, version = await _read_epoch(zk)
    mine = seat is not None and seat.owner == zk.session_id
    return mine and (epoch, version) == (won.controller_epoch, won.epoch_version)


async def _read_epoch(zk: ZooKeeper) -> tuple[int, int]:
    """The epoch and its znode's version; made with value 0 when it was never there."""
    node = await zk.get(CONTROLLER_EPOCH)
    if node is None:
        try:
            await zk.create(CONTROLLER_EPOCH, b"0")
        except NodeExistsError:
            log.debug("epoch.found")
        return await _read_epoch(zk)
    return formats.decode_epoch(node.data), node.stat.version
