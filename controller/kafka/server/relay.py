"""Questions that any broker can answer and we cannot: passed on, as bytes, to a live broker, and its answer back.

Clients see the controller among the brokers and may ask it for anything that any broker could tell: metadata, the
coordinator of a group, a producer id. The relay does not decode the requests that it passes on, and keeps no
connection. It asks a broker for the versions that it serves each time.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from controller.api.ports import ControllerHandle
from controller.base.bell import Bell
from controller.base.config import Limits
from controller.core.model import Broker
from controller.kafka.protocol.access import PLAIN_ACCESS, Access, Listener, OpenConnection
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.listener import API_VERSIONS, Api

_LENGTH = struct.Struct(">i")


async def exchange(opened: OpenConnection, frame: bytes, answer_max_bytes: int) -> bytes:
    """Returns the answer to one request, and closes the connection. Raises the errors of connections, or WireError."""
    reader, writer, _ = opened
    try:
        writer.write(_LENGTH.pack(len(frame)) + frame)
        await writer.drain()
        size = _LENGTH.unpack(await reader.readexactly(4))[0]
        if not 0 <= size <= answer_max_bytes:
            raise WireError(f"an answer of {size} bytes")
        return await reader.readexactly(size)
    finally:
        writer.close()


async def versions_at(opened: OpenConnection, answer_max_bytes: int) -> dict[int, tuple[int, int]]:
    """Returns the first and the last version that is served there, by API."""
    request = Writer(flexible=False).i16(API_VERSIONS).i16(0).i32(0).string(None).message()
    reader = Reader(await exchange(opened, request, answer_max_bytes), 4, flexible=False)
    if (code := reader.i16()) != 0:
        raise WireError(f"it does not say what it serves: code {code}")
    return {key: (first, last) for key, first, last in reader.array(lambda: (reader.i16(), reader.i16(), reader.i16()))}


#: asked of any broker: Metadata, FindCoordinator, InitProducerId, DescribeAcls, configurations, quotas, SCRAM users,
#: DescribeCluster
PASSED_ON: Final = frozenset({3, 10, 22, 29, 32, 33, 44, 48, 49, 50, 60})
#: CreateAcls and DeleteAcls, where this controller holds clients to them
ACL_CHANGES: Final = frozenset({30, 31})
#: the versions of them that brokers of every version from 2.4 to 3.9 serve, until one has answered: a client that once
#: reads a list without Metadata ends
EVERYWHERE: Final = {
    key: Api(0, last, last + 1) for key, last in {3: 8, 10: 2, 22: 1, 29: 1, 32: 2, 33: 1, 44: 0}.items()
}
#: a broker that did not answer with its versions is asked again after so long, if a client needs them
VERSIONS_MISSED_MS: Final = 10_000
#: and so soon where nothing is known of any broker yet
VERSIONS_UNKNOWN_MS: Final = 200
#: so many brokers are asked at the same time
ASKED_AT_ONCE: Final = 8
_KEY_AND_VERSION = struct.Struct(">hh")
#: the first and the last version that a broker serves, by API
Served = Mapping[int, tuple[int, int]]
FAILURES: Final = (OSError, EOFError, TimeoutError, WireError)


class Relay:
    """Passes requests on to a live broker that serves their version. It advertises the versions that all live brokers
    serve, as far as they have answered: each is asked once for each of its registrations, in a task of its own
    (`keep_versions`), so that no client whom we can answer ourselves ever waits for a broker."""

    def __init__(
        self,
        handle: ControllerHandle,
        limits: Limits,
        entropy: Random,
        access: Access = PLAIN_ACCESS,
        passed_on: frozenset[int] = PASSED_ON,
    ) -> None:
        self._handle = handle
        self._passed_on = passed_on
        self._limits = limits
        self._entropy = entropy
        self._access = access
        self._busy = asyncio.Semaphore(limits.kafka_relays)
        #: by broker id, each with the epoch of the registration under which it was asked
        self._served: dict[int, tuple[int, Served]] = {}
        self._wanted = asyncio.Event()
        self._asked = Bell()

    async def versions(self) -> Mapping[int, Api]:
        """Returns the versions of the passed-on APIs that every broker serves, of those that have answered."""
        self._wanted.set()
        if not self._known() and self._brokers():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                    await self._asked.wait()
        return served_by_all(self._known(), self._passed_on) or EVERYWHERE

    async def keep_versions(self) -> None:
        """Asks brokers for their versions when a client needs them and they have not answered yet, until it is
        cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            brokers = self._brokers()
            self._served = {one.broker_id: self._served[one.broker_id] for one in brokers if self._is_known(one)}
            unknown = iter([one for one in brokers if not self._is_known(one)])
            async with asyncio.TaskGroup() as group:
                for _ in range(ASKED_AT_ONCE):
                    group.create_task(self._ask_each(unknown))
            self._asked.ring()
            if len(self._served) < len(brokers):
                await asyncio.sleep((VERSIONS_MISSED_MS if self._served else VERSIONS_UNKNOWN_MS) / 1000)

    async def _ask_each(self, unknown: Iterator[Broker]) -> None:
        for broker in unknown:
            listener = self._access.listener_of(broker)
            if listener is None:
                continue
            with suppress(*FAILURES):
                async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                    served = await versions_at(await self._access.open(listener), self._limits.kafka_answer_max_bytes)
                    self._served[broker.broker_id] = broker.epoch, served

    async def pass_on(self, frame: bytes) -> bytes:
        """Returns a broker's answer to the whole frame. OSError when none can be reached."""
        async with self._busy:
            for address in self._addresses_for(*_KEY_AND_VERSION.unpack_from(frame)):
                try:
                    # it is registered before it listens, and for a while after it stood still or fell off the network
                    async with asyncio.timeout(self._limits.kafka_connect_ms / 1000):
                        opened = await self._access.open(address)
                except FAILURES:
                    continue
                # from here on the request may have been carried out, so it is not sent to another broker
                async with asyncio.timeout(self._limits.rpc_timeout_ms / 1000):
                    return await exchange(opened, frame, self._limits.kafka_answer_max_bytes)
        raise ConnectionRefusedError("no live broker can be asked")

    def _addresses_for(self, key: int, version: int) -> list[Listener]:
        """Returns where to ask, in a drawn order: of brokers that serve this version, then of those that have not
        said."""
        brokers = self._brokers() if key in self._passed_on else []
        self._entropy.shuffle(brokers)
        serving = [
            one for one in brokers if self._is_known(one) and _serves(self._served[one.broker_id][1], key, version)
        ]
        unknown = [one for one in brokers if not self._is_known(one)]
        if not serving and not unknown and (brokers or key not in self._passed_on):
            raise WireError(f"API {key} in version {version} is not served")
        found = [self._access.listener_of(broker) for broker in (*serving, *unknown)]
        return [one for one in found if one is not None]

    def _known(self) -> list[Served]:
        return [self._served[one.broker_id][1] for one in self._brokers() if self._is_known(one)]

    def _is_known(self, broker: Broker) -> bool:
        epoch, _ = self._served.get(broker.broker_id, (None, {}))
        return epoch == broker.epoch

    def _brokers(self) -> list[Broker]:
        cluster = self._handle.cluster
        return list(cluster.brokers.values()) if cluster else []


def _serves(served: Served, key: int, version: int) -> bool:
    first, last = served.get(key, (0, -1))
    return first <= version <= last


def served_by_all(brokers: Sequence[Served], passed_on: frozenset[int] = PASSED_ON) -> dict[int, Api]:
    """Returns the versions of the passed-on APIs that each of these brokers serves."""
    found = {}
    for key in sorted(passed_on.intersection(*brokers)) if brokers else ():
        first = max(served[key][0] for served in brokers)
        last = min(served[key][1] for served in brokers)
        if first <= last:
            found[key] = Api(first, last, first)
    return found
