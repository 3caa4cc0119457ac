"""Trouble that Kafka's clients are to have with a broker: late answers, none for a while, and lost ones."""

from __future__ import annotations

import asyncio
import struct

import pytest

from brokerstub.clients.apis import AnswerLostError, ClientTrouble
from brokerstub.clients.writing import PRODUCE
from brokerstub.faults import ClientFaults
from controller.base.config import LIMITS
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer

FETCH = 1


class Served:
    """Two APIs, and the requests to them."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.trouble = ClientTrouble()
        own = {key: Api(0, 0, 99, self._handler(key)) for key in (PRODUCE, FETCH)}
        self.apis = self.trouble.table({**own, API_VERSIONS: Api(0, 3, 3)})

    def _handler(self, key: int):  # type: ignore[no-untyped-def]
        async def handle(version: int, reader: Reader, writer: Writer) -> None:
            self.asked.append(key)
            writer.i32(key)

        return handle

    async def ask(self, key: int) -> None:
        handler = self.apis[key].handler
        assert handler is not None
        await handler(0, Reader(b"", flexible=False), Writer(flexible=False))


async def test_so_many_answers_to_produce_are_lost_and_their_work_is_done() -> None:
    served = Served()
    served.trouble.suffer(ClientFaults(lost_answers=2))
    for _ in range(2):
        await served.ask(FETCH)
        with pytest.raises(AnswerLostError):
            await served.ask(PRODUCE)
    await served.ask(PRODUCE)
    assert served.asked == [FETCH, PRODUCE, FETCH, PRODUCE, PRODUCE]
    served.trouble.suffer(ClientFaults(lost_answers=2))  # the file was written again: nothing is new
    await served.ask(PRODUCE)
    served.trouble.suffer(ClientFaults(lost_answers=2, number=1))
    with pytest.raises(AnswerLostError):
        await served.ask(PRODUCE)
    served.trouble.suffer(ClientFaults())
    await served.ask(PRODUCE)


async def test_a_slow_broker_does_nothing_yet() -> None:
    served = Served()
    served.trouble.suffer(ClientFaults(slow_ms=200))
    asking = asyncio.create_task(served.ask(FETCH))
    for _ in range(5):
        await asyncio.sleep(0)
    assert served.asked == []
    await asking
    assert served.asked == [FETCH]


async def test_a_silent_broker_does_nothing_until_it_is_over() -> None:
    served = Served()
    served.trouble.suffer(ClientFaults(is_silent=True))
    asking = asyncio.create_task(served.ask(FETCH))
    for faults in (ClientFaults(is_silent=True, number=1), ClientFaults()):
        for _ in range(5):
            await asyncio.sleep(0)
        assert served.asked == []
        served.trouble.suffer(faults)
    await asking
    assert served.asked == [FETCH]


async def test_in_place_of_a_lost_answer_the_connection_ends() -> None:
    served = Served()
    served.trouble.suffer(ClientFaults(lost_answers=1))
    server = KafkaServer(served.apis, _nothing_else, _not_served, LIMITS)
    port = await server.start("127.0.0.1", 0)
    try:
        answers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            frame = struct.pack(">hhih", PRODUCE, 0, 7, -1)
            writer.write(struct.pack(">i", len(frame)) + frame)
            answers.append(await reader.read(12))
            writer.close()
        assert answers == [b"", struct.pack(">iii", 8, 7, PRODUCE)]
    finally:
        await server.close()


async def _nothing_else() -> dict[int, Api]:
    return {}


async def _not_served(frame: bytes) -> bytes:
    raise WireError("not served")
