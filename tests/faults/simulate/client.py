"""The client of a simulated process: the fake client, with a network that takes time. Answers and watches arrive late,
in order, or never.

The tree, the sessions and the watches are those of `tests.fakes`. This module adds the network between a client and the
server. `tests/contract` compares it with the real client. It never decides when a fault happens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from controller.zookeeper import codec
from controller.zookeeper.port import (
    Children,
    Guard,
    Node,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    TooLargeError,
    WatchEvent,
)
from tests.fakes.client import FakeClient
from tests.faults.simulate.loop import Process, VirtualLoop, nobody
from tests.faults.simulate.session_reads import Ledger, Look

T = TypeVar("T")

RECONNECT_S = 0.05
#: a client that hears nothing gives its connection up after this part of the session time-out
SILENCE = 2 / 3


class SimClient(FakeClient):
    """One session of one process, over a link that may be slow, cut, or lose an answer."""

    process: Process
    random: Random
    latency_s: tuple[float, float] = (0.0002, 0.002)
    is_cut = False  # silently: nothing passes, and neither end learns of it
    is_refused = False  # loudly: connections break at once
    _linked = True
    _up_at = 0.0
    _down_at = 0.0

    def open(self, process: Process, random: Random, ledger: Ledger) -> None:
        self.process, self.random, self._ledger = process, random, ledger
        self._loop: VirtualLoop = process._loop
        self._waiting: dict[asyncio.Future[object], None] = {}
        #: the watches that requests armed at the server while their answers are still on their way
        self._unanswered: dict[asyncio.Future[object], list[str]] = {}
        self._undelivered: list[tuple[WatchEvent, bool, bool, bool]] = []
        #: the znodes that the current request reads
        self._looks: list[Look] = []
        self._held: list[tuple[Callable[..., None], int, Callable[..., object], tuple[object, ...]]] = []

    @property
    def is_connected(self) -> bool:
        """Whether the fake server considers this client connected. A process reads `state` instead."""
        return self._linked

    # ------------------------------------------------------------------ faults

    def cut(self) -> None:
        self.is_cut = True
        connection = self._connections
        self._in_process(self.session_timeout_ms / 1000 * SILENCE, self._break_if, connection)

    def refuse(self) -> None:
        self.is_refused = True
        self._break_now()

    def heal(self) -> None:
        self.is_refused = False
        self.join()

    def join(self) -> None:
        """End the silence. Messages under way arrive now, as TCP resends them, unless the connection was given up
        meanwhile."""
        self.is_cut = False
        held, self._held = self._held, []
        for pass_on, connection, act, args in held:
            context = nobody() if pass_on == self._arrive else self.process.context
            self._loop.call_soon(pass_on, connection, act, args, context=context)

    def keep_answers(self) -> None:
        self._fault = None

    # ------------------------------------------------------------------ the server's actions

    def disconnect(self) -> None:
        self._break_now()

    def take_events(self, events: Sequence[WatchEvent]) -> None:
        watches = self._watches
        for event in events:
            before = (event.path in watches.present, event.path in watches.absent, event.path in watches.parents)
            if watches.fires(event):
                self._undelivered.append((event, *before))
                self._down(self._deliver, (event, *before))

    def pinged(self) -> None:
        if not self.process.is_frozen and not self.is_cut:
            super().pinged()

    @property
    def is_heard(self) -> bool:
        return self._linked and not self.is_cut and not self.process.is_frozen

    def _deliver(self, one: tuple[WatchEvent, bool, bool, bool]) -> None:
        self._undelivered.remove(one)
        told = WatchEvent(one[0].kind, codec.client_path_for(one[0].path, self._chroot))
        for handler in self._watch_handlers:
            handler(told)

    # ------------------------------------------------------------------ the way there and back

    def _latency(self) -> float:
        return self.random.uniform(*self.latency_s)

    def _up(self, act: Callable[..., object], *args: object) -> None:
        self._up_at = _after(self._up_at, self._loop.time() + self._latency())
        self._loop.call_at(self._up_at, self._arrive, self._connections, act, args, context=nobody())

    def _arrive(self, connection: int, act: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.is_cut:
            self._held.append((self._arrive, connection, act, args))
        elif connection == self._connections and self._linked:
            act(*args)

    def _down(self, act: Callable[..., object], *args: object) -> None:
        self._down_at = _after(self._down_at, self._loop.time() + self._latency())
        self._loop.call_at(self._down_at, self._land, self._connections, act, args, context=self.process.context)

    def _land(self, connection: int, act: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.is_cut:
            self._held.append((self._land, connection, act, args))
        elif connection == self._connections:
            act(*args)

    def _in_process(self, delay_s: float, act: Callable[..., object], *args: object) -> None:
        self._loop.call_later(delay_s, act, *args, context=self.process.context)

    def _break_if(self, connection: int) -> None:
        if connection == self._connections and self.is_cut:
            self._break_now()

    def _break_now(self) -> None:
        """The connection is gone at the server at once; the process learns of it when it can."""
        if self._linked:
            self._linked = False
            self._connections += 1
            self._in_process(0, self._on_break)

    def _on_break(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            if not answer.done():
                answer.set_exception(OutcomeUnknownError("no answer: the connection broke"))
        for event, present, absent, parent in self._undelivered:
            self._watches.arm([event.path] if present else (), [event.path] if absent else ())
            if parent:
                self._watches.parents.add(event.path)
        self._undelivered.clear()
        for newly in self._unanswered.values():
            self._watches.forget(newly)
        self._unanswered.clear()
        if self.state.name == "CONNECTED":
            self._set_state(type(self.state).SUSPENDED)
        self._in_process(RECONNECT_S, self._try_again)

    def _try_again(self) -> None:
        if self.state.name == "LOST" or self._linked:
            return
        if self.is_cut or self.is_refused:
            self._in_process(RECONNECT_S, self._try_again)
            return
        session = self._server.sessions.get(self.session_id)
        if session is None:
            self.lose()
            return
        session.heard_at = self._server.clock()
        self._linked = True
        self.come_back()

    def come_back(self) -> None:
        """Deliver the missed events, and only then report the connection. No request is sent before that."""
        self._answered_at = self._server.clock()
        self.take_events(self._watches.missed(self._server.tree, self._zxid))
        self._down(self._set_state, type(self.state).CONNECTED)

    def lose(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            if not answer.done():
                answer.set_exception(OutcomeUnknownError("the session is gone"))
        self._linked = False
        super().lose()

    async def close(self) -> None:
        if self.state.name != "LOST":
            if self._linked:
                await asyncio.sleep(0)
                self._server.expire(self.session_id)
            self.lose()

    async def watch_many(self, present: Sequence[str], absent: Sequence[str], zxid: int) -> None:
        await super().watch_many(present, absent, zxid)
        armed = [Look(path, is_watched=True) for path in (*present, *absent)]
        self._ledger.heard(self.session_id, "watch_many", armed, zxid, self._loop.time())

    def _node(self, path: str, watch: bool, kind: str = "read") -> Node | None:
        node = super()._node(path, watch, kind)  # a refused request has read nothing
        self._looks.append(Look(path, watch))
        return node

    def _children(self, path: str, watch: bool) -> Children | None:
        children = super()._children(path, watch)
        self._looks.append(Look(path, watch))
        return children

    async def _ask(self, name: str, act: Callable[[], T], *, guard: Guard | None = None, size: int = 0) -> T:
        if self.state.name == "LOST":
            raise SessionLostError("the session is gone")
        if size > self._server.max_request_bytes:
            raise TooLargeError(f"a request of {size} bytes; ZooKeeper takes {self._server.max_request_bytes}")
        if self.state.name != "CONNECTED":
            raise NotSentError("no connection to ZooKeeper")
        connection = self._connections
        async with self._slots:
            if connection != self._connections:
                raise NotSentError("the connection ended before the request was sent")
            if guard is not None:
                guard.check()
            sent_at = self._server.clock()
            answer: asyncio.Future[T] = self._loop.create_future()
            self._waiting[answer] = None  # type: ignore[index]
            self._up(self._serve, name, act, answer, sent_at)
            try:
                return await answer
            finally:
                self._waiting.pop(answer, None)  # type: ignore[arg-type]

    def _serve(self, name: str, act: Callable[[], T], answer: asyncio.Future[T], sent_at: float) -> None:
        fault, self._fault = self._fault, None
        if not self._server.has_session(self) or fault == "request":
            self._break_now()
            return
        self.calls.append(name)
        newly, zxid = self._watches.begin(), self._server.zxid
        looks = self._looks = list[Look]()
        value, refused = None, None
        try:
            value = act()
        except RefusedError as error:
            refused = error
        if self._server.zxid > zxid:
            self._ledger.sent(self._server.zxid, sent_at)
        self._unanswered[answer] = newly  # type: ignore[index]
        if fault == "answer":
            self._break_now()
        else:
            enter = partial(self._ledger.heard, self.session_id, name, looks, self._server.zxid)
            self._down(self._answered, answer, value, refused, self._server.zxid, sent_at, enter)

    def _answered(
        self,
        answer: asyncio.Future[T],
        value: T,
        error: Exception | None,
        zxid: int,
        sent_at: float,
        enter: Callable[[float], None],
    ) -> None:
        self._answered_at = max(self._answered_at, sent_at)
        self._zxid = max(self._zxid, zxid)
        self._unanswered.pop(answer, None)  # type: ignore[arg-type]
        if answer.done():
            return
        enter(self._loop.time())
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)


def _after(earlier_s: float, at_s: float) -> float:
    """When this arrives, if that came before it on the same way: a loop runs timers of one moment in any order."""
    return max(math.nextafter(earlier_s, math.inf), at_s)
