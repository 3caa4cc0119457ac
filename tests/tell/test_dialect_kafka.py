"""The Kafka dialect on a socket: one connection, one request in flight, and the answers that count."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from controller.base.config import LIMITS
from controller.core.codes import Code
from controller.core.model import Broker
from controller.core.project.requests import KnownBroker, Stop
from controller.kafka.protocol.access import PLAIN_ACCESS, PLAINTEXT, Access
from controller.kafka.protocol.levels import level_for
from controller.tell.dialects import Envelope, NotAcknowledgedError, Request
from controller.tell.dialects.kafka import OFFSET_FOR_LEADER_EPOCH as EPOCHS
from controller.tell.dialects.kafka import KafkaDialect, OwnAddress
from controller.wire import bodies
from controller.zookeeper.port import DeadlinePassedError
from tests.kafka import kafka_support as kio
from tests.seat.epochs_support import Kafka, rows

HOST = "127.0.0.1"
OWN = OwnAddress(100, {PLAINTEXT: (HOST, 1)})
ENVELOPE = Envelope(100, 7, "7-1")
SERVED = bodies.Answer(0, [])
UPDATE = Request(path=bodies.UPDATE_METADATA, brokers=[], live_ids=frozenset())

#: Metadata of version 10: no broker, no cluster id, controller -1, and topic a with its id and no partition
METADATA_ANSWER = (
    bytes(4) + b"\1" + b"\0" + b"\xff" * 4 + b"\2\0\0\2a" + bytes(15) + b"\2" + b"\0\1" + bytes(4) + b"\0" + bytes(5)
)


class Peer:
    """A broker's socket: gives every request the answer of the test."""

    def __init__(self) -> None:
        self.connections = 0
        self.frames: list[bytes] = []
        self.serving: list[asyncio.Task[None] | None] = []
        self.say: Callable[[int], bytes | None] = lambda correlation_id: struct.pack(">iBhB", correlation_id, 0, 0, 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.append(asyncio.current_task())
        try:
            while head := await reader.read(4):
                frame = await reader.readexactly(struct.unpack(">i", head)[0])
                self.frames.append(frame)
                answer = self.say(struct.unpack(">i", frame[4:8])[0])
                if answer is None:
                    break
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
        except ConnectionError:
            pass  # the dialect ended it
        finally:
            writer.close()


@asynccontextmanager
async def listening(peer: Peer, port: int = 0) -> AsyncIterator[Broker]:
    """To be left when the dialect is closed: the server of a connection ends with it."""
    server = await asyncio.start_server(peer.serve, HOST, port)
    async with server:
        yield a_broker(server.sockets[0].getsockname()[1])
    await asyncio.gather(*filter(None, peer.serving))


def a_broker(port: int, protocol: str = "PLAINTEXT") -> Broker:
    return Broker(1, 55, HOST, port, (f"{protocol}://{HOST}:{port}",), None, {protocol: protocol})


@asynccontextmanager
async def a_dialect(
    check: Callable[[], None] = lambda: None, level: str = "3.9", access: Access = PLAIN_ACCESS, **limits: int
) -> AsyncIterator[KafkaDialect]:
    bounds = msgspec.structs.replace(LIMITS, **limits)
    dialect = KafkaDialect(level_for(level), OWN, access=access, check=check, limits=bounds)
    try:
        yield dialect
    finally:
        await dialect.close()


async def test_requests_follow_one_another_on_one_connection() -> None:
    peer = Peer()
    async with listening(peer) as broker, a_dialect() as dialect:
        for _ in range(3):
            assert await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE) == SERVED
    assert peer.connections == 1
    assert [frame[:8] for frame in peer.frames] == [struct.pack(">hhi", 6, 8, number) for number in (1, 2, 3)]


async def test_the_controller_is_named_among_the_brokers_so_that_leaders_find_it() -> None:
    peer = Peer()
    async with listening(peer) as broker, a_dialect() as dialect:
        told = msgspec.structs.replace(UPDATE, brokers=[KnownBroker(broker, "live")], live_ids=frozenset({1}))
        await dialect.send(broker, told, dialect.encode(told), ENVELOPE)
    body = peer.frames[0].removeprefix(kio.request_header(6, 8, 1, "klamm"))
    message = kio.read(kio.schema("update_metadata", 8, "request").UpdateMetadataRequest, body)
    assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (100, 7, 55)
    assert [(one.id_, [(e.listener, e.host) for e in one.endpoints]) for one in message.live_brokers] == [
        (1, [("PLAINTEXT", HOST)]),
        (100, [("PLAINTEXT", HOST)]),
    ]


async def test_below_level_2_6_deleting_and_stopping_are_two_requests_and_one_answer() -> None:
    peer = Peer()
    peer.say = lambda correlation_id: struct.pack(">iBhBB", correlation_id, 0, 0, 1, 0)
    stops = {("a", "id-of-a"): {0: Stop(1, delete=True), 1: Stop(1, delete=False)}}
    async with listening(peer) as broker, a_dialect(level="2.4") as dialect:
        request = Request(path=bodies.STOP_REPLICA, brokers=[], live_ids=frozenset(), stops=stops)
        assert await dialect.send(broker, request, dialect.encode(request), ENVELOPE) == SERVED
    assert [struct.unpack(">hh", frame[:4]) for frame in peer.frames] == [(5, 2), (5, 2)]


def answered_by(kafka: Kafka, codes: dict[int, int]) -> Callable[[bytes], bytes]:
    """Codes by partition of a LeaderAndIsr of level 2.4; questions about leader epochs as that broker answers them."""

    def say(frame: bytes) -> bytes:
        key, _, number = struct.unpack(">hhi", frame[:8])
        if key == EPOCHS:
            return kafka.answer(frame, number)
        rows = [struct.pack(">B6sihB", 7, b"orders", one, code, 0) for one, code in codes.items()]
        return struct.pack(">iBhB", number, 0, 0, len(rows) + 1) + b"".join(rows) + b"\0"

    return say


