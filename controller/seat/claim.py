"""The seat: the process that holds `/controller`, how it is won, and how it is given up.

Winning is one transaction that creates `/controller`, raises `/controller_epoch` and notes the epoch in `/klamm/terms`,
so no two processes can hold one epoch. An epoch is drawn above all that are known, even if the node that keeps it was
changed or removed. The ephemeral owner of the node says which session holds the seat, its content never does: a node of
this process from an earlier session belongs to another session. Losing never deletes a node. These writes go through
aiozk's transaction. All other writes of a controller go through the store, but for missing parents
(`zookeeper/layout.py`) and a dedicated controller's place (`kafka/cluster/presence.py`).

A process gathers the highest epoch that any controller is known to have had (`KnownEpochs`) for as long as it lives:
from its own claims, from `/klamm/terms`, from states, and from brokers that obey a later controller.

A claim that only an operator can make possible again is a `SeatTroubleError`, whose message says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from controller.core import formats
from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.core.project.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    HANDED_BACK,
    KLAMM,
    TERMS,
)
from controller.zookeeper.port import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    RefusedError,
    ZooKeeper,
    ZooKeeperError,
    connected,
)

#: a number above this is no witness of an epoch that was drawn: believed, it would leave no room for those to come
WITNESSED_MAX: Final = 2**30
#: brokers that refuse an epoch without saying which one they obey: how far the next one leaps, by how often they did
_LEAP_BASE, _LEAP_MAX = 16, 2**20


class KnownEpochs:
    """`told`: the highest that this process obeys as a broker."""

    def __init__(self, told: Callable[[], int] = lambda: 0) -> None:
        self._told = told
        self._noted = 0

    @property
    def highest(self) -> int:
        told = self._told()
        return max(self._noted, told if told <= WITNESSED_MAX else 0)

    def note(self, epoch: int) -> None:
        """Remember an epoch that a controller has or had."""
        if epoch <= WITNESSED_MAX:
            self._noted = max(self._noted, epoch)

    def note_refused(self, epoch: int, times: int) -> None:
        """A broker obeys a later one than this, and did not say which: `times` in a row so far."""
        if self.highest <= epoch:
            self.note(epoch + min(_LEAP_BASE ** (times - 1), _LEAP_MAX))


log = structlog.get_logger()

#: the version of `/controller_epoch` agrees with the epoch modulo this (see `_draw`)
_VERSIONS: Final = 64
#: of an operation that others' changes explain
_OVERTAKEN: Final = (NoNodeError.code, BadVersionError.code, NodeExistsError.code)
#: claims that never got as far as to write are noted, too; above so many notes each claim removes the oldest two
NOTES_MAX: Final = 1_000
_NOBODY: Final = "no controller can be elected"
_MEND_EPOCH: Final = "write the number of the last epoch into it, or delete it"


class SeatTroubleError(ZooKeeperError):
    """No process can be elected, or none can tell which is, before an operator mends this; the message says how."""


class StuckSeatError(ZooKeeperError):
    """The seat is or may be our session's, and ZooKeeper does not let us release it: it goes with the session only."""


class Seat(msgspec.Struct, frozen=True):
    """`/controller` as read: the broker that holds the seat, its session, and the version to release the seat with."""

    broker_id: int | None  # None: the content is malformed
    owner: int
    version: int
    #: why no process is elected as long as this content stands there
    trouble: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """A won seat: the epoch, and the version of `/controller_epoch` that every later write checks."""

    broker_id: int
    controller_epoch: int
    epoch_version: int
    claimed_at_ms: int
    #: of the transaction that drew the epoch: as long as its node was not written since, it is of this zxid
    zxid: int


async def read_seat(zk: ZooKeeper, *, watch: bool = False) -> Seat | None:
    """Returns the holder of the seat; None when it is vacant. With `watch`, a watch tells of the next change either
    way. Raises SeatTroubleError when the node may not be read, which no watch can tell of."""
    try:
        node = await zk.get(CONTROLLER, watch=watch)
    except NoAuthError:
        raise SeatTroubleError(
            "the controller cannot be told: /controller may not be read; allow everybody to read it"
        ) from None
    if node is None:
        return None
    broker_id, trouble = None, None
    try:
        broker_id = formats.decode(node.data, formats.ControllerZnode).brokerid
    except formats.FormatError as error:
        log.warning("seat.unreadable", trouble=str(error))
        trouble = f"{_NOBODY}: /controller holds {node.data[:40]!r}, which names no broker; delete it"
    if node.stat.ephemeral_owner == 0:
        trouble = f"{_NOBODY}: /controller holds {node.data[:40]!r} and goes with no session; delete it"
    return Seat(broker_id, node.stat.ephemeral_owner, node.stat.version, trouble)


