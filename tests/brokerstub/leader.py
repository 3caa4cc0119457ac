"""A leader without its I/O: replicas, sessions and the ISR keeper, driven by hand."""

from __future__ import annotations

from brokerstub.fetch_sessions import FetchSessions
from brokerstub.isr import IsrKeeper, IsrQuestion
from brokerstub.replicas import Replicas
from controller.wire.bodies import (
    AlteredRow,
    AlteredTopic,
    AlterPartitionRequest,
    BrokerEntry,
    PartitionRow,
    decode,
)
from tests.brokerstub.support import broker, fetch, topic

LAG_MS = 10_000
Proposals = dict[int, list[tuple[int, int]]]


class Leader:
    """Broker 1 with epoch 100, without its I/O."""

    def __init__(self, partitions_max: int = 10_000) -> None:
        self.now_ms = 0
        self.brokers: dict[int, BrokerEntry] = {one: broker(one) for one in (1, 2, 3)}
        self.replicas = Replicas(1, {}, lambda: "log")
        self.sessions = FetchSessions(self.leader_epoch_of, lambda: 7)
        self.isr = IsrKeeper(
            self.replicas, self.sessions, self.brokers.get, lag_ms=LAG_MS, partitions_max=partitions_max
        )
        self.isr.begin(100)

    def leader_epoch_of(self, key: tuple[str, int]) -> int | None:
        led = self.replicas.led(key)
        return None if led is None else led.leader_epoch

    def tell(self, *rows: PartitionRow) -> None:
        for change in self.replicas.take_rows([topic(*rows)]).changes:
            self.isr.on_change(change, self.now_ms)

    def fetched(self, follower: int, *entries: tuple[int, int], sequence: int = 0, epoch: int | None = None) -> int:
        session = 0 if sequence == 0 else 7
        epoch = 100 * follower if epoch is None else epoch
        request = fetch(*entries, session=session, sequence=sequence)
        answer, moved = self.sessions.take(follower, epoch, request, self.now_ms)
        self.isr.on_moved(moved, self.now_ms)
        return answer.error_code

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.isr.on_tick(self.now_ms)

    def on_broker(self, entry: BrokerEntry) -> None:
        self.brokers[entry.id] = entry
        self.isr.on_broker(entry.id, self.now_ms)

    def ask(self) -> IsrQuestion | None:
        return self.isr.ask(self.now_ms)

    def proposals(self) -> Proposals:
        question = self.ask()
        if question is None:
            return {}
        request = decode(question.body, AlterPartitionRequest)
        return {
            one.partition: [(member.broker_id, member.broker_epoch) for member in one.isr]
            for asked in request.topics
            for one in asked.partitions
        }

    def answer(self, code: int = 0, *, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3), version: int = 1) -> None:
        rows = [AlteredRow(0, code, 1, epoch, isr, version, 0)]
        self.isr.take_answer([AlteredTopic("id-orders", rows)], self.now_ms)

    def is_idle(self) -> bool:
        return self.ask() is None and not self.isr.has_work
