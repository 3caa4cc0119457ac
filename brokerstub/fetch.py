"""The follower's side of fetching: one request per leader broker and interval, in sessions that say only what changed.

Without records, a request only shows the leader that the follower lives, and which partitions it fetches. With records
a request says where each log ends, and waits at the leader until there is more. There is one task per leader; all of
them end with `run`. It learns the leaders from `on_change`, and never chooses one itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from brokerstub.logs import Logs
from brokerstub.metadata import MetadataCache
from brokerstub.records.errors import RecordsError
from brokerstub.records.replication import Fetch, Fetched
from brokerstub.records.state import EpochEnd
from brokerstub.replicas import Change
from controller.base.config import LIMITS
from controller.core.codes import Code
from controller.core.model import NO_LEADER, TopicIdPartition
from controller.wire import bodies
from controller.wire.bodies import (
    FetchAnswer,
    FetchRequest,
    FetchRow,
    FetchTopic,
    ForgottenTopic,
)
from controller.wire.client import ExchangeError
from controller.wire.signing import Incarnation, Signer

#: shorter than any sensible `replica.lag.time.max.ms`: one lost answer must not cost a place in the ISR
FETCH_TIMEOUT_MS: Final = 5_000
#: the question to a partition's leader, by the end of the log; None without records
QuestionOf = Callable[[TopicIdPartition], Fetch | None]

log = structlog.get_logger()


class Poster(Protocol):
    """The method of `controller.wire.client.HttpClient` that is used here."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]: ...


class Following:
    """The partitions fetched from one leader broker, and those that the leader was told of. Does no I/O."""

    def __init__(self, leader_id: int, partitions_max: int = LIMITS.partitions_per_rpc) -> None:
        self.leader_id = leader_id
        self.wanted: dict[TopicIdPartition, FetchRow] = {}
        self.woken = asyncio.Event()
        self._partitions_max = partitions_max
        self._unsaid: dict[TopicIdPartition, None] = {}
        """Wanted or no longer wanted, and the leader was not told."""
        self._sent: list[TopicIdPartition] = []
        self._session = 0
        self._sequence = 0
        self._listed: dict[TopicIdPartition, Fetch] = {}
        """What the leader was asked for last, of who keeps records."""

    @property
    def has_unsent_changes(self) -> bool:
        return bool(self._unsaid)

    def want(self, topic_id: str, row: FetchRow) -> None:
        self.wanted[topic_id, row.partition] = row
        self._unsaid[topic_id, row.partition] = None

    def unwant(self, key: TopicIdPartition) -> None:
        if self.wanted.pop(key, None) is not None:
            self._unsaid[key] = None

    def listed(self, key: TopicIdPartition) -> Fetch | None:
        """Returns the last question."""
        return self._listed.get(key)

    def relist(self, key: TopicIdPartition) -> Fetch | None:
        """Its records came: returns the question that asked for them. The next request says where its log ends then."""
        if key in self.wanted:
            self._unsaid[key] = None
        return self._listed.pop(key, None)

    def request(self, question_of: QuestionOf = lambda _: None, wait_ms: int = 0) -> FetchRequest:
        """Returns the next request; news beyond its limit wait for the one after it."""
        self._sent = list(islice(self._unsaid, self._partitions_max))
        listed: dict[str, list[FetchRow]] = {}
        forgotten: dict[str, list[int]] = {}
        for key in self._sent:
            del self._unsaid[key]
            if key in self.wanted:
                row = self.wanted[key]
                question = question_of(key)
                if question is not None and question.leader_epoch == row.leader_epoch:
                    self._listed[key] = question
                    row = FetchRow(row.partition, row.leader_epoch, row.log_id, question.offset, question.last_epoch)
                listed.setdefault(key[0], []).append(row)
            else:
                self._listed.pop(key, None)
                forgotten.setdefault(key[0], []).append(key[1])
        return FetchRequest(
            self._session,
            self._sequence,
            [FetchTopic(topic_id, rows) for topic_id, rows in listed.items()],
            [ForgottenTopic(topic_id, numbers) for topic_id, numbers in forgotten.items()],
            0 if self._unsaid else wait_ms,
        )

    def on_answer(self, answer: FetchAnswer) -> bool:
        """Returns whether the remaining changes may be sent at once. If refused, the session is over: all is listed
        again."""
        if answer.error_code == Code.NONE:
            self._session = answer.session
            self._sequence += 1
            return True
        had_session = self._session != 0
        self._session = self._sequence = 0
        self._unsaid = dict.fromkeys(self.wanted)
        return had_session

    def on_no_answer(self) -> None:
        """It may have arrived or not: the same sequence number again tells."""
        self._unsaid = dict.fromkeys([*self._sent, *self._unsaid])


