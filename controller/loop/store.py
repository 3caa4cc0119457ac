"""Writing to ZooKeeper in domain words: `commit` a step of changes, fenced, in few large transactions.

There is one way to write: a transaction that starts with two checks, `/controller_epoch` at our version and
`/controller` at version 0, and that names the version of every znode it sets or deletes. A refusal of one of these two
is *fenced* and ends the term. Any other names the operation that is refused, and concerns the change it belongs to:

- one that a reading explains is a *conflict*: writes with the expected version go out again, others are reported,
  to be decided anew;
- one that no reading explains (no permission, foreign children, a quota) is a *refusal*: that change is left out alone
  and reported with the znode and ZooKeeper's code, and the others go out again at once.

An answer lost is unknown until read. Nothing is ever sent twice on a guess.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import msgspec
import structlog

from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, Committed
from controller.core.operations import (
    Check,
    Create,
    Op,
    Set,
)
from controller.core.project.refusals import (
    BAD_VERSION,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    TOO_LARGE,
)
from controller.core.project.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    Remove,
    RemoveBelow,
    Write,
)
from controller.loop.planned_writes import (
    PlannedWrite,
    RefusedWrite,
    denied_in,
    is_visible,
    ops_for,
    owners_of,
    planned_writes_for,
    renewed,
    verb_of,
)
from controller.seat.claim import Claim
from controller.statelog.metrics import Meters
from controller.zookeeper.port import (
    DeadlinePassedError,
    Denied,
    Guard,
    Node,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    TooLargeError,
    TransactionAnswer,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

_T = TypeVar("_T")
_SEAT_VERSION = 0
#: codes that say that a znode is not as it was believed
_RACES = (NO_NODE, BAD_VERSION, NODE_EXISTS)
#: and those that a reading may explain
_EXPLAINED_BY_READING = (*_RACES, NOT_EMPTY)
_RESIZED_BY = 4
_NOT_READ = Denied(0, 0)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class FencedError(Exception):
    """Another controller has been elected, or our seat is gone: the term is over."""


class CommitResult(msgspec.Struct):
    """The changes that stand, in the order of the step, and the others: these must be read again and decided anew, at
    once or, where ZooKeeper refuses them, after a while."""

    committed: list[Committed]
    unsettled: list[Change]
    refused: list[RefusedWrite] = []


class BatchResult(msgspec.Struct):
    """How the changes of one batch fared, by their index; a change in neither list met a conflict."""

    stood: dict[int, Committed] = {}
    refused: dict[int, RefusedWrite] = {}

    def knows(self, planned: PlannedWrite) -> bool:
        return planned.index in self.stood or planned.index in self.refused

    def refuse(self, plans: Iterable[PlannedWrite], verb: str, path: str, code: int, below: Sequence[str] = ()) -> None:
        for planned in plans:
            self.refused[planned.index] = RefusedWrite(planned.change, verb, path, code, tuple(below))


class Store:
    """The fenced writer of one term."""

    def __init__(self, zk: ZooKeeper, claim: Claim, guard: Guard, limits: Limits, meters: Meters | None = None) -> None:
        self._zk = zk
        self._guard = guard
        self._limits = limits
        self._meters = meters or Meters()
        self._fence = (Check(CONTROLLER_EPOCH, claim.epoch_version), Check(CONTROLLER, _SEAT_VERSION))
        self._in_flight = asyncio.Semaphore(limits.transactions_in_flight)

    async def commit(
        self, cluster: Cluster, changes: Sequence[Change], on_stood: Callable[[Sequence[Committed]], None]
    ) -> CommitResult:
        """Make one step stand. Its transactions are pipelined; they do not depend on each other. `on_stood` is given
        the standing changes in their order, as soon as all before them are settled, and after all is projected."""
        stood: dict[int, Committed] = {}
        refused: dict[int, RefusedWrite] = {}
        committed: list[Committed] = []

        def settle(settlement: BatchResult) -> None:
            stood.update(settlement.stood)
            refused.update(settlement.refused)

        def stand(start: int, end: int) -> None:
            some = [stood[index] for index in range(start, end) if index in stood]
            on_stood(some)
            committed.extend(some)

        batches = self._batches(planned_writes_for(cluster, changes, stood))
        first, second = next(batches, None), next(batches, None)
        at = 0
        if first is not None and second is None:
            settle(await self._settle(first))
        elif first is not None and second is not None:
            tasks = []
            async with asyncio.TaskGroup() as group:
                for batch in chain((first, second), batches):
                    tasks.append((batch[-1].index + 1, group.create_task(self._settle(batch))))
                    await asyncio.sleep(0)  # it leaves while the next one is made
                for end, task in tasks:
                    settle(await task)
                    stand(at, end)
                    at = end
                    await asyncio.sleep(0)  # others leave and are answered while these are believed
        stand(at, len(changes))
        unsettled = [change for index, change in enumerate(changes) if index not in stood and index not in refused]
        return CommitResult(committed, unsettled, [refused[index] for index in sorted(refused)])

    def _batches(self, plans: Iterable[PlannedWrite]) -> Iterator[list[PlannedWrite]]:
        """Cut into transactions: a change is never divided, several writes of one znode never share one."""
        batch: list[PlannedWrite] = []
        count = size = 0
        for planned in plans:
            more = planned.size
            is_full = (
                count + len(planned.writes) > self._limits.writes_per_transaction
                or size + more > self._limits.bytes_per_transaction
            )
            if batch and is_full:
                yield batch
                batch, count, size = [], 0, 0
            batch.append(planned)
            count += len(planned.writes)
            size += more
        if batch:
            yield batch

    async def _settle(self, batch: list[PlannedWrite]) -> BatchResult:
        """One transaction until it stands, without the impossible writes. While refusals repeat it is cut smaller, so
        that a batch of nothing but refusals costs about a small transaction for each."""
        settlement = BatchResult()
        blamed: Counter[int] = Counter()
        if any(isinstance(write, Remove | RemoveBelow) for planned in batch for write in planned.wanted):
            batch = await self._renew(batch, settlement)
        size = len(batch)
        while batch:
            head, rest = batch[:size], batch[size:]
            ops, last = ops_for(head)
            try:
                answer = await self._send((*self._fence, *ops))
            except OutcomeUnknownError:
                settlement.stood |= await self._find_out(head)
                batch = rest
                continue
            except (TooLargeError, RefusedError) as error:  # the request as a whole
                if len(head) > 1 and isinstance(error, TooLargeError):
                    size = _smaller(len(head))
                    continue
                log.error("commit.refused", trouble=str(error), subject=head[0].change.subject, changes=len(head))
                code = TOO_LARGE if isinstance(error, TooLargeError) else error.refusal
                for planned in head:
                    settlement.refuse([planned], verb_of(planned.wanted[-1]), planned.wanted[-1].path, code)
                batch = rest
                continue
            self._meters.transaction_answered(len(ops), is_conflict=answer.refused is not None)
            if answer.refused is None:
                settlement.stood |= {
                    planned.index: Committed(
                        planned.change, answer.results[len(self._fence) + position].version, answer.zxid
                    )
                    for planned, position in zip(head, last, strict=True)
                }
                batch, size = rest, size * _RESIZED_BY
                continue
            self._raise_if_fenced(answer)
            log.info("commit.conflicted", writes=len(ops), refused=answer.refused)
            before = len(settlement.refused)
            head = await self._left_of(head, ops, last, answer.refused, blamed, settlement)
            if len(settlement.refused) > before:
                size = _smaller(min(size, len(head)))
            batch = head + rest
        return settlement

    async def _left_of(
        self,
        head: list[PlannedWrite],
        ops: Sequence[Op],
        last: Sequence[int],
        refused: tuple[int, int],
        blamed: Counter[int],
        settlement: BatchResult,
    ) -> list[PlannedWrite]:
        """Returns the part of a refused transaction that goes out again: without conflicts, and without refusals."""
        position, code = refused[0] - len(self._fence), refused[1]
        op = ops[position]
        owners = owners_of(head, last, position, op)
        if code not in _EXPLAINED_BY_READING:
            settlement.refuse(owners, verb_of(op), op.path, code)
            return [planned for planned in head if not settlement.knows(planned)]
        is_race = code in _RACES  # then others of the transaction may have met one, too
        asked = head if is_race else owners
        renewed_ones = {planned.index: planned for planned in await self._renew(asked, settlement)}
        for planned in owners:
            now = renewed_ones.get(planned.index)
            if now is None:
                continue
            blamed[planned.index] += 1
            is_explained = now.writes != planned.writes
            if not is_explained and (not is_race or blamed[planned.index] > 1):
                below = () if code != NOT_EMPTY else await self._foreign_below(op.path, now)
                settlement.refuse([planned], verb_of(op), op.path, code, below)
            elif blamed[planned.index] > self._limits.resends_after_conflict:
                del renewed_ones[planned.index]  # other writers are always faster
        asked_for = {planned.index for planned in asked}
        left = [renewed_ones.get(one.index) if one.index in asked_for else one for one in head]
        return [planned for planned in left if planned is not None and not settlement.knows(planned)]

    async def _renew(self, batch: Sequence[PlannedWrite], settlement: BatchResult) -> list[PlannedWrite]:
        """Returns the writes that are still possible after a reading; a deletion of a missing node is settled, and a
        node that may not even be read is a refusal."""
        spelled = [one for planned in batch if (one := await self._spelled_out(planned, settlement)) is not None]
        readable, nodes = await self._read_all(spelled, settlement)
        left = [one for planned in readable if (one := renewed(planned, nodes)) is not None]
        settlement.stood |= {planned.index: Committed(planned.change) for planned in left if not planned.writes}
        return [planned for planned in left if planned.writes]

    async def _spelled_out(self, planned: PlannedWrite, settlement: BatchResult) -> PlannedWrite | None:
        """`RemoveBelow` as the removals that it comes to now; None when that may not be known."""
        if not any(isinstance(write, RemoveBelow) for write in planned.wanted):
            return planned
        wanted: list[Write] = []
        known = set(planned.paths)
        for write in planned.wanted:
            if isinstance(write, RemoveBelow):
                try:
                    found = await self._again(partial(self._zk.children, write.path))
                except RefusedError as error:
                    settlement.refuse([planned], "read", write.path, error.refusal)
                    return None
                for name in () if found is None else found.names:
                    if _PARTITION.fullmatch(name) and (path := f"{write.path}/{name}") not in known:
                        wanted += (Remove(f"{path}/state"), Remove(path))
            wanted.append(write)
        return PlannedWrite(planned.index, planned.change, tuple(wanted), planned.writes)

    async def _foreign_below(self, path: str, planned: PlannedWrite) -> list[str]:
        """Returns the children of a znode beside those that the change itself deletes."""
        try:
            found = await self._again(partial(self._zk.children, path))
        except RefusedError:
            return []
        return sorted({*(() if found is None else found.names)} - {one.rpartition("/")[2] for one in planned.paths})

    async def _send(self, ops: tuple[Op, ...]) -> TransactionAnswer:
        """Send once it can be sent. A request that never left may be sent later: versions still protect it."""
        async with self._in_flight:
            while True:
                try:
                    return await self._zk.transact(ops, guard=self._guard)
                except (DeadlinePassedError, TooLargeError):
                    raise
                except NotSentError:
                    await connected(self._zk)

    def _raise_if_fenced(self, answer: TransactionAnswer) -> None:
        assert answer.refused is not None
        index, code = answer.refused
        if index < len(self._fence):
            raise FencedError(f"{self._fence[index].path} is not ours any more (code {code})")

    async def _read_all(
        self, batch: Sequence[PlannedWrite], settlement: BatchResult
    ) -> tuple[list[PlannedWrite], dict[str, Node | Denied | None]]:
        """The znodes of these changes as they are now, and the changes without those for which one may not be read."""
        unique = list(dict.fromkeys(path for planned in batch for path in planned.paths))
        try:
            found = await self._again(partial(self._zk.get_many, unique))
        except RefusedError as error:  # the reading as a whole
            for planned in batch:
                settlement.refuse([planned], "read", planned.wanted[-1].path, error.refusal)
            return [], {}
        nodes = dict(zip(unique, found, strict=True))
        for planned in batch:
            if (denied := denied_in(planned, nodes)) is not None:
                settlement.refuse([planned], "read", *denied)
        return [planned for planned in batch if not settlement.knows(planned)], nodes

    async def _again(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """Returns a reading, over a reconnect if need be: reading again is always right."""
        while True:
            try:
                await self._zk.sync()
                return await read()
            except (NotSentError, OutcomeUnknownError):
                await connected(self._zk)

    async def _find_out(self, batch: Sequence[PlannedWrite]) -> dict[int, Committed]:
        """The answer was lost: visible writes landed. A transaction lands whole, so where some of it was overwritten
        since, the rest tells."""
        await connected(self._zk)
        readable, nodes = await self._read_all(batch, BatchResult())
        told_by = next((node for one in readable for node in one.proofs_in(nodes)), None)
        landed = {}
        for planned in batch:
            write = planned.wanted[-1]
            node = nodes.get(write.path, _NOT_READ)
            if not isinstance(node, Denied) and is_visible(write, node):
                version, zxid = (None, 0) if node is None else (node.stat.version, node.stat.mzxid)
                landed[planned.index] = Committed(planned.change, version, zxid)
            elif told_by is not None:
                version = write.version + 1 if isinstance(write, Set) else 0 if isinstance(write, Create) else None
                landed[planned.index] = Committed(planned.change, version, told_by.stat.mzxid)
        log.info("commit.resolved", changes=len(batch), landed=len(landed))
        return landed


def _smaller(size: int) -> int:
    return max(1, size // _RESIZED_BY)
