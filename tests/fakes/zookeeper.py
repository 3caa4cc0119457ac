"""A ZooKeeper server without a network: tree, zxids, sessions, watches, and the whole history of writes.

Deterministic; time is the clock's, which the test moves. Its clients (`tests/fakes/client.py`) keep the interface
`port.ZooKeeper`. Paths in here are the server's, chroot included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper.codec import client_path_for, refused_in
from controller.zookeeper.port import (
    THROTTLED,
    NoAuthError,
    NoNodeError,
    SessionLostError,
    Stat,
    TransactionAnswer,
    refusal_for,
)
from tests.fakes.acls import READ, Grant, allows
from tests.fakes.client import FakeClient
from tests.fakes.clock import FakeClock
from tests.fakes.tree import RequestContext, Told, Tree, Znode

__all__ = ["Commit", "FakeClient", "FakeClock", "FakeZooKeeper"]

EPOCH_MS = 1_700_000_000_000  # wall-clock time when the fake clock says 0

#: operations that can be refused: one name for each kind
KINDS = ("read", "list", "exists", "create", "delete", "set", "check")
_KIND_OF: dict[type[Op], str] = {Create: "create", Delete: "delete", Set: "set", Check: "check"}


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction that happened; sequential creates are there with the path they got."""

    zxid: int
    session_id: int
    ops: tuple[Op, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Stands until it is lifted."""

    code: int
    kinds: frozenset[str]
    #: for the paths below it, too
    is_deep: bool


@dataclass(slots=True)
class FakeSession:
    password: bytes
    timeout_ms: int
    heard_at: float


class FakeZooKeeper:
    """`connect` for a client. Faults: `expire`, `disconnect`, `reconnect`, `set_acl`, `refuse`, `refuse_next`, and
    those of the clients. The test itself is refused nothing."""

    def __init__(self, clock: FakeClock | None = None, *, max_request_bytes: int = 0xFFFFF) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.clock.on_advance(self._on_time)
        self.max_request_bytes = max_request_bytes
        self.tree = Tree()
        self.zxid = 0
        self.history: list[Commit] = []
        self.sessions: dict[int, FakeSession] = {}
        self.clients: list[FakeClient] = []
        #: awaited before each request is applied, with the client and the name of the call: latency, or a barrier
        self.on_request: Callable[[FakeClient, str], Awaitable[None]] | None = None
        self._refusals: dict[str, int] = {}
        self._standing: dict[str, Refusal] = {}
        self._last_session_id = 0x1000_0000_0000_0000

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + round(self.clock() * 1000)

    async def connect(
        self,
        *,
        chroot: str = "",
        session_timeout_ms: int = 4000,
        resume: tuple[int, bytes] | None = None,
        max_in_flight_requests: int = 1000,
        auth: str | None = None,
        owns: bool = False,
    ) -> FakeClient:
        """A client with a new session, or with an earlier one as `zk.connect` resumes it."""
        session_id, password = self.session_for(resume, session_timeout_ms)
        client = FakeClient(self, session_id, password, session_timeout_ms, chroot, max_in_flight_requests)
        client.introduce(auth, owns=owns)
        self.clients.append(client)
        return client

    def session_for(self, resume: tuple[int, bytes] | None, timeout_ms: int) -> tuple[int, bytes]:
        """Id and password of a new session, or of this one, if it lives."""
        if resume is None:
            self._last_session_id += 1
            session_id, password = self._last_session_id, self._last_session_id.to_bytes(16, "big")
            self.zxid += 1  # ZooKeeper writes sessions into its log, too
            self.sessions[session_id] = FakeSession(password, timeout_ms, self.clock())
            return session_id, password
        session = self.sessions.get(resume[0])
        if session is None or session.password != resume[1]:
            raise SessionLostError(f"session {resume[0]:#x} has expired")
        session.heard_at, session.timeout_ms = self.clock(), timeout_ms
        return resume

    def seed(
        self, nodes: Mapping[str, bytes], stats: Mapping[str, Stat] | None = None, *, zxid: int | None = None
    ) -> None:
        """Load a tree, with its past where `stats` tells it; the owners of ephemeral nodes become sessions."""
        stats = {} if stats is None else stats
        seen = [stat.pzxid for stat in stats.values()] + [stat.mzxid for stat in stats.values()]
        self.zxid = max([self.zxid, *seen] if zxid is None else [self.zxid, zxid])
        for path in sorted(nodes):
            self.tree.seed(path, nodes[path], stats.get(path), self.zxid, self.now_ms)
            owner = self.tree.nodes[path].owner
            if owner != 0 and owner not in self.sessions:
                self.sessions[owner] = FakeSession(bytes(16), 18_000, self.clock())

    def read(self, path: str) -> bytes | None:
        """Returns the data of a node, without any session."""
        node = self.tree.nodes.get(path)
        return None if node is None else node.data

    def commit(self, session_id: int, ops: Sequence[Op], asker: RequestContext | None = None) -> TransactionAnswer:
        """A transaction of a client (`asker`), of a session that ends, or of the test (0): all of it or nothing;
        watches fire before it returns."""
        self.zxid += 1  # a refused one takes a zxid, too
        client = RequestContext(session_id) if asker is None else asker
        results, told = self.tree.apply(ops, self.zxid, self.now_ms, client, lambda op: self._refusal_of(op, client))
        refused = refused_in(results)
        if refused is not None and refused[1] == THROTTLED:
            raise refusal_for("the transaction", refused[1])
        if refused is None and ops:
            done = (
                Create(result.path, op.data, op.ephemeral) if isinstance(op, Create) and result.path else op
                for op, result in zip(ops, results, strict=True)
            )
            self.history.append(Commit(self.zxid, session_id, tuple(done), self.now_ms))
            self._tell(told)
        return TransactionAnswer(self.zxid, results, refused)

    def refuse_next(self, path: str, code: int) -> None:
        """The next write that names `path` is refused with `code`."""
        self._refusals[path] = code

    def refuse(self, path: str, code: int, *kinds: str, is_deep: bool = False) -> None:
        """Until `lift`, each request of a client about `path` is refused with `code`: all KINDS, or these; with
        `is_deep` also those about paths below it."""
        assert set(kinds) <= set(KINDS)
        self._standing[path] = Refusal(code, frozenset(kinds or KINDS), is_deep)

    def lift(self, path: str) -> None:
        """End the refusals of `refuse` for the path."""
        del self._standing[path]

    def set_acl(self, path: str, *grants: Grant) -> None:
        """As ZooKeeper's setAcl by a permitted client: no watch tells of it."""
        self.zxid += 1
        node = self.tree.nodes[path]
        node.acl, node.acl_version = grants, node.acl_version + 1

    def readable(self, path: str, kind: str, asker: RequestContext) -> Znode:
        """The znode, or the refusal with which a read of it is answered."""
        named = client_path_for(path, asker.chroot)
        if (code := self._standing_code(path, kind)) is not None:
            raise refusal_for(named, code)
        node = self.tree.nodes.get(path)
        if node is None:
            raise NoNodeError(named)
        if not allows(node.acl, READ, asker.identities):
            raise NoAuthError(named)
        return node

    def _refusal_of(self, op: Op, asker: RequestContext) -> int | None:
        if asker.identities is None:
            return None
        code = self._refusals.pop(op.path, None)
        return self._standing_code(op.path, _KIND_OF[type(op)]) if code is None else code

    def _standing_code(self, path: str, kind: str) -> int | None:
        for refused, refusal in self._standing.items():
            is_meant = path == refused or (refusal.is_deep and path.startswith(f"{refused}/"))
            if is_meant and kind in refusal.kinds:
                return refusal.code
        return None

    def expire(self, session: FakeClient | int) -> None:
        """The session ends, its ephemeral nodes in one transaction. A connected client hears of it at once, others
        when they reconnect, a frozen one by its next request."""
        session_id = session if isinstance(session, int) else session.session_id
        if self.sessions.pop(session_id, None) is not None:
            self.commit(session_id, [Delete(path, -1) for path in self.tree.ephemerals_of(session_id)])
        for client in self.clients_of(session_id):
            if client.is_connected and not client.is_frozen:
                client.disconnect()
                client.lose()

    def has_session(self, client: FakeClient) -> bool:
        return client.session_id in self.sessions

    def clients_of(self, session_id: int) -> list[FakeClient]:
        return [client for client in self.clients if client.session_id == session_id]

    def disconnect(self, client: FakeClient) -> None:
        """Cut it off until `reconnect`. Its session expires when the clock says so."""
        client.disconnect()

    def reconnect(self, client: FakeClient) -> None:
        """Let it back, armed watches and all; its session may be gone."""
        session = self.sessions.get(client.session_id)
        if session is None:
            client.lose()
        else:
            session.heard_at = self.clock()
            client.come_back()

    def _tell(self, told: Sequence[Told]) -> None:
        for client in list(self.clients):
            if client.is_connected:
                client.take_changes(told)

    def _on_time(self) -> None:
        """Connected clients have pinged meanwhile; a session that has not been heard of for its time-out is gone."""
        now = self.clock()
        for client in self.clients:
            if client.is_connected and not client.is_frozen and client.session_id in self.sessions:
                self.sessions[client.session_id].heard_at = now
                client.pinged()
        for session_id, session in list(self.sessions.items()):
            if now - session.heard_at >= session.timeout_ms / 1000:
                self.expire(session_id)
