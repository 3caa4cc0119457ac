"""A partition of three replicas under any sequence of elections, deaths and late messages.

The invariants: a record that was acknowledged (to `acks=all`) is in the log of every leader that is elected cleanly, at
its offset; an unclean election loses the records that the new leader did not have; a record that a consumer has read
stays, except for that; replicas that follow agree below the high watermark. The controller here is a few lines: one
leader, leader epochs, an ISR that changes only as it was asked for by the leader of that epoch, about incarnations that
are alive.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokerstub.records.batches import batches_in
from brokerstub.records.errors import RecordsError
from brokerstub.records.log import Appended, Log, LogConfig
from brokerstub.records.replication import Fetch, Fetched, Follower, Leader, Truncated
from tests.fakes.disk import SimulatedDisk
from tests.records.support import START, a_batch

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
IDS = (1, 2, 3)
LAG_MS = 10_000
BROKERS = st.sampled_from(IDS)
MOMENTS = st.sampled_from([1, 1_000, LAG_MS // 2, LAG_MS + 1])


class Question(NamedTuple):
    """To the controller, about an ISR: it may come late, or twice."""

    leader_epoch: int
    version: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]


class Broker:
    """A broker with its disk."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.disk = SimulatedDisk()
        self.broker_epoch = 0
        self.checkpoint = 0
        self.is_alive = False
        self.role: Leader | Follower | None = None
        #: it fetched from the leader of this leader epoch, and nothing had to go
        self.agrees_in = -1

    def start(self, broker_epoch: int) -> None:
        self.log = Log(self.disk, "orders-0", CONFIG)
        self.is_alive, self.broker_epoch, self.role = True, broker_epoch, None

    @property
    def high_watermark(self) -> int:
        return self.checkpoint if self.role is None else self.role.high_watermark


