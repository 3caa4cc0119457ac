"""Writing to ZooKeeper in domain words: `commit` a step of changes, fenced, in few large transactions.

There is one way to write: a transaction that starts with two checks, `/controller_epoch` at our version and
`/controller` at version 0, and that names the version of every znode it sets or deletes. A refusal of one of these two
is *fenced* and ends the term. Any other refusal is a conflict: the transaction's znodes are read again, what still
has the expected version is sent again, and the rest is reported, to be decided anew. An answer lost is unknown until
read. Nothing is ever sent twice on a guess.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import msgspec
import structlog

from controller.claim import Claim
from controller.config import Limits
from controller.core.changes import Change, Committed
from controller.core.cluster import Cluster
from controller.core.writes import Check, Create, Op, Set
from controller.core.znodes import CONTROLLER, CONTROLLER_EPOCH, Remove, RemoveBelow, Write
from controller.intents import Intent, intents_for, is_visible, ops_for, renewed
from controller.metrics import Meters
from controller.zk_model import (
    DeadlinePassedError,
    Guard,
    Node,
    NotSentError,
    OutcomeUnknownError,
    TooLargeError,
    TransactionAnswer,
    ZooKeeper,
    connected,
)

log = structlog.get_logger()

_T = TypeVar("_T")
_SEAT_VERSION = 0


class FencedError(Exception):
    """Another controller has been elected, or our seat is gone: the term is over."""


class CommitResult(msgspec.Struct):
    """What stands, in the order it was asked, and what does not: that must be read again and decided anew."""

    committed: list[Committed]
    unsettled: list[Change]


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
        what stands in the order it was asked, as soon as all before it is settled, and after all is projected."""
        stood: dict[int, Committed] = {}
        committed: list[Committed] = []

        def stand(start: int, end: int) -> None:
            some = [stood[index] for index in range(start, end) if index in stood]
            on_stood(some)
            committed.extend(some)

        batches = self._batches(intents_for(cluster, changes, stood))
        first, second = next(batches, None), next(batches, None)
        at = 0
        if first is not None and second is None:
            stood.update(await self._settle(first))
        elif first is not None and second is not None:
            tasks = []
            async with asyncio.TaskGroup() as group:
                for batch in chain((first, second), batches):
                    tasks.append((batch[-1].index + 1, group.create_task(self._settle(batch))))
                    await asyncio.sleep(0)  # it leaves while the next one is made
                for end, task in tasks:
                    stood.update(await task)
                    stand(at, end)
                    at = end
                    await asyncio.sleep(0)  # others leave and are answered while these are believed
        stand(at, len(changes))
        return CommitResult(committed, [change for index, change in enumerate(changes) if index not in stood])

    def _batches(self, intents: Iterable[Intent]) -> Iterator[list[Intent]]:
        """Cut into transactions: a change is never divided, several writes of one znode never share one."""
        batch: list[Intent] = []
        count = size = 0
        for intent in intents:
            more = intent.size
            is_full = (
                count + len(intent.writes) > self._limits.writes_per_transaction
                or size + more > self._limits.bytes_per_transaction
            )
            if batch and is_full:
                yield batch
                batch, count, size = [], 0, 0
            batch.append(intent)
            count += len(intent.writes)
            size += more
        if batch:
            yield batch

    async def _settle(self, batch: list[Intent]) -> dict[int, Committed]:
        """One transaction until it stands, or until nothing of it can. Only what conflicts is left out."""
        settled: dict[int, Committed] = {}
        if any(isinstance(write, Remove | RemoveBelow) for intent in batch for write in intent.wanted):
            batch = await self._renew(batch, settled)
        for _ in range(1 + self._limits.resends_after_conflict):
            if not batch:
                break
            ops, last = ops_for(batch)
            try:
                answer = await self._send((*self._fence, *ops))
            except OutcomeUnknownError:
                return settled | await self._find_out(batch)
            except TooLargeError as error:
                log.error("commit.refused", trouble=str(error), subject=batch[0].change.subject)
                return settled
            self._meters.transaction_answered(len(ops), is_conflict=answer.refused is not None)
            if answer.refused is None:
                stood = {
                    intent.index: Committed(
                        intent.change, answer.results[len(self._fence) + position].version, answer.zxid
                    )
                    for intent, position in zip(batch, last, strict=True)
                }
                return settled | stood
            self._raise_if_fenced(answer)
            log.info("commit.conflicted", writes=len(ops), refused=answer.refused)
            batch = await self._renew(batch, settled)
        return settled

    async def _renew(self, batch: Sequence[Intent], settled: dict[int, Committed]) -> list[Intent]:
        """What can still be written after a reading; a deletion of what is gone already is settled."""
        batch = [await self._spelled_out(intent) for intent in batch]
        nodes = await self._read([path for intent in batch for path in intent.paths])
        left = [one for intent in batch if (one := renewed(intent, nodes)) is not None]
        settled |= {intent.index: Committed(intent.change) for intent in left if not intent.writes}
        return [intent for intent in left if intent.writes]

    async def _spelled_out(self, intent: Intent) -> Intent:
        """`RemoveBelow` as the removals that it comes to now."""
        if not any(isinstance(write, RemoveBelow) for write in intent.wanted):
            return intent
        wanted: list[Write] = []
        for write in intent.wanted:
            if isinstance(write, RemoveBelow):
                found = await self._again(partial(self._zk.children, write.path))
                for name in () if found is None else found.names:
                    wanted += (Remove(f"{write.path}/{name}/state"), Remove(f"{write.path}/{name}"))
                wanted.append(Remove(write.path))
            else:
                wanted.append(write)
        return Intent(intent.index, intent.change, tuple(wanted), intent.writes)

    async def _send(self, ops: tuple[Op, ...]) -> TransactionAnswer:
        """Send once it can be sent. What never left may be sent later: versions still protect it."""
        async with self._in_flight:
            while True:
                try:
                    return await self._zk.transact(ops, guard=self._guard)
                except DeadlinePassedError:
                    raise
                except NotSentError:
                    await connected(self._zk)

    def _raise_if_fenced(self, answer: TransactionAnswer) -> None:
        assert answer.refused is not None
        index, code = answer.refused
        if index < len(self._fence):
            raise FencedError(f"{self._fence[index].path} is not ours any more (code {code})")

    async def _read(self, paths: Sequence[str]) -> dict[str, Node | None]:
        """Znodes as they are now."""
        unique = list(dict.fromkeys(paths))
        return dict(zip(unique, await self._again(partial(self._zk.get_many, unique)), strict=True))

    async def _again(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """A reading, over a reconnect if need be: reading again is always right."""
        while True:
            try:
                await self._zk.sync()
                return await read()
            except (NotSentError, OutcomeUnknownError):
                await connected(self._zk)

    async def _find_out(self, batch: Sequence[Intent]) -> dict[int, Committed]:
        """The answer was lost: what landed is what can be seen. A transaction lands whole, so where some of it was
        overwritten since, the rest tells."""
        await connected(self._zk)
        nodes = await self._read([path for intent in batch for path in intent.paths])
        landed = {}
        told_by = next((node for one in batch for node in one.proofs_in(nodes)), None)
        for intent in batch:
            write = intent.wanted[-1]
            node = nodes[write.path]
            if is_visible(write, node):
                version, zxid = (None, 0) if node is None else (node.stat.version, node.stat.mzxid)
                landed[intent.index] = Committed(intent.change, version, zxid)
            elif told_by is not None:
                version = write.version + 1 if isinstance(write, Set) else 0 if isinstance(write, Create) else None
                landed[intent.index] = Committed(intent.change, version, told_by.stat.mzxid)
        log.info("commit.resolved", changes=len(batch), landed=len(landed))
        return landed
