"""The dialect of real brokers: Kafka's own protocol, one connection and one request in flight for each broker.

It owns connections and their traffic. It never tries a request again, except when a connection is refused: a broker is
registered up to a second before it listens. `Access` says which listener to use, and how.

A broker answers 11 to a LeaderAndIsr whether the leader epoch is the one that it has, which is normal, or lower, which
is a refusal. `Search` finds out which, by Kafka's OffsetForLeaderEpoch: the leader epoch that the broker acts by, and
not the one in its metadata, shows in how it fences a question of a given leader epoch.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from controller.base.config import LIMITS, Limits
from controller.core.codes import Code
from controller.core.model import LEADER_EPOCH_MAX, Broker, TopicIdPartition
from controller.kafka.protocol.access import PLAIN_ACCESS, Access, KnownNode, Listener, OpenConnection, broker_node
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.protocol.levels import Level
from controller.tell.dialects import Envelope, NotAcknowledgedError, Request, Wanted
from controller.tell.dialects.kafka_requests import CLIENT_ID, KEYS, answer_in, body_for, opened, stop_bodies
from controller.wire import bodies
from controller.wire.client import NO_ADDRESS

OFFSET_FOR_LEADER_EPOCH: Final = 23
#: every broker since 2.3 serves it
OFFSETS_VERSION: Final = 3
#: of an answer so many are asked about, those written last first: a takeover that changes nothing tells all of them
ASKED_MAX: Final = 1_000
_A_CLIENT: Final = -1


class Search:
    """Over several questions: each replica's leader epoch is doubled upwards until the broker fences it no more."""

    def __init__(self, rows: Wanted, replicas: Iterable[TopicIdPartition], broker_id: int) -> None:
        self._names = {topic_id: topic for topic, topic_id in rows}
        told = {}
        for topic_id, number in replicas:
            partition = rows[self._names[topic_id], topic_id].get(number)
            if partition is not None and partition.state is not None:
                told[topic_id, number] = partition.state
        newest = sorted(told, key=lambda one: told[one].controller_epoch, reverse=True)[:ASKED_MAX]
        self._told = {replica: told[replica] for replica in newest}
        self._broker_id = broker_id
        self._asked = {replica: state.leader_epoch for replica, state in self._told.items()}
        #: a leader epoch at least as high as the broker's, where it refused the one it was told
        self.found: dict[TopicIdPartition, int] = {}

    @property
    def is_over(self) -> bool:
        return not self._asked

    def question(self, client: str, correlation_id: int) -> bytes:
        """Header v1 and body."""
        topics: dict[str, list[tuple[int, int]]] = {}
        for (topic_id, number), epoch in self._asked.items():
            topics.setdefault(self._names[topic_id], []).append((number, epoch))
        writer = Writer(flexible=False)
        writer.i16(OFFSET_FOR_LEADER_EPOCH).i16(OFFSETS_VERSION).i32(correlation_id).string(client).i32(_A_CLIENT)

        def topic(name: str) -> None:
            writer.string(name).array(topics[name], lambda row: writer.i32(row[0]).i32(row[1]).i32(row[1]))

        return writer.array(list(topics), topic).message()

    def take(self, frame: bytes, correlation_id: int) -> None:
        """Take an answer: questions that are left go out with the next one."""
        codes = codes_in(frame, correlation_id)
        asked, self._asked = self._asked, {}
        for replica, epoch in asked.items():
            code = codes.get((self._names[replica[0]], replica[1]))
            told = self._told[replica]
            is_leader = told.leader == self._broker_id
            if code == Code.FENCED_LEADER_EPOCH:
                above = epoch + max(1, epoch - told.leader_epoch)
                if epoch < LEADER_EPOCH_MAX:
                    self._asked[replica] = min(above, LEADER_EPOCH_MAX)
            elif epoch > told.leader_epoch:
                self.found[replica] = epoch
            elif code == (Code.NOT_LEADER_OR_FOLLOWER if is_leader else Code.NONE):
                self.found[replica] = epoch  # it has another leader in this very epoch


