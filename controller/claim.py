"""The seat: who holds `/controller`, how it is won, and how it is given up.

Winning is one transaction that creates `/controller` and raises `/controller_epoch`, so no two processes can hold one
epoch. Whose node it is, the ephemeral owner says, never the content: a node of our own from an earlier session is
somebody else's. Losing never deletes anything. Beside the store these are the only writes of a controller.
"""

from __future__ import annotations

import msgspec
import structlog

from controller.core import formats
from controller.core.writes import Check, Create, Delete, Op, Set
from controller.core.znodes import CONTROLLER, CONTROLLER_EPOCH, HANDED_BACK, KLAMM
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
    return await _claim(zk, broker_id, now_ms, ())


async def take_over(zk: ZooKeeper, broker_id: int, now_ms: int, seat: Seat | None) -> Claim | None:
    """Try once to win the seat, in one transaction from who holds it, if anybody does; nothing is handed back any more.

    None when anything has changed since the seat was read. Whoever held it finds out by its watch, and every write of
    its meets the new epoch.
    """
    given_back = (await zk.exists(HANDED_BACK)).stat
    no_more = () if given_back is None else (Delete(HANDED_BACK, given_back.version),)
    return await _claim(zk, broker_id, now_ms, () if seat is None else (Delete(CONTROLLER, seat.version),), no_more)


async def is_handed_back(zk: ZooKeeper) -> bool:
    """Whether the seat was given back to Kafka's own brokers, and nobody took over since."""
    return (await zk.exists(HANDED_BACK)).stat is not None


async def _claim(
    zk: ZooKeeper, broker_id: int, now_ms: int, first: tuple[Delete, ...], last: tuple[Delete, ...] = ()
) -> Claim | None:
    epoch, version = await _read_epoch(zk)
    znode = formats.ControllerZnode(brokerid=broker_id, timestamp=str(now_ms), version=2, kraftControllerEpoch=-1)
    ops: tuple[Op, ...] = (
        *first,
        Create(CONTROLLER, formats.encode(znode), ephemeral=True),
        Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
        *last,
    )
    won = Claim(broker_id, epoch + 1, version + 1, now_ms)
    try:
        answer = await zk.transact(ops)
    except OutcomeUnknownError:
        return won if await _has_landed(zk, won) else None
    return won if answer.refused is None else None


async def release(zk: ZooKeeper, *, epoch_version: int | None = None, hand_back: bool = False) -> bool:
    """Give the seat up if our session owns it; with the version of our epoch, only if no other was drawn since.
    `hand_back` says in the same transaction that it is for Kafka's own brokers from now on."""
    if epoch_version is None:
        # before the seat is read: whoever claims it from then on has drawn another
        _, epoch_version = await _read_epoch(zk)
    seat = await read_seat(zk)
    if seat is None or seat.owner != zk.session_id:
        return False
    notes: list[Create] = []
    if hand_back:
        missing = [path for path in (KLAMM, HANDED_BACK) if (await zk.exists(path)).stat is None]
        notes = [Create(path, b"") for path in missing]
    ops: tuple[Op, ...] = (Check(CONTROLLER_EPOCH, epoch_version), Delete(CONTROLLER, seat.version), *notes)
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
