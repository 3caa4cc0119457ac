"""What a broker announces in ZooKeeper to the controller: a lost or mended log directory, and ISRs it wrote itself.

Each is a sequential node with Kafka's content, written under the broker's own session and again until it stands (a
second one does no harm). It decides nothing; the ISRs themselves are written by `isr_written_directly.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

import structlog

from controller.base.config import BrokerConfig
from controller.core.formats import LogDirEventZnode, PartitionOf, PartitionsZnode, encode
from controller.core.project.znodes import ISR_NOTIFICATIONS, LOG_DIR_EVENTS
from controller.zookeeper.port import (
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
