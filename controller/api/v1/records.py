"""`/v1/partitions/{topic}/{partition}/log`: the log ends of a partition's replicas, and their truncations.

Brokers that keep records know their own logs and ask each other. Any other process answers that no broker keeps
records. A broker asks only for the one partition of a request, and one answer is for all callers within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec
from aiohttp import web

from controller.api.bodies import number_in_path
from controller.api.problems import refusal_for
from controller.api.reader_turns import Answers
from controller.core.codes import Code
from controller.wire.bodies import Truncation


class ReplicaLog(msgspec.Struct, frozen=True):
    """One replica's log by its broker's own word; `why` says where there is none. `lag`: how many offsets of the
    leader's it lacks. Of a broker that does not answer `log_end` is what the leader heard of it last."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    log_start: int | None = None
    log_end: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    why: str | None = None


class PartitionLogs(msgspec.Struct, frozen=True):
    """`kept`: whether brokers keep records at all. `truncations`: what followers removed because the leader did not
    have it, as far as their processes remember; `records_lost`: how many of these had been committed."""

    kept: bool
    leader: int = -1
    leader_epoch: int = -1
    records_lost: int = 0
    replicas: Sequence[ReplicaLog] = ()
    truncations: Sequence[Truncation] = ()


class LogsView(Protocol):
    """The knowledge of a broker that keeps records, and its questions to the others."""

    async def logs_of(self, topic: str, partition: int) -> PartitionLogs | None:
        """None: there is no such partition."""


class Records:
    """Handlers. Without `logs` no broker keeps records here."""

    def __init__(self, logs: LogsView | None, answers: Answers) -> None:
        self._logs = logs
        self._answers = answers

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/partitions/{topic}/{partition}/log", self.log)]

    async def log(self, request: web.Request) -> web.Response:
        topic, number = request.match_info["topic"], number_in_path(request, "partition")
        return await self._answers.told(("log", topic, number), partial(self._described, topic, number))

    async def _described(self, topic: str, number: int) -> bytes:
        found = PartitionLogs(False) if self._logs is None else await self._logs.logs_of(topic, number)
        if found is None:
            raise refusal_for(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{number}")
        return msgspec.json.encode(found)
