"""Broker endpoints for measuring: a process of its own that reads whole requests, checks their senders and
acknowledges, decoding nothing.

`python -m tests.bench.endpoints COUNT`: its first line of output has COUNT ports on which the brokers obey our dialect
and as many more for Kafka's, in the same few lines, so that neither controller has the faster brokers. Each
acknowledgement is a line of output:
monotonic time, broker, kind, bytes. Of lines of input `deaf N` lets broker N read and never answer, until `hear N`.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Callable
from functools import partial

BUFFER_BYTES = 1 << 20
_HEAD_END = b"\r\n\r\n"
_ACKNOWLEDGED = b'{"error_code":0,"partitions":[]}'
_HTTP_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (len(_ACKNOWLEDGED), _ACKNOWLEDGED)
)  # fmt: skip
_KAFKA_HEAD = struct.Struct("!ihhi")  # size, API key, its version, correlation id
#: API key -> its name, the first version with tagged fields, and the body that says "done, nothing refused"
_KAFKA_APIS = {
    4: ("leader-and-isr", 4, b"\0\0\x01\0"),
    5: ("stop-replica", 2, b"\0\0\x01\0"),
    6: ("update-metadata", 6, b"\0\0\0"),
}

#: from the head of a request: its whole size, its kind, and its answer
Frame = tuple[int, str, bytes]
#: by deaf broker, the answers it owes
Held = dict[int, list[Callable[[], None]]]


class ProtocolError(Exception):
    """The peer sent bytes that no controller sends."""


def http_frame(head: memoryview) -> Frame | None:
    """Our dialect: a POST with a length and the epochs of controller and broker. None: there is more to come."""
    text, found, _ = bytes(head[:4096]).partition(_HEAD_END)
    if not found:
        return None
    first, *lines = text.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    for name in ("klamm-controller-id", "klamm-controller-epoch", "klamm-broker-epoch", "content-length"):
        if not headers.get(name, "").isdigit():
            raise ProtocolError(f"{first}: no {name}")
    size = len(text) + len(_HEAD_END) + int(headers["content-length"])
    return size, first.split(" ")[1].rpartition("/")[2], _HTTP_ANSWER


def kafka_frame(head: memoryview) -> Frame | None:
    """Kafka's own protocol, in the versions that its controller speaks today."""
    if len(head) < _KAFKA_HEAD.size:
        return None
    size, api, version, correlation_id = _KAFKA_HEAD.unpack_from(head)
    if api not in _KAFKA_APIS or version < _KAFKA_APIS[api][1]:
        raise ProtocolError(f"API {api} in version {version}")
    kind, _, body = _KAFKA_APIS[api]
    return size + 4, kind, struct.pack("!iib", 5 + len(body), correlation_id, 0) + body


class Endpoint(asyncio.BufferedProtocol):
    """One connection of one broker. Of a request only the head is kept; the rest is counted."""

    def __init__(self, broker: int, frame_in: Callable[[memoryview], Frame | None], held: Held) -> None:
        self._broker = broker
        self._held = held
        self._frame_in = frame_in
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._kept = 0  # bytes of a head that is not whole yet
        self._frame: Frame | None = None
        self._left = 0  # of the present request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._kept :]

    def buffer_updated(self, nbytes: int) -> None:
        there = self._buffer[: self._kept + nbytes]
        self._kept = 0
        while there:
            if self._frame is None:
                self._frame = self._frame_in(there)
                if self._frame is None:
                    self._kept = len(there)
                    self._buffer[: self._kept] = there
                    return
                self._left = self._frame[0]
            taken = min(self._left, len(there))
            self._left -= taken
            there = there[taken:]
            if self._left == 0:
                self._acknowledge(self._frame)
                self._frame = None

    def _acknowledge(self, frame: Frame) -> None:
        if self._broker in self._held:
            self._held[self._broker].append(partial(self._answer, frame))
        else:
            self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        size, kind, answer = frame
        if self._transport.is_closing():
            return
        self._transport.write(answer)
        sys.stdout.write(f"{time.monotonic()} {self._broker} {kind} {size}\n")
        sys.stdout.flush()


async def serve(count: int) -> None:
    loop = asyncio.get_running_loop()
    held: Held = {}
    servers = [
        await loop.create_server(partial(Endpoint, broker, frame_in, held), "127.0.0.1", 0)
        for frame_in in (http_frame, kafka_frame)
        for broker in range(count)
    ]
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    sys.stdout.write(" ".join(str(server.sockets[0].getsockname()[1]) for server in servers) + "\n")
    sys.stdout.flush()
    while line := await orders.readline():
        order, broker_id = line.decode().split()
        if order == "deaf":
            held[int(broker_id)] = []
        for answer in held.pop(int(broker_id), []) if order == "hear" else ():
            answer()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