async def claim(zk: ZooKeeper, broker_id: int, now_ms: int, known: KnownEpochs | None = None) -> Claim | None:
    """Try once to win the vacant seat with an epoch above all that are known; None when another process was faster."""
    return await _claim(zk, broker_id, now_ms, known or KnownEpochs(), ())


async def take_over(
    zk: ZooKeeper, broker_id: int, now_ms: int, seat: Seat | None, known: KnownEpochs | None = None
) -> Claim | None:
    """Try once to win the seat, in one transaction, from its holder if it has one; it no longer counts as handed back.

    Returns None when anything has changed since the seat was read. The former holder learns of it by its watch, and
    every write of the former holder meets the new epoch.
    """
    given_back = (await zk.exists(HANDED_BACK)).stat
    no_more = () if given_back is None else (Delete(HANDED_BACK, given_back.version),)
    first = () if seat is None else (Delete(CONTROLLER, seat.version),)
    return await _claim(zk, broker_id, now_ms, known or KnownEpochs(), first, no_more)


async def is_handed_back(zk: ZooKeeper) -> bool:
    """Returns whether the seat was given back to Kafka's own brokers and not taken over since."""
    try:
        return (await zk.exists(HANDED_BACK)).stat is not None
    except NoAuthError:
        return True  # it is there, or that would have been said


async def _claim(
    zk: ZooKeeper,
    broker_id: int,
    now_ms: int,
    known: KnownEpochs,
    first: tuple[Delete, ...],
    last: tuple[Delete, ...] = (),
) -> Claim | None:
    # The node before the notes: a claim that is noted later has drawn later, and then the node's version is another
    kept, version = await read_epoch(zk)
    notes = await _read_notes(zk)
    noted = _highest_noted(notes)
    epoch = max(kept, noted, known.highest) + 1
    znode = formats.ControllerZnode(brokerid=broker_id, timestamp=str(now_ms), version=2, kraftControllerEpoch=-1)
    drawing = _draw(version, epoch)
    needed: tuple[Op, ...] = (*first, Create(CONTROLLER, formats.encode(znode), ephemeral=True), *drawing, *last)
    won = Claim(broker_id, epoch, _version_after(drawing), now_ms, 0)
    landed: Claim | None = None
    for noting in await _notings(zk, won, notes):
        ops = (*needed, *noting)
        try:
            answer = await zk.transact_by_aiozk(ops)
        except OutcomeUnknownError:
            landed = await _landed(zk, won)
            break
        if answer.refused is None:
            landed = msgspec.structs.replace(won, zxid=answer.zxid)
            break
        index, code = answer.refused
        if index < len(needed) or code in _OVERTAKEN:
            _judge(ops[index], code)
            break
        # a note that cannot be written keeps no process from the seat
        log.warning("claim.unnoted", controller_epoch=epoch, path=ops[index].path, code=code)
    if landed is not None:
        known.note(epoch)
    return landed


def _draw(version: int | None, epoch: int) -> tuple[Create | Set, ...]:
    """Returns the writes that make the epoch's node hold this epoch; it is created when it is missing (`version` None).

    Later writes of a term check the version alone, and the version of a node that is made anew begins at 0. So the
    node is set until its version agrees with the epoch: those of two terms then differ, though the node was lost
    between them. As a rule they agree already, since each claim sets it once.
    """
    data = str(epoch).encode()
    ops: list[Create | Set] = [Create(CONTROLLER_EPOCH, data)] if version is None else []
    at = version or 0
    while not ops or (at - epoch) % _VERSIONS:
        ops.append(Set(CONTROLLER_EPOCH, data, at))
        at += 1
    return tuple(ops)


def _version_after(drawing: tuple[Create | Set, ...]) -> int:
    last = drawing[-1]
    return last.version + 1 if isinstance(last, Set) else 0


def _judge(op: Op, code: int) -> None:
    """Return if another process was faster. Raises NoNodeError when a parent of the node is gone."""
    if code == NoNodeError.code and isinstance(op, Create):
        raise NoNodeError(op.path)
    if code not in _OVERTAKEN:
        verb = {Create: "made", Set: "written", Delete: "deleted", Check: "read"}[type(op)]
        raise SeatTroubleError(
            f"{_NOBODY}: ZooKeeper refuses that {op.path} is {verb} (code {code}); allow brokers and controllers to "
            f"read, write, create and delete it"
        )


