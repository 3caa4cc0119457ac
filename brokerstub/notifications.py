"""The writes of a broker to ZooKeeper for the controller: state znodes below level 2.7, and notifications.

A notification announces a lost or mended log directory, or ISRs that the broker wrote itself. Each is a sequential node
with Kafka's content, written under the broker's own session and again until it stands (a second one does no harm).

Below `inter.broker.protocol.version` 2.7 a leader changes an ISR by writing the state znode itself (`DirectIsrWriter`).
The write names the known version and keeps the controller epoch that made the broker leader, so it can undo nothing. If
the version does not fit, the znode is read again: our own earlier write may have gone through. `isr.py` decides the
content of the write; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import structlog

from brokerstub.alter_partition import AlterPartitionManager, Attempt
from brokerstub.isr import IsrQuestion
from brokerstub.replicas import Replicas
from controller.base.config import BrokerConfig, ConfigError
from controller.core.codes import Code
from controller.core.formats import (
    FormatError,
    LogDirEventZnode,
    PartitionOf,
    PartitionsZnode,
    decode_state,
    encode,
    encode_state,
)
from controller.core.model import Leadership, TopicIdPartition
from controller.core.project.znodes import ISR_NOTIFICATIONS, LOG_DIR_EVENTS, state_path
from controller.wire import bodies
from controller.wire.bodies import AlteredRow, AlteredTopic, AlterPartitionAnswer, AlterPartitionRequest, AlterRow
from controller.zookeeper.port import (
    BadVersionError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionLostError,
    ZooKeeper,
    connected,
)

#: one node stays well below ZooKeeper's 1 MiB, also with the longest names
PARTITIONS_PER_NODE: Final = 3_000

log = structlog.get_logger()


class Notifications:
    """`begin` with each session, `run` once."""

    def __init__(self, config: BrokerConfig, clock_ms: Callable[[], int]) -> None:
        self.zk: ZooKeeper | None = None
        self._broker_id = config.broker_id
        self._clock_ms = clock_ms
        self._interval_ms = config.klamm_isr_notification_interval_ms
        self._quiet_ms = config.klamm_isr_notification_quiet_ms
        self._delay_max_ms = config.klamm_isr_notification_delay_max_ms
        self._is_log_dir_due = False
        self._isr_changes: dict[tuple[str, int], None] = {}
        self._changed_ms = self._announced_ms = clock_ms()
        self._woken = asyncio.Event()

    def begin(self, zk: ZooKeeper | None) -> None:
        self.zk = zk
        self._woken.set()

    def on_log_dir(self) -> None:
        """A log directory failed or is back: the controller is to ask about our replicas."""
        self._is_log_dir_due = True
        self._woken.set()

    def on_isr(self, topic: str, partition: int) -> None:
        """We wrote this ISR. It is announced with others, so that a storm is one node."""
        self._isr_changes[topic, partition] = None
        self._changed_ms = self._clock_ms()
        self._woken.set()

    async def run(self) -> None:
        refusal = ""
        while True:
            self._woken.clear()
            zk, is_refused = self.zk, False
            try:
                if zk is not None:
                    await self._announce(zk)
                    refusal = ""
            except (NotSentError, OutcomeUnknownError):
                assert zk is not None
                with suppress(SessionLostError):
                    await connected(zk)
                    self._woken.set()
            except SessionLostError as error:
                log.debug("notice.delayed", reason=str(error))  # the next session brings it up again
            except RefusedError as error:  # its parent is gone, for a while; or it is not for us to write
                is_refused = True
                if refusal != str(error):
                    refusal = str(error)
                    log.warning("notice.refused", reason=refusal, mend="allow brokers to create nodes below it")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_ms / 1_000 if self._isr_changes or is_refused else None):
                    await self._woken.wait()

    async def _announce(self, zk: ZooKeeper) -> None:
        if self._is_log_dir_due:
            self._is_log_dir_due = False
            try:
                await self._create(zk, f"{LOG_DIR_EVENTS}/log_dir_event_", encode(LogDirEventZnode(self._broker_id)))
            except BaseException:
                self._is_log_dir_due = True
                raise
        while self._isr_changes and self._is_isr_due():
            some = list(islice(self._isr_changes, PARTITIONS_PER_NODE))
            znode = PartitionsZnode(tuple(PartitionOf(topic, partition) for topic, partition in some))
            for key in some:
                del self._isr_changes[key]  # one that changes from now on is announced again
            try:
                await self._create(zk, f"{ISR_NOTIFICATIONS}/isr_change_", encode(znode))
            except BaseException:
                self._isr_changes.update(dict.fromkeys(some))
                raise
            if not self._isr_changes:
                self._announced_ms = self._clock_ms()

    def _is_isr_due(self) -> bool:
        """Kafka's rule: when it has been quiet for a while, or the last announcement is long ago."""
        now_ms = self._clock_ms()
        return now_ms - self._changed_ms > self._quiet_ms or now_ms - self._announced_ms > self._delay_max_ms

    async def _create(self, zk: ZooKeeper, path: str, data: bytes) -> None:
        made, _ = await zk.create(path, data, sequential=True)
        log.info("notice.written", path=made)


