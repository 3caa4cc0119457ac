"""The records in the logs of simulated brokers, step by step, as TLA+, from disks, requests and answers.

`watching` wraps the calls between brokers and their logs while a schedule is played. It names the step of each call.
TLC decides whether that step was allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from brokerstub.isr import IsrKeeper, IsrQuestion
from brokerstub.logs import Logs, PartitionLog
from brokerstub.records.replication import Fetch, Fetched
from brokerstub.replicas import Change, Replica
from controller.core.model import NO_LEADER
from controller.wire.bodies import AlterPartitionRequest, PartitionRow, decode
from tests.faults.checker.history import History
from tests.faults.checker.isr_history import truncated_by
from tests.faults.checker.records import Kept, LogKey, Relied, batches_in
from tests.faults.checker.replay import replay
from tests.faults.checker.writers import is_by_controller
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.records import SimRecords
from tests.spec.traces import Trace, Value, broker_number, broker_numbers, leader_number, tla

_MARKERS: Final = "/admin/delete_topics/"
#: a record, as a trace knows it: its leader epoch, and the number of the batch that it came with
Record = tuple[int, int]
#: the change of a log: how many of its first records stay, and the records behind them
Became = tuple[int, tuple[Record, ...]]


class Seen(NamedTuple):
    """ZooKeeper had come so far; a commit of that zxid comes before it. A row told is named by its leader epoch and
    version until it is known which of the states that is."""

    zxid: int
    number: int
    step: tuple[Value, ...]
    where: str


class Scribe:
    """Of one run with records; of one without it has nothing."""

    def __init__(self) -> None:
        self._records: SimRecords | None = None
        self._number = 0
        self._steps: dict[LogKey, list[Seen]] = {}
        self._begun: list[Seen] = []
        self._lives: dict[int, dict[int, int]] = {}
        #: the content of each replica's disk, as bytes and as records, and its high watermark
        self._disks: dict[tuple[int, LogKey], tuple[bytes, list[Record]]] = {}
        self._marks: dict[tuple[int, LogKey], int] = {}
        self._told: dict[tuple[int, LogKey], tuple[int, int]] = {}
        #: leader, follower -> its last question
        self._heard: dict[tuple[int, int, LogKey], tuple[int, ...]] = {}
        self._asked: dict[int, IsrQuestion | None] = {}
        self._lines_read = 0
        self._batches: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------------ the calls: on which broker, with which result

    def run_begins(self, records: SimRecords, _none: None, _cluster: SimCluster, _seed: str) -> None:
        self._records = records

    def begins(self, logs: Logs, _none: None, broker_epoch: int, _zk: object) -> None:
        broker_id = _broker_of(logs)
        lives = self._lives.setdefault(broker_id, {})
        if broker_epoch not in lives:
            life = lives[broker_epoch] = len(lives) + 1
            self._begun.append(self._seen(("Begin", broker_number(broker_id), life), f"broker {broker_id} begins"))
            self._told = {key: row for key, row in self._told.items() if key[0] != broker_id}

    def changed(self, logs: Logs, _none: None, change: Change) -> None:
        self.stands(logs, None, change.key, change.after)

    def stands(self, logs: Logs, _none: None, key: LogKey, row: PartitionRow | None) -> None:
        broker_id, one = _broker_of(logs), logs.get(key)
        role = None if one is None else one.leader or one.follower
        if row is None or one is None or (role is None and row.leader != NO_LEADER):
            if self._told.pop((broker_id, key), None) is not None:
                self._note(key, ("Stop", broker_number(broker_id)), f"broker {broker_id} stops")
            return
        records, mark_before = len(self._of(broker_id, key)), self._mark(broker_id, key)
        became, mark = self._look(broker_id, key), self._take_mark(logs, key)
        named = row.leader_epoch, row.version
        if (self._told.get((broker_id, key)), became, mark) != (named, (records, ()), mark_before):
            self._told[broker_id, key] = named
            said = leader_number(row.leader), row.leader_epoch, broker_numbers(row.isr)
            step = ("Hear", broker_number(broker_id), named, *said, *became, mark)
            self._note(key, step, f"broker {broker_id} is told that {row.leader} leads at {row.leader_epoch}")

    def appended(self, logs: Logs, _appended: object, one: PartitionLog, *_what: object, **_how: object) -> None:
        broker_id, key = _broker_of(logs), one.replica.key
        records = len(self._of(broker_id, key))
        if (became := self._look(broker_id, key)) != (records, ()):
            step = ("Produce", broker_number(broker_id), *became, self._take_mark(logs, key))
            self._note(key, step, f"broker {broker_id} appends")

    def fetched(self, logs: Logs, answer: Fetched | None, key: LogKey, fetch: Fetch, _bytes: int) -> None:
        """No answer: it was refused."""
        leader_id, follower_id = _broker_of(logs), fetch.follower_id
        who = broker_number(leader_id), broker_number(follower_id)
        life = self._lives.get(follower_id, {}).get(fetch.broker_epoch, 0)
        question = (fetch.leader_epoch, fetch.offset, fetch.last_epoch, life)
        heard, where = (leader_id, follower_id, key), f"broker {follower_id} asks broker {leader_id}"
        before = self._heard.get(heard)
        if answer is None or answer.diverging is not None or answer.is_out_of_range:
            one = logs.get(key)
            known = -1 if one is None or one.leader is None else one.leader.broker_epoch_of(follower_id)
            if known == fetch.broker_epoch and (before is None or life > before[-1]):
                self._heard[heard] = question
                self._note(key, ("Part", *who, life), where)
            return
        mark_before, mark = self._mark(leader_id, key), self._take_mark(logs, key)
        if (before, mark_before) != (question, mark):
            self._heard[heard] = question
            self._note(key, ("Ask", *who, *question, mark), where)

    def took(self, logs: Logs, _none: None, key: LogKey, asked: Fetch, answer: Fetched) -> None:
        broker_id = _broker_of(logs)
        records, mark_before = len(self._of(broker_id, key)), self._mark(broker_id, key)
        became, mark, words = self._look(broker_id, key), self._take_mark(logs, key), self._said(broker_id, key)
        is_parting = answer.diverging is not None or answer.is_out_of_range
        has_changed = (became, mark) != ((records, ()), mark_before)
        who = broker_number(broker_id), asked.leader_epoch
        if became[0] < records or (is_parting and (has_changed or logs.question(key) == asked)):  # it will ask it again
            self._note(key, ("Cut", *who, *became, mark, words), f"broker {broker_id} truncates")
        elif has_changed:
            self._note(key, ("Fetch", *who, *became, answer.high_watermark, mark), f"broker {broker_id} fetches")

    def asks(self, keeper: IsrKeeper, question: IsrQuestion | None, _now_ms: int) -> None:
        """One question is asked until it is answered."""
        if self._records is None:
            return
        leader_id = keeper._replicas.broker_id
        before, self._asked[leader_id] = self._asked.get(leader_id), question
        if question is None or question is before:
            return
        for topic in decode(question.body, AlterPartitionRequest).topics:
            for row in topic.partitions:
                lives: dict[int, Value] = {
                    broker_number(one.broker_id): self._lives.get(one.broker_id, {}).get(one.broker_epoch, 0)
                    for one in row.isr
                }
                step = ("Wish", broker_number(leader_id), frozenset(lives), lives)
                self._note((topic.topic_id, row.partition), step, f"broker {leader_id} asks for an ISR")

    def answered(self, logs: Logs, _none: None, key: LogKey, members: Collection[int]) -> None:
        """Nothing is asked for any more."""
        if not members and (one := logs.get(key)) is not None and one.leader is not None:
            step = ("Drop", broker_number(_broker_of(logs)), self._take_mark(logs, key))
            self._note(key, step, f"broker {_broker_of(logs)} was refused an ISR")

    def deleted(self, logs: Logs, _none: None, replica: Replica) -> None:
        broker_id, key = _broker_of(logs), replica.key
        self._disks.pop((broker_id, key), None)
        self._marks.pop((broker_id, key), None)
        self._note(key, ("Delete", broker_number(broker_id)), f"broker {broker_id} deletes its replica")

    def died(self, _records: SimRecords, _none: None, broker_id: int, **_how: object) -> None:
        """Its machine, perhaps, or its disk is lost."""
        for key in [key for holder, key in self._disks if holder == broker_id]:
            records = len(self._of(broker_id, key))
            if (became := self._look(broker_id, key)) != (records, ()):
                self._marks[broker_id, key] = min(self._mark(broker_id, key), became[0])
                step = ("LosePower", broker_number(broker_id), *became)
                self._note(key, step, f"the machine of broker {broker_id} dies")

    def relied(self, _records: SimRecords, one: Relied | None, *_on: object) -> None:
        """On all of its batch."""
        if one is not None:
            last = one.offset + self._counts.get(one.name, 1)
            step = ("Rely", broker_number(one.broker_id), last, self._batches.get(one.name, 0))
            self._note(one.key, step, f"{one.name!r} is {one.how} from broker {one.broker_id}")

    # ------------------------------------------------------------------ traces

    def traces(self, name: str, history: History) -> list[Trace]:
        """Return the trace of each partition, until its topic is to be deleted, or until a writer that is no controller
        overwrote its state."""
        stood = _Stood(history)
        rests = history.end is not None and history.end.converged_after_ms is not None
        end = [self._seen(("Rest",), "the end, all at rest")] if rests else []
        return [
            stood.trace(name, key, [*self._begun, *steps, *end])
            for key, steps in self._steps.items()
            if key in stood.of
        ]

    # ------------------------------------------------------------------ the contents of disks

    def _of(self, broker_id: int, key: LogKey) -> list[Record]:
        return self._disks.get((broker_id, key), (b"", []))[1]

    def _look(self, broker_id: int, key: LogKey) -> Became:
        """How a log changed since it was looked at last."""
        assert self._records is not None
        data, before = self._disks.get((broker_id, key), (b"", []))
        now = self._records.log_of(broker_id, key)
        if now == data:
            return len(before), ()
        records: list[Record] = []
        for batch in batches_in(now):
            if batch.offset != len(records):
                break  # batches behind a gap are cut when the log is opened
            records += self._records_of(batch)
        self._disks[broker_id, key] = now, records
        kept = next((n for n, (a, b) in enumerate(zip(before, records, strict=False)) if a != b), None)
        kept = min(len(before), len(records)) if kept is None else kept
        return kept, tuple(records[kept:])

    def _records_of(self, batch: Kept) -> list[Record]:
        self._counts[batch.name] = batch.count
        number = self._batches.setdefault(batch.name, len(self._batches) + 1)
        return [(batch.leader_epoch, number)] * batch.count

    def _mark(self, broker_id: int, key: LogKey) -> int:
        return self._marks.get((broker_id, key), 0)

    def _take_mark(self, logs: Logs, key: LogKey) -> int:
        """A broker's own high watermark. It is believed only as far as the rules allow it."""
        if (one := logs.get(key)) is not None:
            self._marks[_broker_of(logs), key] = one.high_watermark
        return self._mark(_broker_of(logs), key)

    def _said(self, broker_id: int, key: LogKey) -> tuple[int, ...]:
        """Return the offsets of a truncation, from the broker's new lines."""
        assert self._records is not None
        lines = self._records.cluster.lines[self._lines_read :]
        self._lines_read += len(lines)
        found = [one for line in lines if (one := truncated_by(msgspec.to_builtins(line))) is not None]
        own = [one for one in found if (one.broker_id, one.key) == (broker_id, key)]
        return (own[0].start, own[0].end, own[0].committed) if own else ()

    def _note(self, key: LogKey, step: tuple[Value, ...], where: str) -> None:
        self._steps.setdefault(key, []).append(self._seen(step, where))

    def _seen(self, step: tuple[Value, ...], where: str) -> Seen:
        self._number += 1
        zookeeper = None if self._records is None else self._records.cluster.zookeeper
        return Seen(0 if zookeeper is None else zookeeper.zxid, self._number, step, where)


