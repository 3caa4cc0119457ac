"""The client side of the fake: keeps `port.ZooKeeper`, with switches for faults on the way.

It reconnects by itself after a single lost answer, as the real one does; a `disconnect` lasts until `reconnect`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from controller.core.operations import (
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper import codec
from controller.zookeeper.port import (
    THROTTLED,
    Brief,
    Children,
    Denied,
    Existence,
    Guard,
    Node,
    NoNodeError,
    NotSentError,
    OpResult,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    SessionState,
    Stat,
    StateHandler,
    TooLargeError,
    TransactionAnswer,
    WatchEvent,
    WatchHandler,
    refusal_for,
)
from tests.fakes.acls import READ, allows, identities_of
from tests.fakes.tree import RequestContext, Told, brief_of
from tests.fakes.watches import FakeWatches

if TYPE_CHECKING:
    from tests.fakes.zookeeper import FakeZooKeeper

T = TypeVar("T")


class FakeClient:
    """One session. `calls` lists the name of every call that reached the server."""

    def __init__(
        self,
        server: FakeZooKeeper,
        session_id: int,
        password: bytes,
        timeout_ms: int,
        chroot: str,
        max_in_flight_requests: int,
    ) -> None:
        self.session_id = session_id
        self.password = password
        self.session_timeout_ms = timeout_ms
        self.state = SessionState.CONNECTED
        self.is_frozen = False  # no pings: a process that stands still
        self.calls: list[str] = []
        self._server = server
        self._chroot = chroot
        self._asker = RequestContext(session_id, frozenset(), chroot=chroot)
        self._answered_at = server.clock()
        self._zxid = server.zxid
        self._watches = FakeWatches()
        self._watch_handlers: list[WatchHandler] = []
        self._state_handlers: list[StateHandler] = []
        self._slots = asyncio.Semaphore(max_in_flight_requests)
        self._line = asyncio.Lock()  # the server takes the requests of one connection in their order
        self._connections = 1  # so far
        self._fault: str | None = None
        self._gone = asyncio.Event()

    def introduce(self, auth: str | None, *, owns: bool = False) -> None:
        """Send the identity, as `zk.connect` does: "digest:user:password"."""
        self._asker = RequestContext(self.session_id, identities_of(auth), owns, self._chroot)

    @property
    def deadline(self) -> float:
        return self._answered_at + self.session_timeout_ms / 1000

    @property
    def is_connected(self) -> bool:
        return self.state is SessionState.CONNECTED

    def lose_next_answer(self) -> None:
        """The next request is done, its answer lost, the connection broken."""
        self._fault = "answer"

    def lose_next_request(self) -> None:
        """The next request leaves and never arrives; the connection breaks."""
        self._fault = "request"

    def on_watch(self, handler: WatchHandler) -> None:
        self._watch_handlers.append(handler)

    def on_state(self, handler: StateHandler) -> None:
        self._state_handlers.append(handler)

    def remove_handler(self, handler: WatchHandler | StateHandler) -> None:
        self._watch_handlers = [kept for kept in self._watch_handlers if kept != handler]
        self._state_handlers = [kept for kept in self._state_handlers if kept != handler]

    async def lost(self) -> None:
        await self._gone.wait()

    async def get(self, path: str, *, watch: bool = False) -> Node | None:
        return await self._ask("get", lambda: self._node(path, watch))

    async def exists(self, path: str, *, watch: bool = False) -> Existence:
        def act() -> Existence:
            node = self._node(path, watch, "exists")
            return Existence(None if node is None else node.stat, self._server.zxid)

        return await self._ask("exists", act)

    async def children(self, path: str, *, watch: bool = False) -> Children | None:
        return await self._ask("children", lambda: self._children(path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | Denied | None]:
        return await self._ask("get_many", lambda: [self._or_denied(self._node, path) for path in paths])

    async def brief_many(self, paths: Sequence[str]) -> list[Brief | Denied | None]:
        return await self._ask("brief_many", lambda: [brief_of(self._or_denied(self._node, path)) for path in paths])

    async def children_many(self, paths: Sequence[str]) -> list[Children | Denied | None]:
        return await self._ask("children_many", lambda: [self._or_denied(self._children, path) for path in paths])

    async def watch_many(self, present: Sequence[str], absent: Sequence[str], zxid: int) -> None:
        here, missing = [self._path(path) for path in present], [self._path(path) for path in absent]

        def act() -> None:
            self._watches.arm(here, missing)
            self.take_events(self._server.tree.changes_since(zxid, here, missing))

        await self._ask("watch_many", act)

    async def transact(self, ops: Sequence[Op], *, guard: Guard | None = None) -> TransactionAnswer:
        return await self._transact("transact", ops, guard)

    async def transact_by_aiozk(self, ops: Sequence[Op]) -> TransactionAnswer:
        return await self._transact("transact_by_aiozk", ops)

    async def _transact(self, name: str, ops: Sequence[Op], guard: Guard | None = None) -> TransactionAnswer:
        size = len(codec.pack_transaction(ops, self._chroot)) + 4

        def act() -> TransactionAnswer:
            answer = self._server.commit(self.session_id, [self._server_op(op) for op in ops], self._asker)
            results = tuple(self._client_result(result) for result in answer.results)
            return TransactionAnswer(answer.zxid, results, answer.refused)

        return await self._ask(name, act, guard=guard, size=size)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        def act() -> tuple[str, Stat]:
            made = self._write(Create(path, data, ephemeral, sequential)).path or path
            return made, self._stat(made)

        return await self._ask("create", act, size=len(path) + len(data))

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        def act() -> Stat:
            self._write(Set(path, data, version))
            return self._stat(path)

        return await self._ask("set", act, size=len(path) + len(data))

    async def delete(self, path: str, version: int) -> None:
        await self._ask("delete", lambda: self._write(Delete(path, version)))

    async def sync(self, path: str = "/") -> None:
        await self._ask("sync", lambda: None)

    async def close(self) -> None:
        if self.state is not SessionState.LOST:
            if self.is_connected:
                await asyncio.sleep(0)
                self._server.expire(self.session_id)
            self.lose()

    # actions of the server

    def disconnect(self) -> None:
        if self.is_connected:
            self._connections += 1
            self._set_state(SessionState.SUSPENDED)

    def come_back(self) -> None:
        if self.state is SessionState.SUSPENDED:
            self._answered_at = self._server.clock()
            self.take_events(self._watches.missed(self._server.tree, self._zxid))
            self._set_state(SessionState.CONNECTED)

    def lose(self) -> None:
        if self.state is not SessionState.LOST:
            self._connections += 1
            self._gone.set()
            self._server.clients.remove(self)
            self._set_state(SessionState.LOST)

    def pinged(self) -> None:
        self._answered_at = self._server.clock()

    def take_events(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            if self._watches.fires(event):
                told = WatchEvent(event.kind, codec.client_path_for(event.path, self._chroot))
                for handler in self._watch_handlers:
                    handler(told)

    def take_changes(self, told: Sequence[Told]) -> None:
        """Take a transaction's events. A client that may not read a znode is not told, and its watch on it is gone."""
        events = []
        for one in told:
            if allows(one.acl, READ, self._asker.identities):
                events.append(one.event)
            else:
                self._watches.swallow(one.event)
        self.take_events(events)

    # one request

    async def _ask(self, name: str, act: Callable[[], T], *, guard: Guard | None = None, size: int = 0) -> T:
        if self.state is SessionState.LOST:
            raise SessionLostError("the session is gone")
        if size > self._server.max_request_bytes:
            raise TooLargeError(f"a request of {size} bytes; ZooKeeper takes {self._server.max_request_bytes}")
        if not self.is_connected:
            raise NotSentError("no connection to ZooKeeper")
        connection = self._connections
        async with self._slots:
            if connection != self._connections:
                raise NotSentError("the connection ended before the request was sent")
            if guard is not None:
                guard.check()
            sent_at = self._server.clock()
            fault, self._fault = self._fault, None
            async with self._line:
                if self._server.on_request is not None:
                    await self._server.on_request(self, name)
                if not self._server.has_session(self):
                    self.disconnect()
                    self.lose()
                if fault == "request":
                    self._break()
                self._same(connection)
                self.calls.append(name)
                newly = self._watches.begin()
                if fault == "answer":
                    with contextlib.suppress(RefusedError):
                        act()
                    self._break()
                else:
                    answer, zxid = act(), self._server.zxid
            await asyncio.sleep(0)
            self._same(connection, newly)
        self._answered_at = max(self._answered_at, sent_at)
        self._zxid = max(self._zxid, zxid)
        return answer

    def _same(self, connection: int, newly: Sequence[str] = ()) -> None:
        if connection != self._connections:
            self._watches.forget(newly)
            raise OutcomeUnknownError("no answer: the connection broke")

    def _break(self) -> None:
        self.disconnect()
        asyncio.get_running_loop().call_soon(self._server.reconnect, self)

    def _path(self, path: str) -> str:
        return codec.server_path_for(path, self._chroot)

    def _node(self, path: str, watch: bool, kind: str = "read") -> Node | None:
        server_path = self._path(path)
        try:
            node = self._server.readable(server_path, kind, self._asker)
        except NoNodeError:
            if watch:
                self._watches.on_read(server_path, is_there=False)
            return None
        if watch:
            self._watches.on_read(server_path, is_there=True)
        return Node(node.data, node.stat, self._server.zxid)

    def _children(self, path: str, watch: bool) -> Children | None:
        server_path = self._path(path)
        try:
            node = self._server.readable(server_path, "list", self._asker)
        except NoNodeError:
            return None
        if watch:
            self._watches.on_list(server_path)
        return Children(tuple(node.children), node.stat, self._server.zxid)

    def _or_denied(self, look: Callable[[str, bool], T | None], path: str) -> T | Denied | None:
        """As one of a multi-read: a refused read stops no other."""
        try:
            return look(path, False)
        except RefusedError as refused:
            if refused.refusal == THROTTLED:  # said of a whole request
                raise
            return Denied(refused.refusal, self._server.zxid)

    def _stat(self, path: str) -> Stat:
        return self._server.tree.nodes[self._path(path)].stat

    def _write(self, op: Op) -> OpResult:
        answer = self._server.commit(self.session_id, [self._server_op(op)], self._asker)
        if answer.refused is not None:
            raise refusal_for(op.path, answer.refused[1])
        return self._client_result(answer.results[0])

    def _server_op(self, op: Op) -> Op:
        path = self._path(op.path)
        if isinstance(op, Create):
            return Create(path, op.data, op.ephemeral, op.sequential)
        return Set(path, op.data, op.version) if isinstance(op, Set) else type(op)(path, op.version)

    def _client_result(self, result: OpResult) -> OpResult:
        path = None if result.path is None else codec.client_path_for(result.path, self._chroot)
        return OpResult(result.code, result.version, path)

    def _set_state(self, state: SessionState) -> None:
        self.state = state
        for handler in list(self._state_handlers):
            handler(state)