async def release(
    zk: ZooKeeper, *, epoch_version: int | None = None, hand_back: bool = False, at_least: int = 0
) -> bool:
    """Give the seat up if our session owns it; with the version of our epoch, only if no other was drawn since.
    `hand_back` says in the same transaction that it is for Kafka's own brokers from now on, `at_least` raises the epoch
    that is kept to one that is known. Raises StuckSeatError when ZooKeeper does not allow it."""
    kept: int | None = None
    try:
        if epoch_version is None:
            # before the seat is read: a process that claims it from then on has drawn another
            node = await zk.get(CONTROLLER_EPOCH)
            epoch_version = None if node is None else node.stat.version
            kept = None if node is None else _number_in(node.data)
            if node is None:  # it is made again, and never below an epoch that was claimed
                at_least = max(at_least, _highest_noted(await _read_notes(zk)))
        seat = await read_seat(zk)
    except (NoAuthError, SeatTroubleError) as error:
        raise StuckSeatError(str(error)) from None
    if seat is None or seat.owner != zk.session_id:
        return False
    notes: list[Create] = []
    if hand_back:
        missing = [path for path in (KLAMM, HANDED_BACK) if (await zk.exists(path)).stat is None]
        notes = [Create(path, b"") for path in missing]
    is_low = epoch_version is None or (at_least > 0 and (kept is None or kept < at_least))
    fence: tuple[Op, ...] = _draw(epoch_version, at_least) if is_low else (Check(CONTROLLER_EPOCH, epoch_version or 0),)
    ops: tuple[Op, ...] = (*fence, Delete(CONTROLLER, seat.version), *notes)
    try:
        answer = await zk.transact_by_aiozk(ops)
    except OutcomeUnknownError:
        await connected(zk)
        left = await read_seat(zk)
        return left is None or left.owner != zk.session_id
    if answer.refused is not None and answer.refused[1] not in _OVERTAKEN:
        raise StuckSeatError(str(RefusedError(ops[answer.refused[0]].path, answer.refused[1])))
    return answer.refused is None


async def _landed(zk: ZooKeeper, won: Claim) -> Claim | None:
    """Returns a claim whose answer was lost, if it succeeded: the seat is this session's, the epoch the one it drew."""
    await connected(zk)
    await zk.sync(CONTROLLER)
    try:
        seat, node = await read_seat(zk), await zk.get(CONTROLLER_EPOCH)
    except (NoAuthError, SeatTroubleError) as error:
        raise StuckSeatError(str(error)) from None
    if seat is None or seat.owner != zk.session_id or node is None:
        return None
    if (_number_in(node.data), node.stat.version) != (won.controller_epoch, won.epoch_version):
        return None
    return msgspec.structs.replace(won, zxid=node.stat.mzxid)


async def read_epoch(zk: ZooKeeper) -> tuple[int, int | None]:
    """The epoch that is kept and its znode's version; 0 and None when there is no such node. Of one that no epoch can
    be above the next change is told."""
    try:
        node = await zk.get(CONTROLLER_EPOCH)
        if node is not None and _number_in(node.data) in (None, formats.EPOCH_MAX):
            node = await zk.get(CONTROLLER_EPOCH, watch=True)
    except NoAuthError:
        raise SeatTroubleError(
            f"{_NOBODY}: /controller_epoch may not be read; allow brokers and controllers to read and write it"
        ) from None
    if node is None:
        return 0, None
    kept = _number_in(node.data)
    if kept is None or kept == formats.EPOCH_MAX:
        raise SeatTroubleError(f"{_NOBODY}: /controller_epoch holds {node.data[:40]!r}; {_MEND_EPOCH}")
    return kept, node.stat.version


def _number_in(data: bytes) -> int | None:
    try:
        return formats.decode_epoch(data)
    except formats.FormatError:
        return None


async def _read_notes(zk: ZooKeeper) -> Mapping[str, int] | None:
    """Returns the epochs in `/klamm/terms`, by name; empty when it is not there, None when it may not be read."""
    try:
        found = await zk.children(TERMS)
    except RefusedError as error:
        log.warning("terms.unread", reason=str(error))  # the node itself and the epoch that brokers obey still tell
        return None
    names = () if found is None else found.names
    return {name: number for name in names if (number := _number_in(name.encode())) is not None}


def _highest_noted(notes: Mapping[str, int] | None) -> int:
    return max((one for one in (notes or {}).values() if one <= WITNESSED_MAX), default=0)


async def _notings(zk: ZooKeeper, won: Claim, notes: Mapping[str, int] | None) -> list[tuple[Op, ...]]:
    """Returns the additional writes of a claim, which make its epoch known before its term writes anything: as many as
    ZooKeeper allows, the longest list first, the empty one last. A note that could not be read again is left out."""
    if notes is None or won.controller_epoch > WITNESSED_MAX:
        return [()]
    try:
        missing = () if notes else [path for path in (KLAMM, TERMS) if (await zk.exists(path)).stat is None]
    except NoAuthError:
        return [()]
    record = formats.TermZnode(won.broker_id, won.claimed_at_ms)
    noting: tuple[Op, ...] = tuple(Create(path, b"") for path in missing)
    noting += (Create(f"{TERMS}/{won.controller_epoch}", formats.encode(record)),)
    if len(notes) < NOTES_MAX:
        return [noting, ()]
    oldest = sorted(notes, key=lambda name: notes[name])[:2]
    return [(*noting, *(Delete(f"{TERMS}/{name}", -1) for name in oldest)), noting, ()]