class _Stood:
    """The states of each partition, as ZooKeeper had them."""

    def __init__(self, history: History) -> None:
        self.of: dict[LogKey, list[Seen]] = {}
        self._numbers: dict[LogKey, dict[tuple[int, int], int]] = {}
        self._over: dict[LogKey, int] = {}
        keys: dict[str, set[LogKey]] = {}
        for step, _ in replay(history):
            zxid = step.commit.zxid
            is_ours = is_by_controller(step)
            marked = [one.path for one in step.commit.writes if one.path.startswith(_MARKERS)]
            foreign = [one.name for one in step.topics if one.before is not None and not is_ours]
            for name in (*(path.removeprefix(_MARKERS) for path in marked), *foreign):
                for key in keys.get(name, ()):
                    self._over.setdefault(key, zxid)
            for change in step.states:
                if change.topic_id is None:
                    continue
                key, after = (change.topic_id, change.key[1]), change.after
                keys.setdefault(change.key[0], set()).add(key)
                if not is_ours or after is None or (change.before is None and change.last is not None):
                    self._over.setdefault(key, zxid)
                    continue
                rows = self.of.setdefault(key, [])
                step_of = ("Row", leader_number(after.leader), after.leader_epoch, broker_numbers(after.isr))
                rows.append(Seen(zxid, 0, step_of, f"zxid {zxid:#x}"))
                self._numbers.setdefault(key, {})[after.leader_epoch, after.version] = len(rows) + 1

    def trace(self, name: str, key: LogKey, seen: list[Seen]) -> Trace:
        over, numbers = self._over.get(key), self._numbers[key]
        ordered = [one for one in sorted([*self.of[key], *seen]) if over is None or one.zxid < over]
        steps = [tla(_numbered(one.step, numbers)) for one in ordered]
        return Trace(f"{name} records of {key[0]}-{key[1]}", steps, [one.where for one in ordered])


