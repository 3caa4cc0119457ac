"""The only HTTP client: one request, one answer, bounded in size and time.

It owns connections (reused per host) and turns every library error into one of two: nothing left this process, or the
outcome is unknown. It never sends a POST twice, follows no redirect, and knows nothing of its messages. The guard is
asked when the connection stands, immediately before bytes are handed to it, so a process frozen while connecting
cannot act on a term that ended meanwhile.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter, ResolveResult
from aiohttp.payload import Payload

from controller.base.config import LIMITS
from controller.wire.addresses import may_be_asked

CONNECTIONS_PER_HOST: Final = 8
#: the guard is asked before each piece of a body; a frozen process may still hold one piece and its buffer
PIECE_BYTES: Final = 64 * 1024

#: errors of libraries about a malformed address, since a broker can register any text
NO_ADDRESS: Final = (ValueError, OverflowError)


class ExchangeError(Exception):
    """A request without a usable answer; the message says why."""


class UnreachableError(ExchangeError):
    """Nothing was sent: no connection was to be had."""


class NoAnswerError(ExchangeError):
    """Sent, at least in part, and no usable answer came: its effect is unknown."""


class Answer(NamedTuple):
    """An HTTP answer, whatever its status."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class _GuardedBody(Payload):
    """A body that asks before it leaves. aiohttp writes the headers together with the first piece, not before it."""

    def __init__(self, body: bytes, check: Callable[[], None] | None) -> None:
        super().__init__(body)
        self._size = len(body)
        self._view = memoryview(body)
        self._check = check
        self.has_left = False
        self.is_refused = False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self._view, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, max(len(self._view), 1), PIECE_BYTES):  # once even if empty: the headers
            if self._check is not None:
                self.is_refused = True
                self._check()
                self.is_refused = False
            self.has_left = True
            await writer.write(self._view[start : start + PIECE_BYTES])


class _Resolver(aiohttp.ThreadedResolver):
    """A name may resolve to where no broker can be."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = [one for one in await super().resolve(host, port, family) if may_be_asked(one["host"])]
        if not found:
            raise OSError(f"{host} is an address at which no broker can be")
        return found


class HttpClient:
    """To be made inside a running event loop, and closed by its maker.

    `routes` has, for an address in a URL, the one to connect to: a lab's brokers reach each other through its proxies.
    """

    def __init__(
        self,
        check: Callable[[], None] | None = None,
        *,
        routes: Mapping[str, str] | None = None,
        answer_max_bytes: int = LIMITS.rpc_body_max_bytes,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._check = check
        self._routes = routes or {}
        self._answer_max_bytes = answer_max_bytes
        #: refused last: another process may have the address by now, behind a connection that stays open
        self._doubted: set[str] = set()
        self._session = aiohttp.ClientSession(
            # no limit over all hosts: some that hang must not keep the others waiting
            connector=aiohttp.TCPConnector(
                limit=0,
                limit_per_host=CONNECTIONS_PER_HOST,
                ssl=True if tls is None else tls,
                resolver=_Resolver(),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            auto_decompress=False,  # a small answer must not unpack into a large one
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]:
        """Returns the answer's status and body, whatever the status. Raises ExchangeError, or what the guard raises."""
        answer = await self.send("POST", url, body, headers, timeout_ms)
        return answer.status, answer.body

    async def get(self, url: str, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]:
        """As `post`; a GET may be sent again once, if a reused connection turns out to be closed."""
        answer = await self.send("GET", url, b"", headers, timeout_ms)
        return answer.status, answer.body

    async def send(self, method: str, url: str, content: bytes, headers: Mapping[str, str], timeout_ms: int) -> Answer:
        """As `post`, with any method; a request that is idempotent by HTTP's rules may be sent again once, as a GET."""
        body = _GuardedBody(content, self._check)
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        try:
            way, headers = self._routed(url, headers)
            host = urlsplit(way).netloc
            if host in self._doubted:  # the last one on this connection: the next one looks the host up anew
                headers = {**headers, "Connection": "close"}
            async with self._session.request(
                method, way, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                (self._doubted.add if response.status >= 400 else self._doubted.discard)(host)
                return Answer(response.status, await self._read(response, url), response.headers)
        except (aiohttp.ClientError, OSError, *NO_ADDRESS) as error:
            if body.is_refused and self._check is not None:
                self._check()  # aiohttp hid the guard's own error; having failed once it fails again
            kind = NoAnswerError if body.has_left else UnreachableError
            raise kind(f"{method} {url}: {type(error).__name__} {error}".rstrip()) from error

    async def stream(self, url: str, headers: Mapping[str, str], silence_max_ms: int) -> AsyncGenerator[bytes]:
        """The pieces of an answer that need not end, as they come. It ends with the answer, or by ExchangeError."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=silence_max_ms / 1000, sock_read=silence_max_ms / 1000)
        try:
            url, headers = self._routed(url, headers)
            async with self._session.get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
                if response.status != 200:
                    raise NoAnswerError(f"GET {url}: {response.status}")
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, OSError, *NO_ADDRESS) as error:
            raise NoAnswerError(f"GET {url}: {type(error).__name__} {error}".rstrip()) from error

    async def close(self) -> None:
        await self._session.close()

    def _routed(self, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """Returns the address to connect to; the Host header still names the receiver."""
        if not self._routes:
            return url, headers
        parts = urlsplit(url)
        way = self._routes.get(parts.netloc)
        if way is None:
            return url, headers
        return urlunsplit(parts._replace(netloc=way)), {**headers, "Host": parts.netloc}

    async def _read(self, response: aiohttp.ClientResponse, url: str) -> bytes:
        answer = bytearray()
        async for chunk in response.content.iter_any():
            answer += chunk
            if len(answer) > self._answer_max_bytes:
                raise NoAnswerError(
                    f"{response.method} {url}: the answer is larger than {self._answer_max_bytes} bytes"
                )
        return bytes(answer)
