"""The leader's side of the ISR: which followers should leave it or return to it, and the questions to the controller.

Pure: time is an argument. A partition is looked at when it changed or a time that it was waiting for has come, never in
rounds over all partitions. Until the controller answers, the ISR stays as it was. One question is open at a time; it
never changes, even if it is sent to another controller.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec

from brokerstub.fetch_sessions import CountingChange, FetchSessions
from brokerstub.logs import Logs
from brokerstub.replicas import Change, Replicas
from controller.base.config import LIMITS
from controller.core.model import RECOVERED, TopicIdPartition
from controller.core.model import Replicas as ReplicaIds
from controller.wire import bodies
from controller.wire.bodies import (
    AlteredTopic,
    AlterPartitionRequest,
    AlterRow,
    AlterTopic,
    BrokerEntry,
    IsrMember,
    PartitionRow,
)

#: a proposal that was refused is looked at again after this long, if nothing else brings it up
REFUSED_AGAIN_MS: Final = 1_000


class IsrQuestion(msgspec.Struct, eq=False):
    """An AlterPartition request, as encoded once, and what it says of the partitions whose answer still matters."""

    body: bytes
    open_rows: dict[TopicIdPartition, AlterRow]


class IsrKeeper:
    """The ISRs of the partitions that this broker leads."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        broker_of: Callable[[int], BrokerEntry | None],
        *,
        lag_ms: int,
        partitions_max: int = LIMITS.partitions_per_rpc,
        logs: Logs | None = None,
    ) -> None:
        """With `logs`, a follower is in sync when it also has all records that the leader had."""
        self._logs = logs
        self._replicas = replicas
        self._sessions = sessions
        self._broker_of = broker_of
        self._lag_ms = lag_ms
        self._partitions_max = partitions_max
        self._broker_epoch = -1
        self._absent_since: dict[TopicIdPartition, dict[int, int]] = {}
        """Members of the ISR that are not caught up, and when they last were."""
        self._due: list[tuple[int, TopicIdPartition]] = []
        """A heap of times at which a partition is to be looked at; it may turn out to be for nothing."""
        self._unsettled: dict[TopicIdPartition, None] = {}
        """To be looked at now, in the order they came up."""
        self._unsure: dict[TopicIdPartition, AlterRow] = {}
        """Asked for and perhaps granted: asked for again, as it was, until the controller's state tells."""
        self.question: IsrQuestion | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._unsettled)

    def begin(self, broker_epoch: int) -> None:
        """A new incarnation leads nothing yet, and its predecessor's questions are void."""
        self._broker_epoch = broker_epoch
        self._absent_since.clear()
        self._due.clear()
        self._unsettled.clear()
        self._unsure.clear()
        self.question = None

    def on_change(self, change: Change, now_ms: int) -> None:
        """A partition has changed, by a request of the controller or by an answer that was adopted."""
        key, row = change.key, self._replicas.led(change.key)
        self._unsure.pop(key, None)
        if change.is_new_leadership or row is None:
            self._absent_since.pop(key, None)
            self._sessions.judge_again(key)
            self._close(key)
        if row is None:
            self._unsettled.pop(key, None)
            return
        before = self._absent_since.get(key, {})
        absent_ids = [m for m in row.isr if m != row.leader and not self._sessions.is_counting(key, m)]
        self._absent_since[key] = {m: before.get(m, now_ms) for m in absent_ids}
        if self._logs is not None:
            self._logs.stands(key, row)
        if absent_ids:
            heapq.heappush(self._due, (now_ms + self._lag_ms + 1, key))
        self._unsettled[key] = None

    def on_moved(self, moved: Iterable[CountingChange], now_ms: int) -> None:
        """Followers listed partitions, or ceased to."""
        for one in moved:
            row = self._replicas.led(one.key)
            if row is None or one.follower_id not in row.replicas:
                continue
            absent = self._absent_since[one.key]
            if self._sessions.is_counting(one.key, one.follower_id):
                absent.pop(one.follower_id, None)
                if one.follower_id not in row.isr:
                    self._unsettled[one.key] = None
            elif one.follower_id in row.isr and one.follower_id not in absent:
                absent[one.follower_id] = one.caught_up_ms
                heapq.heappush(self._due, (max(now_ms, one.caught_up_ms + self._lag_ms + 1), one.key))

    def on_broker(self, broker_id: int, now_ms: int) -> None:
        """The metadata says something new about a broker: it may have become eligible, or its session be over."""
        entry = self._broker_of(broker_id)
        if entry is not None:
            self.on_moved(self._sessions.drop_older(broker_id, entry.epoch), now_ms)
        session = self._sessions.of(broker_id)
        if session is not None and self._is_eligible(broker_id):
            waiting = (
                key for key in session.counting() if (row := self._replicas.led(key)) and broker_id not in row.isr
            )
            self._unsettled.update(dict.fromkeys(waiting))

    def on_outsider(self, key: TopicIdPartition) -> None:
        """A follower that is not in the ISR has fetched records."""
        self._unsettled[key] = None

    def on_tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self._logs is not None:
            self._unsettled.update(dict.fromkeys(self._logs.lagging()))
        self.on_moved(self._sessions.drop_silent(now_ms - self._lag_ms), now_ms)
        while self._due and self._due[0][0] <= now_ms:
            self._unsettled[heapq.heappop(self._due)[1]] = None

    def ask(self, now_ms: int) -> IsrQuestion | None:
        """Returns the open question, or a new one with the present changes."""
        if self.question is None:
            topics: dict[str, list[AlterRow]] = {}
            asked: dict[TopicIdPartition, AlterRow] = {}
            for key in list(islice(self._unsettled, self._partitions_max)):
                del self._unsettled[key]
                one = self._unsure.get(key) or self._new_row(key, now_ms)
                if one is not None:
                    topics.setdefault(key[0], []).append(one)
                    asked[key] = one
                    if self._logs is not None:
                        self._logs.ask(key, [member.broker_id for member in one.isr])
            if asked:
                request = AlterPartitionRequest([AlterTopic(topic_id, rows) for topic_id, rows in topics.items()])
                self.question = IsrQuestion(bodies.encode(request), asked)
        return self.question

    def take_answer(self, topics: Iterable[AlteredTopic], now_ms: int) -> None:
        """Adopts the states in an answer, whatever the code. Only then may the next question be asked.

        A refusal shows that an ISR was not granted only if the state is still the known one. An earlier attempt at the
        question may have been granted, and a leader elected out of the ISR that was asked for: its members count until
        the controller's state tells.
        """
        question, self.question = self.question, None
        if question is None:
            return
        refused = set()
        for topic in topics:
            for row in topic.partitions:
                change = self._replicas.take_altered(topic.topic_id, row)
                if change is not None:
                    question.open_rows.pop(change.key, None)
                    self.on_change(change, now_ms)
                elif self._replicas.is_current(topic.topic_id, row):
                    refused.add((topic.topic_id, row.partition))
        for key, asked in question.open_rows.items():
            if self._logs is not None and key in refused:
                self._unsure.pop(key, None)
                self._logs.ask(key, ())
            elif self._logs is not None:
                self._unsure[key] = asked
            heapq.heappush(self._due, (now_ms + REFUSED_AGAIN_MS, key))

    def _close(self, key: TopicIdPartition) -> None:
        """A new leadership ends the questions of the old one."""
        if self.question is not None:
            self.question.open_rows.pop(key, None)
            if not self.question.open_rows:
                self.question = None

    def _new_row(self, key: TopicIdPartition, now_ms: int) -> AlterRow | None:
        row = self._replicas.led(key)
        if row is None or (proposal := self._proposal(key, row, now_ms)) == row.isr:
            return None
        members = tuple(IsrMember(m, self._epoch_of(m)) for m in proposal)
        return AlterRow(key[1], row.leader_epoch, row.version, RECOVERED, members)

    def _proposal(self, key: TopicIdPartition, row: PartitionRow, now_ms: int) -> ReplicaIds:
        """Returns the ISR as it should be: the remaining members keep their order."""
        absent = self._absent_since[key]
        stay = [m for m in row.isr if m in row.replicas and not now_ms - absent.get(m, now_ms) > self._lag_ms]
        back = [
            m for m in row.replicas if m not in row.isr and self._sessions.is_counting(key, m) and self._is_eligible(m)
        ]
        if self._logs is None:
            return (*stay, *back)
        proposal = self._logs.wanted_isr(key, now_ms, lambda m, epoch: m in back and epoch == self._epoch_of(m))
        return row.isr if proposal is None else tuple(m for m in proposal if m in stay or m in back)

    def _is_eligible(self, broker_id: int) -> bool:
        """Live as far as we know, and with the incarnation that fetches from us."""
        entry, session = self._broker_of(broker_id), self._sessions.of(broker_id)
        return (
            entry is not None and session is not None and (entry.state, entry.epoch) == ("live", session.follower_epoch)
        )

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self._replicas.broker_id:
            return self._broker_epoch
        if (session := self._sessions.of(broker_id)) is not None:
            return session.follower_epoch
        entry = self._broker_of(broker_id)
        return -1 if entry is None else entry.epoch
