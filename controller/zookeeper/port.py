"""The interface of a ZooKeeper client: values, errors and calls.

Two clients keep this interface: `controller/zookeeper/client.py` (real) and `tests/fakes/zookeeper.py`. One contract
suite (`tests/contract`) runs against both. Nothing in here does I/O. Paths are without the chroot, in both directions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar, Final, Protocol, TypeVar

import msgspec

from controller.core.operations import Op

_T = TypeVar("_T")

#: ZooKeeper has too much to do: its answer to a whole request, of any kind
THROTTLED: Final = -127


class Stat(msgspec.Struct, frozen=True, gc=False):
    """ZooKeeper's own record of a znode, field for field in wire order."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


class Node(msgspec.Struct, frozen=True, gc=False):
    """A znode as read: `zxid` is the server's position when it answered, so the fact is true as of it."""

    data: bytes
    stat: Stat
    zxid: int


class Brief(msgspec.Struct, frozen=True, gc=False):
    """A znode as read by the hundred thousand: of its stat only the fields that say how new it is."""

    data: bytes
    version: int
    mtime_ms: int
    zxid: int


class Denied(msgspec.Struct, frozen=True, gc=False):
    """In the place of one of many reads: ZooKeeper refused it with `code`, as of `zxid`. Nothing is known of the znode;
    of -102 (no permission) not even a watch on it tells."""

    code: int
    zxid: int


class Children(msgspec.Struct, frozen=True):
    """The names below a znode (in no order that means anything), true as of `zxid`."""

    names: tuple[str, ...]
    stat: Stat
    zxid: int


class Existence(msgspec.Struct, frozen=True, gc=False):
    """Whether a znode exists (`stat`) or not (None), true as of `zxid`."""

    stat: Stat | None
    zxid: int


class OpResult(msgspec.Struct, frozen=True, gc=False):
    """The result of one operation of a transaction. In a refused transaction nothing was done, whatever the code."""

    code: int  # 0 is good; of a refused transaction one result names the cause, those after it say -2
    version: int | None = None  # of the znode after a create or set
    path: str | None = None  # of the znode made by a create (a sequential one differs from the path in the request)


class TransactionAnswer(msgspec.Struct, frozen=True):
    """ZooKeeper's answer to a transaction: all of it happened at `zxid`, or none of it."""

    zxid: int
    results: tuple[OpResult, ...]
    #: index and code of the first operation refused; None when the transaction was done
    refused: tuple[int, int] | None = None


class EventKind(Enum):
    """The kind of a watch's event. Watches are one-shot and carry no data."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """Something changed at `path`; read it again to learn its state."""

    kind: EventKind
    path: str


class SessionState(Enum):
    """SUSPENDED: no connection now, the session may live. LOST: the session is gone for good; so is the client."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ZooKeeperError(Exception):
    """Root of the errors that a client raises."""


class SessionLostError(ZooKeeperError):
    """The session is gone (expired, closed, or refused): nothing more can be asked of this client."""


class NotSentError(ZooKeeperError):
    """The request never left this process, so nothing happened."""


class DeadlinePassedError(NotSentError):
    """The guard refused: by our own clock the session may have expired."""


class TooLargeError(NotSentError):
    """The request is over ZooKeeper's limit (`jute.maxbuffer`): the server would just close the connection."""


class UnreachableError(ZooKeeperError):
    """No server was reached in time, so there is no session."""


class OutcomeUnknownError(ZooKeeperError):
    """The request left, its answer was lost. Only reading can tell. No request is ever sent again on its own."""


class RefusedError(ZooKeeperError):
    """ZooKeeper answered with an error code: definitely not done."""

    code: ClassVar[int] = 0

    def __init__(self, path: str, code: int | None = None) -> None:
        self.path = path
        self.refusal = self.code if code is None else code
        super().__init__(f"{type(self).__name__} ({self.refusal}) at {path}")


class NoNodeError(RefusedError):
    code = -101


class NoAuthError(RefusedError):
    code = -102


class BadVersionError(RefusedError):
    code = -103


class NodeExistsError(RefusedError):
    code = -110


class NotEmptyError(RefusedError):
    code = -111


_REFUSALS = {error.code: error for error in (NoNodeError, NoAuthError, BadVersionError, NodeExistsError, NotEmptyError)}


def refusal_for(path: str, code: int) -> RefusedError:
    """Returns the exception that says `code`."""
    error = _REFUSALS.get(code)
    return RefusedError(path, code) if error is None else error(path)


