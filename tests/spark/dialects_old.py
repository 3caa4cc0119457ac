"""The words of Kafka before 2.6; see `tests.spark.dialects`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.spark.dialects import CONTROLLER, STATE, Kafka28, Partition, Said, ids


class Kafka11(Kafka28):
    """1.1 to 2.3: all of it at TRACE, and a new controller names of a lost leader only the elected one."""

    def asked(self, one: Partition, epoch: int) -> str:
        return (
            f"PartitionState(controllerEpoch={epoch}, leader={one.leader}, leaderEpoch={one.leader_epoch}, "
            f"isr={ids(one.isr)}, zkVersion={one.version}, replicas={ids(one.replicas)}, isNew=false)"
        )

    def created(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        return [said._replace(level="TRACE") for said in super().created(who, epoch, one)]

    def online(self, who: int, epoch: int, one: Partition, before: str) -> Sequence[Said]:
        return [said._replace(level="TRACE") for said in super().online(who, epoch, one, before)]

    def received(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        [said] = super().received(who, epoch, one, broker, number)
        return [said._replace(words=f"{said.words} for partition {self.name(one)}")]

    def shrunk(self, who: int, epoch: int, one: Partition, broker: int) -> Sequence[Said]:
        return []

    def led(self, one: Partition, broker: int) -> Sequence[Said]:
        return []

    def isr_grew(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"Expanding ISR from {ids(one.isr[:-1])} to {ids(one.isr)}"
        return [
            Said("server", "INFO", f"[Partition {one.name} broker={one.leader}] {words}", "kafka.cluster.Partition")
        ]


class Kafka08(Kafka11):
    """0.8.1, and all to 0.11: partitions as [topic,0], identities in words, epochs by themselves."""

    def by(self, controller: int, epoch: int) -> str:
        return f"Controller {controller} epoch {epoch} "

    def name(self, one: Partition) -> str:
        return f"[{one.topic},{one.number}]"

    def asked(self, one: Partition, epoch: int) -> str:
        return (
            f"(LeaderAndIsrInfo:(Leader:{one.leader},ISR:{ids(one.isr)},LeaderEpoch:{one.leader_epoch},"
            f"ControllerEpoch:{epoch}),ReplicationFactor:{len(one.replicas)}),AllReplicas:{ids(one.replicas)})"
        )

    def elected(self, who: int, epoch: int, alive: dict[int, int]) -> Sequence[Said]:
        return [
            Said("server", "INFO", f"{who} successfully elected as leader", "kafka.server.ZookeeperLeaderElector"),
            Said(
                "controller", "INFO", f"[Controller {who}]: Controller {who} incremented epoch to {epoch}", CONTROLLER
            ),
        ]

    def ready(self, who: int, epoch: int) -> Sequence[Said]:
        words = f"Broker {who} is ready to serve as the new controller with epoch {epoch}"
        return [
            Said("controller", "INFO", f"[Controller {who}]: {text}", CONTROLLER)
            for text in (words, "Controller startup complete")
        ]

    def brokers(
        self, who: int, epoch: int, added: Iterable[int], removed: Iterable[int], alive: dict[int, int]
    ) -> Sequence[Said]:
        words = f"Newly added brokers: {ids(added)}, deleted brokers: {ids(removed)}, all live brokers: "
        where = f"[BrokerChangeListener on Controller {who}]: "
        logger = "kafka.controller.ReplicaStateMachine$BrokerChangeListener"
        return [Said("controller", "INFO", where + words + ids(sorted(alive)), logger)]

    def created(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"changed partition {self.name(one)} state from NonExistentPartition to NewPartition with assigned "
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}replicas {ids(one.replicas)}", STATE)]

    def went_offline(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        [said] = super().went_offline(who, epoch, one)
        return [said._replace(words=said.words.replace("Changed", "changed"))]

    def online(self, who: int, epoch: int, one: Partition, before: str) -> Sequence[Said]:
        words = f"changed partition {self.name(one)} from {before} to OnlinePartition with leader {one.leader}"
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}", STATE)]

    def unclean(self, who: int, one: Partition, leader: int, alive: Iterable[int]) -> Sequence[Said]:
        words = f"[OfflinePartitionLeaderSelector]: No broker in ISR is alive for {self.name(one)}. Elect leader "
        words += f"{leader} from live brokers {ids(alive)}. There's potential data loss."
        return [Said("controller", "WARN", words, "kafka.controller.OfflinePartitionLeaderSelector")]

    def failed(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"initiated state change for partition {self.name(one)} from OfflinePartition to OnlinePartition failed"
        return [Said("state-change", "ERROR", f"{self.by(who, epoch)}{words}", STATE)]

    def shrunk(self, who: int, epoch: int, one: Partition, broker: int) -> Sequence[Said]:
        isr = f'{{"leader":{one.leader},"leader_epoch":{one.leader_epoch},"isr":[{ids(one.isr)}]}}'
        words = f"[Controller {who}]: New leader and ISR for partition {self.name(one)} is {isr}"
        return [Said("controller", "INFO", words, CONTROLLER)]

    def sent(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        [said] = super().sent(who, epoch, one, broker, number)
        words = said.words.replace("Sending", "sending").replace(
            " to broker", f" with correlationId {number} to broker"
        )
        return [said._replace(words=words)]

    def received(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        words = f"Broker {broker} received LeaderAndIsr request {self.asked(one, epoch)} correlation id {number} from "
        words += f"controller {who} epoch {epoch} for partition {self.name(one)}"
        return [Said("state-change", "TRACE", words, STATE)]

    def done(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        part = "leader" if broker == one.leader else "follower"
        words = f"Broker {broker} completed LeaderAndIsr request correlationId {number} from controller {who} "
        words += f"epoch {epoch} for the become-{part} transition for partition {self.name(one)}"
        return [Said("state-change", "TRACE", words, STATE)]

    def answered(self, who: int, epoch: int, broker: int, number: int) -> Sequence[Said]:
        words = f"received response correlationId {number} for a request sent to broker id:{broker},host:b,port:9092"
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}", STATE)]

    def isr_grew(self, who: int, epoch: int, one: Partition) -> Sequence[Said]:
        words = f"Expanding ISR for partition {self.name(one)} from {ids(one.isr[:-1])} to {ids(one.isr)}"
        where = f"Partition {self.name(one)} on broker {one.leader}: "
        return [Said("server", "INFO", where + words, "kafka.cluster.Partition")]

    def starting(self, broker: int) -> Sequence[Said]:
        return [Said("server", "INFO", f"[Kafka Server {broker}], starting", "kafka.server.KafkaServer")]

    def registered(self, broker: int, epoch: int) -> Sequence[Said]:
        words = f"Registered broker {broker} at path /brokers/ids/{broker} with address b{broker}:9092."
        return [Said("server", "INFO", words, "kafka.utils.ZkUtils$")]


class Kafka010(Kafka08):
    """0.10: requests have no number, and neither have answers; requests have the version of a state."""

    def __init__(self) -> None:
        self.asked_of: dict[int, Partition] = {}

    def asked(self, one: Partition, epoch: int) -> str:
        return Kafka11.asked(self, one, epoch)

    def sent(self, who: int, epoch: int, one: Partition, broker: int, number: int) -> Sequence[Said]:
        self.asked_of[number] = one
        [said] = super().sent(who, epoch, one, broker, number)
        return [said._replace(words=said.words.replace(f"with correlationId {number} ", ""))]

    def answered(self, who: int, epoch: int, broker: int, number: int) -> Sequence[Said]:
        asked = f"{{topic={self.asked_of[number].topic},partition={self.asked_of[number].number},error_code=0}}"
        words = f"received response {{error_code=0,partitions=[{asked}]}} for a request "
        words += f"sent to broker b{broker}:9092 (id: {broker} rack: null)"
        return [Said("state-change", "TRACE", f"{self.by(who, epoch)}{words}", STATE)]
