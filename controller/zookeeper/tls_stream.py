"""TLS on a connection to ZooKeeper, so that `drain` says what the guard needs: the kernel has all bytes of the requests
before.

asyncio's own TLS hands what it has encrypted to the socket's transport and counts it as sent, though it may wait there
for as long as the process stands still. Here only the socket's transport has a buffer.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

READ_BYTES: Final = 1024 * 1024


class TlsStream:
    """Reader and writer of one connection. `shake_hands` once, before anything else."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, name: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=name)
        self._unread = bytearray()

    @property
    def transport(self) -> asyncio.WriteTransport:
        """The socket's."""
        return self._writer.transport

    async def shake_hands(self) -> None:
        """Raises ssl.SSLError for a server that is not the right one, and EOFError."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                if not await self._take_in():
                    raise EOFError("the server ended the connection during the handshake of TLS") from None
            finally:
                self._flush()  # also what tells the server why not

    async def readexactly(self, size: int) -> bytes:
        """As of asyncio's StreamReader."""
        while len(self._unread) < size:
            try:
                piece = self._tls.read(READ_BYTES)  # nothing: the server has ended it in order
            except ssl.SSLWantReadError:
                self._flush()
                if await self._take_in():
                    continue
                piece = b""
            if not piece:
                raise asyncio.IncompleteReadError(bytes(self._unread), size)
            self._unread += piece
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def write(self, data: bytes) -> None:
        """Encrypts all of it, and gives it to the socket's transport at once."""
        self._tls.write(data)
        self._flush()

    async def drain(self) -> None:
        await self._writer.drain()

    def is_closing(self) -> bool:
        return self._writer.is_closing()

    async def _take_in(self) -> bool:
        """Whether anything came."""
        data = await self._reader.read(READ_BYTES)
        self._arrived.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._leaving.pending:
            self._writer.write(self._leaving.read())
