"""Makes logs diverge. Now and then a leader that is cut off, and that no controller can depose, takes records from a
producer. Then it dies, or returns and finds that the other replicas have a new leader.

Random faults alone cause this too seldom. The module draws from a seed of its own, and ends when the cluster is healed.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from tests.faults.simulate.batch import Place
from tests.faults.simulate.player import pause
from tests.faults.simulate.records import ALL, SimRecords

if TYPE_CHECKING:
    from tests.faults.simulate.clients import Writing
    from tests.faults.simulate.member import Member

#: of the schedules with records
SHARE: Final = 0.6
PAUSES_S: Final = (0.5, 4.0)
#: within the time-out of a session, or long enough for another to be elected
LENGTHS_S: Final = (0.05, 1.0, 5.0, 8.0)
BATCHES_MAX: Final = 6
#: between the last batch and the end of the cut
WAITS_S: Final = 0.05
DEATHS: Final = 0.4
#: a process is started again at once, or when another leads
BACK_S: Final = (0.1, 7.0)


class Partings:
    """`run` beside the clients."""

    def __init__(self, records: SimRecords, seed: str, producer: Writing) -> None:
        self.cluster = records.cluster
        self.is_over = False
        self._random = Random(f"{seed} partings")
        self._producer = producer
        self._asked: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        await self._run()
        await asyncio.gather(*self._asked)

    async def _run(self) -> None:
        if self._random.random() >= SHARE:
            return
        while not self._is_ending:
            await pause(self.cluster, self._random.uniform(*PAUSES_S))
            leaders = [one for _, one in sorted(self.cluster.members.items()) if self._led_by(one)]
            if leaders and not self._is_ending:
                await self._part(self._random.choice(leaders))

    async def _part(self, member: Member) -> None:
        cluster, broker_id, draw = self.cluster, member.broker_id, self._random
        length_s = draw.choice(LENGTHS_S)
        begun = len(cluster.faults)
        cluster.fault("cut", broker_id, can_move_seat=True)
        cluster.fault("cut link", broker_id)
        begun_ms = cluster.zookeeper.now_ms
        self._cut(member, is_cut=True)
        cluster.cut(broker_id, is_loud=False)
        for _ in range(draw.randint(1, BATCHES_MAX)):
            places = self._led_by(member)
            if places:
                await self._producer.write_to(member, draw.choice(places), 1)
        await pause(cluster, length_s)
        if places := self._led_by(member):  # it waits for the ISR, and learns meanwhile of the new leader
            last = self._producer.write_to(member, draw.choice(places), ALL)
            self._asked.append(self._producer.process.start(last))
            await pause(cluster, WAITS_S)
        for place in (begun, begun + 1):  # it was not known before
            lasts_ms = cluster.zookeeper.now_ms - begun_ms
            cluster.faults[place] = cluster.faults[place]._replace(lasts_ms=lasts_ms)
        if self._is_ending:
            return
        if draw.random() < DEATHS and cluster.members.get(broker_id) is member:
            cluster.fault("kill", broker_id, can_move_seat=True)
            cluster.kill(broker_id)
            cluster.loop.call_later(draw.choice(BACK_S), cluster.start, broker_id)
        self._cut(member, is_cut=False)
        cluster.heal_zookeeper(broker_id)

    @property
    def _is_ending(self) -> bool:
        return self.is_over or self.cluster.is_healed

    def _cut(self, member: Member, *, is_cut: bool) -> None:
        """All ways between it and other brokers, both ways."""
        for other in self.cluster.broker_ids:
            if other != member.broker_id:
                for way in ((member.name, f"b{other}:80"), (f"b{other}:80", member.name)):
                    self.cluster.network.link(*way).is_cut = is_cut

    def _led_by(self, member: Member) -> list[Place]:
        """As it believes."""
        replicas = None if member.broker is None else member.broker.replicas
        told = {} if replicas is None else replicas.told
        names = [replicas.held[key].name for key in sorted(told) if replicas is not None and replicas.led(key)]
        return [Place(*name) for name in names]
