"""The real ZooKeeper client: `port.ZooKeeper` over a session of ours, with aiozk's messages.

It owns the chroot, the translation of codes into answers and errors, and the pipelining of big reads: pieces in flight,
bounded by count and by bytes, answered in order, the event loop fed between. It never retries, keeps no copy of a node,
and decides nothing.

The seat, which is claimed and released rarely, uses aiozk's own `Transaction`. The store sends thousands of
transactions a second, and packs its own (`codec.py`). Both leave by the same session, so nothing is sent twice; the
bytes are equal.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from aiozk import protocol  # type: ignore[import-untyped]
from aiozk.features import Features  # type: ignore[import-untyped]
from aiozk.protocol import acl  # type: ignore[import-untyped]
from aiozk.transaction import Transaction  # type: ignore[import-untyped]

from controller.core.operations import Create, Delete, Op, Set
from controller.zookeeper import codec
from controller.zookeeper.connection import BODY_OFFSET, Reply
from controller.zookeeper.port import (
    THROTTLED,
    Brief,
    Children,
    Denied,
    Existence,
    Guard,
    Node,
    NoNodeError,
    SessionState,
    Stat,
    StateHandler,
    TransactionAnswer,
    WatchEvent,
    WatchHandler,
    refusal_for,
)
from controller.zookeeper.session import Session
from controller.zookeeper.watches import set_watches_for

MULTI_READ_PATHS: Final = 1000
FIRST_MULTI_READ_PATHS: Final = 100  # as long as nothing is known of the sizes
MULTI_READ_BYTES: Final = 8 * 1024 * 1024  # the server does not limit its answers
MULTI_READS_IN_FLIGHT: Final = 3
READS_IN_FLIGHT: Final = 100

_UNIMPLEMENTED = -6

T = TypeVar("T")
Send = Callable[[bytes], Awaitable[asyncio.Future[Reply]]]


class MultiReadMissingError(Exception):
    """The server is older than 3.6. It closes the connection after saying so."""


async def multi_read(
    send: Send,
    paths: Sequence[str],
    request_for: Callable[[Sequence[str]], bytes],
    parse: Callable[[Reply, Sequence[str]], list[T]],
) -> list[T]:
    """By operation 22. The first piece goes alone, to learn how big answers are."""
    found: list[T] = []
    window: deque[tuple[Sequence[str], asyncio.Future[Reply]]] = deque()
    at, piece_paths, in_flight = 0, FIRST_MULTI_READ_PATHS, 1
    try:
        while window or at < len(paths):
            while at < len(paths) and len(window) < in_flight:
                piece = paths[at : at + piece_paths]
                at += len(piece)
                window.append((piece, await send(request_for(piece))))
            piece, answer = window.popleft()
            reply = await answer
            if reply.code == _UNIMPLEMENTED:
                raise MultiReadMissingError
            if reply.code != 0:
                raise refusal_for(piece[0], reply.code)
            found += parse(reply, piece)
            piece_paths = min(max(MULTI_READ_BYTES * len(piece) // len(reply.frame), 1), MULTI_READ_PATHS)
            in_flight = MULTI_READS_IN_FLIGHT
            await asyncio.sleep(0)
    finally:
        for _, answer in window:
            answer.cancel()
    return found


async def single_reads(
    send: Send,
    paths: Sequence[str],
    request_for: Callable[[str], bytes],
    parse: Callable[[Reply, str], T],
) -> list[T]:
    """One request for each path, pipelined."""
    found: list[T] = []
    window: deque[asyncio.Future[Reply]] = deque()
    try:
        for path in paths:
            if len(window) == READS_IN_FLIGHT:
                found.append(parse(await window.popleft(), paths[len(found)]))
            window.append(await send(request_for(path)))
        while window:
            found.append(parse(await window.popleft(), paths[len(found)]))
    finally:
        for answer in window:
            answer.cancel()
    return found


#: of no server: a create is answered with the path alone
_NO_FEATURES: Final = Features((0, 0, 0))
_ACL: Final = [acl.UNRESTRICTED_ACCESS]
_OWNED: Final = [acl.AUTHED_UNRESTRICTED, acl.WORLD_READABLE]
_PRIVATE: Final = [acl.AUTHED_UNRESTRICTED]


async def transact_by_aiozk(session: Session, ops: Sequence[Op], chroot: str, *, is_owned: bool) -> TransactionAnswer:
    """Commit one of aiozk's transactions; returns how each operation fared, which aiozk itself does not say."""
    client = _Client(session, chroot)
    transaction = Transaction(client)
    for op in ops:
        if isinstance(op, Create):
            transaction.create(op.path, op.data, _acl_for(op.path, is_owned), op.ephemeral, op.sequential)
        elif isinstance(op, Set):
            transaction.set_data(op.path, op.data, op.version)
        elif isinstance(op, Delete):
            transaction.delete(op.path, op.version)
        else:
            transaction.check_version(op.path, op.version)
    await transaction.commit()
    return client.answers[0]


