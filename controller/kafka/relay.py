"""What any broker can answer and we cannot: passed on, as bytes, to a live broker, and its answer back.

Clients see the controller among the brokers and may ask it for anything that any broker could tell: metadata, the
coordinator of a group, a producer id. It understands nothing of what it passes on, and keeps no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Final

from controller.api.view import ControllerDoor
from controller.config import Limits
from controller.dialects.kafka_access import PLAIN_ACCESS, Access
from controller.dialects.kafka_codec import WireError
from controller.dialects.kafka_nodes import Listener
from controller.kafka.server import Api
from controller.kafka.versions import exchange, versions_at
from controller.news import News

#: asked of any broker: Metadata, FindCoordinator, ListGroups, InitProducerId, DescribeAcls, configurations, quotas,
#: SCRAM users, DescribeCluster, ListTransactions; no change of ACLs, which nobody here would be held to
PASSED_ON: Final = frozenset({3, 10, 16, 22, 29, 32, 33, 44, 48, 49, 50, 60, 66})
#: what brokers of every version from 2.4 to 3.9 serve of them, while none has said more: a client that once reads a
#: list without Metadata ends
EVERYWHERE: Final = {
    key: Api(0, last, last + 1) for key, last in {3: 8, 10: 2, 16: 2, 22: 1, 29: 1, 32: 2, 33: 1, 44: 0}.items()
}
VERSIONS_KEPT_MS: Final = 10_000
#: asked again so soon where nothing is known yet
VERSIONS_MISSED_MS: Final = 200
FAILURES: Final = (OSError, EOFError, TimeoutError, WireError)


class Relay:
    """To whichever live broker answers first. What they serve is asked in a task of its own (`keep_versions`), so that
    nobody whom we can answer ourselves ever waits for a broker."""

    def __init__(self, door: ControllerDoor, limits: Limits, entropy: Random, access: Access = PLAIN_ACCESS) -> None:
        self._door = door
        self._limits = limits
        self._entropy = entropy
        self._access = access
        self._busy = asyncio.Semaphore(limits.kafka_relays)
        self._versions: Mapping[int, Api] = {}
        self._wanted = asyncio.Event()
        self._asked = News()

    async def versions(self) -> Mapping[int, Api]:
        """What brokers served of that when they were asked last."""
        self._wanted.set()
        if not self._versions and self._addresses():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                    await self._asked.next()
        return self._versions or EVERYWHERE

    async def keep_versions(self) -> None:
        """Until it is cancelled: ask anew from time to time, if somebody wants to know."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._versions = await self._ask_versions()
            self._asked.tell()
            await asyncio.sleep((VERSIONS_KEPT_MS if self._versions else VERSIONS_MISSED_MS) / 1000)

    async def _ask_versions(self) -> Mapping[int, Api]:
        """Of the first broker that says; those known already if none does."""
        for address in self._addresses():
            with suppress(*FAILURES):
                async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                    served = await versions_at(await self._access.open(address), self._limits.kafka_answer_max_bytes)
                    return {key: Api(first, last, first) for key, (first, last) in served.items() if key in PASSED_ON}
        return self._versions

    async def pass_on(self, frame: bytes) -> bytes:
        """A broker's answer to the whole frame. OSError when none can be reached."""
        async with self._busy:
            for address in self._addresses():
                try:
                    # it is registered before it listens, and for a while after it stood still or fell off the network
                    async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                        opened = await self._access.open(address)
                except FAILURES:
                    continue
                # from here on it may have been done, and is asked of nobody else
                async with asyncio.timeout(self._limits.rpc_timeout_ms / 1000):
                    return await exchange(opened, frame, self._limits.kafka_answer_max_bytes)
        raise ConnectionRefusedError("no live broker can be asked")

    def _addresses(self) -> list[Listener]:
        cluster = self._door.cluster
        found = [self._access.listener_of(broker) for broker in cluster.brokers.values()] if cluster else []
        addresses = [one for one in found if one is not None]
        self._entropy.shuffle(addresses)
        return addresses
