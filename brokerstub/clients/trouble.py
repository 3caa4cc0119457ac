"""Trouble for authors of clients: answers that are late, do not come, or are lost after the work was done.

A fault of the lab's says what (`faults.py`), and when it is over; this carries it out on a listener's APIs. Nothing is
decided by chance. ApiVersions is answered as ever: who connects finds a Kafka broker, and then hears nothing from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from brokerstub.clients.writing import PRODUCE
from brokerstub.faults import ClientFaults
from controller.base.bell import Bell
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import Api, Handler


class AnswerLostError(ConnectionError):
    """The work was done; nobody hears of it."""


class ClientTrouble:
    """Of one broker."""

    def __init__(self) -> None:
        self._faults = ClientFaults()
        self._answers_left = 0
        self._changed = Bell()

    def suffer(self, faults: ClientFaults) -> None:
        """From now on."""
        if faults != self._faults:
            self._faults, self._answers_left = faults, faults.lost_answers
            self._changed.ring()

    def table(self, apis: Mapping[int, Api]) -> dict[int, Api]:
        """The same APIs, each with its trouble."""
        return {key: self._troubled(key, api) for key, api in apis.items()}

    def _troubled(self, key: int, api: Api) -> Api:
        handler = api.handler
        return api if handler is None else Api(api.first, api.last, api.flexible_since, self._handler(key, handler))

    def _handler(self, key: int, handler: Handler) -> Handler:
        async def troubled(version: int, reader: Reader, writer: Writer) -> None:
            if self._faults.slow_ms:
                await asyncio.sleep(self._faults.slow_ms / 1_000)
            while self._faults.is_silent:
                await self._changed.wait()
            await handler(version, reader, writer)
            if key == PRODUCE and self._answers_left:
                self._answers_left -= 1
                raise AnswerLostError("the answer to Produce is lost")

        return troubled