_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:-IV(\d+))?")
#: without `-IV…` a version means its last one
_LAST: Final = 99


def writes_directly(protocol_version: str) -> bool:
    """Returns whether a broker at this protocol level has no AlterPartition yet: that came with 2.7-IV2."""
    match = _VERSION.fullmatch(protocol_version)
    if match is None:
        raise ConfigError(f"property inter.broker.protocol.version: write it like 3.9, not {protocol_version!r}")
    major, minor, level = match.groups()
    return (int(major), int(minor), _LAST if level is None else int(level)) < (2, 7, 2)


class DirectIsrWriter(AlterPartitionManager):
    """Sends no question: it writes the state itself, and answers with the state that now stands."""

    def __init__(self, *arguments: Any, replicas: Replicas, notifications: Notifications, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._replicas = replicas
        self._notifications = notifications
        self._told_refused: set[str] = set()

    async def _ask(self, question: IsrQuestion, aim: Attempt) -> AlterPartitionAnswer | None:
        zk = self._notifications.zk
        if zk is None:
            return None
        topics = []
        try:
            for topic in bodies.decode(question.body, AlterPartitionRequest).topics:
                written = [await self._write(zk, (topic.topic_id, row.partition), row) for row in topic.partitions]
                topics.append(AlteredTopic(topic.topic_id, [row for row in written if row is not None]))
        except SessionLostError as error:
            log.debug("isr_write.ended", reason=str(error))
            return None
        return AlterPartitionAnswer(Code.NONE, topics)

    async def _write(self, zk: ZooKeeper, key: TopicIdPartition, proposal: AlterRow) -> AlteredRow | None:
        """Writes one partition; None when it is not ours to write any more, or when the present state shows no
        outcome."""
        while True:
            row, replica = self._replicas.led(key), self._replicas.held.get(key)
            if row is None or replica is None or row.leader_epoch != proposal.leader_epoch:
                return None
            isr = tuple(member.broker_id for member in proposal.isr)
            state = Leadership(row.leader, row.leader_epoch, isr, row.controller_epoch, proposal.recovery)
            path = state_path(*replica.name)
            try:
                stat = await zk.set(path, encode_state(state), proposal.version)
                self._notifications.on_isr(*replica.name)
                self._told_refused.discard(path)
                return _row_for(key, Code.NONE, state, stat.version)
            except BadVersionError:
                return await self._read(zk, path, replica.name, key, state)
            except NoNodeError:
                return None
            except RefusedError as error:
                self._say_refused(path, error)
                return None
            except (NotSentError, OutcomeUnknownError):
                await connected(zk)

    def _say_refused(self, path: str, error: RefusedError) -> None:
        """It is asked for again as long as the ISR should change; said it is once."""
        if path not in self._told_refused:
            self._told_refused.add(path)
            log.warning("isr_write.refused", path=path, reason=str(error), mend="allow brokers to read and write it")

    async def _read(
        self, zk: ZooKeeper, path: str, name: tuple[str, int], key: TopicIdPartition, wanted: Leadership
    ) -> AlteredRow | None:
        while True:
            try:
                node = await zk.get(path)
                break
            except (NotSentError, OutcomeUnknownError):
                await connected(zk)
            except RefusedError as error:
                self._say_refused(path, error)
                return None
        try:
            stands = None if node is None else decode_state(node.data)
        except FormatError as error:
            log.warning("state.unreadable", path=path, reason=str(error))
            return None
        if node is None or stands is None or stands.leader != wanted.leader:
            return None
        if stands == wanted:
            self._notifications.on_isr(*name)
        return _row_for(key, Code.NONE if stands == wanted else Code.INVALID_UPDATE_VERSION, stands, node.stat.version)


def _row_for(key: TopicIdPartition, code: Code, state: Leadership, version: int) -> AlteredRow:
    return AlteredRow(key[1], code, state.leader, state.leader_epoch, state.isr, version, state.recovery)