def codes_in(frame: bytes, correlation_id: int) -> Mapping[tuple[str, int], int]:
    """By topic name and partition."""
    reader = Reader(frame, flexible=False)
    if (found := reader.i32()) != correlation_id:
        raise WireError(f"the answer to request {found}, not {correlation_id}")
    reader.i32()  # throttled for so long
    codes: dict[tuple[str, int], int] = {}

    def topic() -> None:
        name = reader.string()
        for code, number, _, _ in (struct.unpack(">hiiq", reader.take(18)) for _ in range(reader.i32())):
            codes[name, number] = code

    reader.array(topic)
    return codes


_T = TypeVar("_T")

REFUSED_RETRY_S: Final = 0.02
PIECE_BYTES: Final = 64 * 1024
USED_OF_LIFETIME: Final = 0.85  # of a login, as Kafka's own clients do


class OwnAddress(msgspec.Struct, frozen=True):
    """Where brokers and clients find this controller: host and port for each security protocol that it listens in."""

    node_id: int
    at: Mapping[int, tuple[str, int]]


class _Connection:
    """To one incarnation of a broker."""

    def __init__(self, address: Listener, opened: OpenConnection) -> None:
        self.address = address
        self.reader = opened.reader
        self.writer = opened.writer
        self.sent = 0
        self._ends_at = None if opened.for_s is None else time.monotonic() + opened.for_s * USED_OF_LIFETIME

    @property
    def is_over(self) -> bool:
        """Closed by the broker, or soon to be."""
        return self.reader.at_eof() or (self._ends_at is not None and time.monotonic() >= self._ends_at)

    async def exchange(self, frame: bytes, check: Callable[[], None], answer_max_bytes: int) -> bytes:
        """The clock is compared before each piece leaves: the rest of a term's request must not follow a freeze."""
        for start in range(0, len(frame), PIECE_BYTES):
            check()
            self.writer.write(frame[start : start + PIECE_BYTES])
            await self.writer.drain()
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        if not 0 <= size <= answer_max_bytes:
            raise WireError(f"an answer of {size} bytes")
        return await self.reader.readexactly(size)