def _numbered(step: tuple[Value, ...], numbers: dict[tuple[int, int], int]) -> tuple[Value, ...]:
    """With the number of the state that was told; 0: none that stood."""
    if step[0] != "Hear":
        return step
    return (*step[:2], numbers.get(step[2], 0), *step[3:])  # type: ignore[arg-type]


def _broker_of(logs: Logs) -> int:
    return logs._replicas.broker_id


@contextmanager
def watching() -> Iterator[Scribe]:
    """Every broker that keeps records meanwhile, of one cluster."""
    scribe = Scribe()
    watched: tuple[tuple[type, str, Callable[..., None]], ...] = (
        (SimRecords, "__init__", scribe.run_begins),
        (SimRecords, "died", scribe.died),
        (SimRecords, "_relied", scribe.relied),
        (Logs, "begin", scribe.begins),
        (Logs, "on_change", scribe.changed),
        (Logs, "stands", scribe.stands),
        (Logs, "ask", scribe.answered),
        (Logs, "append", scribe.appended),
        (Logs, "fetched", scribe.fetched),
        (Logs, "take", scribe.took),
        (Logs, "delete", scribe.deleted),
        (IsrKeeper, "ask", scribe.asks),
    )
    before = [(place, name, getattr(place, name)) for place, name, _ in watched]
    for (place, name, was), (_, _, tell) in zip(before, watched, strict=True):
        setattr(place, name, _telling(was, tell))
    try:
        yield scribe
    finally:
        for place, name, was in before:
            setattr(place, name, was)


def _telling(was: Callable[..., Any], tell: Callable[..., None]) -> Callable[..., Any]:
    """Wrap a function so that its result is recorded. A refused call has the result None."""

    def told(self: object, *given: object, **named: object) -> Any:
        result = None
        try:
            result = was(self, *given, **named)
            return result
        finally:
            tell(self, result, *given, **named)

    return told
