"""One run's evidence as one history: ZooKeeper's commits in zxid order, requests to brokers, calls, lines, faults.

It owns the vocabulary of the rules and refuses a history that cannot be judged: commits out of order, and commits that
do not fit onto each other because others between them are missing. It judges nothing.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

import msgspec

from tests.faults.checker.readings import Reading
from tests.faults.checker.records import Records

ANY_VERSION = -1
NOBODY = 0
#: between the clocks of the machine that stamp commits, calls and faults
SLACK_MS = 100
#: the kind of a fault that asks a process to stop, and how long it may go on asking for its shutdown: three times 5 s
STOP = "stop"
STOPS_WITHIN_MS = 15_000


class HistoryError(Exception):
    """The evidence is truncated, unordered or contradicts itself: nothing can be said about the run."""


class Write(NamedTuple):
    """One operation of a commit. `version` is the znode's after it, if known; `expected` the one in the request."""

    kind: Literal["create", "set", "delete", "check"]
    path: str
    data: bytes = b""
    version: int | None = None
    expected: int | None = None
    is_ephemeral: bool = False


class Commit(NamedTuple):
    """One transaction that happened."""

    zxid: int
    session: int
    at_ms: int
    writes: tuple[Write, ...]
    #: when its request left, as readings are stamped; in a simulation only
    sent_ms: float | None = None


class Row(NamedTuple):
    """One partition as a broker was told of it; leader -2: it is gone."""

    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    controller_epoch: int
    is_new: bool


class Stop(NamedTuple):
    """One replica that a broker was told to stop."""

    topic_id: str
    partition: int
    leader_epoch: int
    is_delete: bool


class Rpc(NamedTuple):
    """A controller's request that a broker answered, in the order of its answers. `rows`, `stops` and `sent_ms` are
    known of requests seen on their way (`History.sees`), the other moments of sending in the simulation only."""

    at_ms: int
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    kind: str  # leader-and-isr, update-metadata, stop-replica
    error_code: int
    event_id: str | None = None
    is_full: bool = False
    rows: tuple[Row, ...] | None = None
    stops: tuple[Stop, ...] = ()
    refused: frozenset[tuple[str, int]] = frozenset()
    #: of a full list
    part: int = 1
    parts: int = 1
    #: it left its sender then or before
    sent_ms: int | None = None
    sent_zxid: int | None = None
    #: seconds after the sender's own deadline; above 0 was too late
    sent_late_s: float | None = None


class IsrProposal(NamedTuple):
    """An ISR that a leader asked for, member by member with its broker epoch; `version`: of the state that grants it,
    None if it was not granted."""

    topic_id: str
    partition: int
    isr: tuple[tuple[int, int], ...]
    version: int | None
    #: its leader's knowledge as it asked
    known_version: int = -1
    leader_epoch: int = -1
    recovery: int = 0


class BrokerRequest(NamedTuple):
    """A broker's request to a controller, as it arrived (`error_code` None) and once more as it was answered."""

    at_ms: int
    kind: str  # alter-partition, controlled-shutdown
    sender_id: int
    sender_epoch: int
    error_code: int | None
    proposals: tuple[IsrProposal, ...] = ()
    #: the partitions that it still leads, of a shutdown
    remaining: tuple[tuple[str, int], ...] = ()


class Call(NamedTuple):
    """An operation that a client asked for. `outcome` None: never answered."""

    what: str
    subject: str
    begun_ms: int
    ended_ms: int | None
    outcome: Literal["ok", "refused", "unknown"] | None
    #: the event that it asks for
    detail: Any = None
    #: partitions that were refused though others were not
    refused: frozenset[tuple[str, int]] = frozenset()


class Fault(NamedTuple):
    """A fault of the cluster. Healing is one, too."""

    at_ms: int
    kind: str
    target: str = ""
    #: whether the seat may move because of it, if it fell on the seat's holder
    can_move_seat: bool = False
    #: the broker that it fell on; None: on no broker alone
    broker_id: int | None = None
    lasts_ms: int = 0


LateWhat = Literal["loop", "inbox"]


class Lag(NamedTuple):
    """A process was late by more than a second, by its own measure, within a time that ended at `at_ms`: its event loop
    to wake a sleeper, or a turn to take an event from its inbox."""

    at_ms: int
    broker_id: int
    late_count: int
    #: whether it was made to stand still, or to run hardly ever, about then
    was_held: bool = False
    #: how long it waited for a processor then, or another process did
    waited_ms: int = 0
    what: LateWhat = "loop"
    since_ms: int = 0