async def test_of_leader_epochs_that_are_no_news_only_those_too_low_are_refused() -> None:
    peer, kafka = Peer(), Kafka((4, True), (9, True), (0, True))
    answer = answered_by(kafka, {0: 11, 1: 11, 2: 103})
    peer.say = lambda _: answer(peer.frames[-1])
    request = Request(path=bodies.LEADER_AND_ISR, brokers=[], live_ids=frozenset(), rows=rows(*[(1, 4, 7)] * 3))
    async with listening(peer) as broker, a_dialect(level="2.4") as dialect:
        answered = await dialect.send(broker, request, dialect.encode(request), ENVELOPE)
    assert answered == bodies.Answer(
        0, [bodies.Refusal("id-orders", 2, 103), bodies.Refusal("id-orders", 1, Code.FENCED_LEADER_EPOCH, 12)]
    )
    assert peer.connections == 1


async def test_a_brokers_answer_about_topics_comes_back_as_it_is() -> None:
    peer = Peer()
    peer.say = lambda correlation_id: struct.pack(">iB", correlation_id, 0) + METADATA_ANSWER
    request = Request(path=bodies.DESCRIBE_TOPICS, brokers=[], live_ids=frozenset(), names=["a"])
    async with listening(peer) as broker, a_dialect() as dialect:
        answer = await dialect.send(broker, request, dialect.encode(request), ENVELOPE)
    known = bodies.DescribedId("AAAAAAAAAAAAAAAAAAAAAg", told=True, held=False, leader_epochs=[])
    assert answer == bodies.DescribeTopicsAnswer(topics=[bodies.DescribedTopic("a", [known])])
    assert struct.unpack(">hh", peer.frames[0][:4]) == (3, 10)


async def test_a_connection_refused_is_tried_again_at_once() -> None:
    """A broker is registered up to a second before it listens."""
    peer = Peer()
    async with listening(peer) as broker:
        pass  # no server listens there now
    dialect = KafkaDialect(level_for("3.9"), OWN, check=lambda: None)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE))
        await asyncio.sleep(0)
        async with listening(peer, broker.port):
            assert await telling == SERVED
            await dialect.close()
    assert peer.connections == 1


@pytest.mark.parametrize("host", ["x" * 70, "..", "\x00", "a b", "[bad"])
@pytest.mark.parametrize("port", ["1", "0", "99999", "9" * 5_000])
async def test_a_broker_that_registered_nonsense_has_not_acknowledged(host: str, port: str) -> None:
    broker = Broker(1, 55, HOST, 1, (f"PLAINTEXT://{host}:{port}",), None, {"PLAINTEXT": "PLAINTEXT"})
    request = msgspec.structs.replace(UPDATE, brokers=[KnownBroker(broker, "live")], live_ids=frozenset({1}))
    async with a_dialect(kafka_refused_max_ms=0) as dialect:
        body = dialect.encode(request)
        with pytest.raises(NotAcknowledgedError):
            await dialect.send(broker, request, body, ENVELOPE)


async def test_a_broker_that_never_listens_has_not_acknowledged() -> None:
    async with listening(Peer()) as broker:
        pass
    async with a_dialect(kafka_refused_max_ms=0) as dialect:
        with pytest.raises(NotAcknowledgedError, match=str(broker.port)):
            await dialect.send(broker, UPDATE, b"", ENVELOPE)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"\0\0\0\1",
        struct.pack(">iBhB", 9, 0, 0, 0),
    ],
    ids=["closed", "empty", "cut", "another request's"],
)
async def test_an_answer_that_makes_no_sense_is_none_and_ends_the_connection(answer: bytes | None) -> None:
    peer = Peer()
    good = peer.say
    peer.say = lambda _: answer
    async with listening(peer) as broker, a_dialect() as dialect:
        with pytest.raises(NotAcknowledgedError):
            await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE)
        peer.say = good
        assert await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE) == SERVED
    assert peer.connections == 2


async def test_an_answer_larger_than_the_limit_is_not_read() -> None:
    peer = Peer()
    peer.say = lambda _: bytes(100)
    async with listening(peer) as broker, a_dialect(kafka_answer_max_bytes=99) as dialect:
        with pytest.raises(NotAcknowledgedError, match="an answer of 100 bytes"):
            await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE)


async def test_a_broker_that_does_not_answer_is_given_up_in_time() -> None:
    silent = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    server = await asyncio.start_server(hold, HOST, 0)
    async with server, a_dialect(rpc_timeout_ms=50) as dialect:
        broker = a_broker(server.sockets[0].getsockname()[1])
        with pytest.raises(NotAcknowledgedError, match="TimeoutError"):
            await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE)
        silent.set()


async def test_nothing_leaves_once_the_terms_time_is_over() -> None:
    def check() -> None:
        raise DeadlinePassedError("over")

    peer = Peer()
    async with listening(peer) as broker, a_dialect(check) as dialect:
        with pytest.raises(DeadlinePassedError):
            await dialect.send(broker, UPDATE, dialect.encode(UPDATE), ENVELOPE)
    assert peer.frames == []


async def test_an_unsupported_listener_is_refused_with_its_requirements() -> None:
    async with a_dialect() as dialect:
        with pytest.raises(
            NotAcknowledgedError, match=r"broker 1 has a listener of SASL_SSL, which takes ssl\.truststore"
        ):
            await dialect.send(a_broker(9, "SASL_SSL"), UPDATE, b"", ENVELOPE)