def granted(path: str, found: _T | Denied) -> _T:
    """Returns the result of one of many reads, for callers that cannot do without it: its refusal is raised."""
    if isinstance(found, Denied):
        raise refusal_for(path, found.code)
    return found


class Guard(Protocol):
    """Says whether a term may still act. `check` is called immediately before bytes leave."""

    def check(self) -> None:
        """Raise DeadlinePassedError if the time is over. The first failure latches: it never passes again."""


WatchHandler = Callable[[WatchEvent], None]
StateHandler = Callable[[SessionState], None]


class ZooKeeper(Protocol):
    """One session. It reconnects by itself; it never makes a new session and never sends a request twice.

    Every call raises SessionLostError once the session is gone, NotSentError when there is no connection to send
    it on, OutcomeUnknownError when the connection broke after it was sent, RefusedError for ZooKeeper's own codes.
    Handlers are called synchronously from the event loop, must not block, and only take note.
    """

    @property
    def session_id(self) -> int: ...
    @property
    def password(self) -> bytes: ...
    @property
    def session_timeout_ms(self) -> int:
        """As negotiated."""

    @property
    def state(self) -> SessionState: ...
    @property
    def deadline(self) -> float:
        """Monotonic seconds: one session time-out after the last answered request (or handshake) was *sent*."""

    def on_watch(self, handler: WatchHandler) -> None:
        """Be told of every watch that fires. Handlers stay for the life of the client; many may be added."""

    def on_state(self, handler: StateHandler) -> None:
        """Be told of CONNECTED (after each reconnect: watches are armed again by then), SUSPENDED and LOST."""

    def remove_handler(self, handler: WatchHandler | StateHandler) -> None: ...

    async def lost(self) -> None:
        """Return when the session is gone."""

    async def get(self, path: str, *, watch: bool = False) -> Node | None:
        """Returns the node, or None. With `watch`, armed either way: for a change or deletion, or for its creation."""

    async def exists(self, path: str, *, watch: bool = False) -> Existence: ...

    async def children(self, path: str, *, watch: bool = False) -> Children | None: ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | Denied | None]:
        """By multi-reads, pipelined and bounded by count and by bytes. Arms nothing. A refusal for one path stands in
        its place and stops no other."""

    async def brief_many(self, paths: Sequence[str]) -> list[Brief | Denied | None]:
        """As `get_many`, in less time and memory."""

    async def children_many(self, paths: Sequence[str]) -> list[Children | Denied | None]: ...

    async def watch_many(self, present: Sequence[str], absent: Sequence[str], zxid: int) -> None:
        """Arm data watches on `present` and exist watches on `absent` by SetWatches relative to `zxid`.

        A change after `zxid` fires at once. The paths stay armed over reconnects like any other. The call is never
        refused for a path that may not be read, but a watch there tells nothing and is used up.
        """

    async def transact(self, ops: Sequence[Op], *, guard: Guard | None = None) -> TransactionAnswer:
        """One transaction. A refusal is an answer, not an exception. `guard` is asked just before the bytes leave."""

    async def transact_by_aiozk(self, ops: Sequence[Op]) -> TransactionAnswer:
        """As `transact` of at least one operation, by aiozk's own transaction: for callers that write rarely."""

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """The path made (with its sequence number, if any) and the new node's stat."""

    async def set(self, path: str, data: bytes, version: int) -> Stat: ...

    async def delete(self, path: str, version: int) -> None: ...

    async def sync(self, path: str = "/") -> None:
        """Make later reads on this session see everything committed before."""

    async def close(self) -> None:
        """End the session at the server (its ephemeral nodes go at once) and the connection; idempotent."""


async def connected(zk: ZooKeeper) -> None:
    """Return once requests can be sent again; SessionLostError when they never can. It always lets others run: a
    connection that has just broken refuses requests at once, before the task that reads from it can notice, and a
    caller that asked again and again without a pause would keep it from that for ever."""
    await asyncio.sleep(0)
    changed = asyncio.Event()

    def note(state: SessionState) -> None:
        changed.set()

    zk.on_state(note)
    try:
        while zk.state is SessionState.SUSPENDED:
            await changed.wait()
            changed.clear()
        if zk.state is SessionState.LOST:
            raise SessionLostError("the session is gone")
    finally:
        zk.remove_handler(note)
