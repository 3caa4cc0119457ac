"""A cluster that never was, with known truth: the logs that a version of Kafka would have written, and the events.

Brokers are killed and started at random; the controller acts as Kafka's, a line for each event, in the words of
a dialect and by each broker's own clock. `tests.spark.bundles` puts the lines on disk, as bad as real ones.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.spark.dialects import Kafka39, Partition, Said

SESSION_MS: Final = 6_000
BEGIN_MS: Final = 1_794_988_800_000
#: how long a message is on its way
WAY_MS: Final = (5, 25)


@dataclass(frozen=True)
class Line:
    """A line of a log, by the clock of its writer."""

    shown_ms: int
    said: Said


@dataclass
class Failover:
    """The results of one death."""

    broker: int
    detected_ms: int
    epoch: int  # of the controller that handles it
    is_back: bool = False
    elected_ms: list[int] = field(default_factory=list)
    done_ms: dict[int, int] = field(default_factory=dict)  # broker in sync: when it had done the last it was told


@dataclass
class Truth:
    """The events, in true time."""

    outages: list[tuple[str, int, int | None]] = field(default_factory=list)  # partition, from, to
    tenures: list[tuple[int, int, int]] = field(default_factory=list)  # epoch, broker, from
    ends: dict[int, int] = field(default_factory=dict)  # epoch: when its controller died
    failovers: list[Failover] = field(default_factory=list)
    losses: list[tuple[int, int]] = field(default_factory=list)  # broker, when it died
    unclean: list[tuple[str, int, int]] = field(default_factory=list)  # partition, when, the elected broker


class Simulation:
    """`run` it, then put its `lines` on disk."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 4,
        partitions: int = 12,
        skew_ms: dict[int, int] | None = None,
        dialect: Kafka39 | None = None,
        way_ms: tuple[int, int] = WAY_MS,
        quiet_ms: tuple[int, int] = (12_000, 900_000),
        is_unclean: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.brokers = list(range(1, brokers + 1))
        self.alive: dict[int, int] = {}  # broker: its epoch
        self.skew_ms = skew_ms or {}
        self.words = dialect or Kafka39()
        self.way_ms = way_ms
        self.quiet_ms = quiet_ms  # between two faults
        self.is_unclean = is_unclean  # a live replica may lead, in sync or not
        self.now = BEGIN_MS
        self.epoch = 0
        self.controller = 0
        self.zxid = 100
        self.requests = 0
        self.truth = Truth()
        self.lines: dict[tuple[int, str], list[Line]] = defaultdict(list)
        self.partitions = []
        for number in range(partitions):
            replicas = self.random.sample(self.brokers, self.random.choice((1, 2, 3)))
            self.partitions.append(
                Partition("orders", number, replicas, replicas[0], list(replicas), led_by=replicas[0])
            )
        for broker in self.brokers:
            self._boot(broker, self.now)
        self._elect_controller(self.now + 1_000)
        for one in self.partitions:
            self._by_controller(self.now + 2_000, self.words.created(self.controller, self.epoch, one))
            self._online(self.now + 2_010, one, "NewPartition")

    def run(self, faults: int) -> Simulation:
        self._pass(10_000)
        for _ in range(faults):
            dead = [broker for broker in self.brokers if broker not in self.alive]
            if dead and (len(self.alive) <= 2 or self.random.random() < 0.5):
                self._start(self.random.choice(dead))
            else:
                self._kill(self.random.choice(sorted(self.alive)))
            self._pass(self.random.randrange(*self.quiet_ms))
        for one in self.partitions:
            if one.offline_ms is not None:
                self.truth.outages.append((one.name, one.offline_ms, None))
        return self

    def _pass(self, length_ms: int) -> None:
        """Brokers talk now and then."""
        end_ms = self.now + length_ms
        for broker in sorted(self.alive):
            at_ms = self.now + self.random.randrange(1_000, 3_000)
            while at_ms < end_ms:
                self._say(at_ms, broker, self.words.chatter(broker, at_ms))
                at_ms += self.random.randrange(20_000, 120_000)
        self.now = end_ms

    def _kill(self, broker: int) -> None:
        del self.alive[broker]
        self.truth.losses.append((broker, self.now))
        if broker == self.controller:
            self.truth.ends[self.epoch] = self.now
        self.now += SESSION_MS
        self.truth.failovers.append(Failover(broker, self.now, self.epoch + (broker == self.controller)))
        if broker == self.controller:
            self._elect_controller(self.now)
            self.now += 200
            return
        at_ms = self.now
        self._by_controller(at_ms, self.words.brokers(self.controller, self.epoch, (), (broker,), self.alive))
        led = [one for one in self.partitions if one.leader == broker]
        for one in led:
            self._by_controller(at_ms + 2, self.words.went_offline(self.controller, self.epoch, one))
            one.offline_ms = at_ms + 2
        self._elect(at_ms + 10, led)
        for one in self.partitions:
            if broker in one.isr:
                self._take_out(at_ms + 14, one, broker)
        self.now += 100

    def _start(self, broker: int) -> None:
        self._boot(broker, self.now)
        at_ms = self.now + 1_000
        for failover in self.truth.failovers:
            failover.is_back |= failover.broker == broker
        self._by_controller(at_ms, self.words.brokers(self.controller, self.epoch, (broker,), (), self.alive))
        self._elect(at_ms + 10, [one for one in self.partitions if one.offline_ms is not None], quiet=True)
        for one in self.partitions:
            if broker in one.replicas and broker not in one.isr and one.leader in self.alive:
                one.isr.append(broker)
                one.version += 1
                who = one.leader if self.words.isr_said_by == "leader" else self.controller
                self._say(at_ms + 2_000, who, self.words.isr_grew(self.controller, self.epoch, one))
        self.now += 4_000

    def _boot(self, broker: int, at_ms: int) -> None:
        self.zxid += 1
        self._say(at_ms, broker, self.words.starting(broker)[:1])
        self._say(at_ms + 960, broker, self.words.starting(broker)[1:])
        self._say(at_ms + 980, broker, self.words.registered(broker, self.zxid))
        self.alive[broker] = self.zxid

    def _elect_controller(self, at_ms: int) -> None:
        self.controller = min(self.alive)
        self.epoch += 1
        self._by_controller(at_ms, self.words.elected(self.controller, self.epoch, self.alive))
        self.truth.tenures.append((self.epoch, self.controller, at_ms))
        for one in self.partitions:
            for broker in [b for b in one.isr if b not in self.alive]:
                self._take_out(at_ms + 40, one, broker)
        self._elect(at_ms + 60, [one for one in self.partitions if one.leader == -1])
        self._by_controller(at_ms + 80, self.words.ready(self.controller, self.epoch))
        chance = random.Random(self.epoch)
        done_ms = {broker: at_ms + 60 + chance.randrange(*self.way_ms) for broker in self.alive}
        for broker, told_ms in done_ms.items():
            self._say(told_ms, broker, self.words.told(self.controller, self.epoch, broker))
        all_ms = max(done_ms.values()) + chance.randrange(*self.way_ms)
        self._by_controller(all_ms, self.words.all_answered(self.controller, self.epoch))

    def _take_out(self, at_ms: int, one: Partition, broker: int) -> None:
        """The replica leaves the ISR, unless it is the last; a leader that goes leaves none."""
        if one.leader == broker and (one.offline_ms is None or self.words.is_offline_when == "written"):
            one.offline_ms = at_ms
        if one.leader == broker or len(one.isr) > 1:
            one.isr = [b for b in one.isr if b != broker] or one.isr
            one.leader = -1 if one.leader == broker else one.leader
            one.leader_epoch += 1
            one.version += 1
        self._by_controller(at_ms, self.words.shrunk(self.controller, self.epoch, one, broker))

    def _elect(self, at_ms: int, offline: list[Partition], *, quiet: bool = False) -> None:
        for one in offline:
            alive = [b for b in one.replicas if b in self.alive]
            able = [b for b in alive if b in one.isr]
            if not able and alive and self.is_unclean:
                able = alive[:1]
                self.truth.unclean.append((one.name, at_ms, able[0]))
                self._by_controller(at_ms, self.words.unclean(self.controller, one, able[0], alive))
            if able:
                one.leader, one.isr = able[0], able
                one.leader_epoch += 1
                one.version += 1
                assert one.offline_ms is not None
                self.truth.outages.append((one.name, one.offline_ms, at_ms))
                one.offline_ms = None
                self._online(at_ms, one, "OfflinePartition")
            elif not quiet:
                self._by_controller(at_ms, self.words.failed(self.controller, self.epoch, one))

    def _failover_of(self, one: Partition) -> Failover | None:
        """Returns the failover behind a new leader: the death of the one before, which is still away, and still this
        controller's to repair."""
        for failover in self.truth.failovers:
            is_its = (failover.broker, failover.epoch, failover.is_back) == (one.led_by, self.epoch, False)
            if is_its and one.leader != one.led_by:
                return failover
        return None

    def _online(self, at_ms: int, one: Partition, before: str) -> None:
        """Said by the controller, and then asked of every replica that lives."""
        failover, one.led_by = self._failover_of(one), one.leader
        if failover is not None:
            failover.elected_ms.append(at_ms)
        self._by_controller(at_ms, self.words.online(self.controller, self.epoch, one, before))
        for broker in [b for b in one.replicas if b in self.alive]:
            self.requests += 1
            which = (self.controller, self.epoch, one, broker)
            received_ms = at_ms + 1 + self._way_ms()
            done_ms = received_ms + self.random.randrange(1, 6)
            self._by_controller(at_ms + 1, self.words.sent(*which, self.requests))
            self._say(received_ms, broker, self.words.received(*which, self.requests))
            self._say(done_ms, broker, self.words.done(*which, self.requests))
            answered = self.words.answered(self.controller, self.epoch, broker, self.requests)
            self._by_controller(done_ms + self._way_ms(), answered)
            if failover is not None and broker in one.isr:
                failover.done_ms[broker] = max(done_ms, failover.done_ms.get(broker, done_ms))

    def _way_ms(self) -> int:
        return self.random.randrange(*self.way_ms)

    def _by_controller(self, at_ms: int, said: Iterable[Said]) -> None:
        self._say(at_ms, self.controller, said)

    def _say(self, at_ms: int, broker: int, said: Iterable[Said]) -> None:
        for one in said:
            self.lines[broker, one.log].append(Line(at_ms + self.skew_ms.get(broker, 0), one))
