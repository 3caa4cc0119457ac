"""The words of versions of Kafka, and of our controller: the lines of a simulated cluster.

A dialect is asked for the lines of a broker or a controller at one moment: which log, level, words and logger. It knows
nothing of time. Versions differ in identity, in how partitions and states are printed, and in the events that are
logged at all; each class has only its differences from the next newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


class Said(NamedTuple):
    """One line without its time."""

    log: str
    level: str
    words: str
    logger: str


@dataclass
class Partition:
    """As ZooKeeper has it."""

    topic: str
    number: int
    replicas: list[int]
    leader: int
    isr: list[int]
    leader_epoch: int = 0
    version: int = 0
    offline_ms: int | None = None
    led_by: int = -1  # the present or last leader

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


STATE: Final = "state.change.logger"
CONTROLLER: Final = "kafka.controller.KafkaController"


def ids(brokers: Iterable[object], between: str = ",") -> str:
    return between.join(map(str, brokers))


class Kafka39:
    """3.9, and all since 1.1 as far as no class below says otherwise."""

    #: the writer of the line that an ISR grew
    isr_said_by = "leader"
    #: when a partition without anybody to elect is offline: at the move, which is said, or when its state is written
    is_offline_when = "moved"

    def by(self, controller: int, epoch: int) -> str:
        return f"[Controller id={controller} epoch={epoch}] "

    def name(self, one: Partition) -> str:
        return one.name

    def state(self, one: Partition) -> str:
        isr = ids((f"BrokerState(brokerId={b}, brokerEpoch=-1)" for b in one.isr), ", ")
        return (
            f"LeaderAndIsr(leader={one.leader}, leaderEpoch={one.leader_epoch}, isrWithBrokerEpoch=List({isr}), "
            f"leaderRecoveryState=RECOVERED, partitionEpoch={one.version})"
        )

    def asked(self, one: Partition, epoch: int) -> str:
        return (
            f"LeaderAndIsrPartitionState(topicName='{one.topic}', partitionIndex={one.number}, controllerEpoch={epoch},"
            f" leader={one.leader}, leaderEpoch={one.leader_epoch}, isr=[{ids(one.isr, ', ')}], "
            f"partitionEpoch={one.version}, replicas=[{ids(one.replicas, ', ')}], addingReplicas=[], "
            "removingReplicas=[], isNew=false, leaderRecoveryState=0)"
        )

    # lines of controllers about themselves and brokers

    def elected(self, who: int, epoch: int, alive: dict[int, int]) -> Sequence[Said]:
        words = f"{who} successfully elected as the controller. Epoch incremented to {epoch} and epoch zk version is "
        return [
            Said("controller", "INFO", f"[Controller id={who}] {text}", CONTROLLER)
            for text in (f"{words}now {epoch}", f"Initialized broker epochs cache: {self.epochs(alive)}")
        ]

    def epochs(self, alive: dict[int, int]) -> str:
        return f"HashMap({', '.join(f'{broker} -> {epoch}' for broker, epoch in sorted(alive.items()))})"

    def ready(self, who: int, epoch: int) -> Sequence[Said]:
        return [
            Said("controller", "INFO", f"[Controller id={who}] {words}", CONTROLLER)
            for words in (
                f"Ready to serve as the new controller with epoch {epoch}",
                "Starting the controller scheduler",
            )
        ]

    def told(self, who: int, epoch: int, broker: int) -> Sequence[Said]:
        """By a broker that a new controller told of everything, and that has done it."""
        return []

    def all_answered(self, who: int, epoch: int) -> Sequence[Said]:
        """By the controller, once every broker has."""
        return []

    def brokers(
        self, who: int, epoch: int, added: Iterable[int], removed: Iterable[int], alive: dict[int, int]
    ) -> Sequence[Said]:
        words = f"Newly added brokers: {ids(added)}, deleted brokers: {ids(removed)}, bounced brokers: , "
        return [
            Said("controller", "INFO", f"[Controller id={who}] {text}", CONTROLLER)
            for text in (
                f"{words}all live brokers: {ids(sorted(alive))}",
                f"Updated broker epochs cache: {self.epochs(alive)}",
            )
        ]

    # partitions

    def created(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"Changed partition {self.name(one)} state from NonExistentPartition to NewPartition with assigned "
        return [Said("state-change", "INFO", f"{self.by(who, epoch)}{words}replicas {ids(one.replicas)}", STATE)]

    def went_offline(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"Changed partition {self.name(one)} state from OnlinePartition to OfflinePartition"
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}", STATE)]

    def online(self, who: int, epoch: int, one: Partition, before: str) -> Sequence[Said]:
        words = f"Changed partition {self.name(one)} from {before} to OnlinePartition with state {self.state(one)}"
        return [Said("state-change", "INFO", f"{self.by(who, epoch)}{words}", STATE)]

    def unclean(self, who: int, one: Partition, leader: int, alive: Iterable[int]) -> Sequence[Said]:
        """Before a replica out of sync is elected: since 1.1 only the state tells."""
        return []

    def failed(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"Controller {who} epoch {epoch} failed to change state for partition {self.name(one)} from "
        words += "OfflinePartition to OnlinePartition"
        return [Said("state-change", "ERROR", f"{self.by(who, epoch)}{words}", STATE)]

    def shrunk(self, who: int, epoch: int, one: Partition, broker: int) -> Sequence[Said]:
        words = (
            f"Partition {self.name(one)} state changed to (Leader:{one.leader},ISR:{ids(one.isr)},"
            f"LeaderRecoveryState:RECOVERED,LeaderEpoch:{one.leader_epoch},ZkVersion:{one.version},"
            f"ControllerEpoch:{epoch}) after removing replica {broker} from the ISR as part of transition to "
            "OfflineReplica"
        )
        return [Said("state-change", "INFO", f"{self.by(who, epoch)}{words}", STATE)]

    def isr_grew(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"ISR updated to {ids(one.isr)}  and version updated to {one.version}"
        where = f"[Partition {self.name(one)} broker={one.leader}] "
        return [Said("server", "INFO", where + words, "kafka.cluster.Partition")]

    # one request, told by both sides

    def sent(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        part = "leader" if broker == one.leader else "follower"
        words = f"Sending become-{part} LeaderAndIsr request {self.asked(one, epoch)} to broker {broker} for partition "
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}{self.name(one)}", STATE)]

    def received(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        words = f"[Broker id={broker}] Received LeaderAndIsr request {self.asked(one, epoch)} correlation id {number} "
        return [Said("state-change", "TRACE", f"{words}from controller {who} epoch {epoch}", STATE)]

    def done(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        part = "leader" if broker == one.leader else "follower"
        words = f"[Broker id={broker}] Completed LeaderAndIsr request correlationId {number} from controller {who} "
        words += f"epoch {epoch} for the become-{part} transition for partition {self.name(one)}"
        return [*self.led(one, broker), Said("state-change", "TRACE", words, STATE)]

    def led(self, one: Partition, broker: int) -> Sequence[Said]:
        part = "Leader" if broker == one.leader else "Follower"
        words = f"[Broker id={broker}] {part} {self.name(one)} starts at leader epoch {one.leader_epoch} from offset 0 "
        words += f"with partition epoch {one.version}, high watermark 0"
        if part == "Leader":
            words += f", ISR [{ids(one.isr)}], adding replicas [] and removing replicas [] . Previous leader None and "
            words += "previous leader epoch was -1."
        else:
            words += f". Current leader is {one.leader}."
        return [Said("state-change", "INFO", words, STATE)]

    def answered(self, who: int, epoch: int, broker: int, number: int) -> Sequence[Said]:
        words = "Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=[]) for request "
        words += f"LEADER_AND_ISR with correlation id {number} sent to broker b{broker}:9092 (id: {broker} rack: null)"
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}", STATE)]

    # brokers of themselves

    def starting(self, broker: int) -> Sequence[Said]:
        words = f"Creating /brokers/ids/{broker} (is it secure? false)"
        return [
            Said("server", "INFO", "starting", "kafka.server.KafkaServer"),
            Said("server", "INFO", words, "kafka.zk.KafkaZkClient"),
        ]

    def registered(self, broker: int, epoch: int) -> Sequence[Said]:
        words = f"Registered broker {broker} at path /brokers/ids/{broker} with addresses: PLAINTEXT://b{broker}:9092, "
        return [Said("server", "INFO", f"{words}czxid (broker epoch): {epoch}", "kafka.zk.KafkaZkClient")]

    def chatter(self, broker: int, at_ms: int) -> Sequence[Said]:
        return [Said("server", "INFO", f"Nothing to clean at {at_ms}", "kafka.log.LogCleaner")]


class Kafka28(Kafka39):
    """2.6 to 2.8: the versions of states are still ZooKeeper's."""

    def state(self, one: Partition) -> str:
        return (
            f"LeaderAndIsr(leader={one.leader}, leaderEpoch={one.leader_epoch}, isr=List({ids(one.isr, ', ')}), "
            f"zkVersion={one.version})"
        )

    def asked(self, one: Partition, epoch: int) -> str:
        return super().asked(one, epoch).replace("partitionEpoch=", "zkVersion=").replace(", leaderRecoveryState=0", "")

    def shrunk(self, who: int, epoch: int, one: Partition, broker: int) -> Sequence[Said]:
        [said] = super().shrunk(who, epoch, one, broker)
        return [said._replace(words=said.words.replace("LeaderRecoveryState:RECOVERED,", ""))]
