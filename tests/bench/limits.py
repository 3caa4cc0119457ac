"""The limit of a row: the same bytes through bare sockets with nothing else done, measured in the same run.

ZooKeeper is sent the requests that a controller must send (every znode read, every znode written), in large messages,
pipelined; then every broker is sent as many bytes as our controller sent it, and answers. Requests are made before the
clock starts, and answers are read and thrown away.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence

from controller.core.operations import Create, Op, Set
from controller.core.project.znodes import partitions_path, state_path, topic_path
from controller.zookeeper.codec import pack_get_many, pack_transaction
from tests.bench.acks import Ack, within
from tests.bench.rows import (
    BACK,
    CREATED_PARTITIONS,
    CREATION,
    DEATH,
    FAILOVER,
    LEAVING,
    LOAD,
    REASSIGNED,
    SHUTDOWN,
    SLOW,
    VICTIM,
    moved_in,
)
from tests.bench.world import BROKERS, CREATED, OPS_PER_TRANSACTION, World

LIMITED = {FAILOVER, LOAD, DEATH, BACK, CREATION, SHUTDOWN, SLOW, *REASSIGNED}
READS_PER_REQUEST = 1_000
IN_FLIGHT = 4
LIMIT_TIMEOUT_S = 300
PIECE_BYTES = 1 << 20
_CONNECT = struct.Struct("!iiqiqi16s?")  # length, protocol, zxid, time-out, session, password (16 bytes), read-only
_HEADER = struct.Struct("!ii")  # length, xid
_HEAD = (
    "POST /limit/{kind} HTTP/1.1\r\nHost: bench\r\nKlamm-Controller-Id: 0\r\nKlamm-Controller-Epoch: 0\r\n"
    "Klamm-Broker-Epoch: 0\r\nContent-Length: {size}\r\n\r\n"
)


async def limit_of(world: World, row: str, acks: Sequence[Ack]) -> float | None:
    """Returns seconds, None for a row that has none; `acks` are the acknowledgements of our controller's turn of this
    row. To be called while no controller is active; the caller puts the written znodes back."""
    if row not in LIMITED:
        return None
    requests = requests_for(world, row)
    async with within(LIMIT_TIMEOUT_S, lambda: f"the limit of {row}"):
        started = time.monotonic()
        await _ask_zookeeper(world.server.client_port, requests)
        asked_s = time.monotonic() - started
        return asked_s + await _tell(world, acks)


def requests_for(world: World, row: str) -> list[bytes]:
    """Returns the requests to ZooKeeper in this row."""
    if row in (FAILOVER, LOAD, SLOW):
        paths = [topic_path(name) for name in world.topics]
        paths += [state_path(name, number) for name, count in world.topics.items() for number in range(count)]
        starts = range(0, len(paths), READS_PER_REQUEST)
        return [pack_get_many(paths[start : start + READS_PER_REQUEST]) for start in starts]
    ops: list[Op] = []
    if row == DEATH:
        ops = _states(world, world.hosted_by(VICTIM))
    elif row == SHUTDOWN:
        ops = _states(world, world.hosted_by(LEAVING))
    elif row in REASSIGNED:
        moved = moved_in(world, row)
        begun_or_ended = [*_states(world, moved), *world.assignments({topic for topic, _ in moved})]
        ops = [*begun_or_ended, *_states(world, moved), *begun_or_ended]  # in between, leaders change the ISRs
    elif row == CREATION:
        ops = [Create(partitions_path(CREATED), b"")]
        for number in range(CREATED_PARTITIONS):
            path = state_path(CREATED, number)
            ops += [Create(path.rpartition("/")[0], b""), Create(path, world.state_of("topic-0", 0))]
    else:
        assert row == BACK, row
    return [pack_transaction(ops[at : at + OPS_PER_TRANSACTION]) for at in range(0, len(ops), OPS_PER_TRANSACTION)]


def _states(world: World, partitions: Sequence[tuple[str, int]]) -> list[Op]:
    return [Set(state_path(*each), world.state_of(*each), -1) for each in partitions]


async def _ask_zookeeper(port: int, requests: Sequence[bytes]) -> None:
    if not requests:
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=PIECE_BYTES)
    writer.write(_CONNECT.pack(_CONNECT.size - 4, 0, 0, 10_000, 0, 16, bytes(16), False))
    await _frame(reader)
    waiting: deque[int] = deque()
    for xid, request in enumerate(requests, start=1):
        if len(waiting) == IN_FLIGHT:
            await _answered(reader, waiting.popleft())
        writer.write(_HEADER.pack(len(request) + 4, xid) + request)
        waiting.append(xid)
    while waiting:
        await _answered(reader, waiting.popleft())
    writer.close()
    await writer.wait_closed()


async def _answered(reader: asyncio.StreamReader, xid: int) -> None:
    answer = await _frame(reader)
    got, _, code = struct.unpack_from("!iqi", answer)
    assert (got, code) == (xid, 0), f"request {xid} was answered {code} as {got}"


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _tell(world: World, acks: Sequence[Ack]) -> float:
    """Every broker at the same time, its requests one after the other."""
    bodies = {
        broker: [_request_of(ack) for ack in acks if ack.broker == broker] for broker in {ack.broker for ack in acks}
    }
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for broker, requests in bodies.items():
            assert broker < BROKERS
            group.create_task(_tell_broker(world.ports[broker], requests))
    return time.monotonic() - started


async def _tell_broker(port: int, requests: Sequence[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
    writer.close()
    await writer.wait_closed()


def _request_of(ack: Ack) -> bytes:
    """A request of the same size."""
    size = max(ack.size - len(_HEAD.format(kind=ack.kind, size=ack.size)), 0)
    return _HEAD.format(kind=ack.kind, size=size).encode() + bytes(size)
