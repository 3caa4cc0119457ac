"""What any broker can answer and we cannot: passed on, as bytes, to a live broker, and its answer back.

Clients see the controller among the brokers and may ask it for anything that any broker could tell: metadata, the
coordinator of a group, a producer id. It understands nothing of what it passes on, and keeps no connection.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from random import Random
from typing import Final

from controller.api.view import ControllerDoor
from controller.config import Limits
from controller.dialects.kafka_access import PLAIN_ACCESS, Access
from controller.dialects.kafka_codec import Reader, WireError, Writer
from controller.dialects.kafka_nodes import Listener
from controller.kafka.server import API_VERSIONS, Api

#: asked of any broker: Metadata, FindCoordinator, ListGroups, InitProducerId, ACLs, configurations, quotas, SCRAM
#: users, DescribeCluster, ListTransactions
PASSED_ON: Final = frozenset({3, 10, 16, 22, 29, 30, 31, 32, 33, 44, 48, 49, 50, 60, 66})
VERSIONS_KEPT_S: Final = 10.0
_LENGTH = struct.Struct(">i")


class Relay:
    """To whichever live broker answers first."""

    def __init__(self, door: ControllerDoor, limits: Limits, entropy: Random, access: Access = PLAIN_ACCESS) -> None:
        self._door = door
        self._limits = limits
        self._entropy = entropy
        self._access = access
        self._busy = asyncio.Semaphore(limits.kafka_relays)
        self._versions: Mapping[int, Api] = {}
        self._known_at = -VERSIONS_KEPT_S

    async def versions(self) -> Mapping[int, Api]:
        """What brokers serve of that, asked anew from time to time; nothing while there is nobody to ask."""
        if time.monotonic() - self._known_at >= VERSIONS_KEPT_S:
            self._known_at = time.monotonic()
            try:
                self._versions = _served_in(await self.pass_on(_versions_request()))
            except (OSError, EOFError, TimeoutError, WireError):
                self._versions, self._known_at = {}, -VERSIONS_KEPT_S
        return self._versions

    async def pass_on(self, frame: bytes) -> bytes:
        """A broker's answer to the whole frame. OSError when none can be reached."""
        async with self._busy:
            for address in self._addresses():
                try:
                    async with asyncio.timeout(self._limits.rpc_timeout_ms / 1000):
                        return await self._exchange(address, frame)
                except ConnectionRefusedError:
                    continue  # it is registered before it listens, and listens no more before it is gone
        raise ConnectionRefusedError("no live broker can be asked")

    def _addresses(self) -> list[Listener]:
        cluster = self._door.cluster
        found = [self._access.listener_of(broker) for broker in cluster.brokers.values()] if cluster else []
        addresses = [one for one in found if one is not None]
        self._entropy.shuffle(addresses)
        return addresses

    async def _exchange(self, address: Listener, frame: bytes) -> bytes:
        reader, writer, _ = await self._access.open(address)
        try:
            writer.write(_LENGTH.pack(len(frame)) + frame)
            await writer.drain()
            size = _LENGTH.unpack(await reader.readexactly(4))[0]
            if not 0 <= size <= self._limits.kafka_answer_max_bytes:
                raise WireError(f"an answer of {size} bytes")
            return await reader.readexactly(size)
        finally:
            writer.close()


def _versions_request() -> bytes:
    return Writer(flexible=False).i16(API_VERSIONS).i16(0).i32(0).string(None).message()


def _served_in(answer: bytes) -> dict[int, Api]:
    reader = Reader(answer, 4, flexible=False)
    if reader.i16() != 0:
        return {}
    served = reader.array(lambda: (reader.i16(), reader.i16(), reader.i16()))
    return {key: Api(first, last, first) for key, first, last in served if key in PASSED_ON}