class Starved(NamedTuple):
    """A process was ready to run and did not, because other processes had the processors."""

    since_ms: int
    until_ms: int
    waited_ms: int
    #: None: a server of ZooKeeper
    broker_id: int | None = None


class End(msgspec.Struct):
    """The end of the run, after healing: the requests to each live broker, and the work that is left."""

    #: broker id -> {(topic, partition): (leader, leader_epoch, isr, version)}
    views: dict[int, dict[tuple[str, int], tuple[int, int, tuple[int, ...], int]]]
    active_ids: list[int]
    #: replicas set aside or held that no assignment names: broker id -> names
    strays: dict[int, list[str]] = {}
    converged_after_ms: int | None = None
    allowed_ms: int = 0
    lags: list[Lag] = []
    #: 0: with the last commit
    at_ms: int = 0


class History(msgspec.Struct):
    """All of it."""

    commits: list[Commit]
    rpcs: list[Rpc] = []
    #: the same, of those that were seen on their way, whether their lines were lost or not
    heard: list[Rpc] = []
    broker_requests: list[BrokerRequest] = []
    #: the readings of sessions, in the order in which they heard them; None: not known
    readings: list[Reading] | None = None
    #: messages between brokers and controllers: only their own lines, all of them, or all but a broker's messages to
    #: itself and those by ways that could not be followed: (sender, receiver)
    sees: Literal["lines", "ways", "all"] = "lines"
    unfollowed: frozenset[tuple[int, int]] = frozenset()
    #: state-change lines, as they stand in the brokers' logs
    lines: list[dict[str, Any]] = []
    calls: list[Call] = []
    faults: list[Fault] = []
    #: by the kernel's count; in virtual time there is none
    starved: list[Starved] = []
    #: reports of processes about themselves: bugs, parked subjects
    bugs: list[str] = []
    session_timeout_ms: int = 4_000
    #: when each term was over, as its process says, by epoch; and how long it may take for that after it lost the seat
    ended_ms: dict[int, int] = {}
    ends_within_ms: int = 1_000
    unclean_default: bool = False
    delete_enabled: bool = True
    #: leaders of a protocol level before AlterPartition write their ISRs themselves
    has_direct_leaders: bool = False
    lost_lines: bool = False
    #: topics that controllers were not allowed to read for a while: ZooKeeper's history says nothing of ACLs
    hidden_topics: frozenset[str] = frozenset()
    #: topics to which a tool gave this other id, while a controller knew theirs
    rewritten_ids: frozenset[tuple[str, str]] = frozenset()
    #: whether moments of different processes can be compared
    has_true_clocks: bool = True
    #: None: brokers keep none
    records: Records | None = None
    end: End | None = None

    def has_seen(self, sender_id: int, receiver_id: int) -> bool:
        """Whether everything that one said to the other is known."""
        way = sender_id, receiver_id
        return self.sees == "all" or (self.sees == "ways" and sender_id != receiver_id and way not in self.unfollowed)

    def check_order(self) -> None:
        """Refuse a history that is not in order, or that ends too early."""
        for earlier, later in zip(self.commits, self.commits[1:], strict=False):
            if later.zxid <= earlier.zxid:
                raise HistoryError(f"commit {later.zxid:#x} follows {earlier.zxid:#x}: the log is not in order")
        if not self.commits:
            raise HistoryError("no commits: there is nothing to judge")
        last_zxid = self.commits[-1].zxid
        for line in self.lines:
            is_decided = line["kind"] == "partition" and line.get("source") is not None
            if is_decided and line.get("zxid", 0) > last_zxid:
                raise HistoryError(f"a line is about {line['zxid']:#x}, and the last commit is {last_zxid:#x}")
        if not self.lost_lines:
            self._check_told()

    def _check_told(self) -> None:
        """A term's requests were acknowledged: then there is an answer, and it is to be seen."""
        heard = {one.controller_epoch for one in self.rpcs}
        for line in self.lines:
            is_heard = (line["kind"], line.get("target")) == ("controller", "acknowledged")
            if is_heard and line["controller_epoch"] not in heard:
                raise HistoryError(f"epoch {line['controller_epoch']} was heard, and no request of it is known")


def json_of(data: bytes) -> Any:
    """A znode's JSON; None when it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def object_of(data: bytes) -> dict[str, Any]:
    """A znode's JSON object; empty when it is none."""
    said = json_of(data)
    return said if isinstance(said, dict) else {}


def config_of(data: bytes) -> dict[str, str]:
    """The overrides in a configuration znode; none when it is malformed."""
    values = object_of(data).get("config")
    is_sensible = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
    return values if isinstance(values, dict) and is_sensible else {}
