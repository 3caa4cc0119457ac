"""The leader's side of fetching: which followers have caught up, kept in sessions, one per follower.

Pure: time and session ids are arguments. An empty fetch costs nothing per partition. A follower has caught up with a
partition when its session lists it with the leader epoch that this broker leads with; that is said to *count*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from controller.core.codes import Code
from controller.core.model import TopicIdPartition
from controller.wire.bodies import FetchAnswer, FetchRequest, Refusal

SESSIONS_MAX: Final = 1_000


class FetchSession(msgspec.Struct):
    """The partitions that one incarnation of a follower lists."""

    follower_id: int
    follower_epoch: int
    session_id: int
    fetched_ms: int
    sequence: int = 0
    #: partition -> leader epoch listed
    entries: dict[TopicIdPartition, int] = {}
    #: entries that do not count, with the reason
    refused: dict[TopicIdPartition, Code] = {}

    def is_counting(self, key: TopicIdPartition) -> bool:
        return key in self.entries and key not in self.refused

    def counting(self) -> Iterator[TopicIdPartition]:
        return (key for key in self.entries if key not in self.refused)


class CountingChange(msgspec.Struct, frozen=True):
    """An entry that began to count or ceased to; in the latter case, when the follower was last caught up."""

    key: TopicIdPartition
    follower_id: int
    caught_up_ms: int


class FetchSessions:
    """All sessions with this leader. `leader_epoch_of` says with which epoch it leads a partition, if it does."""

    def __init__(
        self, leader_epoch_of: Callable[[TopicIdPartition], int | None], draw_session_id: Callable[[], int]
    ) -> None:
        self._leader_epoch_of = leader_epoch_of
        self._draw_session_id = draw_session_id
        self._by_follower: dict[int, FetchSession] = {}

    def begin(self) -> None:
        """A session belongs to one pair of incarnations, and ours is new."""
        self._by_follower.clear()

    def of(self, follower_id: int) -> FetchSession | None:
        return self._by_follower.get(follower_id)

    def is_counting(self, key: TopicIdPartition, follower_id: int) -> bool:
        session = self._by_follower.get(follower_id)
        return session is not None and session.is_counting(key)

    def take(
        self, follower_id: int, follower_epoch: int, request: FetchRequest, now_ms: int
    ) -> tuple[FetchAnswer, list[CountingChange]]:
        """Answers one fetch. Returns the partitions whose fetching began or ended by it."""
        session = self._by_follower.get(follower_id)
        moved: list[CountingChange] = []
        if session is not None and session.follower_epoch > follower_epoch:
            return FetchAnswer(Code.STALE_BROKER_EPOCH), moved
        if request.session == 0:
            moved += self._drop(session)
            session = self._new_session(follower_id, follower_epoch, now_ms, moved)
        elif session is None or (session.session_id, session.follower_epoch) != (request.session, follower_epoch):
            return FetchAnswer(Code.FETCH_SESSION_ID_NOT_FOUND), moved
        elif request.sequence != session.sequence + 1:
            return FetchAnswer(Code.INVALID_FETCH_SESSION_EPOCH), moved
        session.sequence = request.sequence
        for forgotten in request.forgotten:
            for partition in forgotten.partitions:
                self._set(session, (forgotten.topic_id, partition), None, moved)
        for topic in request.topics:
            for row in topic.partitions:
                self._set(session, (topic.topic_id, row.partition), row.leader_epoch, moved)
        session.fetched_ms = now_ms
        refused = [Refusal(topic_id, partition, code) for (topic_id, partition), code in session.refused.items()]
        return FetchAnswer(Code.NONE, session.session_id, refused), moved

    def judge_again(self, key: TopicIdPartition) -> list[CountingChange]:
        """The leader epoch we lead this partition with has changed."""
        moved: list[CountingChange] = []
        for session in self._by_follower.values():
            if key in session.entries:
                self._set(session, key, session.entries[key], moved)
        return moved

    def drop_silent(self, before_ms: int) -> list[CountingChange]:
        """Forget followers that have not fetched since; they may begin anew."""
        return self._drop_if(lambda session: session.fetched_ms < before_ms)

    def drop_older(self, follower_id: int, follower_epoch: int) -> list[CountingChange]:
        """That broker is known with a later incarnation, or this one: earlier ones are over."""
        return self._drop_if(lambda one: one.follower_id == follower_id and one.follower_epoch < follower_epoch)

    def _new_session(
        self, follower_id: int, follower_epoch: int, now_ms: int, moved: list[CountingChange]
    ) -> FetchSession:
        if len(self._by_follower) >= SESSIONS_MAX:
            moved += self._drop(min(self._by_follower.values(), key=lambda session: session.fetched_ms))
        session = FetchSession(follower_id, follower_epoch, self._draw_session_id(), now_ms)
        self._by_follower[follower_id] = session
        return session

    def _drop_if(self, is_over: Callable[[FetchSession], bool]) -> list[CountingChange]:
        over = [session for session in self._by_follower.values() if is_over(session)]
        return [one for session in over for one in self._drop(session)]

    def _drop(self, session: FetchSession | None) -> Iterable[CountingChange]:
        if session is None:
            return []
        del self._by_follower[session.follower_id]
        return [CountingChange(key, session.follower_id, session.fetched_ms) for key in session.counting()]

    def _set(
        self, session: FetchSession, key: TopicIdPartition, leader_epoch: int | None, moved: list[CountingChange]
    ) -> None:
        """List a partition, or (None) forget it."""
        was_counting = session.is_counting(key)
        session.entries.pop(key, None)
        session.refused.pop(key, None)
        if leader_epoch is not None:
            session.entries[key] = leader_epoch
            code = self._judge(key, leader_epoch)
            if code is not Code.NONE:
                session.refused[key] = code
        if session.is_counting(key) != was_counting:
            moved.append(CountingChange(key, session.follower_id, session.fetched_ms))

    def _judge(self, key: TopicIdPartition, leader_epoch: int) -> Code:
        ours = self._leader_epoch_of(key)
        if ours is None:
            return Code.NOT_LEADER_OR_FOLLOWER
        if leader_epoch < ours:
            return Code.FENCED_LEADER_EPOCH
        return Code.UNKNOWN_LEADER_EPOCH if leader_epoch > ours else Code.NONE
