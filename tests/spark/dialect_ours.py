"""The words of our own controller; see `tests.spark.dialects`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

from sparkjobs.parse.ours import cause_in
from tests.spark.dialects import Kafka39, Partition, Said


class Ours(Kafka39):
    """Our controller's JSON: one write replaces a lost leader, and every write has its zxid."""

    isr_said_by = "controller"
    is_offline_when = "written"

    def __init__(self) -> None:
        self.zxid = 100
        self.causes: dict[str, str] = {}  # partition: why it was written last
        self.offline = set[str]()

    def _said(self, who: int, epoch: int, kind: str, **fields: object) -> Said:
        known = {"cluster_id": "k", "controller_id": who, "controller_epoch": epoch, "kind": kind, **fields}
        return Said("state-change", "INFO", json.dumps(known, separators=(",", ":")), "")

    def _written(self, who: int, epoch: int, one: Partition, before: str, reason: str) -> Sequence[Said]:
        self.zxid += 1
        after = "OfflinePartition" if one.leader == -1 else "OnlinePartition"
        (self.offline.add if one.leader == -1 else self.offline.discard)(one.name)
        self.causes[one.name] = f"{epoch}-{self.zxid}"
        state = {"leader": one.leader, "leader_epoch": one.leader_epoch, "isr": one.isr, "version": one.version}
        where = {"topic": one.topic, "partition": one.number, "source": before, "target": after, "reason": reason}
        return [self._said(who, epoch, "partition", **where, **state, **self._because(one))]

    def _because(self, one: Partition) -> dict[str, object]:
        return {"zxid": self.zxid, "topic_id": "id-of-orders", "event_id": self.causes[one.name]}

    def elected(self, who: int, epoch: int, alive: dict[int, int]) -> Sequence[Said]:
        moves = {"source": "gone", "target": "live", "reason": "term started"}
        cause = {"event_id": f"{epoch}-1"}
        claimed = self._said(who, epoch, "controller", target="claimed", took_ms=3.5, **cause)
        return [claimed] + [
            self._said(who, epoch, "broker", broker_id=b, broker_epoch=e, **moves, **cause) for b, e in alive.items()
        ]

    def told(self, who: int, epoch: int, broker: int) -> Sequence[Said]:
        words = {"reason": "update-metadata: 1 topic, 4 brokers, 1 of 1", "took_ms": 2.5, "error_code": 0}
        return [self._said(who, epoch, "rpc", broker_id=broker, event_id=f"{epoch}-1", **words)]

    def all_answered(self, who: int, epoch: int) -> Sequence[Said]:
        return [self._said(who, epoch, "controller", target="acknowledged", took_ms=95.0, event_id=f"{epoch}-1")]

    def ready(self, who: int, epoch: int) -> Sequence[Said]:
        return [self._said(who, epoch, "controller", target="told", took_ms=40.0)]

    def brokers(
        self, who: int, epoch: int, added: Iterable[int], removed: Iterable[int], alive: dict[int, int]
    ) -> Sequence[Said]:
        came = {"source": "gone", "target": "live", "reason": "joined"}
        went = {"source": "live", "target": "gone", "reason": "session gone"}
        return [
            *(self._said(who, epoch, "broker", broker_id=broker, **came) for broker in added),
            *(self._said(who, epoch, "broker", broker_id=broker, **went) for broker in removed),
        ]

    def created(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        return []

    def went_offline(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        return []

    def failed(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        return []

    def online(self, who: int, epoch: int, one: Partition, before: str) -> Sequence[Said]:
        if before != "NewPartition":
            before = "OfflinePartition" if one.name in self.offline else "OnlinePartition"
        return self._written(who, epoch, one, before, "partition created" if before[0] == "N" else "brokers gone")

    def shrunk(self, who: int, epoch: int, one: Partition, broker: int) -> Sequence[Said]:
        before = "OfflinePartition" if one.name in self.offline else "OnlinePartition"
        return self._written(who, epoch, one, before, f"brokers gone {broker}")

    def isr_grew(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        return self._written(who, epoch, one, "OnlinePartition", f"leader {one.leader} asked")

    def sent(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        return []

    def received(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        return []

    def done(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        words = {"reason": "leader-and-isr: 1 partitions", "took_ms": 0.4, "error_code": 0}
        return [self._said(who, epoch, "rpc", broker_id=broker, event_id=self.causes[one.name], **words)]

    def answered(self, who: int, epoch: int, broker: int, number: int) -> Sequence[Said]:
        return []

    def starting(self, broker: int) -> Sequence[Said]:
        return []

    def registered(self, broker: int, epoch: int) -> Sequence[Said]:
        return []

    def chatter(self, broker: int, at_ms: int) -> Sequence[Said]:
        return []


class OursWithMoves(Ours):
    """The same since its lines have causes, and each move has a line."""

    def _said(self, who: int, epoch: int, kind: str, **fields: object) -> Said:
        cause = None if kind == "rpc" or "reason" not in fields else cause_in(str(fields["reason"]))
        return super()._said(who, epoch, kind, **fields, **({} if cause is None else {"cause": cause}))

    def _written(self, who: int, epoch: int, one: Partition, before: str, reason: str) -> Sequence[Said]:
        """A leader that is replaced has been offline between; one that is created was nothing before."""
        first, after = super()._written(who, epoch, one, before, reason), "OnlinePartition"
        if before == "NewPartition":
            passed = ["NonExistentPartition", before, after]
        elif one.leader == -1:
            passed = [before, "OfflinePartition"] if before != "OfflinePartition" else []
        else:
            passed = [before, "OfflinePartition", after] if before == after else [before, after]
        moved = {"machine": "partition", "partitions": {one.topic: str(one.number)}, "reason": reason}
        event = {"event_id": self.causes[one.name]}
        return [
            *first,
            *(
                self._said(who, epoch, "move", source=source, target=target, part=part, **moved, **event)
                for part, (source, target) in enumerate(pairwise(passed), start=1)
            ),
        ]
