"""One partition's replication: a leader's knowledge of its followers, and a follower's use of a leader's answer.

Pure but for the log: time is an argument, nothing awaits. The controller decides the leader, the leader epoch and the
ISR. The owner of a `Leader` or a `Follower` asks it, carries requests and answers, and writes the high watermark down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from brokerstub.records.batches import Bytes
from brokerstub.records.errors import (
    FencedError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StaleFollowerError,
    UnknownEpochError,
)
from brokerstub.records.log import Appended, Log
from brokerstub.records.state import NO_EPOCH, EpochEnd

#: nothing was heard of where a follower's log ends
UNKNOWN_END = -1


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """A follower asks for the records after its own log."""

    follower_id: int
    #: of the follower's incarnation
    broker_epoch: int
    #: in which it follows
    leader_epoch: int
    offset: int
    #: of its last record; -1: it has none
    last_epoch: int


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The leader's answer."""

    data: bytes
    high_watermark: int
    start_offset: int
    end_offset: int
    #: where the follower's records part from the leader's; there are no data then
    diverging: EpochEnd | None = None
    #: the leader has no record with that offset, and cannot tell where it would be
    is_out_of_range: bool = False


class Truncated(msgspec.Struct, frozen=True, gc=False):
    """Records that a follower had and its leader has not: from one offset up to the other. `epoch`: the leader epoch of
    the first of them; with its offset it names the record on whichever broker."""

    start: int
    end: int
    epoch: int


class _FollowerProgress(msgspec.Struct):
    """A leader's knowledge of a follower."""

    broker_epoch: int
    #: it had all that the leader had then
    caught_up_ms: int
    end_offset: int = UNKNOWN_END
    #: when it fetched last, and where the leader's log ended
    fetched_ms: int = 0
    end_then: int = 0


class Leader:
    """This broker leads the partition, in one leader epoch."""

    def __init__(
        self,
        log: Log,
        broker_id: int,
        leader_epoch: int,
        *,
        replicas: Sequence[int],
        isr: Collection[int],
        high_watermark: int,
        lag_ms: int,
        now_ms: int,
    ) -> None:
        log.begin_epoch(leader_epoch)
        self.log = log
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self._broker_id = broker_id
        self._epoch_start = log.end_offset
        self._lag_ms = lag_ms
        self._began_ms = now_ms
        self._known: dict[int, _FollowerProgress] = {}
        #: members asked for, until the controller has answered: they count as if they were granted, since they may be
        self._asked: tuple[int, ...] = ()
        self._advance()

    def append(self, data: Bytes, now_ms: int, *, min_isr: int = 1) -> Appended:
        """Returns a producer's batch. `min_isr`: the fewest in the ISR with which `acks=all` may write; 1 for other
        acks."""
        if len(self.isr) < min_isr:
            raise NotEnoughReplicasError(f"the ISR is {list(self.isr)}, min.insync.replicas is {min_isr}")
        appended = self.log.append(data, self.leader_epoch, now_ms)
        self._advance()
        return appended

    def is_replicated(self, appended: Appended, min_isr: int) -> bool:
        """Whether a batch may be acknowledged to `acks=all`. Raises when it is with the ISR, and that shrank under
        `min_isr` since: it stands, and may be lost."""
        if appended.last_offset >= self.high_watermark:
            return False
        if len(self.isr) < min_isr:
            raise NotEnoughReplicasAfterAppendError(
                f"written, but the ISR is {list(self.isr)}, and min.insync.replicas is {min_isr}"
            )
        return True

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns the records that a consumer may see."""
        return self.log.read(offset, max_bytes, self.high_watermark)

    def fetched(self, fetch: Fetch, max_bytes: int, now_ms: int) -> Fetched:
        """Answer a follower, and believe what its question says: that it has all before that offset."""
        self.check_epoch(fetch.leader_epoch)
        known = self._known.get(fetch.follower_id)
        if fetch.follower_id not in self.replicas or (known is not None and fetch.broker_epoch < known.broker_epoch):
            raise StaleFollowerError(f"broker {fetch.follower_id} of epoch {fetch.broker_epoch} does not follow")
        if known is None or fetch.broker_epoch > known.broker_epoch:
            known = self._known[fetch.follower_id] = _FollowerProgress(
                fetch.broker_epoch, self._caught_up_ms(fetch.follower_id)
            )
        diverging = self._diverging(fetch)
        end = self.log.end_offset
        is_out = diverging is None and not self.log.start_offset <= fetch.offset <= end
        if diverging is not None or is_out:
            return Fetched(b"", self.high_watermark, self.log.start_offset, end, diverging, is_out)
        data = self.log.read(fetch.offset, max_bytes)
        if fetch.offset >= end:
            known.caught_up_ms = now_ms
        elif fetch.offset >= known.end_then:
            known.caught_up_ms = max(known.caught_up_ms, known.fetched_ms)
        known.end_offset, known.fetched_ms, known.end_then = fetch.offset, now_ms, end
        self._advance()
        return Fetched(data, self.high_watermark, self.log.start_offset, end)

    def heard(self, follower_id: int, now_ms: int) -> None:
        """A follower asks for new records of all partitions that it lists: where it had everything, it has everything
        still."""
        known = self._known.get(follower_id)
        if known is not None and known.end_offset == self.log.end_offset:
            known.caught_up_ms = max(known.caught_up_ms, now_ms)

    @property
    def knows_its_end(self) -> bool:
        """All that was there when this leader began is everywhere: before that, acknowledged records may be hidden."""
        return self.high_watermark >= self._epoch_start

    def check_epoch(self, leader_epoch: int) -> None:
        """Of whoever names the leader epoch it believes in; -1 names none."""
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if leader_epoch < self.leader_epoch:
            raise FencedError(f"leader epoch {leader_epoch} is over, this is {self.leader_epoch}")
        raise UnknownEpochError(f"leader epoch {leader_epoch}, and here it is {self.leader_epoch} as yet")

    def wanted_isr(self, now_ms: int, is_eligible: Callable[[int, int], bool]) -> tuple[int, ...]:
        """Returns the ISR as it should be: without followers that have lagged for too long, with those that have all
        records that the leader had. The remaining members keep their order. `is_eligible`: a broker and the epoch of
        the incarnation that fetches."""
        stay = tuple(one for one in self.isr if one in self.replicas and not self._is_lagging(one, now_ms))
        back = (
            one
            for one, known in self._known.items()
            if one not in self.isr and self._may_join(known) and is_eligible(one, known.broker_epoch)
        )
        return (*stay, *sorted(back, key=self.replicas.index))

    def lagging_at(self, broker_id: int) -> int:
        """Returns when a member of the ISR is to be looked at, if it does not fetch until then."""
        return self._caught_up_ms(broker_id) + self._lag_ms + 1

    def ask(self, members: Collection[int]) -> None:
        """The controller is asked for this ISR."""
        self._asked = tuple(members)

    def take_isr(self, isr: Sequence[int], replicas: Sequence[int] | None = None) -> None:
        """Adopts the controller's ISR; no question is open any more."""
        self.isr, self._asked = tuple(isr), ()
        self.replicas = self.replicas if replicas is None else tuple(replicas)
        self._advance()

    def broker_epoch_of(self, follower_id: int) -> int:
        """Of the incarnation that fetches; -1: none did."""
        known = self._known.get(follower_id)
        return -1 if known is None else known.broker_epoch

    def ends(self) -> dict[int, int]:
        """Returns where the log of each replica ends; -1: not heard of in this leader epoch."""
        ends = {one: known.end_offset for one, known in self._known.items()}
        return {one: ends.get(one, UNKNOWN_END) for one in self.replicas} | {self._broker_id: self.log.end_offset}

    def _diverging(self, fetch: Fetch) -> EpochEnd | None:
        if fetch.last_epoch == NO_EPOCH:
            return None
        end = self.log.end_of_epoch(fetch.last_epoch)
        if end.leader_epoch == NO_EPOCH:
            raise UnknownEpochError(f"a record of leader epoch {fetch.last_epoch}, and here it is {self.leader_epoch}")
        return end if end.leader_epoch < fetch.last_epoch or end.offset < fetch.offset else None

    def _advance(self) -> None:
        """Up to where all have it that are in the ISR, or may be: nobody who may be elected misses it."""
        ends = [self._end_of(one) for one in {*self.isr, *self._asked} if one != self._broker_id]
        self.high_watermark = max(self.high_watermark, min([self.log.end_offset, *ends]))

    def _end_of(self, broker_id: int) -> int:
        known = self._known.get(broker_id)
        return UNKNOWN_END if known is None else known.end_offset

    def _may_join(self, known: _FollowerProgress) -> bool:
        """It has all that was acknowledged, and all that the leader had when it began to lead."""
        return known.end_offset >= max(self.high_watermark, self._epoch_start)

    def _is_lagging(self, broker_id: int, now_ms: int) -> bool:
        if broker_id == self._broker_id or self._end_of(broker_id) == self.log.end_offset:
            return False
        return now_ms >= self.lagging_at(broker_id)

    def _caught_up_ms(self, broker_id: int) -> int:
        """A member of the ISR at the begin of the leader epoch had everything then."""
        known = self._known.get(broker_id)
        return self._began_ms if known is None else known.caught_up_ms


