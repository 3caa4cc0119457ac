"""What a broker says that it serves, and one exchange with it. Nothing is kept: neither connections nor answers."""

from __future__ import annotations

import struct

from controller.kafka.protocol.access import Opened
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.listener import API_VERSIONS

_LENGTH = struct.Struct(">i")


async def exchange(opened: Opened, frame: bytes, answer_max_bytes: int) -> bytes:
    """The answer to one request; the connection is closed then. Raises what connections raise, or WireError."""
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


async def versions_at(opened: Opened, answer_max_bytes: int) -> dict[int, tuple[int, int]]:
    """The first and the last version that is served there, by API."""
    request = Writer(flexible=False).i16(API_VERSIONS).i16(0).i32(0).string(None).message()
    reader = Reader(await exchange(opened, request, answer_max_bytes), 4, flexible=False)
    if (code := reader.i16()) != 0:
        raise WireError(f"it does not say what it serves: code {code}")
    return {key: (first, last) for key, first, last in reader.array(lambda: (reader.i16(), reader.i16(), reader.i16()))}
