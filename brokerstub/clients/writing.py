"""Writing for clients: Produce appends batches to the logs of partitions that this broker leads, acknowledged as `acks`
asks. InitProducerId gives idempotent producers ids, out of blocks that the controller grants.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Final

import msgspec
import structlog

from brokerstub.broker import Broker
from brokerstub.fetch import Poster
from brokerstub.logs import Logs, PartitionLog
from brokerstub.records.errors import InvalidBatchError, NotLeaderError, RecordsError
from brokerstub.records.log import Appended
from controller.base.config import LIMITS
from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, Writer, tagged
from controller.kafka.server.listener import Api, NoAnswerWanted
from controller.wire import bodies
from controller.wire.client import ExchangeError
from controller.wire.signing import Signer

PRODUCE: Final = 0
ACKS_ALL: Final = -1
#: no request waits longer than this for followers, whatever its time-out
WAIT_MAX_MS: Final = 120_000


class _Result(msgspec.Struct):
    """Of one partition."""

    partition: int
    code: Code = Code.NONE
    base_offset: int = -1
    append_ms: int = -1
    start_offset: int = -1
    detail: str | None = None


class _Pending(msgspec.Struct):
    """Appended, and not yet with the whole ISR."""

    result: _Result
    one: PartitionLog
    tenure: int
    appended: Appended


class WritingApis:
    """Handlers."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def table(self) -> dict[int, Api]:
        return {PRODUCE: Api(3, 9, 9, self.produce)}

    async def produce(self, version: int, reader: Reader, writer: Writer) -> None:
        transactional_id = reader.nullable_string()
        acks, timeout_ms = reader.i16(), reader.i32()
        topics = reader.array(lambda: _topic(reader))
        reader.tags()
        refusal: RecordsError | None = None
        if transactional_id is not None:
            refusal = InvalidBatchError("transactions are not served: produce without transactional.id")
        results: list[tuple[str, list[_Result]]] = []
        pending: list[_Pending] = []
        for name, partitions in topics:
            answers = []
            for number, data in partitions:
                answers.append(self._append(name, number, data, acks, pending, refusal))
            results.append((name, answers))
            await asyncio.sleep(0)  # whoever waits for these partitions, and others
        if acks == ACKS_ALL and pending:
            await self._replicated(pending, min(max(timeout_ms, 0), WAIT_MAX_MS))
        if acks == 0:
            raise NoAnswerWanted
        writer.array(results, lambda topic: _write_topic(version, *topic, writer))
        writer.i32(0).tags()

    def _append(
        self,
        name: str,
        number: int,
        data: bytes | None,
        acks: int,
        pending: list[_Pending],
        refusal: RecordsError | None,
    ) -> _Result:
        result = _Result(number)
        try:
            if refusal is not None:
                raise refusal
            if acks not in (ACKS_ALL, 0, 1):
                result.code, result.detail = Code.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {acks}"
                return result
            if not data:
                raise InvalidBatchError("no records")
            one, leader = self._logs.led(name, number)
            appended = self._logs.append(one, leader, data, acks=acks)
        except RecordsError as error:
            result.code, result.detail = error.code, str(error)
            return result
        result.base_offset, result.append_ms = appended.base_offset, appended.append_ms
        result.start_offset = one.log.start_offset
        pending.append(_Pending(result, one, one.tenure, appended))
        return result

    async def _replicated(self, pending: list[_Pending], timeout_ms: int) -> None:
        """Waits until the whole ISR has the records, or until they cannot be waited for."""
        moved = asyncio.Event()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1_000
        with ExitStack() as watches:
            for each in pending:
                watches.enter_context(each.one.watched_by(moved))
            waiting = pending
            while waiting := [one for one in waiting if not _is_settled(one)]:
                moved.clear()
                try:
                    async with asyncio.timeout_at(deadline):
                        await moved.wait()
                except TimeoutError:
                    for one in waiting:
                        if not _is_settled(one):
                            one.result.code = Code.REQUEST_TIMED_OUT
                            one.result.detail = "written, and not yet with the whole ISR"
                            one.result.base_offset = -1
                    return


def _is_settled(pending: _Pending) -> bool:
    """Returns whether it is known what to answer."""
    result, one = pending.result, pending.one
    try:
        if one.leader is None or one.tenure != pending.tenure:
            raise NotLeaderError("written, and this broker led no longer before the ISR had it")
        return one.leader.is_replicated(pending.appended, 1 if one.settings is None else one.settings.min_isr)
    except RecordsError as error:
        result.code, result.detail, result.base_offset = error.code, str(error), -1
        return True


def _topic(reader: Reader) -> tuple[str, list[tuple[int, bytes | None]]]:
    return tagged(
        reader,
        (reader.string(), reader.array(lambda: tagged(reader, (reader.i32(), reader.nullable_data())))),
    )


def _write_topic(version: int, name: str, results: list[_Result], writer: Writer) -> None:
    writer.string(name).array(results, lambda one: _write_result(version, one, writer)).tags()


def _write_result(version: int, one: _Result, writer: Writer) -> None:
    writer.i32(one.partition).i16(one.code).i64(one.base_offset).i64(one.append_ms)
    if version >= 5:
        writer.i64(one.start_offset)
    if version >= 8:
        writer.array((), writer.string).string(one.detail)
    writer.tags()


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
        """Returns an unused id; None: the controller did not give any now."""
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