def answer_in(reply: Reply, chroot: str) -> TransactionAnswer:
    """How a transaction fared."""
    if reply.code != 0 and len(reply.frame) == BODY_OFFSET:
        raise refusal_for("the transaction", reply.code)
    results = codec.parse_transaction(reply.frame, BODY_OFFSET, chroot)
    return TransactionAnswer(reply.zxid, results, codec.refused_in(results))


class _Client:
    """The calls of a client that aiozk's `Transaction` needs: paths, and one sending that is never repeated."""

    features = _NO_FEATURES

    def __init__(self, session: Session, chroot: str) -> None:
        self._session = session
        self._chroot = chroot
        self.answers: list[TransactionAnswer] = []

    def normalize_path(self, path: str) -> str:
        return codec.server_path_for(path, self._chroot)

    def denormalize_path(self, path: str) -> str:
        return codec.client_path_for(path, self._chroot)

    async def send(self, request: Any) -> Any:
        reply = await (await self._session.send(request.serialize()))
        answer = answer_in(reply, self._chroot)
        self.answers.append(answer)
        # Of a refusal aiozk would print each code that it does not know
        is_done = answer.refused is None
        return protocol.TransactionResponse.deserialize(reply.frame[BODY_OFFSET:]) if is_done else _REFUSED


_REFUSED: Final = protocol.TransactionResponse()


def _acl_for(path: str, is_owned: bool) -> list[Any]:
    """As `codec.acl_for`, in aiozk's words."""
    if not is_owned:
        return _ACL
    return _PRIVATE if path.startswith(codec.SENSITIVE) else _OWNED


DEFAULT_PORT = 2181


async def connect(
    servers: Sequence[tuple[str, int]],
    *,
    chroot: str = "",
    session_timeout_ms: int,
    connect_timeout_ms: int,
    auth: str | None = None,
    owns: bool = False,
    resume: tuple[int, bytes] | None = None,
    max_in_flight_requests: int = 1000,
    tls: ssl.SSLContext | None = None,
    rng: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ZooKeeperClient:
    """Returns a client with a session: a new one, or with `resume` (session id and password) an earlier one.

    `auth` is like "digest:user:password"; with `owns` the nodes that the client makes are its user's, and others may
    only read them. UnreachableError if no server gave a session in time; SessionLostError if the one to be resumed has
    expired. The chroot has to exist.
    """
    session = Session(
        servers,
        timeout_ms=session_timeout_ms,
        auth=auth,
        resume=resume,
        max_in_flight_requests=max_in_flight_requests,
        tls=tls,
        rng=rng,
        clock=clock,
    )
    client = ZooKeeperClient(session, chroot, owns=owns)
    await session.start(connect_timeout_ms)
    return client


def parse_connect(text: str) -> tuple[list[tuple[str, int]], str]:
    """Servers and chroot of "host:2181,[::1]:2182/chroot"."""
    hosts, slash, rest = text.partition("/")
    chroot = slash + rest if rest else ""
    if chroot.endswith("/") or "//" in chroot:
        raise ValueError(f"{text!r}: the chroot {chroot!r} is no ZooKeeper path")
    servers = []
    for part in hosts.split(","):
        found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:\s]+))(?::(\d+))?", part.strip())
        port = DEFAULT_PORT if found is None or found[3] is None else int(found[3])
        if found is None or not 0 < port < 0x10000:
            raise ValueError(f"{text!r}: {part!r} is not host:port (an IPv6 address goes in brackets)")
        servers.append((found[1] or found[2], port))
    return servers, chroot


