"""The fake ZooKeeper over a network that takes its time: answers and watches come late, in order, or not at all.

The tree, the sessions and the watches are those of `tests.fakes`, which the contract suite holds against the real
server; what is added here is the way between a client and the server. It never decides when anything breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextvars import Context
from random import Random
from typing import TypeVar

from controller import zk_codec as codec
from controller.core.writes import Delete
from controller.zk_model import (
    Guard,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    TooLargeError,
    WatchEvent,
)
from tests.fakes.client import FakeClient
from tests.fakes.zookeeper import FakeSession, FakeZooKeeper
from tests.faults.simulate.loop import Clock, Process, VirtualLoop

T = TypeVar("T")

TICK_S = 0.5
RECONNECT_S = 0.05
#: a client that hears nothing gives its connection up after this part of the session time-out
SILENCE = 2 / 3


class SimClient(FakeClient):
    """One session of one process, over a link that may be slow, cut, or lose an answer."""

    process: Process
    random: Random
    latency_s: tuple[float, float] = (0.0002, 0.002)
    is_cut = False  # silently: nothing passes, and nobody is told
    is_refused = False  # loudly: connections break at once
    _linked = True
    _up_at = 0.0
    _down_at = 0.0

    def open(self, process: Process, random: Random) -> None:
        self.process, self.random = process, random
        self._loop: VirtualLoop = process._loop
        self._waiting: dict[asyncio.Future[object], None] = {}
        self._undelivered: list[tuple[WatchEvent, bool, bool, bool]] = []
        self._held: list[tuple[Callable[..., None], int, Callable[..., object], tuple[object, ...]]] = []

    @property
    def is_connected(self) -> bool:
        """As the server sees it, which is what the fake server asks; a process sees its `state`."""
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
        """What was under way arrives now, as TCP sends it again, if the connection was not given up meanwhile."""
        self.is_cut = self.is_refused = False
        held, self._held = self._held, []
        for pass_on, connection, act, args in held:
            context = nobody() if pass_on == self._arrive else self.process.context
            self._loop.call_soon(pass_on, connection, act, args, context=context)

    def lose_next_answer(self) -> None:
        self._fault = "answer"

    def keep_answers(self) -> None:
        self._fault = None

    # ------------------------------------------------------------------ what the server does

    def disconnect(self) -> None:
        self._break_now()

    def take_events(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            watches = self._watches
            before = (event.path in watches.present, event.path in watches.absent, event.path in watches.parents)
            is_child = before[2] and event.kind.name in ("CHILDREN", "DELETED")
            is_data = event.kind.name != "CHILDREN" and (before[0] or before[1])
            if is_child or is_data:
                watches.on_event(event)
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
        self._up_at = max(self._up_at, self._loop.time() + self._latency())
        self._loop.call_at(self._up_at, self._arrive, self._connections, act, args, context=nobody())

    def _arrive(self, connection: int, act: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.is_cut:
            self._held.append((self._arrive, connection, act, args))
        elif connection == self._connections and self._linked:
            act(*args)

    def _down(self, act: Callable[..., object], *args: object) -> None:
        self._down_at = max(self._down_at, self._loop.time() + self._latency())
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
                self._server.sessions.pop(self.session_id, None)
                self._server.end_ephemerals(self.session_id)
            self.lose()

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
            self._up(self._serve, act, answer, sent_at)
            try:
                return await answer
            finally:
                self._waiting.pop(answer, None)  # type: ignore[arg-type]

    def _serve(self, act: Callable[[], T], answer: asyncio.Future[T], sent_at: float) -> None:
        fault, self._fault = self._fault, None
        if not self._server.has_session(self):
            self._break_now()
            return
        if fault == "answer":
            with contextlib.suppress(RefusedError):
                act()
            self._break_now()
            return
        try:
            self._down(self._answered, answer, act(), None, self._server.zxid, sent_at)
        except RefusedError as error:
            self._down(self._answered, answer, None, error, self._server.zxid, sent_at)

    def _answered(
        self, answer: asyncio.Future[T], value: T, error: Exception | None, zxid: int, sent_at: float
    ) -> None:
        self._answered_at = max(self._answered_at, sent_at)
        self._zxid = max(self._zxid, zxid)
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)


class SimZooKeeper(FakeZooKeeper):
    """The server. `connect_for` makes a session for a process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)  # type: ignore[arg-type]

    def connect_for(self, process: Process, session_timeout_ms: int, random: Random) -> SimClient:
        self._last_session_id += 1
        session_id = self._last_session_id
        password = session_id.to_bytes(16, "big")
        self.zxid += 1
        self.sessions[session_id] = FakeSession(password, session_timeout_ms, self.clock())
        client = SimClient(self, session_id, password, session_timeout_ms, "", 1000)
        client.open(process, random)
        self.clients.append(client)
        return client

    def end_ephemerals(self, session_id: int) -> None:
        if paths := self.tree.ephemerals_of(session_id):
            self.commit(session_id, [Delete(path, -1) for path in paths])

    def expire(self, session: FakeClient | int) -> None:
        """The session ends; its client hears of it when it comes back."""
        session_id = session if isinstance(session, int) else session.session_id
        if self.sessions.pop(session_id, None) is not None:
            self.end_ephemerals(session_id)
        for client in self.clients_of(session_id):
            client.disconnect()

    def _on_time(self) -> None:
        now = self.clock()
        for client in self.clients:
            if isinstance(client, SimClient) and client.is_heard and client.session_id in self.sessions:
                self.sessions[client.session_id].heard_at = now
                client.pinged()
        for session_id, session in list(self.sessions.items()):
            if now - session.heard_at >= session.timeout_ms / 1000:
                self.expire(session_id)


def nobody() -> Context:
    """The context of what belongs to no process: the server, the network."""
    return Context()