class PartitionMachine(RuleBasedStateMachine):
    """Anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START
        self.brokers = {one: Broker(one) for one in IDS}
        self.epochs_given = 0
        for broker in self.brokers.values():
            self.start_broker(broker)
        self.leader_epoch, self.version, self.isr, self.leader_id = -1, 0, IDS, 0
        #: offset -> batch, acknowledged to acks=all and not lost since; and read by a consumer
        self.acknowledged: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}
        self.waiting: list[tuple[int, Appended, bytes]] = []
        self.fetches: list[Fetch] = []
        self.answers: list[tuple[Fetch, Fetched]] = []
        self.questions: list[Question] = []
        #: the leader's knowledge of the ISR, and its request
        self.known_version = 0
        self.open_question: Question | None = None
        self.count = 0
        self.elect(1)

    # the controller

    def elect(self, leader_id: int) -> None:
        self.leader_epoch += 1
        self.version += 1
        self.leader_id = leader_id
        if leader_id not in self.isr:
            self.isr = (leader_id,)
        self.known_version, self.open_question = self.version, None
        for broker in self.brokers.values():
            if broker.is_alive:
                self.tell(broker)

    def tell(self, broker: Broker) -> None:
        broker.agrees_in = -1
        high_watermark = broker.high_watermark
        if broker.broker_id == self.leader_id:
            broker.role = Leader(
                broker.log, broker.broker_id, self.leader_epoch, replicas=IDS, isr=self.isr,
                high_watermark=high_watermark, lag_ms=LAG_MS, now_ms=self.now_ms,
            )  # fmt: skip
        else:
            broker.role = Follower(broker.log, broker.broker_id, broker.broker_epoch, self.leader_epoch, high_watermark)

    def start_broker(self, broker: Broker) -> None:
        self.epochs_given += 1
        broker.start(self.epochs_given)

    def leader(self) -> Leader | None:
        """Returns the controller's choice, if it is alive."""
        if self.leader_id and self.brokers[self.leader_id].is_alive:
            role = self.brokers[self.leader_id].role
            assert isinstance(role, Leader)
            return role
        return None

    @rule(broker_id=BROKERS)
    def elect_cleanly(self, broker_id: int) -> None:
        if self.brokers[broker_id].is_alive and broker_id in self.isr:
            self.elect(broker_id)
            self.judge()

    @rule(broker_id=BROKERS)
    def elect_uncleanly(self, broker_id: int) -> None:
        """No member of the ISR is alive. The records that the new leader does not have are lost."""
        if not self.brokers[broker_id].is_alive or any(self.brokers[one].is_alive for one in self.isr):
            return
        self.elect(broker_id)
        kept = contents(self.brokers[broker_id].log)
        for book in (self.acknowledged, self.seen):
            for offset in [offset for offset, batch in book.items() if kept.get(offset) != batch]:
                del book[offset]

    @rule(broker_id=BROKERS, power=st.none() | st.integers(0, 1 << 30))
    def die(self, broker_id: int, power: int | None) -> None:
        """With the machine only when another of the ISR is alive to lead: Kafka promises no more without fsync."""
        broker = self.brokers[broker_id]
        others = [one for one in self.isr if one != broker_id and self.brokers[one].is_alive]
        if not broker.is_alive:
            return
        if not self.leader_id:
            others = []  # without a leader, the ISR stands as it is
        broker.checkpoint = broker.high_watermark if self.count % 2 else broker.checkpoint
        broker.is_alive, broker.role = False, None
        if power is not None and (others or broker_id not in self.isr):
            broker.disk.lose_power(Random(power))
        if others:
            self.isr = tuple(one for one in self.isr if one != broker_id)
            self.elect(others[0] if self.leader_id == broker_id else self.leader_id)
        elif self.leader_id == broker_id:
            self.leader_id = 0
        self.judge()

    @rule(broker_id=BROKERS)
    def come_back(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.is_alive:
            self.start_broker(broker)
            if self.leader_id:
                self.tell(broker)

    @precondition(lambda self: self.questions)
    @rule(index=st.integers(0, 100), is_kept=st.booleans())
    def answer_question(self, index: int, is_kept: bool) -> None:
        index %= len(self.questions)
        question = self.questions[index] if is_kept else self.questions.pop(index)
        brokers = [self.brokers[one] for one in question.isr]
        is_current = (question.leader_epoch, question.version) == (self.leader_epoch, self.version)
        are_same = [one.broker_epoch for one in brokers] == list(question.broker_epochs)
        if is_current and are_same and all(one.is_alive for one in brokers):
            self.isr, self.version = question.isr, self.version + 1

    @rule()
    def hear_the_isr(self) -> None:
        """The leader learns the standing ISR, or that its request was refused; either may be long ago."""
        if leader := self.leader():
            is_refused = self.open_question is not None and self.open_question not in self.questions
            if self.version > self.known_version or is_refused:
                leader.take_isr(self.isr)
                self.known_version, self.open_question = self.version, None

    # the leader

    @rule(acks_all=st.booleans(), times=st.integers(1, 3))
    def produce(self, acks_all: bool, times: int) -> None:
        if leader := self.leader():
            for _ in range(times):
                self.count += 1
                data = a_batch([b"%d" % self.count] * (1 + self.count % 2))
                appended = leader.append(data, self.now_ms)
                if acks_all:
                    self.waiting.append((leader.leader_epoch, appended, data))
        self.acknowledge()

    def acknowledge(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        still = []
        for epoch, appended, data in self.waiting:
            if epoch != leader.leader_epoch:
                continue  # its producer hears nothing
            if leader.is_replicated(appended, 1):
                self.acknowledged[appended.base_offset] = data[61:]
            else:
                still.append((epoch, appended, data))
        self.waiting = still

    def is_alive(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.brokers[broker_id]
        return (broker.is_alive, broker.broker_epoch) == (True, broker_epoch)

    @rule()
    def ask_for_an_isr(self) -> None:
        leader = self.leader()
        if leader is not None and self.open_question is None:
            isr = leader.wanted_isr(self.now_ms, self.is_alive)
            if isr != leader.isr:
                leader.ask(isr)
                epochs = tuple(
                    self.brokers[one].broker_epoch if leader.broker_epoch_of(one) < 0 else leader.broker_epoch_of(one)
                    for one in isr
                )  # fmt: skip
                self.open_question = Question(leader.leader_epoch, self.known_version, isr, epochs)
                self.questions.append(self.open_question)

    @rule(ms=MOMENTS)
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=MOMENTS, fetching=st.lists(BROKERS, max_size=4))
    def change_the_isr(self, ms: int, fetching: list[int]) -> None:
        """Some fetch, others do not; the leader asks, and is answered at once."""
        self.now_ms += ms
        for broker_id in fetching:
            self.replicate(broker_id)
        self.hear_the_isr()
        self.ask_for_an_isr()
        if self.open_question in self.questions:
            self.answer_question(self.questions.index(self.open_question), is_kept=False)
        self.hear_the_isr()
        self.acknowledge()

    # followers; each message may be late, lost, or come twice

    @rule(broker_id=BROKERS)
    def fetch(self, broker_id: int) -> None:
        role = self.brokers[broker_id].role
        if isinstance(role, Follower):
            self.fetches.append(role.fetch())

    @precondition(lambda self: self.fetches)
    @rule(index=st.integers(0, 100), is_kept=st.booleans(), max_bytes=st.sampled_from([1, 200, 1_000]))
    def answer_fetch(self, index: int, is_kept: bool, max_bytes: int) -> None:
        index %= len(self.fetches)
        fetch = self.fetches[index] if is_kept else self.fetches.pop(index)
        if leader := self.leader():
            try:
                self.answers.append((fetch, leader.fetched(fetch, max_bytes, self.now_ms)))
            except RecordsError:
                return
            self.acknowledge()

    @precondition(lambda self: self.answers)
    @rule(index=st.integers(0, 100), is_kept=st.booleans())
    def take_answer(self, index: int, is_kept: bool) -> None:
        index %= len(self.answers)
        fetch, answer = self.answers[index] if is_kept else self.answers.pop(index)
        broker = self.brokers[fetch.follower_id]
        if isinstance(broker.role, Follower) and fetch == broker.role.fetch():
            truncated = broker.role.take(fetch, answer, self.now_ms)
            if truncated is None and answer.diverging is None and not answer.is_out_of_range:
                broker.agrees_in = self.leader_epoch
            self.judge_truncation(truncated)

    @rule(broker_id=BROKERS)
    def replicate(self, broker_id: int) -> None:
        """Nothing comes late for once."""
        self.fetch(broker_id)
        if self.fetches and self.leader() is not None:
            self.answer_fetch(len(self.fetches) - 1, is_kept=False, max_bytes=1_000)
            if self.answers:
                self.take_answer(len(self.answers) - 1, is_kept=False)

    # the invariants

    @invariant()
    def consumers_see_lasting_records(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        data, at = b"", leader.log.start_offset
        while piece := leader.read(at, 1_000):
            data += piece
            at = max(header.next_offset for _, header in batches_in(piece))
        assert at <= leader.high_watermark
        for position, header in batches_in(data):
            batch = data[position + 61 : position + header.size]
            assert self.seen.setdefault(header.base_offset, batch) == batch

    @invariant()
    def an_agreeing_replica_has_the_leaders_records(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        theirs = contents(leader.log)
        for broker in self.brokers.values():
            if broker.is_alive and broker.agrees_in == self.leader_epoch:
                assert contents(broker.log).items() <= theirs.items()

    def judge(self) -> None:
        """A replica that may lead has all acknowledged and all consumed records."""
        for one in self.isr:
            if self.brokers[one].is_alive:
                kept = contents(self.brokers[one].log)
                missing = {at for book in (self.acknowledged, self.seen) for at in book if kept.get(at) != book[at]}
                assert missing == set(), f"broker {one}"

    def judge_truncation(self, truncated: Truncated | None) -> None:
        if truncated is not None and (leader := self.leader()):
            theirs = contents(leader.log)
            gone = {at for at in self.acknowledged if truncated.start <= at < truncated.end}
            assert gone <= theirs.keys(), "it goes from a replica and not from the leader"


def contents(log: Log) -> dict[int, bytes]:
    """Offset -> the records of a batch, without the fields that a broker sets."""
    found, at = {}, log.start_offset
    while piece := log.read(at, 10_000):
        for position, header in batches_in(piece):
            found[header.base_offset] = piece[position + 61 : position + header.size]
            at = header.next_offset
    return found


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(stateful_step_count=60, max_examples=settings.default.max_examples)