class Fetcher:
    """All the fetching of one broker."""

    def __init__(
        self,
        http: Poster,
        metadata: MetadataCache,
        log_id_of: Callable[[TopicIdPartition], str],
        interval_ms: int,
        is_held_back: Callable[[TopicIdPartition], bool] = lambda _: False,
        signer: Signer | None = None,
        logs: Logs | None = None,
    ) -> None:
        self._http = http
        self._metadata = metadata
        self._logs = logs
        self._signer = signer or Signer()
        self._log_id_of = log_id_of
        self._is_held_back = is_held_back
        self._broker_id = metadata.own_broker_id
        self._broker_epoch = -1
        self._interval_ms = interval_ms
        self._followings: dict[int, Following] = {}
        self._new: list[Following] = []
        self._new_came = asyncio.Event()

    def begin(self, broker_epoch: int) -> None:
        """A new incarnation follows no leader yet; requests under way are ignored when their answers come."""
        self._broker_epoch = broker_epoch
        for leader_id in list(self._followings):
            self._end(leader_id)

    def on_changes(self, changes: Iterable[Change]) -> None:
        """Partitions have another leader now, or are not ours any more."""
        touched = set()
        for change in changes:
            before, after = change.before, change.after
            if after is not None and not self._is_followed(change.key, after):
                after = None
            has_left = before is not None and (after is None or after.leader != before.leader)
            if before is not None and has_left and before.leader in self._followings:
                self._followings[before.leader].unwant(change.key)
                touched.add(before.leader)
            if after is not None and change.is_new_leadership:
                self._want(change.key, after)
                touched.add(after.leader)
        for leader_id in touched:
            if self._followings[leader_id].wanted:
                self._followings[leader_id].woken.set()
            else:
                self._end(leader_id)

    def wake_all(self) -> None:
        """Addresses may be new."""
        for following in self._followings.values():
            following.woken.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._new_came.wait()
                self._new_came.clear()
                while self._new:
                    tasks.create_task(self._follow(self._new.pop()))

    def _is_followed(self, key: TopicIdPartition, row: bodies.PartitionRow) -> bool:
        return row.leader not in (NO_LEADER, self._broker_id) and not self._is_held_back(key)

    def _want(self, key: TopicIdPartition, row: bodies.PartitionRow) -> None:
        following = self._followings.get(row.leader)
        if following is None:
            following = self._followings[row.leader] = Following(row.leader)
            self._new.append(following)
            self._new_came.set()
        following.want(key[0], FetchRow(key[1], row.leader_epoch, self._log_id_of(key)))

    def _end(self, leader_id: int) -> None:
        self._followings.pop(leader_id).woken.set()

    def _is_current(self, following: Following) -> bool:
        return self._followings.get(following.leader_id) is following

    async def _follow(self, following: Following) -> None:
        while self._is_current(following):
            following.woken.clear()
            may_go_on, has_waited = await self._fetch(following)
            if has_waited or (may_go_on and following.has_unsent_changes):
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(self._interval_ms / 1_000):
                    await following.woken.wait()
            except TimeoutError:
                continue

    async def _fetch(self, following: Following) -> tuple[bool, bool]:
        """Sends one request. Returns whether the remaining changes may follow at once, and whether the next request may
        in any case: the leader lets it wait."""
        address = self._metadata.address_of(following.leader_id)
        if address is None:
            return False, False
        wait_ms = max(1, min(self._interval_ms, FETCH_TIMEOUT_MS // 2))
        request = following.request() if self._logs is None else following.request(self._logs.question, wait_ms)
        url, body = address + bodies.FETCH, bodies.encode(request)
        headers = self._signer.headers_for(
            "POST",
            url,
            body,
            sender=Incarnation(self._broker_id, self._broker_epoch),
            receiver=self._metadata.incarnation(following.leader_id),
            more={bodies.CONTROLLER_EPOCH: str(self._metadata.controller_epoch)},
        )
        try:
            status, answer = await self._http.post(url, body, headers, FETCH_TIMEOUT_MS)
            if status == 200:
                said, batches = bodies.batches_of(answer)
                may_go_on = following.on_answer(said)
                if self._logs is None or not self._is_current(following):
                    return may_go_on, False
                are_taken = self._take(following, self._logs, said, batches)
                return may_go_on and are_taken, said.is_fed and may_go_on and are_taken
            log.debug("fetch.failed", leader=following.leader_id, status=status)
        except (ExchangeError, msgspec.MsgspecError) as error:
            log.debug("fetch.failed", leader=following.leader_id, reason=str(error))
        following.on_no_answer()
        return False, False

    def _take(self, following: Following, logs: Logs, said: FetchAnswer, batches: list[bytes]) -> bool:
        """Returns whether all records could be taken in. Refused ones are asked for again, and not at once."""
        are_taken = True
        for row, data in zip(said.records, batches, strict=True):
            key = row.topic_id, row.partition
            has_parted = row.parting_epoch >= 0
            answer = Fetched(
                data,
                row.high_watermark,
                row.start_offset,
                row.end_offset,
                EpochEnd(row.parting_epoch, row.parting_offset) if has_parted else None,
                row.is_out_of_range,
            )
            asked = following.relist(key) if data or has_parted or row.is_out_of_range else following.listed(key)
            if asked is None or asked.leader_epoch != row.leader_epoch:
                continue
            try:
                logs.take(key, asked, answer)
            except RecordsError as error:
                are_taken = False
                log.warning("fetched.refused", leader=following.leader_id, partition=key, reason=str(error))
        return are_taken
