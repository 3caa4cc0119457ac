"""The log ends of one partition's replicas: each broker reports its own, and the broker that is asked asks all others.

It reads logs and metadata and changes nothing. One question is under way at a time, and each broker has two seconds to
answer, so a page that shows log ends delays no other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from brokerstub.fetch import Poster
from brokerstub.logs import Logs
from brokerstub.metadata import MetadataCache
from controller.api.v1.records import PartitionLogs, ReplicaLog
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import DescribeLogAnswer, DescribeLogRequest, PartitionRow, Truncation
from controller.wire.client import ExchangeError
from controller.wire.signing import Incarnation, Signer

PATIENCE_MS: Final = 2_000

log = structlog.get_logger()


class LogEnds:
    """Of one broker that keeps records; a `controller.api.v1.records.LogsView`."""

    def __init__(self, logs: Logs, metadata: MetadataCache, http: Poster, signer: Signer) -> None:
        self._logs = logs
        self._metadata = metadata
        self._http = http
        self._signer = signer
        self._broker_epoch: int | None = None
        self._asking = asyncio.Lock()

    def begin(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch

    def own(self, request: DescribeLogRequest) -> DescribeLogAnswer:
        """Returns this broker's log end of the partition."""
        truncations = self._logs.truncations(request.topic, request.partition)
        ends = self._logs.ends(request.topic, request.partition)
        if ends is None:
            return DescribeLogAnswer(Code.UNKNOWN_TOPIC_OR_PARTITION, truncations=truncations)
        return DescribeLogAnswer(
            Code.NONE,
            log_start=ends.log_start,
            log_end=ends.log_end,
            high_watermark=ends.high_watermark,
            heard=sorted(ends.replicas.items()),
            truncations=truncations,
        )

    async def logs_of(self, topic: str, partition: int) -> PartitionLogs | None:
        view = self._metadata.topic(topic)
        row = next((one for one in (view.partitions if view else ()) if one.partition == partition), None)
        if row is None:
            return None
        async with self._asking:
            answers = await asyncio.gather(*(self._ask(one, topic, partition) for one in row.replicas))
        return _together(row, dict(zip(row.replicas, answers, strict=True)))

    async def _ask(self, broker_id: int, topic: str, partition: int) -> DescribeLogAnswer | str:
        """Returns its answer, or why there is none."""
        request = DescribeLogRequest(topic, partition)
        if broker_id == self._metadata.own_broker_id:
            return self.own(request)
        address = self._metadata.address_of(broker_id)
        if address is None:
            return "its broker is gone"
        url, body = address + bodies.DESCRIBE_LOG, bodies.encode(request)
        headers = self._signer.headers_for(
            "POST",
            url,
            body,
            sender=Incarnation(self._metadata.own_broker_id, self._broker_epoch),
            receiver=self._metadata.incarnation(broker_id),
            more={bodies.CONTROLLER_EPOCH: str(self._metadata.controller_epoch)},
        )
        try:
            status, answer = await self._http.post(url, body, headers, PATIENCE_MS)
            return bodies.decode(answer, DescribeLogAnswer) if status == 200 else f"its broker answers {status}"
        except (ExchangeError, msgspec.MsgspecError) as error:
            log.debug("log.undescribed", broker_id=broker_id, reason=str(error))
            return "its broker does not answer"


def records_lost(truncations: Sequence[Truncation]) -> int:
    """Returns how many committed records went: each once, on however many brokers."""
    lost: dict[int, list[tuple[int, int]]] = {}
    for one in truncations:
        lost.setdefault(one.records_epoch, []).append((one.start, one.start + one.committed))
    count = 0
    for ranges in lost.values():
        known = -1
        for start, end in sorted(ranges):
            count += max(0, end - max(start, known))
            known = max(known, end)
    return count


def _together(row: PartitionRow, answers: dict[int, DescribeLogAnswer | str]) -> PartitionLogs:
    found = {one: said for one, said in answers.items() if isinstance(said, DescribeLogAnswer)}
    led = found.get(row.leader)
    end = None if led is None or led.error_code != Code.NONE else led.log_end
    heard = {} if led is None else {broker_id: at for broker_id, at in led.heard if at >= 0}
    truncations = sorted((lost for said in found.values() for lost in said.truncations), key=lambda one: one.at_ms)

    def replica(broker_id: int, said: DescribeLogAnswer | str) -> ReplicaLog:
        known = ReplicaLog(broker_id, broker_id == row.leader, broker_id in row.isr)
        own = heard.get(broker_id)
        why: str | None = "its broker has no log of it"
        if isinstance(said, str):
            why = said
        elif said.error_code == Code.NONE:
            own, why = said.log_end, None
            known = msgspec.structs.replace(known, log_start=said.log_start, high_watermark=said.high_watermark)
        lag = None if own is None or end is None else max(0, end - own)
        return msgspec.structs.replace(known, log_end=own, lag=lag, why=why)

    return PartitionLogs(
        True,
        row.leader,
        row.leader_epoch,
        records_lost(truncations),
        [replica(broker_id, said) for broker_id, said in answers.items()],
        truncations,
    )
