"""How a leader below `inter.broker.protocol.version` 2.7 changes an ISR: it writes the state znode itself.

The write names the version it knows and keeps the controller epoch that made it leader, so it can undo nothing. A
version that does not fit is read again: our own earlier write may have gone through. What to write `isr.py` decides.
"""

from __future__ import annotations

import re
from typing import Any, Final

import structlog

from brokerstub.asker import Aim, Asker
from brokerstub.isr import Question
from brokerstub.notifications import Notifications
from brokerstub.replicas import Replicas
from controller.base.config import ConfigError
from controller.core.codes import Code
from controller.core.formats import FormatError, decode_state, encode_state
from controller.core.model import Leadership, TopicIdPartition
from controller.core.project.znodes import state_path
from controller.wire import bodies
from controller.wire.bodies import (
    AlteredRow,
    AlteredTopic,
    AlterPartitionAnswer,
    AlterPartitionRequest,
    AlterRow,
)
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

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:-IV(\d+))?")
#: without `-IV…` a version means its last one
_LAST: Final = 99

log = structlog.get_logger()


def writes_directly(protocol_version: str) -> bool:
    """Whether a broker at this protocol level has no AlterPartition yet: that came with 2.7-IV2."""
    match = _VERSION.fullmatch(protocol_version)
    if match is None:
        raise ConfigError(f"property inter.broker.protocol.version: write it like 3.9, not {protocol_version!r}")
    major, minor, level = match.groups()
    return (int(major), int(minor), _LAST if level is None else int(level)) < (2, 7, 2)


class DirectIsrWriter(Asker):
    """Asks nobody: writes, and answers itself with what now stands."""

    def __init__(self, *arguments: Any, replicas: Replicas, notifications: Notifications, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._replicas = replicas
        self._notifications = notifications
        self._told_refused: set[str] = set()

    async def _ask(self, question: Question, aim: Aim) -> AlterPartitionAnswer | None:
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

    async def _write(self, zk: ZooKeeper, key: TopicIdPartition, wish: AlterRow) -> AlteredRow | None:
        """One partition; None when it is not ours to write any more, or nothing can be told from what stands."""
        while True:
            row, replica = self._replicas.led(key), self._replicas.held.get(key)
            if row is None or replica is None or row.leader_epoch != wish.leader_epoch:
                return None
            isr = tuple(member.broker_id for member in wish.isr)
            state = Leadership(row.leader, row.leader_epoch, isr, row.controller_epoch, wish.recovery)
            path = state_path(*replica.name)
            try:
                stat = await zk.set(path, encode_state(state), wish.version)
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