class Follower:
    """This broker follows the partition's leader, in one leader epoch."""

    def __init__(self, log: Log, broker_id: int, broker_epoch: int, leader_epoch: int, high_watermark: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    def fetch(self) -> Fetch:
        """Returns the next question."""
        return Fetch(self._broker_id, self._broker_epoch, self.leader_epoch, self.log.end_offset, self.log.latest_epoch)

    def take(self, asked: Fetch, answer: Fetched, now_ms: int) -> Truncated | None:
        """Takes the leader's answer to a question in. Returns the records that were removed. An answer to an earlier
        question is passed over: the log has changed since."""
        if asked != self.fetch():
            return None
        end_before = self.log.end_offset
        if answer.diverging is not None:
            parting = self._parting(answer.diverging)
            epoch = self.log.epoch_at(parting)
            self.log.truncate(parting)
        elif answer.is_out_of_range and self.log.end_offset > answer.end_offset >= self.log.start_offset:
            epoch = self.log.epoch_at(answer.end_offset)
            self.log.truncate(answer.end_offset)
        elif answer.is_out_of_range:
            epoch = self.log.epoch_at(answer.start_offset)
            self.log.start_anew(answer.start_offset)
        else:
            if answer.data:
                self.log.append_fetched(answer.data, now_ms)
            if self.log.start_offset < answer.start_offset <= self.log.end_offset:
                self.log.advance_start(answer.start_offset)
            self.high_watermark = max(self.high_watermark, min(answer.high_watermark, self.log.end_offset))
            return None
        end = self.log.end_offset
        self.high_watermark = max(self.log.start_offset, min(self.high_watermark, end))
        return Truncated(min(end, end_before), end_before, epoch) if end < end_before else None

    def _parting(self, theirs: EpochEnd) -> int:
        """Where to truncate: the end of the epoch that both have, in the shorter of both logs. If this log does not
        have it either, the leader is asked again with the one before."""
        ours = self.log.end_of_epoch(theirs.leader_epoch)
        return theirs.offset if ours.leader_epoch == NO_EPOCH else min(ours.offset, theirs.offset)
