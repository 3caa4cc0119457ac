"""Carries the ISR keeper's questions to the active controller, one at a time, until each is answered.

The controller is the one that the newest metadata names. It owns the back-off between attempts. `isr.py` decides the
questions and the meaning of the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec
import structlog

from brokerstub.fetch import Poster
from brokerstub.isr import IsrKeeper, IsrQuestion
from brokerstub.metadata import MetadataCache
from controller.base.config import Limits
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import AlterPartitionAnswer
from controller.wire.client import ExchangeError
from controller.wire.signing import Incarnation, Signer

log = structlog.get_logger()


class Attempt(NamedTuple):
    """The question, the incarnation that asks, and the controller."""

    question: IsrQuestion | None
    broker_epoch: int
    controller_epoch: int
    controller: Incarnation
    address: str | None


class AlterPartitionManager:
    """One request in flight per broker."""

    def __init__(
        self,
        http: Poster,
        keeper: IsrKeeper,
        metadata: MetadataCache,
        *,
        clock_ms: Callable[[], int],
        entropy: Random,
        tick_ms: int,
        limits: Limits,
        signer: Signer | None = None,
    ) -> None:
        self._http = http
        self._signer = signer or Signer()
        self._keeper = keeper
        self._metadata = metadata
        self._clock_ms = clock_ms
        self._entropy = entropy
        self._tick_ms = tick_ms
        self._limits = limits
        self._broker_epoch = -1
        self._woken = asyncio.Event()
        self._overtaken = asyncio.Event()
        self._attempt: asyncio.Timeout | None = None
        self._aimed: Attempt | None = None

    def begin(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        self.wake()

    def wake(self) -> None:
        """There may be a new question, or a new controller to ask."""
        self._woken.set()
        if self._aimed is not None and self._aimed != self._aim():
            self._overtaken.set()
            if self._attempt is not None:
                # Its answer would not matter any more, or will not come.
                self._attempt.reschedule(0)
                self._attempt = None

    async def run(self) -> None:
        while True:
            self._keeper.on_tick(self._clock_ms())
            question = self._keeper.ask(self._clock_ms())
            if question is not None:
                await self._ask_until_answered(question)
            elif not self._keeper.has_work:
                await _wait(self._woken, self._tick_ms)
            self._woken.clear()
            await asyncio.sleep(0)

    async def _ask_until_answered(self, question: IsrQuestion) -> None:
        pause_ms = self._limits.rpc_retry_min_ms
        while self._keeper.question is question:
            self._overtaken.clear()
            self._aimed = self._aim()
            answer = await self._ask(question, self._aimed)
            if self._keeper.question is not question:
                break
            if answer is not None:
                self._keeper.take_answer(answer.topics, self._clock_ms())
                break
            await _wait(self._overtaken, int(pause_ms * self._entropy.uniform(0.5, 1)))
            pause_ms = min(2 * pause_ms, self._limits.rpc_retry_max_ms)
        self._aimed = None

    async def _ask(self, question: IsrQuestion, aim: Attempt) -> AlterPartitionAnswer | None:
        """One attempt; None when it is not known to have been answered by the active controller."""
        if aim.address is None:
            return None
        url, timeout_ms = aim.address + bodies.ALTER_PARTITION, self._limits.rpc_timeout_ms
        headers = self._signer.headers_for(
            "POST",
            url,
            question.body,
            sender=Incarnation(self._metadata.own_broker_id, aim.broker_epoch),
            receiver=aim.controller,
            more={bodies.CONTROLLER_EPOCH: str(aim.controller_epoch)},
        )
        try:
            async with asyncio.timeout(None) as self._attempt:
                status, body = await self._http.post(url, question.body, headers, timeout_ms)
            answer = bodies.decode(body, AlterPartitionAnswer) if status == 200 else None
        except (ExchangeError, TimeoutError, msgspec.MsgspecError) as error:
            log.debug("alter_partition.unanswered", address=aim.address, reason=str(error) or "overtaken")
            return None
        finally:
            self._attempt = None
        if answer is None or answer.error_code != Code.NONE:
            code = None if answer is None else answer.error_code
            log.debug("alter_partition.refused", address=aim.address, status=status, error_code=code)
            return None
        return answer

    def _aim(self) -> Attempt:
        told = self._metadata
        controller = told.incarnation(told.controller_id)
        address = told.address_of(told.controller_id)
        return Attempt(self._keeper.question, self._broker_epoch, told.controller_epoch, controller, address)


async def _wait(event: asyncio.Event, timeout_ms: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_ms / 1_000):
            await event.wait()
