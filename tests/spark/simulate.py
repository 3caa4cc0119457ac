"""A cluster that never was, with known truth: the logs that Kafka 3.9 would have written, and what really happened.

Brokers are killed and started at random; the controller does what Kafka's does, line by line, at TRACE or at INFO. The
logs can then be made as bad as real ones: clocks that are off, lines out of order, copies, junk, a torn end, rotation
by the hour, gzip.
"""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

SESSION_MS: Final = 6_000
BEGIN_MS: Final = 1_794_988_800_000
_LOGGERS: Final = {
    "state-change": "state.change.logger",
    "controller": "kafka.controller.KafkaController",
    "server": "kafka.server.KafkaServer",
}


@dataclass
class Partition:
    """As ZooKeeper has it."""

    name: str
    replicas: list[int]
    leader: int
    isr: list[int]
    leader_epoch: int = 0
    version: int = 0
    offline_ms: int | None = None

    @property
    def state(self) -> str:
        isr = ", ".join(f"BrokerState(brokerId={b}, brokerEpoch=-1)" for b in self.isr)
        return (
            f"LeaderAndIsr(leader={self.leader}, leaderEpoch={self.leader_epoch}, isrWithBrokerEpoch=List({isr}), "
            f"leaderRecoveryState=RECOVERED, partitionEpoch={self.version})"
        )


@dataclass
class Truth:
    """What really happened, in true time."""

    outages: list[tuple[str, int, int | None]] = field(default_factory=list)  # partition, from, to
    tenures: list[tuple[int, int, int]] = field(default_factory=list)  # epoch, broker, from
    losses: list[tuple[int, int]] = field(default_factory=list)  # broker, when it died


