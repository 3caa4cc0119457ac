"""The leader's side of replication: each follower's last fetch, and the answer to it.

A follower's fetches come in its fetch session (`fetch_sessions.py`): a partition that a fetch does not list is asked
for as before. A fetch waits until there is an answer. The next fetch of the same follower ends that wait.
`records/replication.py` takes the follower's log end from its fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from brokerstub.fetch_sessions import FetchSessions
from brokerstub.logs import Logs
from brokerstub.records.errors import RecordsError
from brokerstub.records.replication import Fetch, Fetched, Leader
from brokerstub.records.state import NO_EPOCH
from controller.core.model import TopicIdPartition
from controller.wire.bodies import FetchAnswer, FetchedRow, FetchRequest

#: of all batches in one answer, and of those of one partition; the first batch of each may be larger
ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 1024 * 1024
WAIT_MAX_MS: Final = 5_000
#: in one answer
ROWS_MAX: Final = 10_000


class _FollowerFetch:
    """One session of one follower."""

    def __init__(self, follower_id: int, session_id: int) -> None:
        self.follower_id = follower_id
        self.session_id = session_id
        self.asked: dict[TopicIdPartition, Fetch] = {}
        #: there may be something to answer
        self.ready: dict[TopicIdPartition, None] = {}
        #: the high watermark has risen since it was told
        self.risen: dict[TopicIdPartition, None] = {}
        self.woken = asyncio.Event()
        self.turn = 0
        self.is_waiting = False
        self.heard_ms = 0


class FollowerFetches:
    """All followers of one leader."""

    def __init__(
        self,
        logs: Logs,
        sessions: FetchSessions,
        clock_ms: Callable[[], int],
        on_outsider: Callable[[TopicIdPartition], None],
    ) -> None:
        """`on_outsider`: a follower that is not in the ISR has fetched."""
        self._logs = logs
        self._sessions = sessions
        self._clock_ms = clock_ms
        self._on_outsider = on_outsider
        self._followers: dict[int, _FollowerFetch] = {}
        logs.on_append.append(self._before_append)
        logs.on_end_moved.append(self._on_end_moved)
        logs.on_high_watermark.append(self._on_high_watermark)

    def begin(self) -> None:
        """Sessions are over."""
        followers, self._followers = self._followers, {}
        for follower in followers.values():
            follower.woken.set()

    async def answer(
        self, follower_id: int, follower_epoch: int, request: FetchRequest, answer: FetchAnswer
    ) -> tuple[FetchAnswer, list[bytes]]:
        """Returns the answer of the session with the records for the follower: at once, or when there are some."""
        follower = self._followers.get(follower_id)
        if follower is None or follower.session_id != answer.session:
            if follower is not None:
                follower.woken.set()
            follower = self._followers[follower_id] = _FollowerFetch(follower_id, answer.session)
        self._note(follower, follower_epoch, request)
        follower.turn += 1
        turn = follower.turn
        follower.woken.set()  # wakes a request that waits for an earlier answer of this session
        rows, batches = self._collect(follower)
        if not rows and request.wait_ms > 0:
            await self._wait(follower, min(request.wait_ms, WAIT_MAX_MS))
            if follower.turn != turn or self._followers.get(follower_id) is not follower:
                return msgspec.structs.replace(answer, is_fed=True), []
            rows, batches = self._collect(follower)
        rows += self._watermark_rows(follower, {(row.topic_id, row.partition) for row in rows})
        return msgspec.structs.replace(answer, is_fed=True, records=rows), batches

    def wake_all(self) -> None:
        """Wakes all followers: the leader has changed."""
        for follower in self._followers.values():
            follower.woken.set()

    def _note(self, follower: _FollowerFetch, follower_epoch: int, request: FetchRequest) -> None:
        follower.heard_ms = self._clock_ms()
        for forgotten in request.forgotten:
            for partition in forgotten.partitions:
                follower.asked.pop((forgotten.topic_id, partition), None)
        for topic in request.topics:
            for row in topic.partitions:
                key = topic.topic_id, row.partition
                if row.offset < 0:  # of a broker that keeps no records
                    follower.asked.pop(key, None)
                    continue
                follower.asked[key] = Fetch(
                    follower.follower_id, follower_epoch, row.leader_epoch, row.offset, max(row.last_epoch, NO_EPOCH)
                )
                follower.ready[key] = None

    async def _wait(self, follower: _FollowerFetch, wait_ms: int) -> None:
        follower.woken.clear()
        follower.is_waiting = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    await follower.woken.wait()
        finally:
            follower.is_waiting = False

    def _collect(self, follower: _FollowerFetch) -> tuple[list[FetchedRow], list[bytes]]:
        rows: list[FetchedRow] = []
        batches: list[bytes] = []
        left = ANSWER_MAX_BYTES
        for key in list(follower.ready):
            if left <= 0 or len(rows) >= ROWS_MAX:
                break
            del follower.ready[key]
            asked = follower.asked.get(key)
            if asked is None:
                continue
            try:
                fetched = self._logs.fetched(key, asked, min(left, PARTITION_MAX_BYTES))
            except RecordsError:
                continue  # the session says so, and a new leadership brings it up again
            self._look_at(key, follower.follower_id)
            if fetched.data or fetched.diverging is not None or fetched.is_out_of_range:
                rows.append(_row_of(key, asked.leader_epoch, fetched))
                batches.append(fetched.data)
                left -= len(fetched.data)
        return rows, batches

    def _watermark_rows(self, follower: _FollowerFetch, told: set[TopicIdPartition]) -> list[FetchedRow]:
        """High watermarks alone."""
        rows = []
        for key in list(follower.risen)[:ROWS_MAX]:
            del follower.risen[key]
            one, asked = self._logs.get(key), follower.asked.get(key)
            if key in told or asked is None or one is None or one.leader is None:
                continue
            if asked.leader_epoch == one.leader.leader_epoch:
                log = one.log
                rows.append(FetchedRow(*key, asked.leader_epoch, one.high_watermark, log.start_offset, log.end_offset))
        return rows

    def _look_at(self, key: TopicIdPartition, follower_id: int) -> None:
        one = self._logs.get(key)
        if one is not None and one.leader is not None and follower_id not in one.leader.isr:
            self._on_outsider(key)

    def _before_append(self, key: TopicIdPartition, leader: Leader) -> None:
        now_ms = self._clock_ms()
        for follower in self._followers.values():
            if key in follower.asked and self._sessions.is_counting(key, follower.follower_id):
                leader.heard(follower.follower_id, now_ms if follower.is_waiting else follower.heard_ms)

    def _on_end_moved(self, key: TopicIdPartition) -> None:
        for follower in self._followers.values():
            if key in follower.asked:
                follower.ready[key] = None
                follower.woken.set()

    def _on_high_watermark(self, key: TopicIdPartition) -> None:
        for follower in self._followers.values():
            if key in follower.asked:
                follower.risen[key] = None


def _row_of(key: TopicIdPartition, leader_epoch: int, fetched: Fetched) -> FetchedRow:
    parting = fetched.diverging
    return FetchedRow(
        *key,
        leader_epoch,
        fetched.high_watermark,
        fetched.start_offset,
        fetched.end_offset,
        len(fetched.data),
        -1 if parting is None else parting.leader_epoch,
        -1 if parting is None else parting.offset,
        fetched.is_out_of_range,
    )
