"""InitProducerId: ids for idempotent producers, out of blocks that the controller gives."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from brokerstub.broker import Broker
from brokerstub.fetch import Poster
from controller.base.config import LIMITS
from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import Api
from controller.wire import bodies
from controller.wire.client import ExchangeError
from controller.wire.signing import Signer

INIT_PRODUCER_ID: Final = 22
NO_PRODUCER: Final = -1

log = structlog.get_logger()


class ProducerIdBlocks:
    """The ids that this broker may give. The controller is the one that the newest metadata names."""

    def __init__(self, broker: Broker, http: Poster, signer: Signer) -> None:
        self._broker = broker
        self._http = http
        self._signer = signer
        self._next = self._end = 0
        self._asking = asyncio.Lock()

    async def draw(self) -> int | None:
        """An id that nobody had; None: the controller did not give any now."""
        async with self._asking:
            if self._next >= self._end:
                block = await self._ask()
                if block is None:
                    return None
                self._next, self._end = block.start, block.start + block.size
            self._next += 1
            return self._next - 1

    async def _ask(self) -> bodies.ProducerIdsAnswer | None:
        told = self._broker.metadata
        address = told.address_of(told.controller_id)
        if address is None:
            return None
        url = address + bodies.PRODUCER_IDS
        headers = self._signer.headers_for(
            "POST",
            url,
            b"{}",
            sender=self._broker.incarnation,
            receiver=told.incarnation(told.controller_id),
            more={bodies.CONTROLLER_EPOCH: str(told.controller_epoch)},
        )
        try:
            status, body = await self._http.post(url, b"{}", headers, LIMITS.rpc_timeout_ms)
            answer = bodies.decode(body, bodies.ProducerIdsAnswer) if status == 200 else None
        except (ExchangeError, msgspec.MsgspecError) as error:
            log.debug("producer_ids.unanswered", address=address, reason=str(error))
            return None
        if answer is None or answer.error_code != Code.NONE or answer.size <= 0:
            log.debug("producer_ids.refused", address=address, status=status)
            return None
        return answer


class ProducerIdApis:
    """Handlers."""

    def __init__(self, blocks: ProducerIdBlocks) -> None:
        self._blocks = blocks

    def table(self) -> dict[int, Api]:
        return {INIT_PRODUCER_ID: Api(0, 4, 2, self.init_producer_id)}

    async def init_producer_id(self, version: int, reader: Reader, writer: Writer) -> None:
        transactional_id = reader.nullable_string()
        code, producer_id = Code.NONE, None
        if transactional_id is not None:
            code = Code.INVALID_REQUEST  # transactions are not served
        elif (producer_id := await self._blocks.draw()) is None:
            code = Code.COORDINATOR_NOT_AVAILABLE  # after which clients ask again
        given = NO_PRODUCER if producer_id is None else producer_id
        writer.i32(0).i16(code).i64(given).i16(NO_PRODUCER if producer_id is None else 0).tags()