class ZooKeeperClient:
    """One session below a chroot. `port.ZooKeeper` says the contract of each call."""

    def __init__(self, session: Session, chroot: str = "", *, owns: bool = False) -> None:
        self._session = session
        self._owns = owns
        self._chroot = chroot
        self._watch_handlers: list[WatchHandler] = []
        self._state_handlers: list[StateHandler] = []
        self._has_multi_read = True  # until a server says otherwise
        session.on_event = self._on_event
        session.on_state = self._on_state

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def password(self) -> bytes:
        return self._session.password

    @property
    def session_timeout_ms(self) -> int:
        return self._session.timeout_ms

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def deadline(self) -> float:
        return self._session.deadline

    def on_watch(self, handler: WatchHandler) -> None:
        self._watch_handlers.append(handler)

    def on_state(self, handler: StateHandler) -> None:
        self._state_handlers.append(handler)

    def measure(self, took_s: Callable[[float], None]) -> None:
        """Hear how long each answer took, in seconds."""
        self._session.on_answer = took_s

    def remove_handler(self, handler: WatchHandler | StateHandler) -> None:
        self._watch_handlers = [kept for kept in self._watch_handlers if kept != handler]
        self._state_handlers = [kept for kept in self._state_handlers if kept != handler]

    async def lost(self) -> None:
        await self._session.ended.wait()

    async def get(self, path: str, *, watch: bool = False) -> Node | None:
        while True:
            node = _node_in(await self._read(protocol.GetDataRequest, path, watch))
            if node is not None or not watch:
                return node
            if (await self.exists(path, watch=True)).stat is None:
                return None
            # It was created between the two requests: read it. Each turn of this loop takes a write by another client.

    async def exists(self, path: str, *, watch: bool = False) -> Existence:
        reply = await self._read(protocol.ExistsRequest, path, watch)
        stat = codec.parse_stat(reply.frame, BODY_OFFSET) if reply.code == 0 else None
        return Existence(stat, reply.zxid)

    async def children(self, path: str, *, watch: bool = False) -> Children | None:
        return _children_in(await self._read(protocol.GetChildren2Request, path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | Denied | None]:
        return await self._read_many(
            paths,
            lambda piece: codec.pack_get_many(piece, self._chroot),
            lambda reply, piece: codec.parse_get_many(reply.frame, BODY_OFFSET, piece, reply.zxid),
            protocol.GetDataRequest,
            _node_in,
        )

    async def brief_many(self, paths: Sequence[str]) -> list[Brief | Denied | None]:
        return await self._read_many(
            paths,
            lambda piece: codec.pack_get_many(piece, self._chroot),
            lambda reply, piece: codec.parse_brief_many(reply.frame, BODY_OFFSET, piece, reply.zxid),
            protocol.GetDataRequest,
            _brief_in,
        )

    async def children_many(self, paths: Sequence[str]) -> list[Children | Denied | None]:
        return await self._read_many(
            paths,
            lambda piece: codec.pack_children_many(piece, self._chroot),
            lambda reply, piece: codec.parse_children_many(reply.frame, BODY_OFFSET, piece, reply.zxid),
            protocol.GetChildren2Request,
            _children_in,
        )

    async def watch_many(self, present: Sequence[str], absent: Sequence[str], zxid: int) -> None:
        here, missing = [self._path(path) for path in present], [self._path(path) for path in absent]
        # Now, not when it is answered: a change since `zxid` fires before the answer.
        self._session.watches.arm(here, missing)
        for piece in set_watches_for(zxid, here, missing):
            _checked(await (await self._session.send(piece)), "/")

    async def transact(self, ops: Sequence[Op], *, guard: Guard | None = None) -> TransactionAnswer:
        reply = await (
            await self._session.send(codec.pack_transaction(ops, self._chroot, is_owned=self._owns), guard=guard)
        )
        return answer_in(reply, self._chroot)

    async def transact_by_aiozk(self, ops: Sequence[Op]) -> TransactionAnswer:
        return await transact_by_aiozk(self._session, ops, self._chroot, is_owned=self._owns)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        flags = ephemeral + 2 * sequential
        request = codec.pack_create(path, data, self._chroot, flags=flags, is_owned=self._owns)
        reply = _checked(await (await self._session.send(request)), path)
        made, at = codec.parse_string(reply.frame, BODY_OFFSET)
        return codec.client_path_for(made, self._chroot), codec.parse_stat(reply.frame, at)

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        request = protocol.SetDataRequest(path=self._path(path), data=data, version=version)
        return codec.parse_stat(_checked(await self._ask(request), path).frame, BODY_OFFSET)

    async def delete(self, path: str, version: int) -> None:
        _checked(await self._ask(protocol.DeleteRequest(path=self._path(path), version=version)), path)

    async def sync(self, path: str = "/") -> None:
        _checked(await self._ask(protocol.SyncRequest(path=self._path(path))), path)

    async def close(self) -> None:
        await self._session.close()

    def _path(self, path: str) -> str:
        return codec.server_path_for(path, self._chroot)

    async def _ask(self, request: Any) -> Reply:
        return await (await self._session.send(request.serialize()))

    async def _read(self, message: Any, path: str, watch: bool) -> Reply:
        """Returns the reply that it exists, or that it does not. The watch is listed before the next message is looked
        at."""
        server_path = self._path(path)
        watches = self._session.watches

        def arm(reply: Reply) -> None:
            if reply.code == 0 and message is protocol.GetChildren2Request:
                watches.parents.add(server_path)
            elif reply.code == 0:
                watches.arm(present=(server_path,))
            elif reply.code == NoNodeError.code and message is protocol.ExistsRequest:
                watches.arm(absent=(server_path,))

        request = message(path=server_path, watch=watch).serialize()
        reply = await (await self._session.send(request, on_reply=arm if watch else None))
        return reply if reply.code == NoNodeError.code else _checked(reply, path)

    async def _read_many(
        self,
        paths: Sequence[str],
        request_for: Callable[[Sequence[str]], bytes],
        parse: Callable[[Reply, Sequence[str]], list[T | Denied | None]],
        message: Any,
        parse_single: Callable[[Reply], T | None],
    ) -> list[T | Denied | None]:
        def single_request_for(path: str) -> bytes:
            return bytes(message(path=self._path(path), watch=False).serialize())

        def parse_one(reply: Reply, path: str) -> T | Denied | None:
            if reply.code in (0, NoNodeError.code):
                return parse_single(reply)
            if reply.code == THROTTLED:
                raise refusal_for(path, reply.code)  # that is said of the request, and not of the znode
            return Denied(reply.code, reply.zxid)

        if self._has_multi_read:
            try:
                return await multi_read(self._session.send, paths, request_for, parse)
            except MultiReadMissingError:
                self._has_multi_read = False
                await self._session.reconnect("the server has no multi-read and closes the connection")
        return await single_reads(self._session.send, paths, single_request_for, parse_one)

    def _on_event(self, event: WatchEvent) -> None:
        told = WatchEvent(event.kind, codec.client_path_for(event.path, self._chroot))
        for handler in self._watch_handlers:
            handler(told)

    def _on_state(self, state: SessionState) -> None:
        for handler in self._state_handlers:
            handler(state)


def _checked(reply: Reply, path: str) -> Reply:
    if reply.code != 0:
        raise refusal_for(path, reply.code)
    return reply


def _node_in(reply: Reply) -> Node | None:
    return codec.parse_node(reply.frame, BODY_OFFSET, reply.zxid)[0] if reply.code == 0 else None


def _brief_in(reply: Reply) -> Brief | None:
    node = _node_in(reply)
    return None if node is None else Brief(node.data, node.stat.version, node.stat.mtime_ms, node.zxid)


def _children_in(reply: Reply) -> Children | None:
    if reply.code != 0:
        return None
    names, at = codec.parse_names(reply.frame, BODY_OFFSET)
    return Children(names, codec.parse_stat(reply.frame, at), reply.zxid)