class Simulation:
    """`run` it, then `write` its logs."""

    def __init__(
        self, seed: int, *, brokers: int = 4, partitions: int = 12, skew_ms: dict[int, int] | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.brokers = list(range(1, brokers + 1))
        self.alive = set(self.brokers)
        self.skew_ms = skew_ms or {}
        self.now = BEGIN_MS
        self.epoch = 0
        self.controller = 0
        self.truth = Truth()
        self.lines: dict[tuple[int, str], list[tuple[int, str, str]]] = defaultdict(list)
        self.partitions = []
        for number in range(partitions):
            factor = self.random.choice((1, 2, 3))
            replicas = self.random.sample(self.brokers, factor)
            self.partitions.append(Partition(f"orders-{number}", replicas, replicas[0], list(replicas)))
        for broker in self.brokers:
            self._boot(broker, self.now)
        self._elect_controller(self.now + 500)
        for one in self.partitions:
            words = (
                f"Changed partition {one.name} state from NonExistentPartition to NewPartition with assigned replicas "
            )
            self._control(self.now + 1_500, "INFO", words + ",".join(map(str, one.replicas)))
            self._changed(self.now + 1_510, one, "NewPartition")

    def run(self, faults: int) -> Simulation:
        self._pass(10_000)
        for _ in range(faults):
            dead = [broker for broker in self.brokers if broker not in self.alive]
            if dead and (len(self.alive) <= 2 or self.random.random() < 0.5):
                self._start(self.random.choice(dead))
            else:
                self._kill(self.random.choice(sorted(self.alive)))
            self._pass(self.random.randrange(12_000, 900_000))
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
                self._say(at_ms, broker, "server", "INFO", f"[LogCleaner {broker}] Nothing to clean at {at_ms}")
                at_ms += self.random.randrange(20_000, 120_000)
        self.now = end_ms

    def _kill(self, broker: int) -> None:
        self.alive.discard(broker)
        self.truth.losses.append((broker, self.now))
        self.now += SESSION_MS
        if broker == self.controller:
            self._elect_controller(self.now)
            self.now += 200
            return
        at_ms = self.now
        live = ",".join(map(str, sorted(self.alive)))
        words = f"Newly added brokers: , deleted brokers: {broker}, bounced brokers: , all live brokers: {live}"
        self._say(at_ms, self.controller, "controller", "INFO", f"[Controller id={self.controller}] {words}")
        led = [one for one in self.partitions if one.leader == broker]
        for one in led:
            words = f"Changed partition {one.name} state from OnlinePartition to OfflinePartition"
            self._control(at_ms + 2, "TRACE", words)
            one.offline_ms = at_ms + 2
        self._elect(at_ms + 10, led)
        for one in self.partitions:
            if broker in one.isr:
                self._take_out(at_ms + 14, one, broker)
        self.now += 100

    def _start(self, broker: int) -> None:
        self._boot(broker, self.now)
        self.alive.add(broker)
        at_ms = self.now + 1_000
        live = ",".join(map(str, sorted(self.alive)))
        words = f"Newly added brokers: {broker}, deleted brokers: , bounced brokers: , all live brokers: {live}"
        self._say(at_ms, self.controller, "controller", "INFO", f"[Controller id={self.controller}] {words}")
        self._elect(at_ms + 10, [one for one in self.partitions if one.offline_ms is not None], quiet=True)
        for one in self.partitions:
            if broker in one.replicas and broker not in one.isr and one.leader in self.alive:
                one.isr.append(broker)
                one.version += 1
                isr = ",".join(map(str, one.isr))
                words = f"[Partition {one.name} broker={one.leader}] ISR updated to {isr}  "
                words += f"and version updated to {one.version}"
                self._say(at_ms + 2_000, one.leader, "server", "INFO", words)
        self.now += 4_000

    def _boot(self, broker: int, at_ms: int) -> None:
        self._say(at_ms, broker, "server", "INFO", "starting")
        words = f"Registered broker {broker} at path /brokers/ids/{broker} with addresses: PLAINTEXT://b:9092, "
        self._say(
            at_ms + 300, broker, "server", "INFO", words + f"czxid (broker epoch): {at_ms}", "kafka.zk.KafkaZkClient"
        )

    def _elect_controller(self, at_ms: int) -> None:
        self.controller = min(self.alive)
        self.epoch += 1
        who = f"[Controller id={self.controller}]"
        words = f"{self.controller} successfully elected as the controller. Epoch incremented to {self.epoch} and "
        self._say(at_ms, self.controller, "controller", "INFO", f"{who} {words}epoch zk version is now {self.epoch}")
        self.truth.tenures.append((self.epoch, self.controller, at_ms))
        for one in self.partitions:
            for broker in [b for b in one.isr if b not in self.alive]:
                self._take_out(at_ms + 40, one, broker)
        self._elect(at_ms + 60, [one for one in self.partitions if one.leader == -1])
        words = f"Ready to serve as the new controller with epoch {self.epoch}"
        self._say(at_ms + 80, self.controller, "controller", "INFO", f"{who} {words}")
        self._say(at_ms + 90, self.controller, "controller", "INFO", f"{who} Starting the controller scheduler")

    def _take_out(self, at_ms: int, one: Partition, broker: int) -> None:
        """The replica leaves the ISR, unless it is the last; a leader that goes leaves none."""
        if one.leader == broker and one.offline_ms is None:
            one.offline_ms = at_ms
        if one.leader == broker or len(one.isr) > 1:
            one.isr = [b for b in one.isr if b != broker] or one.isr
            one.leader = -1 if one.leader == broker else one.leader
            one.leader_epoch += 1
            one.version += 1
        words = (
            f"Partition {one.name} state changed to (Leader:{one.leader},ISR:{','.join(map(str, one.isr))},"
            f"LeaderRecoveryState:RECOVERED,LeaderEpoch:{one.leader_epoch},ZkVersion:{one.version},"
            f"ControllerEpoch:{self.epoch}) after removing replica {broker} from the ISR as part of transition to "
            "OfflineReplica"
        )
        self._control(at_ms, "INFO", words)

    def _elect(self, at_ms: int, offline: list[Partition], *, quiet: bool = False) -> None:
        for one in offline:
            able = [b for b in one.replicas if b in self.alive and b in one.isr]
            if able:
                one.leader, one.isr = able[0], able
                one.leader_epoch += 1
                one.version += 1
                assert one.offline_ms is not None
                self.truth.outages.append((one.name, one.offline_ms, at_ms))
                one.offline_ms = None
                self._changed(at_ms, one, "OfflinePartition")
            elif not quiet:
                words = (
                    f"Controller {self.controller} epoch {self.epoch} failed to change state for partition {one.name} "
                )
                self._control(at_ms, "ERROR", words + "from OfflinePartition to OnlinePartition")

    def _changed(self, at_ms: int, one: Partition, before: str) -> None:
        self._control(
            at_ms, "INFO", f"Changed partition {one.name} from {before} to OnlinePartition with state {one.state}"
        )
        for broker in one.isr:
            kind = "Leader" if broker == one.leader else "Follower"
            words = (
                f"[Broker id={broker}] {kind} {one.name} starts at leader epoch {one.leader_epoch} from offset 0 with "
            )
            words += (
                f"partition epoch {one.version}, high watermark 0, ISR [{','.join(map(str, one.isr))}], adding replicas"
            )
            words += " [] and removing replicas [] . Previous leader None and previous leader epoch was -1."
            if kind == "Leader":
                self._say(at_ms + 5, broker, "state-change", "INFO", words)

    def _control(self, at_ms: int, level: str, words: str) -> None:
        prefix = f"[Controller id={self.controller} epoch={self.epoch}] "
        self._say(at_ms, self.controller, "state-change", level, prefix + words)

    def _say(self, at_ms: int, broker: int, log: str, level: str, words: str, logger: str | None = None) -> None:
        shown_ms = at_ms + self.skew_ms.get(broker, 0)
        at = datetime.fromtimestamp(shown_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        line = f"[{at},{shown_ms % 1_000:03d}] {level} {words} ({logger or _LOGGERS[log]})"
        self.lines[broker, log].append((shown_ms, level, line))

    def write(self, folder: Path, level: str, *, bad: bool = False) -> None:
        """A file for each broker, log and hour; `bad` with all that is wrong with real ones."""
        for (broker, log), lines in sorted(self.lines.items()):
            by_hour: dict[int, list[str]] = defaultdict(list)
            for shown_ms, of_level, line in sorted(lines, key=lambda one: one[0]):
                if level == "TRACE" or of_level != "TRACE":
                    by_hour[shown_ms // 3_600_000].append(line)
            for hour, texts in by_hour.items():
                suffix = datetime.fromtimestamp(hour * 3_600, UTC).strftime("%Y-%m-%d-%H")
                path = folder / f"broker{broker}" / f"{log}.log.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_one(path, texts, self.random if bad else None)


def _write_one(path: Path, texts: list[str], chance: random.Random | None) -> None:
    if chance is None:
        path.write_text("\n".join(texts) + "\n")
        return
    for index in range(len(texts) - 1):
        if chance.random() < 0.1:
            texts[index], texts[index + 1] = texts[index + 1], texts[index]
    data = ("\n".join(texts) + "\n").encode()
    data = b"\0\xff\x80 junk \x1b\n" + data + b"[2026-11-18 07:4"  # torn
    if chance.random() < 0.5:
        with gzip.open(path.with_name(f"{path.name}.gz"), "wb") as packed:
            packed.write(data)
    else:
        path.write_bytes(data)
    if chance.random() < 0.3:
        path.with_name(f"{path.name}.copy").write_bytes(data)