class KafkaDialect:
    """Keeps the interface `Dialect`; for one term."""

    def __init__(
        self,
        level: Level,
        own: OwnAddress,
        *,
        access: Access = PLAIN_ACCESS,
        check: Callable[[], None],
        limits: Limits = LIMITS,
    ) -> None:
        self._level = level
        self._own = own
        self._access = access
        self._check = check
        self._limits = limits
        self._connections: dict[int, _Connection] = {}

    def encode(self, request: Request) -> bytes:
        return body_for(request, self._level, self._nodes(request))

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> bodies.Answer:
        key = KEYS[request.path]
        version = self._level.version_of(key)
        epochs = (envelope.controller_id, envelope.controller_epoch, broker.epoch)
        names = dict(iter(request.stops or request.rows))
        code, refused = 0, list[bodies.Refusal]()
        for piece in stop_bodies(body, self._level) if request.path == bodies.STOP_REPLICA else (body,):
            answer = await self._exchange(broker, key, version, epochs, piece, names)
            if request.path == bodies.DESCRIBE_TOPICS:
                return answer
            code, refused = code or answer.error_code, [*refused, *answer.partitions]
        if request.path == bodies.LEADER_AND_ISR:
            refused = await self._without_what_it_has(broker, request, refused)
        return bodies.Answer(code, refused)

    async def _without_what_it_has(
        self, broker: Broker, request: Request, refused: Sequence[bodies.Refusal]
    ) -> list[bodies.Refusal]:
        """11 for a partition: its leader epoch is the broker's own, and all is well, or lower, and it obeys another."""
        stale = [(one.topic_id, one.partition) for one in refused if one.error_code == Code.STALE_CONTROLLER_EPOCH]
        left = [one for one in refused if one.error_code != Code.STALE_CONTROLLER_EPOCH]
        search = Search(request.rows, stale, broker.broker_id)
        while not search.is_over:
            await self._converse(broker, OFFSET_FOR_LEADER_EPOCH, partial(search.question, CLIENT_ID), search.take)
        found = search.found.items()
        return [*left, *(bodies.Refusal(*replica, Code.FENCED_LEADER_EPOCH, epoch) for replica, epoch in found)]

    async def close(self) -> None:
        for broker_id in list(self._connections):
            self._drop(broker_id)

    async def _exchange(
        self,
        broker: Broker,
        key: int,
        version: int,
        epochs: tuple[int, int, int],
        body: bytes,
        names: dict[str, str],
    ) -> bodies.Answer:
        return await self._converse(
            broker,
            key,
            lambda number: opened(key, version, number, epochs) + body,
            lambda raw, number: answer_in(key, version, raw, number, names),
        )

    async def _converse(
        self, broker: Broker, key: int, ask: Callable[[int], bytes], understand: Callable[[bytes, int], _T]
    ) -> _T:
        """One request and its answer; both are given the number of the request on its connection."""
        address, is_done = self._address_of(broker), False
        try:
            async with asyncio.timeout(self._limits.rpc_timeout_ms / 1000):
                connection = await self._connected(broker.broker_id, address)
                connection.sent += 1
                message = ask(connection.sent)
                frame = struct.pack(">i", len(message)) + message
                raw = await connection.exchange(frame, self._check, self._limits.kafka_answer_max_bytes)
                answer = understand(raw, connection.sent)
                is_done = True
                return answer
        except (OSError, EOFError, TimeoutError, WireError, struct.error, *NO_ADDRESS) as error:
            reason = str(error) or type(error).__name__
            raise NotAcknowledgedError(f"{address.host}:{address.port}, API {key}: {reason}") from error
        finally:
            if not is_done:  # no caller waits for further answers on this connection
                self._drop(broker.broker_id)

    async def _connected(self, broker_id: int, address: Listener) -> _Connection:
        known = self._connections.get(broker_id)
        if known is not None and known.address == address and not known.is_over:
            return known
        self._drop(broker_id)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._limits.kafka_refused_max_ms / 1000
        while True:
            try:
                opened = await self._access.open(address)
            except ConnectionRefusedError:
                if loop.time() >= give_up_at:
                    raise
                await asyncio.sleep(REFUSED_RETRY_S)
                continue
            made = self._connections[broker_id] = _Connection(address, opened)
            return made

    def _drop(self, broker_id: int) -> None:
        dropped = self._connections.pop(broker_id, None)
        if dropped is not None:
            with suppress(OSError):
                dropped.writer.transport.abort()

    def _address_of(self, broker: Broker) -> Listener:
        address = self._access.listener_of(broker)
        if address is None:
            raise NotAcknowledgedError(f"broker {broker.broker_id} has {self._access.trouble_with(broker)}")
        return address

    def _nodes(self, request: Request) -> Sequence[KnownNode]:
        """Returns the live brokers and this controller: leaders that ask for ISR changes look the controller up among
        the brokers, by the name of their own listener; clients look it up by the name of theirs."""
        live = [known.broker for known in request.brokers if known.broker.broker_id in request.live_ids]
        names: dict[str, int] = {}
        nodes = []
        for broker in live:
            spoken = self._access.listener_of(broker)
            nodes.append(broker_node(broker, "" if spoken is None else spoken.name))
            names |= {one.name: one.protocol for one in nodes[-1].listeners if one.protocol in self._own.at}
        listeners = tuple(Listener(name, *self._own.at[protocol], protocol) for name, protocol in names.items())
        return [*nodes, KnownNode(self._own.node_id, listeners)] if listeners else nodes
