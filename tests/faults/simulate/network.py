"""The HTTP between processes, without HTTP: requests take time, are lost, delayed, doubled, or answered with nonsense.

It replaces `controller.wire.client.HttpClient` and keeps its contract: a failed request either never left, or its
outcome is unknown. The answers of brokers are recorded here, since only the network sees both ends. It never decides
when a fault happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import msgspec

from controller.wire.client import NoAnswerError, UnreachableError
from tests.faults.simulate.loop import Process, VirtualLoop, nobody

#: takes path, headers and body; answers with a status and a body
Serve = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
#: told of each request as it is to be served, without a status, and once more when it was
Witness = Callable[["Exchange"], None]


class Link(msgspec.Struct):
    """The way from one process to another."""

    is_cut: bool = False
    loses_answers: bool = False
    delay_s: float = 0.0
    doubles: float = 0.0
    garbles: float = 0.0


class Exchange(msgspec.Struct):
    """One request as its receiver served it."""

    sender: str
    receiver: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    sent_zxid: int | None
    sent_late_s: float | None
    sent_ms: int
    status: int = 0
    answer: bytes = b""


class Network:
    """All links. Processes are known by their address, `http://name`."""

    def __init__(
        self, loop: VirtualLoop, seed: str, moment_now: Callable[[], tuple[int, int]], witness: Witness
    ) -> None:
        """`moment_now` tells ZooKeeper's zxid and time."""
        self._loop = loop
        self._seed = seed
        self.moment_now = moment_now
        self.witness = witness
        self._links: dict[tuple[str, str], Link] = {}
        self._randoms: dict[tuple[str, str], Random] = {}
        self._serving: dict[str, tuple[Process, Serve]] = {}

    def link(self, sender: str, receiver: str) -> Link:
        return self._links.setdefault((sender, receiver), Link())

    def random(self, sender: str, receiver: str) -> Random:
        """Return the random source of one link. Each link draws independently, so that traffic on one does not change
        the others."""
        place = (sender, receiver)
        if place not in self._randoms:
            self._randoms[place] = Random(f"{self._seed} {sender} {receiver}")
        return self._randoms[place]

    def listen(self, name: str, process: Process, serve: Serve) -> None:
        self._serving[name] = (process, serve)

    def served_by(self, name: str) -> tuple[Process, Serve] | None:
        found = self._serving.get(name)
        return None if found is None or found[0].is_dead else found

    def heal(self) -> None:
        self._links.clear()


class SimHttp:
    """The HTTP client of one process."""

    def __init__(
        self,
        network: Network,
        process: Process,
        check: Callable[[], None] | None = None,
        late_s: Callable[[], float] | None = None,
    ) -> None:
        self._network = network
        self._process = process
        self._check = check
        self._late_s = late_s

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]:
        receiver, _, path = url.removeprefix("http://").partition("/")
        try:
            async with asyncio.timeout(timeout_ms / 1000) as _:
                return await self._exchange(receiver, f"/{path}", body, headers)
        except TimeoutError:
            raise NoAnswerError(f"POST {url}: no answer within {timeout_ms} ms") from None

    async def close(self) -> None:
        """Nothing is open."""

    async def _exchange(self, receiver: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        network, loop = self._network, asyncio.get_running_loop()
        sender = self._process.name
        there, back = network.link(sender, receiver), network.link(receiver, sender)
        draw = network.random(sender, receiver)
        await self._pause(draw.uniform(0.0001, 0.001))
        if there.is_cut or back.is_cut:
            await loop.create_future()  # connecting, until the time is over
        if network.served_by(receiver) is None:
            raise UnreachableError(f"{receiver} refuses connections")
        if self._check is not None:
            self._check()
        late_s = None if self._late_s is None else self._late_s()
        zxid, sent_ms = network.moment_now()
        exchange = Exchange(sender, receiver, path, dict(headers), body, zxid, late_s, sent_ms)
        answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._send(exchange, answer, there.delay_s + draw.uniform(0.0001, 0.002))
        if draw.random() < there.doubles:
            self._send(exchange, loop.create_future(), there.delay_s + draw.uniform(0.001, 4.0))
        return await answer

    def _send(self, exchange: Exchange, answer: asyncio.Future[Any], after_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(after_s, self._arrive, msgspec.structs.replace(exchange), answer, context=nobody())

    def _arrive(self, exchange: Exchange, answer: asyncio.Future[Any]) -> None:
        network = self._network
        if network.link(exchange.sender, exchange.receiver).is_cut:
            return
        found = network.served_by(exchange.receiver)
        if found is None:
            self._land(answer, NoAnswerError(f"{exchange.receiver} broke the connection"))
            return
        found[0].start(self._serve(found[1], exchange, answer))

    async def _serve(self, serve: Serve, exchange: Exchange, answer: asyncio.Future[Any]) -> None:
        """In the receiver."""
        network = self._network
        network.witness(exchange)
        exchange.status, exchange.answer = await serve(exchange.path, exchange.headers, exchange.body)
        network.witness(exchange)
        back = network.link(exchange.receiver, exchange.sender)
        draw = network.random(exchange.receiver, exchange.sender)
        if back.is_cut or back.loses_answers:
            return
        status, body = exchange.status, exchange.answer
        if draw.random() < back.garbles:
            status, body = draw.choice([(500, b""), (503, b"{}"), (200, b"\xff{"), (200, body[: len(body) // 2])])
        loop = asyncio.get_running_loop()
        delay_s = back.delay_s + draw.uniform(0.0001, 0.002)
        loop.call_later(delay_s, self._land, answer, (status, body), context=nobody())

    def _land(self, answer: asyncio.Future[Any], value: tuple[int, bytes] | Exception) -> None:
        if answer.done() or self._process.is_dead:
            return
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)

    async def _pause(self, seconds: float) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, _wake, waiting)
        try:
            await waiting
        finally:
            timer.cancel()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
